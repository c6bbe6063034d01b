"""A lower triangular matrix times a dense one: the library's `trmm`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cora.autotune.batches import needs_of
from cora.ir.tensor import Tensor
from cora.kernels import RECIPES

__all__ = ["batches", "outputs"]


def outputs() -> Tensor:
    """The product of a triangle and a square matrix; the triangle is stored packed."""
    output: Tensor = RECIPES["trmm"].define()
    return output


def batches(outputs: Sequence[Tensor]) -> list[dict[str, Any]]:
    """One matrix of 384 rows and columns."""
    return [dict.fromkeys(needs_of(outputs).sizes, 384)]
