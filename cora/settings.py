"""The choices that change what `build` makes: one frozen object, part of the cache key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cora.errors import UserError


@dataclass(frozen=True, slots=True)
class Settings:
    """How a kernel is built.

    guards: "prove" removes what is proved; "keep" keeps every guard (same bits in all valid elements; those of a
    tensorized tile become the bounds that it is called with).
    solver: "z3", or "off" for interval reasoning and the refuter alone (more guards, never wrong code).
    solver_rlimit: the resource limit of one query; deterministic, unlike a clock.
    check_indices: whether indices read from data are range-checked before each launch.
    cache: whether kernels are kept on disk; cache_dir: where (None: the user's cache folder).
    dump: a folder that receives every stage of each build as text (None: nothing is written).

    Folders may be given as strings. Raises UserError for a value that is none of these.
    """

    guards: Literal["prove", "keep"] = "prove"
    solver: Literal["z3", "off"] = "z3"
    solver_rlimit: int = 200_000
    check_indices: bool = True
    cache: bool = True
    cache_dir: Path | None = None
    dump: Path | None = None

    def __post_init__(self) -> None:
        for name, choices in (("guards", ("prove", "keep")), ("solver", ("z3", "off"))):
            if getattr(self, name) not in choices:
                expected = " or ".join(repr(c) for c in choices)
                raise UserError(f"Settings: {name} must be {expected}; got {getattr(self, name)!r}")
        for name in ("check_indices", "cache"):
            if not isinstance(getattr(self, name), bool):
                raise UserError(f"Settings: {name} must be a bool; got {getattr(self, name)!r}")
        if type(self.solver_rlimit) is not int or self.solver_rlimit < 1:
            raise UserError(f"Settings: solver_rlimit must be a positive integer; got {self.solver_rlimit!r}")
        for name in ("cache_dir", "dump"):
            folder = getattr(self, name)
            if isinstance(folder, str):
                object.__setattr__(self, name, Path(folder))
            elif folder is not None and not isinstance(folder, Path):
                raise UserError(f"Settings: {name} must be a path; got {folder!r}")
