"""Sizes, dims, lengths, placeholders and computed tensors (DESIGN section 2; paper, Listing 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cora.errors import UserError
from cora.ir import dtypes
from cora.ir.expr import Call, Dim, Expr, ExprLike, Size, cast, wrap
from cora.ir.tensor import Tensor
from cora.ir.ufun import Given, UFun, formal
from cora.ir.visit import substitute
from cora.lang.check import check_body, check_dims, check_name


def size(name: str) -> Size:
    """A run-time size, such as the batch size: a non-negative integer bound by `name` when a batch arrives."""
    return Size(check_name(name, "size"))


@dataclass(frozen=True, slots=True)
class Lengths:
    """A length function: one run-time, non-negative integer per entry of `dims`; `lens[batch]` applies it."""

    name: str
    dims: tuple[Dim, ...]
    fun: UFun

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Call:
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != len(self.dims):
            raise UserError(
                f"{self.name}[...]: expected {len(self.dims)} indices "
                f"[{', '.join(d.name for d in self.dims)}]; got {len(given)}"
            )
        exprs = tuple(wrap(g) for g in given)
        for position, index in enumerate(exprs):
            if not dtypes.is_int(index.dtype):
                raise UserError(
                    f"{self.name}[...]: index {position} must be an integer; got {index} of type {index.dtype}"
                )
        return Call(self.fun, tuple(cast(dtypes.INDEX, e) for e in exprs))


def lengths(name: str, *dims: Dim) -> Lengths:
    """The length function `name`: one run-time integer array with an entry for each index of `dims`.

    Over several dims the array is itself ragged, in row-major order. At run time it is given by name
    (`kernel(x, lens=[3, 0, 5])`) or taken from the arguments that carry it.
    """
    check_name(name, "lengths")
    if not dims:
        raise UserError(f"lengths '{name}': expected at least one dim")
    check_dims(dims, f"lengths '{name}'")
    names: dict[Expr, Expr] = {}
    formals: list[Dim] = []
    for position, d in enumerate(dims):
        renamed = formal(position, substitute(d.extent, names))
        names[d] = renamed
        formals.append(renamed)
    return Lengths(name, dims, UFun(name, tuple(formals), Given()))


def placeholder(name: str, dims: Sequence[Dim], dtype: str = "float32") -> Tensor:
    """An input tensor of shape `[extent of each dim]`.

    Dims come outermost first: a dim whose extent depends on another stands after it. Raises UserError otherwise.
    """
    check_name(name, "placeholder")
    check_dims(dims, f"placeholder '{name}'")
    return Tensor(name, tuple(dims), dtypes.check_stored(dtype, f"placeholder '{name}'"))


def compute(name: str, dims: Sequence[Dim], body: ExprLike, dtype: str | None = None) -> Tensor:
    """The tensor whose element at `dims` is `body`; stored as `dtype` (default: the type of `body`).

    `body` uses the dims as indices, accesses other tensors, and may contain reductions over other dims
    (all over the same dims). Raises UserError for a dim that is not bound, duplicate names, misplaced reductions.
    """
    check_name(name, "compute")
    check_dims(dims, f"compute '{name}'")
    value = wrap(body)
    stored = dtypes.check_stored(dtype or value.dtype, f"compute '{name}'")
    check_body(name, tuple(dims), value)
    return Tensor(name, tuple(dims), stored, value)
