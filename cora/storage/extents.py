"""Extents as counts: a negative extent counts as 0, and a clamp stands only where it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from cora.ir.expr import Binary, Const, Expr, binary
from cora.ir.facts import is_nonnegative


def clamp(e: Expr) -> Expr:
    """The iterations of a loop of extent `e`: `max(e, 0)`, or `e` where that is the same.

    Dims in `e` stand for valid indices, so clamp before substituting other expressions for them.
    """
    return e if is_nonnegative(e) else binary("max", e, 0)


def shortfall(loop: int, storage: Sequence[int], length: int | None) -> int | None:
    """The least length that rounded up to a multiple of `loop` exceeds its storage; None if there is none.

    storage: the length is rounded up to a multiple of each, one after the other, to give the storage extent.
    length: the only length that there is, if it is known.
    """

    def room(n: int) -> int:
        for multiple in storage:
            n = -(-n // multiple) * multiple
        return n

    if length is None and any(multiple % loop == 0 for multiple in storage):
        return None
    # Rounding repeats itself from here on: where `loop` divides none of the multiples, one of these is too long.
    end = lcm(*storage)
    lengths = range(1, min(end, 2**16) + 1) if length is None else (length,)
    too_long = next((n for n in lengths if -(-n // loop) * loop > room(n)), None)
    return end if too_long is None and length is None else too_long


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
