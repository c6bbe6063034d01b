"""A triangular matrix times a dense one (paper, Fig. 9): C = alpha * op(T) @ B, or C = alpha * B @ op(T).

T is n x n and lower or upper triangular; op(T) is T or its transpose. What is not in the triangle is never read,
nor is the diagonal of a unit triangle, which counts as 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cora
from cora.kernels.epilogue import chosen

SIDES = ("left", "right")
TRIANGLES = ("lower", "upper")
STORAGES = ("dense", "packed")


@dataclass(frozen=True, slots=True)
class Triangle:
    """A triangular operand.

    Attributes:
        side: "left": op(T) @ B; "right": B @ op(T).
        uplo: which triangle T is: "lower" or "upper".
        transposed: whether op(T) is the transpose of T.
        unit: whether the diagonal is taken for 1, and not read.
        storage: "dense": n x n numbers, row-major; "packed": only the rows of the triangle, one behind another.
            Row r of a packed lower triangle holds columns 0 to r, of a packed upper one columns r to n - 1.

    Raises:
        UserError: one of them is unknown.
    """

    side: str = "left"
    uplo: str = "lower"
    transposed: bool = False
    unit: bool = False
    storage: str = "dense"

    def __post_init__(self) -> None:
        chosen("side", self.side, SIDES)
        chosen("uplo", self.uplo, TRIANGLES)
        chosen("storage", self.storage, STORAGES)

    @property
    def grows(self) -> bool:
        """Whether element t of the triangular dim of C sums over 0..t; if not, over t..n-1."""
        lower_op = (self.uplo == "lower") != self.transposed
        return lower_op == (self.side == "left")


def trmm(
    side: str = "left",
    uplo: str = "lower",
    *,
    transposed: bool = False,
    unit: bool = False,
    storage: str = "dense",
    alpha: bool = False,
) -> cora.Tensor:
    """The output C[i, j], n x width from the left, width x n from the right; its sizes are `n` and `width`.

    The inputs are, in the order of their use:
        alpha: float32, a scalar (of shape []), only if asked for; else 1.
        T: float32, the triangle: [row, column] if dense, packed rows otherwise.
        B: float32, dense and of the shape of C.

    Args:
        side, uplo, transposed, unit, storage: see `Triangle`.
        alpha: whether the product is multiplied by a scalar.

    Raises:
        UserError: an unknown side, triangle or storage.
    """
    triangle = Triangle(side, uplo, transposed, unit, storage)
    n, width = cora.size("n"), cora.size("width")
    i = cora.Dim("i", n if side == "left" else width)
    j = cora.Dim("j", width if side == "left" else n)
    t = i if side == "left" else j
    own = 1 if unit else 0  # the diagonal is not in the sum
    p = cora.Dim("p", t + 1 - own if triangle.grows else n - t - own)
    # Where the sum shrinks it begins at the far end, which is the same for all rows.
    at: Any = p if triangle.grows else n - 1 - p
    # op(T) has the rows of C from the left, and its columns from the right.
    row, column = (t, at) if (side == "left") != transposed else (at, t)
    element = _element(triangle, row, column)
    B = cora.placeholder("B", [cora.Dim("x", i.extent), cora.Dim("y", j.extent)])
    value: Any = cora.sum(element * (B[at, j] if side == "left" else B[i, at]), over=p)
    if unit:
        value = value + B[i, j]
    if alpha:
        value = cora.placeholder("alpha", [])[()] * value
    return cora.compute("C", [i, j], value)


def _element(triangle: Triangle, row: Any, column: Any) -> Any:
    """T[row, column], wherever it is stored."""
    n = cora.size("n")
    r = cora.Dim("row", n)
    if triangle.storage == "dense":
        return cora.placeholder("T", [r, cora.Dim("column", n)])[row, column]
    if triangle.uplo == "lower":
        return cora.placeholder("T", [r, cora.Dim("column", r + 1)])[row, column]
    return cora.placeholder("T", [r, cora.Dim("column", n - r)])[row, column - row]
