"""Reading and writing flat buffers: element types in memory, contiguous, strided and gathered, under masks.

No lane that does not run touches memory: its address may lie behind the end of a buffer. Local arrays have room for
all lanes; they are read and written whole, with the lanes that do not run left as they are, so that LLVM keeps them in
registers.
"""

from __future__ import annotations

from tvm import tirx as T  # noqa: N812

from cora.codegen import arith
from cora.codegen.abi import memory_dtype
from cora.codegen.nodes import Tir, TirBuffer, const, filled, i64, intrinsic, lane_of, ramp, typed
from cora.codegen.values import Context, Mask, Value, find, zero
from cora.errors import InternalError
from cora.ir import dtypes
from cora.ir.expr import Const
from cora.ir.stmt import Buffer

_INT64_MIN = -(2**63)


def load(c: Context, source: Buffer, offset: Value) -> Value:
    """The elements at `offset`, in the type of arithmetic; lanes that do not run get 0."""
    raw, lanes = _load_raw(c, source, offset)
    return decode(raw, source.dtype, lanes)


def _has_all_lanes(buffer: Buffer, offset: Value, lanes: int) -> bool:
    """Whether lanes that do not run have elements of their own all the same."""
    match buffer.scope, buffer.size:
        case "local", Const(value=int(size)):
            return offset.step == 1 and size % lanes == 0
    return False


def _load_raw(c: Context, source: Buffer, offset: Value) -> tuple[Tir, int]:
    mask, buffer, stored = c.mask, find(c, source), memory_dtype(source.dtype)
    if offset.uniform:
        if mask is None:
            return T.BufferLoad(buffer, [offset.tir]), 1
        guarded = T.if_then_else(mask.any, T.BufferLoad(buffer, [offset.tir]), const(0, stored))
        return c.scope.bind(guarded, "r"), 1
    lanes = offset.lanes
    if mask is None:
        return T.BufferLoad(buffer, [offset.over(lanes)]), lanes
    if _has_all_lanes(source, offset, lanes):
        return T.Select(mask.vector, T.BufferLoad(buffer, [offset.over(lanes)]), zero(stored, lanes)), lanes
    if offset.step == 1:
        loaded = T.op.masked_load(typed(stored, lanes), buffer, offset.over(lanes), mask.vector)
        return T.Select(mask.vector, loaded, zero(stored, lanes)), lanes
    index = _active_indices(c, mask, offset)
    gathered = T.if_then_else(mask.any, T.BufferLoad(buffer, [index]), zero(stored, lanes))
    loaded = c.scope.bind(gathered, "gathered")
    return T.Select(mask.vector, loaded, zero(stored, lanes)), lanes


def _active_indices(c: Context, mask: Mask, offset: Value) -> Tir:
    """`offset` with the lanes that do not run moved to the place of one that does (if any does)."""
    lanes = offset.lanes
    index = c.scope.bind(offset.over(lanes), "index")
    if mask.count is not None:  # lane 0 runs if any does
        place = offset.tir if offset.step else lane_of(index, 0)
    else:
        lowest = filled(_INT64_MIN, "int64", lanes)
        place = intrinsic("int64", "vector.reduce.smax", T.Select(mask.vector, index, lowest))
    safe = T.Select(mask.vector, index, T.Broadcast(place, lanes))
    return c.scope.bind(safe, "safe")


def consecutive(offset: Value, lanes: int) -> Tir:
    """The index of `lanes` consecutive elements from the uniform `offset`."""
    return ramp(offset.tir, 1, lanes)


def store(c: Context, target: Buffer, offset: Value, value: Value) -> None:
    """Write `value`, converted to the buffer's type, to `offset` in the lanes that run."""
    buffer, dtype = find(c, target), target.dtype
    raw = encode(c, value, dtype)
    lanes = max(offset.lanes, value.lanes)
    mask = c.mask
    if lanes == 1:
        write = T.BufferStore(buffer, raw, [offset.tir])
        c.scope.add(write if mask is None else T.IfThenElse(mask.any, write, None))
        return
    vector = raw if value.lanes > 1 else T.Broadcast(raw, lanes)
    if offset.step == 1:
        place = offset.over(lanes)
        if mask is None:
            write = T.BufferStore(buffer, vector, [place])
        elif _has_all_lanes(target, offset, lanes):
            kept = T.Select(mask.vector, vector, T.BufferLoad(buffer, [place]))
            write = T.BufferStore(buffer, kept, [place])
        else:
            write = T.Evaluate(T.op.masked_store(buffer, _fenced(vector, dtype, lanes), place, mask.vector))
        c.scope.add(write)
        return
    _scatter(c, buffer, vector, offset, lanes)


def _fenced(vector: Tir, dtype: str, lanes: int) -> Tir:
    """`vector`, as it goes to a masked store of `dtype`, through a fence if its elements were truncated from int32.

    LLVM would make a truncating masked store of the two, and, where just one lane of a constant mask is on, a store
    of that lane before truncation: four bytes, over the neighbours (LLVM 22 for x86).
    """
    if dtype not in ("int8", "bfloat16"):
        return vector
    stored = memory_dtype(dtype)
    bits = 8 * lanes * dtypes.itemsize(dtype)
    carrier = f"float{bits}" if bits < 64 else typed("float64", bits // 64)
    fenced = intrinsic(carrier, "arithmetic.fence", T.reinterpret(carrier, vector))
    return T.reinterpret(typed(stored, lanes), fenced)


def _scatter(c: Context, buffer: TirBuffer, vector: Tir, offset: Value, lanes: int) -> None:
    """Lane by lane, so that of equal places the last lane wins."""
    vector = c.scope.bind(vector, "scattered")
    index = offset.tir if offset.linear else c.scope.bind(offset.tir, "index")
    for lane in range(lanes):
        place = T.Add(index, i64(lane * offset.step)) if offset.linear else lane_of(index, lane)
        write = T.BufferStore(buffer, lane_of(vector, lane), [place])
        if c.mask is not None:
            write = T.IfThenElse(lane_of(c.mask.vector, lane), write, None)
        c.scope.add(write)


def decode(raw: Tir, dtype: str, lanes: int) -> Value:
    """An element as it lies in memory, in the type of arithmetic."""
    match dtype:
        case "bfloat16":
            word = T.shift_left(T.Cast(typed("uint32", lanes), raw), filled(16, "uint32", lanes))
            return Value(T.reinterpret(typed("float32", lanes), word), "float32", lanes)
        case "float16":
            return Value(T.Cast(typed("float32", lanes), raw), "float32", lanes)
        case "int8":
            return Value(T.Cast(typed("int32", lanes), raw), "int32", lanes)
        case "bool":
            return Value(T.Not(T.EQ(raw, filled(0, "int8", lanes))), "bool", lanes)
        case _:
            return Value(raw, dtype, lanes)


def encode(c: Context, value: Value, dtype: str) -> Tir:
    """`value` as an element of `dtype` lies in memory; rounds to nearest, ties to even.

    A float64 becomes a 16-bit float by way of float32.
    """
    if dtype not in dtypes.STORED:
        raise InternalError(f"a buffer of type {dtype!r}: expected one of {dtypes.STORED}")
    value = arith.convert(value, dtypes.compute_type(dtype))
    x, lanes = value.over(value.lanes), value.lanes
    match dtype:
        case "bfloat16":
            return _to_bfloat16(c, x, lanes)
        case "float16":
            return T.Cast(typed("float16", lanes), x)
        case "int8":
            return T.Cast(typed("int8", lanes), x)
        case "bool":
            return arith.bool_to_number("int8", x, lanes)
        case _:
            return x


def _to_bfloat16(c: Context, x: Tir, lanes: int) -> Tir:
    """The upper half of float32 after rounding; a NaN keeps its upper bits and becomes quiet."""

    def word(value: int) -> Tir:
        return filled(value, "uint32", lanes)

    x = c.scope.bind(x, "x")
    bits = c.scope.bind(T.reinterpret(typed("uint32", lanes), x), "bits")
    upper = c.scope.bind(T.shift_right(bits, word(16)), "upper")
    odd = T.bitwise_and(upper, word(1))
    rounded = T.shift_right(T.Add(bits, T.Add(odd, word(0x7FFF))), word(16))
    quiet = T.bitwise_or(upper, word(0x40))
    chosen = T.Select(T.EQ(x, x), rounded, quiet)
    return T.Cast(typed("uint16", lanes), chosen)
