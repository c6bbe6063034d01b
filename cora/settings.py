"""The choices that change what `build` makes: one frozen object, part of the cache key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Settings:
    """How a kernel is built.

    guards: "prove" removes what is proved; "keep" keeps every guard (same bits in all valid elements).
    solver: "z3", or "off" for interval reasoning and the refuter alone (more guards, never wrong code).
    solver_rlimit: the resource limit of one query; deterministic, unlike a clock.
    check_indices: whether indices read from data are range-checked before each launch.
    cache: whether kernels are kept on disk; cache_dir: where (None: the user's cache folder).
    dump: a folder that receives every stage of each build as text (None: nothing is written).
    """

    guards: Literal["prove", "keep"] = "prove"
    solver: Literal["z3", "off"] = "z3"
    solver_rlimit: int = 200_000
    check_indices: bool = True
    cache: bool = True
    cache_dir: Path | None = None
    dump: Path | None = None
