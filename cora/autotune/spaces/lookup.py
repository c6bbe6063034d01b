"""The space of a program, by name or from its definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec

from cora.autotune.spaces.candidate import Space
from cora.autotune.spaces.cuda import cuda_space
from cora.autotune.spaces.generic import LIMIT, generic_space
from cora.codegen.cuda.target import resolve_cuda
from cora.ir.tensor import Tensor

__all__ = ["space_of"]


def space_of(
    outputs: Sequence[Tensor], name: str = "", limit: int = LIMIT, seed: int = 0, *, target: object = "llvm"
) -> Space:
    """The candidates for a program.

    name: of a library kernel. Where `cora.autotune.spaces.<name>` exists, its `space(outputs, limit, seed)` is asked.
    target: what they are for; GPUs have a space of their own, `cuda_space`.
    limit, seed: how many candidates the generic space lists at most, and which: see `generic_space`.
    """
    if resolve_cuda(target) is not None:
        return cuda_space(outputs, name, limit)
    module = f"{__package__}.{name}"
    if name.isidentifier() and find_spec(module) is not None:
        made: Callable[[Sequence[Tensor], int, int], Space] | None = getattr(
            import_module(module), "space", None
        )
        if made is not None:
            return made(outputs, limit, seed)
    return generic_space(outputs, limit, seed)
