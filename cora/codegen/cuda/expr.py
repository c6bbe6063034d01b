"""Expressions of a kernel to TIR: scalars, one thread's view.

Index arithmetic is int64 in the program; here it is done in `Context.index`, int32 unless told otherwise: half the
registers and a fraction of the instructions. Values read from tensors keep their 64 bits, and what is computed from
them has 64. Whether 32 suffice for a batch is checked before its first launch (`cora.codegen.cuda.ranges`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tvm import tirx as T  # noqa: N812

from cora.codegen.cuda.scope import CudaScope
from cora.codegen.nodes import Tir, TirBuffer, const, int_value
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
from cora.ir.stmt import Buffer
from cora.ir.visit import children, repeated

_IN_MEMORY: Final = {"float16": "uint16", "bfloat16": "uint16", "bool": "int8"}
_INT32: Final = range(-(2**31), 2**31)
_FUNCTIONS: Final = {
    "float32": {
        "exp": "expf", "log": "logf", "sqrt": "sqrtf", "tanh": "tanhf", "erf": "erff", "abs": "fabsf", "fma": "fmaf",
    },
    "float64": {"exp": "exp", "log": "log", "sqrt": "sqrt", "tanh": "tanh", "erf": "erf", "abs": "fabs", "fma": "fma"},
}  # fmt: skip
_HELPERS: Final = {op: f"cora_{op}" for op in ("rsqrt", "gelu", "gelu_tanh", "sigmoid")}


@dataclass(frozen=True, slots=True)
class Value:
    """A scalar of a C type; nonneg: known to be at least 0."""

    tir: Tir
    dtype: str
    nonneg: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """Where emission stands: the open block, what names mean, and shared sub-expressions bound in this block.

    definitions: what index variables stand for, over those that are bound by loops.
    """

    scope: CudaScope
    index: str
    values: Mapping[Expr, Value]
    buffers: Mapping[Buffer, TirBuffer]
    definitions: Mapping[Expr, Expr] = field(default_factory=dict)
    memo: dict[Expr, Value] = field(default_factory=dict)
    shared: frozenset[Expr] = frozenset()

    def child(self) -> Context:
        """The same place in a new inner block."""
        return replace(self, scope=self.scope.child(), memo=dict(self.memo))

    def with_value(self, name: Expr, value: Value) -> Context:
        """`name` stands for `value` from here."""
        return replace(self, values={**self.values, name: value})


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


def bound(c: Context, value: Value, hint: str) -> Value:
    """`value`, computed at this point."""
    return replace(value, tir=c.scope.bind(value.tir, hint))


def _compute(c: Context, e: Expr) -> Value:
    match e:
        case Const(value=v, type="int64"):
            return index_constant(c, int(v))
        case Const(value=v, type=t):
            compute = dtypes.compute_type(t)
            return Value(const(v, compute), compute, nonneg=dtypes.is_int(t) and v >= 0)
        case Size() | Var():
            value = c.values.get(e)
            if value is None:
                raise InternalError(f"code generation: {type(e).__name__} '{e}' is not defined here")
            return value
        case Binary(op="and", a=a, b=b):
            return _select(c, Select(a, b, FALSE)) if _reads(b) else _logic(T.And, _expr(c, a), _expr(c, b))
        case Binary(op="or", a=a, b=b):
            return _select(c, Select(a, TRUE, b)) if _reads(b) else _logic(T.Or, _expr(c, a), _expr(c, b))
        case Binary(op=op, a=a, b=b):
            return _binary(op, _expr(c, a), _expr(c, b), data=a.dtype != dtypes.INDEX)
        case Unary(op=op, a=a):
            return _unary(c, op, _expr(c, a))
        case Fma(a=x, b=y, c=z):
            args = [_expr(c, p) for p in (x, y, z)]
            dtype = args[0].dtype
            return Value(_call(dtype, _FUNCTIONS[dtype]["fma"], *(a.tir for a in args)), dtype)
        case Cast(type=t, a=a):
            value = _expr(c, a)
            if t == dtypes.INDEX and _is_table(a):
                return value
            return _cast(value, t)
        case Select():
            return _select(c, e)
        case Read(buffer=buffer, offset=offset):
            return load(c, buffer, _expr(c, offset))
        case LaneReduce(op=op, buffer=buffer, offset=offset, lanes=lanes):
            first = _expr(c, offset)
            total = load(c, buffer, first)
            for lane in range(1, lanes):
                place = _binary("add", first, index_constant(c, lane))
                total = bound(c, combine(op, load(c, buffer, place), total), op)
            return total
    raise InternalError(f"code generation of {type(e).__name__}: {e}")


def index_constant(c: Context, value: int) -> Value:
    """An index literal, in 64 bits if it needs them."""
    dtype = c.index if value in _INT32 else "int64"
    return Value(const(value, dtype), dtype, nonneg=value >= 0)


def combine(op: str, new: Value, so_far: Value) -> Value:
    """One partial result of sum, prod, max or min with another."""
    return _binary({"sum": "add", "prod": "mul"}.get(op, op), new, so_far, data=True)


def _call(dtype: str, name: str, *args: Tir) -> Tir:
    return T.call_pure_extern(dtype, name, *args)


def _widened(a: Value, dtype: str) -> Value:
    if a.dtype == dtype:
        return a
    literal = int_value(a.tir)
    return replace(a, tir=T.Cast(dtype, a.tir) if literal is None else const(literal, dtype), dtype=dtype)


def _binary(op: str, a: Value, b: Value, *, data: bool = False) -> Value:
    """`a op b`; integers that are data wrap around, indices are known not to."""
    if {a.dtype, b.dtype} == {"int32", "int64"}:
        a, b = _widened(a, "int64"), _widened(b, "int64")
    if a.dtype != b.dtype:
        raise InternalError(f"'{op}' of {a.dtype} and {b.dtype}: operands must have one type")
    is_float = dtypes.is_float(a.dtype)
    match op:
        case "add" | "sub" | "mul":
            if data and a.dtype == "int32":
                return Value(_call("int32", f"cora_wrap_{op}", a.tir, b.tir), "int32")
            return _ring(op, a, b)
        case "div":
            return Value(T.Div(a.tir, b.tir), a.dtype)
        case "floordiv" | "mod":
            return _divide(op, a, b)
        case "min" | "max" if is_float:
            return Value(_call(a.dtype, f"cora_{op}", a.tir, b.tir), a.dtype)
        case "min" | "max":
            both = a.nonneg and b.nonneg
            either = a.nonneg or b.nonneg
            node = T.Min if op == "min" else T.Max
            return Value(node(a.tir, b.tir), a.dtype, nonneg=both or (op == "max" and either))
        case "lt":
            return Value(T.LT(a.tir, b.tir), "bool")
        case "le":
            return Value(T.LE(a.tir, b.tir), "bool")
        case "eq":
            return Value(T.EQ(a.tir, b.tir), "bool")
        case "ne":
            return Value(T.Not(T.EQ(a.tir, b.tir)), "bool")
    raise InternalError(f"code generation of operation {op!r}")


def _ring(op: str, a: Value, b: Value) -> Value:
    nonneg = op != "sub" and a.nonneg and b.nonneg
    if dtypes.is_float(a.dtype):
        node = {"add": T.Add, "sub": T.Sub, "mul": T.Mul}[op]
        return Value(node(a.tir, b.tir), a.dtype)
    p, q = int_value(a.tir), int_value(b.tir)
    if p is not None and q is not None:
        value = {"add": p + q, "sub": p - q, "mul": p * q}[op]
        if a.dtype == "int64" or value in _INT32:
            return Value(const(value, a.dtype), a.dtype, nonneg=value >= 0)
    if (op == "mul" and 0 in (p, q)) or (op == "mul" and q == 1) or (op in ("add", "sub") and q == 0):
        return Value(const(0, a.dtype), a.dtype, nonneg=True) if op == "mul" and q != 1 else a
    if (op == "add" and p == 0) or (op == "mul" and p == 1):
        return b
    node = {"add": T.Add, "sub": T.Sub, "mul": T.Mul}[op]
    return Value(node(a.tir, b.tir), a.dtype, nonneg=nonneg)


def _divide(op: str, a: Value, b: Value) -> Value:
    nonneg = b.nonneg and (op == "mod" or a.nonneg)
    k = int_value(b.tir)
    if k is not None and k > 0:
        if k & (k - 1) == 0:  # a shift and a mask round down for both signs
            if op == "mod":
                return Value(T.bitwise_and(a.tir, const(k - 1, a.dtype)), a.dtype, nonneg=True)
            return Value(T.shift_right(a.tir, const(k.bit_length() - 1, a.dtype)), a.dtype, nonneg=a.nonneg)
        if a.nonneg:
            return Value((T.Div if op == "floordiv" else T.Mod)(a.tir, b.tir), a.dtype, nonneg=True)
    return Value(_call(a.dtype, f"cora_{op}", a.tir, b.tir), a.dtype, nonneg=nonneg)


def _logic(node: object, a: Value, b: Value) -> Value:
    return Value(node(a.tir, b.tir), "bool")  # type: ignore[operator]


def _unary(c: Context, op: str, a: Value) -> Value:
    match op:
        case "not":
            return Value(T.Not(a.tir), "bool")
        case "neg" if dtypes.is_float(a.dtype):
            return Value(T.Sub(const(-0.0, a.dtype), a.tir), a.dtype)
        case "neg":
            return _binary("sub", Value(const(0, a.dtype), a.dtype), a, data=a.dtype == "int32")
        case "abs" if not dtypes.is_float(a.dtype):
            value = bound(c, a, "x")
            negative = _ring("sub", Value(const(0, a.dtype), a.dtype), value)
            return Value(T.Select(T.LT(value.tir, const(0, a.dtype)), negative.tir, value.tir), a.dtype)
        case _ if op in _HELPERS:
            return Value(_call(a.dtype, _HELPERS[op], a.tir), a.dtype)
    return Value(_call(a.dtype, _FUNCTIONS[a.dtype][op], a.tir), a.dtype)


def _is_table(e: Expr) -> bool:
    return isinstance(e, Read) and e.buffer.scope == "table"


def _cast(a: Value, dtype: str) -> Value:
    """`a` as `dtype`: rounded to it where it is a type of storage."""
    value = convert(a, dtypes.compute_type(dtype))
    if dtype == dtypes.compute_type(dtype):
        return value
    return decode(encode(value, dtype), dtype)


def convert(a: Value, dtype: str) -> Value:
    """`a` in another type of arithmetic; floats to integers truncate and saturate, NaN becomes 0."""
    if a.dtype == dtype:
        return a
    if dtype == "bool":
        return Value(T.Not(T.EQ(a.tir, const(0, a.dtype))), "bool")
    if a.dtype == "bool":
        return Value(T.Select(a.tir, const(1, dtype), const(0, dtype)), dtype, nonneg=True)
    if dtypes.is_float(a.dtype) and dtypes.is_int(dtype):
        return Value(_call(dtype, f"cora_to_{dtype}", a.tir), dtype)
    literal = int_value(a.tir)
    if literal is not None and dtypes.is_int(dtype):
        return _widened(a, dtype)
    return Value(T.Cast(dtype, a.tir), dtype, nonneg=a.nonneg and dtypes.is_int(dtype))


def memory_dtype(dtype: str) -> str:
    """The type of the words in memory: 16-bit floats are carried as uint16, bool as bytes of value 0 or 1."""
    return _IN_MEMORY.get(dtype, dtype)


def find(c: Context, buffer: Buffer) -> TirBuffer:
    """The TIR buffer of `buffer`; InternalError if it is neither a parameter nor allocated here."""
    found = c.buffers.get(buffer)
    if found is None:
        raise InternalError(f"code generation: buffer '{buffer.name}' is not defined here")
    return found


def load(c: Context, buffer: Buffer, offset: Value) -> Value:
    """The element at `offset`, in the type of arithmetic; entries of tables are indices."""
    raw = T.BufferLoad(find(c, buffer), [offset.tir])
    if buffer.scope == "table":
        value = raw if buffer.dtype == c.index else T.Cast(c.index, raw)
        return Value(value, c.index, nonneg=True)
    return decode(raw, buffer.dtype)


def store(c: Context, buffer: Buffer, offset: Value, value: Value) -> None:
    """Write `value`, converted to the type of `buffer`."""
    c.scope.add(T.BufferStore(find(c, buffer), encode(value, buffer.dtype), [offset.tir]))


def decode(raw: Tir, dtype: str) -> Value:
    """An element as it lies in memory, in the type of arithmetic."""
    match dtype:
        case "bfloat16" | "float16":
            return Value(_call("float32", f"cora_from_{dtype}", raw), "float32")
        case "int8":
            return Value(T.Cast("int32", raw), "int32")
        case "bool":
            return Value(T.Not(T.EQ(raw, const(0, "int8"))), "bool")
    return Value(raw, dtype)


def encode(value: Value, dtype: str) -> Tir:
    """`value` as an element of `dtype` lies in memory; rounds to nearest, ties to even."""
    x = convert(value, dtypes.compute_type(dtype)).tir
    match dtype:
        case "bfloat16" | "float16":
            return _call("uint16", f"cora_to_{dtype}", x)
        case "int8":
            return T.Cast(dtype, x)
        case "bool":
            return T.Select(x, const(1, "int8"), const(0, "int8"))
    return x


def _reads(e: Expr) -> bool:
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
    """Lazy, as C++'s `?:` is; a branch that needs statements of its own becomes a branch of the program."""
    cond = _expr(c, e.cond)
    inner, outer = c.child(), c.child()
    then, other = _expr(inner, e.then), _expr(outer, e.other)
    then, other = _one_type(then, other)
    nonneg = then.nonneg and other.nonneg
    if inner.scope.empty and outer.scope.empty:
        return Value(T.Select(cond.tir, then.tir, other.tir), then.dtype, nonneg)
    stored = memory_dtype(then.dtype)
    slot = c.scope.alloc("slot", stored, 1)
    zero = const(0, "int32")
    for block, value in ((inner, then), (outer, other)):
        block.scope.add(T.BufferStore(slot, encode(value, then.dtype), [zero]))
    c.scope.add(T.IfThenElse(cond.tir, inner.scope.stmt(), outer.scope.stmt()))
    chosen = bound(c, decode(T.BufferLoad(slot, [zero]), then.dtype), "chosen")
    return replace(chosen, nonneg=nonneg)


def _one_type(a: Value, b: Value) -> tuple[Value, Value]:
    if {a.dtype, b.dtype} == {"int32", "int64"}:
        return _widened(a, "int64"), _widened(b, "int64")
    return a, b
