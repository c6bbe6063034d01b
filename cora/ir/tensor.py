"""Ragged tensors of a definition: placeholders (inputs) and computed tensors."""

from __future__ import annotations

from dataclasses import dataclass

from cora.errors import UserError
from cora.ir import dtypes
from cora.ir.expr import Access, Dim, Expr, ExprLike, wrap
from cora.ir.node import Node


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor(Node):
    """A tensor of shape `[extent of each dim]`; `body` is None for an input.

    `T[i, j]` gives the element at any integer expressions i, j: a dim, `row + 1`, `idx[b, p]`.
    The definition says nothing about storage: layouts belong to schedules and arrays.
    """

    name: str
    dims: tuple[Dim, ...]
    dtype: str
    body: Expr | None = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Access:
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != self.ndim:
            raise UserError(
                f"{self.name}[...]: expected {self.ndim} indices "
                f"[{', '.join(d.name for d in self.dims)}]; got {len(given)}"
            )
        exprs = tuple(wrap(g) for g in given)
        for dim, index in zip(self.dims, exprs, strict=True):
            if not dtypes.is_int(index.dtype):
                raise UserError(
                    f"{self.name}[...]: the index of dim '{dim.name}' must be an integer; "
                    f"got {index} of type {index.dtype}"
                )
        return Access(self, tuple(_as_index(e) for e in exprs))

    def __iter__(self) -> None:
        raise UserError(f"tensor {self.name} cannot be iterated over; index it with dims")

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(d.name for d in self.dims)}]: {self.dtype}"

    __repr__ = __str__


def _as_index(e: Expr) -> Expr:
    from cora.ir.expr import cast

    return cast(dtypes.INDEX, e)
