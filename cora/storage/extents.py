"""Extents as counts: a negative extent counts as 0, and a clamp stands only where it is needed."""

from __future__ import annotations

from cora.ir.expr import Binary, Const, Expr, binary
from cora.ir.facts import is_nonnegative


def clamp(e: Expr) -> Expr:
    """The iterations of a loop of extent `e`: `max(e, 0)`, or `e` where that is the same.

    Dims in `e` stand for valid indices, so clamp before substituting other expressions for them.
    """
    return e if is_nonnegative(e) else binary("max", e, 0)


def product(factors: list[Expr]) -> Expr:
    """The product of `factors` in the order given, with one literal, which stands last."""
    coefficient = 1
    result: Expr | None = None
    for factor in factors:
        for term in _factors(factor):
            if isinstance(term, Const):
                coefficient *= int(term.value)
            else:
                result = term if result is None else result * term
    constant = Const(coefficient)
    return constant if result is None else result * constant


def _factors(e: Expr) -> tuple[Expr, ...]:
    """`x * constant` as two factors; anything else as it stands."""
    match e:
        case Binary(op="mul", a=a, b=Const() as b):
            return (*_factors(a), b)
        case _:
            return (e,)
