"""The space of attention: the library's schedule with its innermost loops in many shapes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from cora.autotune.catalogue.attention import program
from cora.autotune.spaces.candidate import DEFAULT, Candidate, Space, default_candidate
from cora.autotune.spaces.generic import generic_space
from cora.ir.fingerprint import fingerprint
from cora.ir.tensor import Tensor
from cora.kernels.attention.definition import Program
from cora.kernels.attention.schedules import TILING, Tiling, schedule, stored
from cora.tune import grid_neighbors, seeded_order

__all__ = ["space"]

#: Values that are tried of each field of `Tiling`, besides those that the library uses.
_TRIED: Mapping[str, tuple[Any, ...]] = {
    "rows": (2, 3, 4, 6, 8, 12),
    "columns": (16, 32, 48, 64, 128),
    "lanes": (8, 16, 32, 64),
    "keys": ("batch", "group"),
    "values": (False, True),
}
SIZES: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {axis: tuple(sorted({*values, getattr(TILING, axis)})) for axis, values in _TRIED.items()}
)
STORED = "library:stored"


@dataclass(frozen=True, slots=True)
class _Named:
    """A candidate that has a name, but no steps yet."""

    id: str


@dataclass(frozen=True)
class AttentionSpace:
    """The default, all scores stored, and scores of a block at a time in every tiling; each is made when asked for."""

    program: Program
    limit: int

    @cached_property
    def points(self) -> Mapping[str, tuple[int, ...]]:
        """Places along the axes of SIZES, by id."""
        places = itertools.product(*(range(len(values)) for values in SIZES.values()))
        return {_id(_tiling(place)): place for place in places}

    @cached_property
    def near(self) -> Mapping[str, tuple[str, ...]]:
        """Which tilings differ by one step along one axis."""
        return grid_neighbors(dict(self.points))

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids, in the order of the enumeration: what the library uses comes before what it does not."""
        used = _id(TILING)
        return (DEFAULT, used, STORED, *(id for id in self.points if id != used))[: self.limit]

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """See Space."""
        return tuple(map(self._made, self.ids))

    def ordered(self, seed: int) -> Iterator[Candidate]:
        """See Space."""
        for named in sorted(
            seeded_order([_Named(id) for id in self.ids], seed), key=lambda c: c.id != DEFAULT
        ):
            yield self._made(named.id)

    def neighbors(self, id: str) -> tuple[Candidate, ...]:
        """See Space: of the default and of stored scores, what the library uses."""
        return tuple(map(self._made, self.near.get(id, (_id(TILING),))))

    def _made(self, id: str) -> Candidate:
        if id == DEFAULT:
            return default_candidate(self.program.outputs)
        made = (
            stored(self.program) if id == STORED else schedule(self.program, tiling=_tiling(self.points[id]))
        )
        return Candidate(id, made.steps)


def space(outputs: Sequence[Tensor], limit: int, seed: int) -> Space:
    """The space of the library's attention; of another program the generic one."""
    known = program()
    if fingerprint(tuple(outputs)) != fingerprint(known.outputs):
        return generic_space(outputs, limit, seed)
    return AttentionSpace(known, limit)


def _tiling(place: Sequence[int]) -> Tiling:
    return Tiling(**{name: values[at] for (name, values), at in zip(SIZES.items(), place, strict=True)})


def _id(tiling: Tiling) -> str:
    return "library:fused," + ",".join(f"{name}={getattr(tiling, name)}" for name in SIZES)
