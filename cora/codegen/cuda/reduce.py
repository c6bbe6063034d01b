"""Reductions over the threads of a block: butterflies of warp shuffles, then through shared memory beyond a warp.

The order in which values are combined depends on the number of threads alone.
"""

from __future__ import annotations

from typing import Final

from tvm import tirx as T  # noqa: N812

from cora.codegen.cuda.expr import Context, Value, combine, decode, encode
from cora.codegen.cuda.launches import Launch
from cora.codegen.nodes import Tir, TirBuffer, const
from cora.errors import InternalError
from cora.ir.expr import Const
from cora.ir.stmt import LoopKind, ThreadReduce
from cora.schedule.threads import WARP

_ALL_LANES: Final = 0xFFFFFFFF


def emit_thread_reduce(
    c: Context,
    s: ThreadReduce,
    values: TirBuffer,
    positions: TirBuffer | None,
    launch: Launch,
    axes: dict[LoopKind, Tir],
) -> None:
    """Append what combines the buffers of the threads along threadIdx.x, as `ThreadReduce` says."""
    if not isinstance(s.buffer.size, Const):
        raise InternalError(f"'{s.buffer.name}': the size must be a constant; got {s.buffer.size}")
    for slot in range(int(s.buffer.size.value)):
        place = const(slot, "int32")
        value = decode(T.BufferLoad(values, [place]), s.buffer.dtype)
        at = None if positions is None else T.BufferLoad(positions, [place])
        pair = _Pair(c, s.op, value, at)
        pair = _within_warp(pair, min(s.threads, WARP))
        if s.threads > WARP:
            pair = _across_warps(pair, s.threads // WARP, launch, axes)
        c.scope.add(T.BufferStore(values, encode(pair.value, s.buffer.dtype), [place]))
        if positions is not None and pair.at is not None:
            c.scope.add(T.BufferStore(positions, pair.at, [place]))


class _Pair:
    """A value and, for argmax and argmin, its position; both bound."""

    def __init__(self, c: Context, op: str, value: Value, at: Tir | None) -> None:
        self.c = c
        self.op = op
        self.value = Value(c.scope.bind(value.tir, "part"), value.dtype)
        self.at = None if at is None else c.scope.bind(at, "at")

    def with_other(self, other: Value, at: Tir | None) -> _Pair:
        """The two combined."""
        if self.at is None or at is None:
            return _Pair(self.c, self.op, combine(self.op, other, self.value), None)
        other = Value(self.c.scope.bind(other.tir, "other"), other.dtype)
        at = self.c.scope.bind(at, "other_at")
        name = "cora_beats_max" if self.op == "argmax" else "cora_beats_min"
        better = T.call_pure_extern("bool", name, other.tir, at, self.value.tir, self.at)
        better = self.c.scope.bind(better, "better")
        value = T.Select(better, other.tir, self.value.tir)
        return _Pair(self.c, self.op, Value(value, other.dtype), T.Select(better, at, self.at))


def _within_warp(pair: _Pair, width: int) -> _Pair:
    """A butterfly: afterwards all `width` lanes have the result."""
    distance = width // 2
    while distance:
        other = Value(_shuffled(pair.value.tir, pair.value.dtype, distance, width), pair.value.dtype)
        at = None if pair.at is None else _shuffled(pair.at, "int64", distance, width)
        pair = pair.with_other(other, at)
        distance //= 2
    return pair


def _shuffled(x: Tir, dtype: str, distance: int, width: int) -> Tir:
    lanes = const(_ALL_LANES, "uint32")
    return T.call_extern(dtype, "__shfl_xor_sync", lanes, x, const(distance, "int32"), const(width, "int32"))


def _across_warps(pair: _Pair, warps: int, launch: Launch, axes: dict[LoopKind, Tir]) -> _Pair:
    """The first lane of each warp leaves its result in shared memory; every thread combines them in order."""
    c = pair.c
    rows = launch.block[1] * launch.block[2]
    shared = c.scope.alloc("warps", pair.value.dtype, warps * rows, "shared")
    shared_at = None if pair.at is None else c.scope.alloc("warps_at", "int64", warps * rows, "shared")
    x, y, z = (axes[kind] for kind in (LoopKind.THREAD_X, LoopKind.THREAD_Y, LoopKind.THREAD_Z))
    row = T.Add(T.Mul(z, const(launch.block[1], "int32")), y)
    first = c.scope.bind(T.Mul(row, const(warps, "int32")), "first")
    own = T.Add(first, T.shift_right(x, const(5, "int32")))
    stores = [T.BufferStore(shared, pair.value.tir, [own])]
    if shared_at is not None:
        stores.append(T.BufferStore(shared_at, pair.at, [own]))
    leader = T.EQ(T.bitwise_and(x, const(WARP - 1, "int32")), const(0, "int32"))
    barrier = T.Evaluate(T.op.tvm_storage_sync("shared"))
    c.scope.add(T.IfThenElse(leader, stores[0] if len(stores) == 1 else T.SeqStmt(stores), None))
    c.scope.add(barrier)

    def part(warp: int) -> tuple[Value, Tir | None]:
        place = T.Add(first, const(warp, "int32"))
        at = None if shared_at is None else T.BufferLoad(shared_at, [place])
        return Value(T.BufferLoad(shared, [place]), pair.value.dtype), at

    value, at = part(0)
    total = _Pair(c, pair.op, value, at)
    for warp in range(1, warps):
        total = total.with_other(*part(warp))
    c.scope.add(barrier)  # before anyone writes there again
    return total
