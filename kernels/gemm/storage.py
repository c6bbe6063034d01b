"""How the operands of a batch of products are stored: a choice of the schedule, not of the definition."""

from __future__ import annotations

from dataclasses import dataclass

import cora
from cora.kernels.epilogue import chosen

ORDERS = ("row", "column")

#: The two dims of each matrix of a product, in row-major order.
_DIMS = {"A": ("i", "p"), "B": ("p", "j"), "C0": ("i", "j"), "C": ("i", "j")}


@dataclass(frozen=True, slots=True)
class Storage:
    """Order and padding of the matrices.

    Attributes:
        a, b, c: "row": rows are adjacent numbers; "column": columns are (what BLAS calls transposed). C0 is
            stored like C.
        padded: every matrix has room for the largest m, n and k of the batch, as the paper stores them; what is
            beyond a matrix is neither read nor written. Otherwise matrices are packed, one behind another.
        multiple: rows (columns, where those are adjacent) are padded to a multiple of so many numbers: with 4, a GPU
            reads and writes 16 bytes at once.

    Raises:
        UserError: an unknown order, or a multiple below 1.
    """

    a: str = "row"
    b: str = "row"
    c: str = "row"
    padded: bool = False
    multiple: int = 1

    def __post_init__(self) -> None:
        for name in ("a", "b", "c"):
            chosen(f"Storage: {name}", getattr(self, name), ORDERS)
        if self.multiple < 1:
            raise cora.UserError(f"Storage: multiple: expected a positive integer; got {self.multiple}")

    @property
    def swapped(self) -> bool:
        """Whether micro-kernels compute the transpose: their vectors lie along adjacent elements of C."""
        return self.c == "column"

    @property
    def vectors_adjacent(self) -> bool:
        """Whether the operand that is read in vectors has them adjacent in memory."""
        return (self.a == "column") if self.swapped else (self.b == "row")

    def applied(self, s: cora.Schedule) -> cora.Schedule:
        """The schedule with the tensors of a `vgemm` stored so."""
        orders = {"A": self.a, "B": self.b, "C0": self.c, "C": self.c}
        for tensor in s.tensors:
            if tensor.name not in orders:
                continue
            outer, inner = _DIMS[tensor.name]
            if orders[tensor.name] == "column":
                s = s.reorder_dims(tensor, "batch", inner, outer)
            if self.padded:
                for dim in (outer, inner):
                    s = s.pad_dim(tensor, dim, to_max=True, contents="undefined")
            if self.multiple > 1:
                adjacent = outer if orders[tensor.name] == "column" else inner
                s = s.pad_dim(tensor, adjacent, self.multiple, to_max=self.padded, contents="undefined")
        return s
