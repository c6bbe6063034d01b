"""The result of the interpreter for one output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cora.interp.points import Domain
from cora.ir.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reference:
    """What the valid elements of a computed tensor are, by definition.

    values: `[number of valid elements]`, row-major order of the dims; float64 (not rounded to the
      stored type), int64 (wrapped to the stored type) or bool.
    error: float64, same shape: a first-order bound on the error of a kernel that computes in the
      declared types, one epsilon per operation (`cora.interp.approx`); to be compared as
      `|kernel - values| <= factor * error`.
    """

    tensor: Tensor
    domain: Domain
    values: NDArray[Any]
    error: NDArray[np.float64]

    def indices(self) -> NDArray[np.int64]:
        """The index tuple of each value, `[number of valid elements, number of dims]`."""
        return self.domain.tuples()

    def rows(self) -> list[NDArray[Any]]:
        """The values of each row along the last dim, in row-major order (a scalar: one row)."""
        if not self.domain.extents:
            return [self.values]
        return np.split(self.values, np.cumsum(self.domain.extents[-1])[:-1])

    def to_list(self) -> Any:
        """The values as nested lists of numbers, one level per dim; a number for a scalar."""
        level: list[Any] = self.values.tolist()
        for extents in reversed(self.domain.extents):
            ends = np.cumsum(extents)
            level = [level[end - n : end] for end, n in zip(ends, extents, strict=True)]
        return level[0]

    def __repr__(self) -> str:
        return f"Reference({self.tensor}, {self.to_list()})"
