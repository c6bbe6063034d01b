"""Expressions to TIR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from tvm import tirx as T  # noqa: N812

from cora.codegen import arith, memory, vecmath
from cora.codegen.nodes import Tir, const, splat
from cora.codegen.values import Context, Value, below, find, index_constant
from cora.errors import InternalError
from cora.ir import dtypes
from cora.ir.expr import (
    FALSE,
    TRUE,
    Binary,
    Cast,
    Const,
    Expr,
    Fma,
    LaneReduce,
    Read,
    Select,
    Size,
    Unary,
    Var,
)
from cora.ir.visit import children, repeated


def evaluate(c: Context, e: Expr) -> Value:
    """The value of `e`, computed in the open block; a sub-expression that occurs twice is computed once."""
    return _expr(replace(c, memo={}, shared=repeated(e)), e)


def _expr(c: Context, e: Expr) -> Value:
    known = c.memo.get(e)
    if known is not None:
        return known
    value = _compute(c, e)
    if e in c.shared:
        value = bound(c, value, "common")
        c.memo[e] = value
    return value


def _compute(c: Context, e: Expr) -> Value:
    match e:
        case Const(value=v, type="int64"):
            return index_constant(int(v))
        case Const(value=v, type=t):
            literal = const(v, dtypes.compute_type(t))
            return Value(literal, dtypes.compute_type(t), nonneg=dtypes.is_int(t) and v >= 0)
        case Size() | Var():
            return _name(c, e)
        case Binary(op=("and" | "or") as op, a=a, b=b) if reads_memory(b):
            return _lazy_logic(c, op, a, b)
        case Binary(op=op, a=a, b=b):
            return arith.binary(c.scope, op, _expr(c, a), _expr(c, b))
        case Unary(op=op, a=a):
            return arith.unary(c.scope, op, _expr(c, a))
        case Fma(a=x, b=y, c=z):
            return arith.fma(_expr(c, x), _expr(c, y), _expr(c, z))
        case Cast(type=t, a=a):
            return _cast(c, _expr(c, a), t)
        case Select():
            return _select(c, e)
        case Read(buffer=buffer, offset=offset):
            value = memory.load(c, buffer, _expr(c, offset))
            if buffer.scope == "table":
                return replace(value, nonneg=True, small=value.dtype == "int64")
            return value
        case LaneReduce():
            return _lane_reduce(c, e)
    raise InternalError(f"code generation of {type(e).__name__}: {e}")


def _name(c: Context, e: Expr) -> Value:
    value = c.values.get(e)
    if value is None:
        raise InternalError(f"code generation: {type(e).__name__} '{e}' is not defined here")
    return value


def _cast(c: Context, a: Value, dtype: str) -> Value:
    if dtype == dtypes.compute_type(dtype):
        return arith.convert(a, dtype)
    # rounded to a type of storage, and carried on in the type of arithmetic
    return memory.decode(memory.encode(c, a, dtype), dtype, a.lanes)


def bound(c: Context, value: Value, hint: str) -> Value:
    """`value`, computed at this point."""
    if value.count is not None:
        count = c.scope.bind(value.count, hint)
        return replace(value, tir=below(count, value.lanes), count=count)
    return replace(value, tir=c.scope.bind(value.tir, hint))


def reads_memory(e: Expr) -> bool:
    """Whether evaluating `e` could touch memory that must not be touched."""
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if isinstance(node, (Read, LaneReduce)):
            return True
        if node not in seen:
            seen.add(node)
            stack.extend(children(node))
    return False


def _select(c: Context, e: Select) -> Value:
    """Lazy: a branch that reads memory runs only where it is chosen."""
    cond = _expr(c, e.cond)
    if not (reads_memory(e.then) or reads_memory(e.other)):
        return arith.select(cond, _expr(c, e.then), _expr(c, e.other))
    cond = bound(c, cond, "cond")
    if cond.uniform:
        return _branch(c, cond.tir, e)
    then = _expr_where(c, cond, e.then)
    other = _expr_where(c, arith.unary(c.scope, "not", cond), e.other)
    return arith.select(cond, then, other)


def _lazy_logic(c: Context, op: Literal["and", "or"], a: Expr, b: Expr) -> Value:
    """`i < n and A[i]`: the right side runs only where the left side leaves it open."""
    left = bound(c, _expr(c, a), "left")
    if left.uniform:
        return _branch(c, left.tir, Select(a, b, FALSE) if op == "and" else Select(a, TRUE, b))
    is_open = left if op == "and" else arith.unary(c.scope, "not", left)
    return arith.binary(c.scope, op, left, _expr(restrict(c, is_open), b))


def _expr_where(c: Context, cond: Value, e: Expr) -> Value:
    return _expr(restrict(c, cond), e) if reads_memory(e) else _expr(c, e)


def restrict(c: Context, cond: Value) -> Context:
    """The lanes of `c` where the varying `cond` holds."""
    if c.mask is not None:
        cond = arith.binary(c.scope, "and", c.mask.value(c.lanes), cond)
    return c.under(cond)


def _branch(c: Context, cond: Tir, e: Select) -> Value:
    """A choice that all lanes make together: a branch."""
    inner, outer = c.child(), c.child()
    then, other = _expr(inner, e.then), _expr(outer, e.other)
    lanes = max(then.lanes, other.lanes)
    if inner.scope.empty and outer.scope.empty:
        chosen = T.if_then_else(cond, then.over(lanes), other.over(lanes))
        return _merged(c.scope.bind(chosen, "chosen"), then, other, lanes)
    # Both branches have statements: the value goes through a local array, which LLVM keeps in registers.
    stored, pack, unpack = _slot(then.dtype)
    slot = c.scope.alloc("slot", stored, lanes)
    place = memory.consecutive(index_constant(0), lanes)
    for block, value in ((inner, then), (outer, other)):
        packed = pack(value.over(value.lanes), value.lanes)
        packed = splat(packed, lanes) if value.uniform else packed
        block.scope.add(T.BufferStore(slot, packed, [place]))
    c.scope.add(T.IfThenElse(cond, inner.scope.stmt(), outer.scope.stmt()))
    result = c.scope.bind(unpack(T.BufferLoad(slot, [place]), lanes), "chosen")
    return _merged(result, then, other, lanes)


def _merged(tir: Tir, then: Value, other: Value, lanes: int) -> Value:
    nonneg, small = then.nonneg and other.nonneg, then.small and other.small
    return Value(tir, then.dtype, lanes, nonneg=nonneg, small=small)


_Convert = Callable[[Tir, int], Tir]


def _slot(dtype: str) -> tuple[str, _Convert, _Convert]:
    """The type in which a local array keeps values of `dtype`, and the ways there and back."""
    if dtype != "bool":
        return dtype, lambda x, _: x, lambda x, _: x
    return (
        "int8",
        lambda x, lanes: arith.bool_to_number("int8", x, lanes),
        lambda x, lanes: memory.decode(x, "bool", lanes).tir,
    )


def _lane_reduce(c: Context, e: LaneReduce) -> Value:
    offset = _expr(c, e.offset)
    if not offset.uniform or c.mask is not None:
        raise InternalError(f"LaneReduce of '{e.buffer.name}': not inside a masked vector statement")
    place = memory.consecutive(offset, e.lanes)
    raw = T.BufferLoad(find(c, e.buffer), [place])
    x = memory.decode(raw, e.buffer.dtype, e.lanes)
    vector = c.scope.bind(x.tir, "lanes")
    if e.lanes == 1:
        return replace(x, tir=vector)
    combined = vecmath.horizontal(c.scope, e.op, vector, x.dtype, e.lanes)
    if e.op == "prod" and dtypes.is_float(x.dtype):
        combined = arith.rounded(combined, x.dtype, 1)
    return Value(c.scope.bind(combined, e.op), x.dtype)
