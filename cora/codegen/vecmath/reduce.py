"""Extrema that propagate NaN, and reductions over the lanes of a vector."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import tirx as T  # noqa: N812
from tvm.ir import Expr as PrimExpr

from cora.codegen.vecmath.lanes import Emitter, Lanes, lanes_of
from cora.errors import UnsupportedError


def maximum(e: Emitter, a: PrimExpr, b: PrimExpr, dtype: str, lanes: int) -> PrimExpr:
    """`numpy.maximum`: the larger one, NaN if either is NaN; of two zeros, `b`.

    `Max` is `a > b ? a : b`, one instruction on x86, and already gives `b` where `b` is NaN; only a
    NaN in `a` needs a compare, which becomes the mask of that instruction (AVX-512). **Give the
    running value of a reduction as `b`**: the compare is then off its critical path. llvm.maximum
    also orders the two zeros, which makes it three to four times as slow.
    """
    return _extremum(e, T.Max, a, b, dtype, lanes)


def minimum(e: Emitter, a: PrimExpr, b: PrimExpr, dtype: str, lanes: int) -> PrimExpr:
    """`numpy.minimum`: the smaller one, NaN if either is NaN; of two zeros, `b`. See `maximum`."""
    return _extremum(e, T.Min, a, b, dtype, lanes)


def horizontal(e: Emitter, op: str, x: PrimExpr, dtype: str, lanes: int) -> PrimExpr:
    """The scalar reduction of `x` over its lanes: sum, prod, max or min; and, or of a bool vector.

    Halves are combined, then halves of the result: lane i meets lane i + lanes/2 first. The order
    is the same on every machine, and `max` and `min` propagate NaN. Integers are accepted too.
    """
    if dtype == "bool":
        return _horizontal_bool(op, x, lanes)
    if op not in ("sum", "prod", "max", "min"):
        raise UnsupportedError(f"horizontal reduction {op!r} of {dtype}")
    while lanes > 1:
        lanes //= 2
        x = e.bind(x, "h")
        low, high = lanes_of(x, range(lanes)), lanes_of(x, range(lanes, 2 * lanes))
        x = _combine(e, op, low, high, dtype, lanes)
    return x


def _combine(e: Emitter, op: str, a: PrimExpr, b: PrimExpr, dtype: str, lanes: int) -> PrimExpr:
    match op:
        case "sum":
            return a + b
        case "prod":
            return a * b
        case "max":
            return maximum(e, a, b, dtype, lanes)
        case _:
            return minimum(e, a, b, dtype, lanes)


def _horizontal_bool(op: str, x: PrimExpr, lanes: int) -> PrimExpr:
    if op not in ("and", "or"):
        raise UnsupportedError(f"horizontal reduction {op!r} of bool")
    if lanes == 1:
        return x
    return T.call_llvm_pure_intrin("bool", f"llvm.vector.reduce.{op}.v{lanes}i1", x)


def _extremum(
    e: Emitter,
    node: Callable[[PrimExpr, PrimExpr], PrimExpr],
    a: PrimExpr,
    b: PrimExpr,
    dtype: str,
    lanes: int,
) -> PrimExpr:
    if not dtype.startswith("float"):
        return node(a, b)
    v = Lanes(e, dtype, lanes)
    a, b = v.bind(a, "a"), v.bind(b, "b")
    # False only for NaN; LLVM makes one "is ordered" compare of it.
    return T.Select(a <= v.of(math.inf), node(a, b), a)
