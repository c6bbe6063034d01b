"""The GPU that code is made for: an architecture, always named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from cora.errors import UnsupportedError, UserError

#: The architecture of target "cuda": code for it runs on every newer one of the same major version.
DEFAULT_ARCH: Final = "sm_80"
#: The oldest architecture: asynchronous copies, `max.NaN`, and the compiler's support begin there.
OLDEST: Final = 80


@dataclass(frozen=True, slots=True)
class CudaTarget:
    """An NVIDIA GPU by architecture, e.g. "sm_80" (A100) or "sm_90" (H100); "sm_90a" uses what only that one has.

    index_bits: the width of index arithmetic. With 32, a batch whose offsets need more is refused by its plan.
    """

    arch: str
    index_bits: Literal[32, 64] = 32

    @property
    def index(self) -> str:
        """The type of index arithmetic."""
        return f"int{self.index_bits}"

    @property
    def key(self) -> str:
        """Text that is equal for equal targets only."""
        return f"cuda|{self.arch}|{self.index}"


def resolve_cuda(target: object) -> CudaTarget | None:
    """The GPU that the user asked for; None if `target` is no CUDA target.

    A GPU is "cuda" (DEFAULT_ARCH), a CudaTarget, or a TVM target (or the dict that makes one) of kind cuda, with its
    arch; a dict may also have index_bits. Raises UserError for an arch that is none, UnsupportedError for
    one that is too old.
    """
    match target:
        case CudaTarget():
            return target
        case "cuda":
            return CudaTarget(DEFAULT_ARCH)
        case Mapping():
            config: dict[str, Any] = dict(target)
        case _:
            export = getattr(target, "export", None)
            config = {} if export is None else {str(k): v for k, v in dict(export()).items()}
    if config.get("kind") != "cuda":
        return None
    arch = str(config.get("arch", ""))
    found = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if found is None:
        raise UserError(f"target: kind 'cuda' needs an arch such as 'sm_80' or 'sm_90'; got {arch!r}")
    if int(found[1]) < OLDEST:
        raise UnsupportedError(
            f"target: arch {arch!r} is older than sm_{OLDEST}, the oldest that code is made for"
        )
    bits = config.get("index_bits", 32)
    if bits not in (32, 64):
        raise UserError(f"target: index_bits must be 32 or 64; got {bits!r}")
    return CudaTarget(arch, bits)
