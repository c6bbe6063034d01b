"""The space of batches of products."""

from __future__ import annotations

from collections.abc import Sequence

from cora.autotune.spaces.candidate import Space
from cora.autotune.spaces.library import library_space
from cora.ir.tensor import Tensor
from cora.kernels import RECIPES

__all__ = ["space"]


def space(outputs: Sequence[Tensor], limit: int, seed: int) -> Space:
    """The library's schedules and the generic ones."""
    return library_space(RECIPES["vgemm"], outputs, limit, seed)
