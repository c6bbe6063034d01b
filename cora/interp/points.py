"""Which index tuples are valid: lists of points, and the ragged domains that they enumerate.

Everything is in row-major order of the dims: the last dim moves fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cora.ir.expr import Dim, Expr

Indices = NDArray[np.int64]
ExtentOf = Callable[[Expr, "Points"], Indices]


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """`count` points: for each dim in scope one vector of `count` indices."""

    count: int
    index: Mapping[Dim, Indices]

    def take(self, which: slice | NDArray[np.int64]) -> Points:
        """The points at the positions `which`."""
        picked = {dim: vector[which] for dim, vector in self.index.items()}
        return Points(len(np.arange(self.count)[which]), picked)

    def expand(self, dim: Dim, extents: Indices) -> Points:
        """Each point p followed by every index of `dim` in 0..extents[p]: `sum(extents)` points."""
        owner = np.repeat(np.arange(self.count), extents)
        inner = np.arange(len(owner)) - np.repeat(starts_of(extents), extents)
        index = {d: vector[owner] for d, vector in self.index.items()}
        return Points(len(owner), {**index, dim: inner})

    def describe(self, position: int) -> str:
        """One point in words: `(batch=1, pos=0)`."""
        return f"({', '.join(f'{d.name}={v[position]}' for d, v in self.index.items())})"


ORIGIN = Points(1, {})


def starts_of(extents: Indices) -> Indices:
    """Where each of consecutive segments of these lengths begins."""
    return np.cumsum(extents) - extents


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """The valid index tuples of `dims`, as a tree: one level per dim.

    `extents[k]` has one entry per valid index tuple of the first k dims: how many indices dim k
    has there.
    """

    dims: tuple[Dim, ...]
    extents: tuple[Indices, ...]

    @property
    def count(self) -> int:
        """Number of valid index tuples."""
        return int(self.extents[-1].sum()) if self.extents else 1

    def same_shape(self, other: Domain) -> bool:
        """Whether both have the same index tuples, whatever their dims are called."""
        return len(self.extents) == len(other.extents) and all(
            np.array_equal(a, b) for a, b in zip(self.extents, other.extents, strict=True)
        )

    def locate(self, indices: Sequence[Indices], count: int) -> Indices:
        """The row-major position of each of `count` index tuples; -1 for one outside the domain."""
        at = np.zeros(count, np.int64)
        for index, extents in zip(indices, self.extents, strict=True):
            # Position -1 (already outside) reads the appended extent 0, so it stays outside.
            inside = (index >= 0) & (index < np.append(extents, 0)[at])
            at = np.where(inside, np.append(starts_of(extents), 0)[at] + index, -1)
        return at

    def fault(self, indices: Sequence[int]) -> tuple[Dim, int, int] | None:
        """The first dim whose index is outside, with that index and the dim's extent there."""
        at = 0
        for dim, index, extents in zip(self.dims, indices, self.extents, strict=True):
            if not 0 <= index < extents[at]:
                return dim, index, int(extents[at])
            at = int(starts_of(extents)[at]) + index
        return None

    def tuples(self) -> Indices:
        """All valid index tuples, `[count, number of dims]`."""
        points = ORIGIN
        for dim, extents in zip(self.dims, self.extents, strict=True):
            points = points.expand(dim, extents)
        columns = [points.index[dim] for dim in self.dims]
        return np.stack(columns, axis=1) if columns else np.zeros((1, 0), np.int64)


def enumerate_domain(dims: Sequence[Dim], extent_of: ExtentOf) -> tuple[Domain, Points]:
    """The domain of `dims` and its points.

    `extent_of` evaluates an extent at the points of the outer dims.
    """
    points = ORIGIN
    levels: list[Indices] = []
    for dim in dims:
        extents = extent_of(dim.extent, points)
        levels.append(extents)
        points = points.expand(dim, extents)
    return Domain(tuple(dims), tuple(levels)), points
