"""A lower triangular matrix times a dense one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cora.ir.expr import Dim
from cora.ir.tensor import Tensor
from cora.lang.define import compute, placeholder, size
from cora.lang.ops import sum as total

__all__ = ["batches", "outputs"]


def outputs() -> Tensor:
    """C[i, j] = sum over k <= i of L[i, k] * B[k, j]; the triangle is stored packed."""
    n = size("N")
    row, column, inner = Dim("i", n), Dim("j", n), Dim("r", n)
    k = Dim("k", row + 1)
    L, B = placeholder("L", [row, k]), placeholder("B", [inner, column])
    return compute("C", [row, column], total(L[row, k] * B[k, column], over=k))


def batches(outputs: Sequence[Tensor]) -> list[dict[str, Any]]:
    """One matrix of 384 rows."""
    return [{"N": 384}]
