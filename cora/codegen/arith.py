"""Arithmetic, comparison, logic and conversion of values.

Integer division rounds towards minus infinity and never traps: dividing by 0 gives 0, as in NumPy, so
that an eager evaluation in a lane that does not run is harmless. int32 wraps around, as in NumPy; int64 is
for indices, and its overflow is undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tvm import tirx as T  # noqa: N812

from cora.codegen import vecmath
from cora.codegen.nodes import Tir, const, filled, i64, int_value, intrinsic, typed
from cora.codegen.scope import Scope
from cora.codegen.values import Value, below, index_constant, prefix
from cora.errors import InternalError
from cora.ir import dtypes
from cora.ir.expr import BinaryOp, UnaryOp

_NODES: Final[dict[str, Callable[[Tir, Tir], Tir]]] = {
    "add": T.Add,
    "sub": T.Sub,
    "mul": T.Mul,
}


def binary(scope: Scope, op: BinaryOp, a: Value, b: Value) -> Value:
    """`a op b` for operands of one type."""
    if a.dtype != b.dtype:
        raise InternalError(f"'{op}' of {a.dtype} and {b.dtype}: operands must have one type")
    match op:
        case "add" | "sub" | "mul":
            return _ring(op, a, b)
        case "div":
            lanes = max(a.lanes, b.lanes)
            divisor = b.over(lanes)
            if not isinstance(divisor, T.FloatImm):
                # TVM's analyzer folds what it can, in code that never runs too, and fails where a divisor becomes 0.
                # A call is opaque to it; LLVM knows that x with the sign of x is x.
                divisor = intrinsic(typed(b.dtype, lanes), "copysign", divisor, divisor)
            return Value(T.Div(a.over(lanes), divisor), a.dtype, lanes)
        case "floordiv" | "mod":
            return _divide(scope, op, a, b)
        case "min" | "max":
            return _extremum(scope, op, a, b)
        case "lt" | "le" | "eq" | "ne":
            return _compare(op, a, b)
        case "and" | "or":
            return _logic(op, a, b)


def _ring(op: str, a: Value, b: Value) -> Value:
    small = a.small and b.small
    nonneg = op != "sub" and a.nonneg and b.nonneg
    node = _NODES[op]
    lanes = max(a.lanes, b.lanes)
    if a.dtype == "int64":
        step = _step(op, a, b)
        if step is not None:
            base = _fold(op, a.tir, b.tir)
            return Value(base, "int64", lanes if step else 1, step, nonneg, small)
    x, y = a.over(lanes), b.over(lanes)
    if a.dtype == "int32":
        # In 64 bits the result is exact and its low half is the wrapped one; LLVM narrows it again.
        wide = typed("int64", lanes)
        exact = node(T.Cast(wide, x), T.Cast(wide, y))
        return Value(T.Cast(typed("int32", lanes), exact), "int32", lanes)
    value = node(x, y)
    if op == "mul" and dtypes.is_float(a.dtype):
        value = rounded(value, a.dtype, lanes)
    return Value(value, a.dtype, lanes, nonneg=nonneg, small=small)


def fma(a: Value, b: Value, c: Value) -> Value:
    """`a * b + c` of one floating-point type, rounded once."""
    lanes = max(a.lanes, b.lanes, c.lanes)
    fused = intrinsic(typed(a.dtype, lanes), "fma", a.over(lanes), b.over(lanes), c.over(lanes))
    return Value(fused, a.dtype, lanes)


def rounded(x: Tir, dtype: str, lanes: int) -> Tir:
    """The product `x`, rounded before it is used.

    LLVM would contract it with an addition where both stand in one basic block, which depends on the guards, and
    on whether a lane is in a full vector or in a tail. Which products are fused is decided in `cora.lower.contract`.
    """
    return intrinsic(typed(dtype, lanes), "arithmetic.fence", x)


def _step(op: str, a: Value, b: Value) -> int | None:
    """The difference from lane to lane of `a op b`, where it is one constant; None otherwise."""
    if not (a.linear and b.linear):
        return None
    match op:
        case "add":
            return a.step + b.step
        case "sub":
            return a.step - b.step
    if a.uniform and b.uniform:
        return 0
    for factor, other in ((a, b), (b, a)):
        k = int_value(factor.tir)
        if factor.uniform and k is not None:
            return other.step * k
    return None


def _fold(op: str, x: Tir, y: Tir) -> Tir:
    """An int64 node; literals are combined and neutral elements dropped."""
    p, q = int_value(x), int_value(y)
    match op:
        case "add":
            if p is not None and q is not None:
                return i64(p + q)
            return y if p == 0 else x if q == 0 else T.Add(x, y)
        case "sub":
            if p is not None and q is not None:
                return i64(p - q)
            return x if q == 0 else T.Sub(x, y)
        case _:
            if p is not None and q is not None:
                return i64(p * q)
            if p == 0 or q == 0:
                return i64(0)
            return y if p == 1 else x if q == 1 else T.Mul(x, y)


def _extremum(scope: Scope, op: str, a: Value, b: Value) -> Value:
    lanes = max(a.lanes, b.lanes)
    x, y = a.over(lanes), b.over(lanes)
    if dtypes.is_float(a.dtype):
        function = vecmath.minimum if op == "min" else vecmath.maximum
        return Value(function(scope, x, y, a.dtype, lanes), a.dtype, lanes)
    node = T.Min if op == "min" else T.Max
    nonneg = (a.nonneg and b.nonneg) if op == "min" else (a.nonneg or b.nonneg)
    return Value(node(x, y), a.dtype, lanes, nonneg=nonneg, small=a.small and b.small)


def _divide(scope: Scope, op: str, a: Value, b: Value) -> Value:
    lanes = max(a.lanes, b.lanes)
    divisor = int_value(b.tir) if b.uniform else None
    nonneg = b.nonneg and (op == "mod" or a.nonneg)
    x = a.over(lanes)
    if divisor is not None and divisor > 0:
        result = _by_constant(scope, op, x, divisor, a, lanes)
    elif a.nonneg and b.nonneg:
        result = _by_nonneg(scope, op, x, b.over(lanes), a.dtype, lanes)
    else:
        result = _by_any(scope, op, x, b.over(lanes), a.dtype, lanes)
    return Value(result, a.dtype, lanes, nonneg=nonneg, small=a.small and b.small)


def _by_constant(scope: Scope, op: str, x: Tir, k: int, a: Value, lanes: int) -> Tir:
    """Floor division by a literal `k` > 0."""
    if k & (k - 1) == 0:  # an arithmetic shift and a mask round down for both signs
        if op == "mod":
            return T.bitwise_and(x, filled(k - 1, a.dtype, lanes))
        return T.shift_right(x, filled(k.bit_length() - 1, a.dtype, lanes))
    divisor = filled(k, a.dtype, lanes)
    if a.nonneg:
        return (T.Div if op == "floordiv" else T.Mod)(x, divisor)
    x = scope.bind(x, "x")
    rest = scope.bind(T.Mod(x, divisor), "rest")
    below_zero = T.LT(rest, filled(0, a.dtype, lanes))
    return _round_down(op, T.Div(x, divisor), rest, below_zero, divisor, a.dtype, lanes)


def _round_down(op: str, quotient: Tir, rest: Tir, adjust: Tir, divisor: Tir, dtype: str, lanes: int) -> Tir:
    """Floor quotient or remainder from the truncated ones; `adjust`: where they differ."""
    if op == "mod":
        return T.Select(adjust, T.Add(rest, divisor), rest)
    return T.Select(adjust, T.Sub(quotient, filled(1, dtype, lanes)), quotient)


def _opaque_max(y: Tir, k: float, dtype: str, lanes: int) -> Tir:
    """`max(y, k)` as a call, which TVM's analyzer does not look into.

    It would find that the divisor is y where y is not 0, and then divide by 0 where it looks at y = 0.
    """
    return intrinsic(typed(dtype, lanes), "smax", y, filled(k, dtype, lanes))


def _by_nonneg(scope: Scope, op: str, x: Tir, y: Tir, dtype: str, lanes: int) -> Tir:
    """Division of two non-negative numbers, 0 where the divisor is 0."""
    y = scope.bind(y, "divisor")
    safe = _opaque_max(y, 1, dtype, lanes)
    result = T.Div(x, safe) if op == "floordiv" else T.Mod(x, safe)
    return T.Select(T.EQ(y, filled(0, dtype, lanes)), filled(0, dtype, lanes), result)


def _by_any(scope: Scope, op: str, x: Tir, y: Tir, dtype: str, lanes: int) -> Tir:
    """Floor division of any two integers, 0 where the divisor is 0; lowest // -1 is lowest, as in NumPy.

    The processor traps on a divisor of 0, and on lowest / -1, so it gets neither.
    """
    none, one, minus = (filled(k, dtype, lanes) for k in (0, 1, -1))
    x, y = scope.bind(x, "x"), scope.bind(y, "divisor")
    special = T.Or(T.EQ(y, none), T.EQ(y, minus))
    safe = scope.bind(_opaque_max(T.Select(special, one, y), dtypes.lowest(dtype), dtype, lanes), "safe")
    rest = scope.bind(T.Mod(x, safe), "rest")
    signs_differ = T.LT(T.bitwise_xor(rest, safe), none)
    adjust = T.And(T.Not(T.EQ(rest, none)), signs_differ)
    floor = _round_down(op, T.Div(x, safe), rest, adjust, safe, dtype, lanes)
    if op == "mod":
        return T.Select(special, none, floor)
    negated = T.Add(T.bitwise_not(x), one)
    return T.Select(T.EQ(y, none), none, T.Select(T.EQ(y, minus), negated, floor))


def _compare(op: str, a: Value, b: Value) -> Value:
    lanes = max(a.lanes, b.lanes)
    if a.dtype == "int64" and op in ("lt", "le") and a.small and b.small:
        counted = _count_below(op, a, b, lanes)
        if counted is not None:
            return counted
    x, y = a.over(lanes), b.over(lanes)
    if a.dtype == "bool":
        x, y = bool_to_number("int32", x, lanes), bool_to_number("int32", y, lanes)
    match op:
        case "lt":
            result = T.LT(x, y)
        case "le":
            result = T.LE(x, y)
        case "eq":
            result = T.EQ(x, y)
        case _:  # not T.NE: for floats LLVM gets an ordered comparison, false for NaN
            result = T.Not(T.EQ(x, y))
    return Value(result, "bool", lanes)


def _count_below(op: str, a: Value, b: Value, lanes: int) -> Value | None:
    """`a < b` (or <=) as a prefix of the lanes, where it is one: `step * lane + rest` grows by 1 per lane."""
    if not (a.linear and b.linear) or a.step - b.step != 1:
        return None
    rest = _fold("sub", b.tir, a.tir)  # the lanes with lane < rest
    return prefix(_fold("add", rest, i64(1)) if op == "le" else rest, lanes)


def _logic(op: str, a: Value, b: Value) -> Value:
    lanes = max(a.lanes, b.lanes)
    count = None
    if lanes > 1:
        x, y = _count(a, lanes), _count(b, lanes)
        if x is not None and y is not None:
            count = (T.Min if op == "and" else T.Max)(x, y)
            return Value(below(count, lanes), "bool", lanes, count=count)
    node = T.And if op == "and" else T.Or
    return Value(node(a.over(lanes), b.over(lanes)), "bool", lanes)


def _count(a: Value, lanes: int) -> Tir | None:
    return T.Select(a.tir, i64(lanes), i64(0)) if a.uniform else a.count


def unary(scope: Scope, op: UnaryOp, a: Value) -> Value:
    """`op(a)`."""
    x, lanes = a.over(a.lanes), a.lanes
    match op:
        case "not":
            return Value(T.Not(x), "bool", lanes)
        case "neg" if dtypes.is_float(a.dtype):
            return Value(T.Sub(filled(-0.0, a.dtype, lanes), x), a.dtype, lanes)
        case "neg":
            return _ring("sub", integer(0, a.dtype), a)
        case "abs" if dtypes.is_float(a.dtype):
            return Value(intrinsic(typed(a.dtype, lanes), "fabs", x), a.dtype, lanes)
        case "abs":
            x = scope.bind(x, "x")
            negative = _ring("sub", integer(0, a.dtype), Value(x, a.dtype, lanes)).tir
            chosen = T.Select(T.LT(x, filled(0, a.dtype, lanes)), negative, x)
            return Value(chosen, a.dtype, lanes, nonneg=a.small, small=a.small)
        case _:
            value = vecmath.math(scope, op, x, a.dtype, lanes)
            return Value(rounded(value, a.dtype, lanes), a.dtype, lanes)


def integer(value: int, dtype: str) -> Value:
    """An integer literal."""
    if dtype == "int64":
        return index_constant(value)
    return Value(const(value, dtype), dtype, nonneg=value >= 0)


def bool_to_number(dtype: str, x: Tir, lanes: int) -> Tir:
    """1 where the bool `x` holds, 0 elsewhere."""
    return T.Select(x, filled(1, dtype, lanes), filled(0, dtype, lanes))


def convert(a: Value, dtype: str) -> Value:
    """`a` in another type of arithmetic; floats to integers truncate and saturate, NaN becomes 0."""
    if a.dtype == dtype:
        return a
    x, lanes = a.over(a.lanes), a.lanes
    to = typed(dtype, lanes)
    if dtype == "bool":
        return Value(T.Not(T.EQ(x, filled(0, a.dtype, lanes))), "bool", lanes)
    if a.dtype == "bool":
        number = bool_to_number(dtype, x, lanes)
        return Value(number, dtype, lanes, nonneg=True, small=dtype == "int64")
    if dtypes.is_float(a.dtype) and dtypes.is_int(dtype):
        # LLVM's plain conversion is undefined out of range, which no guard behind it could repair.
        return Value(intrinsic(to, "fptosi.sat", x), dtype, lanes)
    small = dtypes.is_int(a.dtype) and dtype == "int64"
    return Value(T.Cast(to, x), dtype, lanes, nonneg=a.nonneg and small, small=small)


def select(cond: Value, then: Value, other: Value) -> Value:
    """`then` where `cond` holds, else `other`; both are evaluated."""
    nonneg, small = then.nonneg and other.nonneg, then.small and other.small
    if cond.uniform and then.linear and other.linear and then.step == other.step:
        lanes, step = max(then.lanes, other.lanes), then.step
        base = T.Select(cond.tir, then.tir, other.tir)
        return Value(base, then.dtype, lanes, step, nonneg, small)
    lanes = max(cond.lanes, then.lanes, other.lanes)
    pick = cond.over(cond.lanes)
    chosen = T.Select(pick, then.over(lanes), other.over(lanes))
    return Value(chosen, then.dtype, lanes, nonneg=nonneg, small=small)
