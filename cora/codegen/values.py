"""Values during emission: where they differ between lanes, and what is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tvm import tirx as T  # noqa: N812

from cora.codegen.nodes import Tir, TirBuffer, const, filled, i64, intrinsic, ramp, splat
from cora.codegen.scope import Scope
from cora.errors import InternalError
from cora.ir.expr import Expr
from cora.ir.stmt import Buffer
from cora.tiles.family import TileFamily


@dataclass(frozen=True, slots=True)
class Value:
    """A value of type `dtype` (a type of arithmetic) in a context of one or several lanes.

    Three forms: uniform (`lanes` 1: the scalar `tir`, the same in all lanes), affine (int64; lane k holds
    the scalar `tir` plus `step * k`), and varying (the vector `tir`).
    nonneg: known to be at least 0. small: known to be an index, so that sums and differences cannot overflow.
    count: for bool, the number n in 0..lanes (an int64 scalar) such that exactly the lanes below n hold.
    """

    tir: Tir
    dtype: str
    lanes: int = 1
    step: int = 0
    nonneg: bool = False
    small: bool = False
    count: Tir | None = None

    @property
    def uniform(self) -> bool:
        """Whether all lanes hold the same value."""
        return self.lanes == 1

    @property
    def linear(self) -> bool:
        """Whether lane k holds `tir + step * k`."""
        return self.lanes == 1 or self.step != 0

    def over(self, lanes: int) -> Tir:
        """The value as a TIR vector of `lanes` lanes (a scalar for 1)."""
        if self.uniform:
            return splat(self.tir, lanes)
        return ramp(self.tir, self.step, self.lanes) if self.step else self.tir


def index_constant(value: int) -> Value:
    """An int64 literal."""
    return Value(i64(value), "int64", nonneg=value >= 0, small=True)


@dataclass(frozen=True, slots=True)
class Mask:
    """The lanes that run: `vector`, and whether any and whether all of them do (all three are bound)."""

    vector: Tir
    any: Tir
    all: Tir
    count: Tir | None

    def value(self, lanes: int) -> Value:
        """The mask as a bool value."""
        return Value(self.vector, "bool", lanes, count=self.count)


def make_mask(scope: Scope, cond: Value) -> Mask:
    """The mask of the lanes where the varying bool `cond` holds."""
    lanes = cond.lanes
    if cond.count is None:
        vector = scope.bind(cond.over(lanes), "mask")
        some = scope.bind(intrinsic("bool", "vector.reduce.or", vector), "some")
        every = scope.bind(intrinsic("bool", "vector.reduce.and", vector), "every")
        return Mask(vector, some, every, None)
    count = scope.bind(cond.count, "active")
    vector = scope.bind(below(count, lanes), "mask")
    some = scope.bind(T.LT(i64(0), count), "some")
    every = scope.bind(T.EQ(count, i64(lanes)), "every")
    return Mask(vector, some, every, count)


def prefix(count: Tir, lanes: int) -> Value:
    """The bool value that holds in the lanes below `count`, any int64 scalar."""
    clamped = T.Max(T.Min(count, i64(lanes)), i64(0))
    return Value(below(clamped, lanes), "bool", lanes, count=clamped)


def below(count: Tir, lanes: int) -> Tir:
    """`lane < count` for a count in 0..lanes, compared in a narrow type to cost one instruction."""
    narrow = "int32" if lanes <= 16 else "int8"
    iota = T.Ramp(const(0, narrow), const(1, narrow), lanes)
    return T.LT(iota, T.Broadcast(T.Cast(narrow, count), lanes))


def zero(dtype: str, lanes: int) -> Tir:
    """Zero in all lanes of a TIR type."""
    return filled(0, dtype, lanes)


@dataclass(frozen=True, slots=True)
class Context:
    """Where emission stands: the open block, what names mean, the lanes, and which of them run (None: all).

    `lanes` is 1 outside vector loops. `memo` holds shared sub-expressions already bound in this block.
    """

    scope: Scope
    values: Mapping[Expr, Value]
    buffers: Mapping[Buffer, TirBuffer]
    lanes: int = 1
    mask: Mask | None = None
    in_parallel: bool = False
    family: TileFamily | None = None
    memo: dict[Expr, Value] = field(default_factory=dict)
    shared: frozenset[Expr] = frozenset()

    def child(self) -> Context:
        """The same place in a new inner block."""
        return replace(self, scope=self.scope.child(), memo=dict(self.memo))

    def with_value(self, name: Expr, value: Value) -> Context:
        """`name` (a variable or size) stands for `value` from here."""
        return replace(self, values={**self.values, name: value})

    def under(self, cond: Value) -> Context:
        """The same block, running only the lanes where `cond` (varying) holds too."""
        mask = make_mask(self.scope, cond)
        return replace(self, mask=mask, memo=dict(self.memo))


def find(c: Context, buffer: Buffer) -> TirBuffer:
    """The TIR buffer of `buffer`; InternalError if it is neither a parameter nor allocated here."""
    found = c.buffers.get(buffer)
    if found is None:
        raise InternalError(f"code generation: buffer '{buffer.name}' is not defined here")
    return found
