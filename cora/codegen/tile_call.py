"""Tiles as calls of the micro-kernel library, cut into shapes that the processor's family has."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx as T  # noqa: N812

from cora.codegen.emit_expr import evaluate
from cora.codegen.nodes import Tir, i64
from cora.codegen.values import Context, Value, find
from cora.errors import InternalError, UnsupportedError
from cora.ir.expr import TRUE, Expr
from cora.ir.stmt import Operand, Tile
from cora.tiles.contract import SYMBOL, Flags
from cora.tiles.family import TileFamily


def emit_tile(c: Context, s: Tile, family: TileFamily | None) -> None:
    """Append the calls that compute `s`. Raises UnsupportedError if the processor has no micro-kernels."""
    if family is None:
        raise UnsupportedError(
            "tensorize: no micro-kernels for this processor; build the schedule without tensorize"
        )
    if c.lanes > 1:
        raise InternalError("a tile stands inside a vector loop")
    rows = _index(c, evaluate(c, s.rows))
    columns = _index(c, evaluate(c, s.columns))
    call = _Call(c, s, family)
    width = family.lanes * family.max_vectors

    def row_chunk(inner: Context, first: Tir, count: Tir) -> None:
        def column_chunk(innermost: Context, left: Tir, n: Tir) -> None:
            call.emit(innermost, first, count, left, n)

        _chunks(inner, columns, s.max_columns, width, column_chunk)

    _chunks(c, rows, s.max_rows, family.max_rows, row_chunk)


def _index(c: Context, value: Value) -> Tir:
    return c.scope.bind(value.tir, "n")


def _chunks(
    c: Context, count: Tir, largest: int, size: int, body: Callable[[Context, Tir, Tir], None]
) -> None:
    """`body` for each run of at most `size` of `count` things; `largest` bounds count."""
    if largest <= size:
        body(c, i64(0), count)
        return
    var = c.scope.var("chunk", "int64")
    inner = c.child()
    first = inner.scope.bind(T.Mul(var, i64(size)), "first")
    left = inner.scope.bind(T.Min(T.Sub(count, first), i64(size)), "left")
    body(inner, first, left)
    chunks = T.Max(T.truncdiv(T.Add(count, i64(size - 1)), i64(size)), i64(0))
    c.scope.add(T.For(var, i64(0), chunks, T.ForKind.SERIAL, inner.scope.stmt()))


class _Call:
    """What all calls of one tile share."""

    def __init__(self, c: Context, s: Tile, family: TileFamily) -> None:
        self.s = s
        self.family = family
        self.depth = _index(c, evaluate(c, s.depth))
        self.limit = _index(c, evaluate(c, s.limit))
        self.places = {name: self._place(c, operand) for name, operand in s.operands().items()}
        begin = Flags.START_ROW if s.start else Flags.NONE
        starts = _choice(c, s.first, begin, Flags.START_C)
        ends = _choice(c, s.last, Flags.RESIDUAL if s.residual else Flags.NONE, Flags.NONE)
        self.flags = c.scope.bind(T.Add(starts, ends), "flags")

    def _place(self, c: Context, operand: Operand) -> tuple[Tir, Tir, Tir, Tir, Tir]:
        """Buffer, offset, row stride, column stride, bend."""
        parts = (operand.offset, operand.row, operand.column, operand.bend)
        return (find(c, operand.buffer), *(_index(c, evaluate(c, e)) for e in parts))

    def _address(self, name: str, row: Tir, column: Tir) -> Tir:
        buffer, offset, row_stride, column_stride, bend = self.places[name]
        at = T.Add(offset, T.Add(T.Mul(row, row_stride), T.Mul(column, column_stride)))
        if not _is_zero(bend) and not _is_zero(row):
            pairs = T.truncdiv(T.Mul(row, T.Sub(row, i64(1))), i64(2))
            at = T.Add(at, T.Mul(pairs, bend))
        return T.address_of(T.BufferLoad(buffer, [at]))

    def emit(self, c: Context, r0: Tir, rows: Tir, c0: Tir, columns: Tir) -> None:
        """`rows` by `columns` from (r0, c0); nothing happens where one of them is not positive."""
        inner = c.child()
        self._calls(inner, r0, rows, c0, columns)
        some = T.And(T.GT(rows, i64(0)), T.GT(columns, i64(0)))
        c.scope.add(T.IfThenElse(some, inner.scope.stmt(), None))

    def _calls(self, c: Context, r0: Tir, rows: Tir, c0: Tir, columns: Tir) -> None:
        """All rows of one depth; or each row one deeper than the one before; or, where the limit cuts that, one by
        one."""
        depth = self._depth_of(c, r0)
        if self.s.step == 0:
            self._call(c, r0, rows, c0, columns, depth, self.flags)
            return
        last = self._depth_of(c, T.Add(r0, T.Sub(rows, i64(1))))
        flat, steps, single = c.child(), c.child(), c.child()
        self._call(flat, r0, rows, c0, columns, depth, self.flags)
        self._call(steps, r0, rows, c0, columns, depth, T.Add(self.flags, i64(int(Flags.TRIANGLE))))
        row = single.scope.var("row", "int64")
        inner = single.child()
        own = self._depth_of(inner, T.Add(r0, row))
        self._call(inner, T.Add(r0, row), i64(1), c0, columns, own, self.flags)
        one_by_one = T.For(row, i64(0), rows, T.ForKind.SERIAL, inner.scope.stmt())
        grown = T.Sub(last, depth)
        regular = T.IfThenElse(T.EQ(grown, T.Sub(rows, i64(1))), steps.scope.stmt(), one_by_one)
        c.scope.add(T.IfThenElse(T.EQ(grown, i64(0)), flat.scope.stmt(), regular))

    def _depth_of(self, c: Context, row: Tir) -> Tir:
        """How many products a row has."""
        depth = T.Add(self.depth, row) if self.s.step else self.depth
        return c.scope.bind(T.Min(T.Max(depth, i64(0)), self.limit), "depth")

    def _call(self, c: Context, r0: Tir, rows: Tir, c0: Tir, columns: Tir, depth: Tir, flags: Tir) -> None:
        """One call; none where a block adds nothing to what is there."""
        lanes = self.family.lanes
        vectors = c.scope.bind(T.truncdiv(T.Add(columns, i64(lanes - 1)), i64(lanes)), "vectors")
        rest = T.Sub(columns, T.Mul(T.Sub(vectors, i64(1)), i64(lanes)))
        zero = i64(0)
        out = self._address("out", r0, c0)
        start = self._address("start", zero, c0) if self.s.start else out
        residual = self._address("residual", r0, c0) if self.s.residual else out
        a, b = self.places["a"], self.places["b"]
        a_row = a[2] if _is_zero(a[4]) or _is_zero(r0) else T.Add(a[2], T.Mul(r0, a[4]))
        arguments = (
            rows, vectors,
            self._address("a", r0, zero), a_row, a[4], a[3],
            self._address("b", zero, c0), b[2],
            out, self.places["out"][2],
            depth,
            start,
            residual, self.places["residual"][2] if self.s.residual else zero,
            out, flags, rest,
        )  # fmt: skip
        call = T.Evaluate(T.call_extern("int32", SYMBOL, *arguments))
        if self.s.first == TRUE:
            c.scope.add(call)
        else:
            changes = T.Or(T.GT(depth, zero), T.NE(flags, i64(int(Flags.START_C))))
            c.scope.add(T.IfThenElse(changes, call, None))


def _is_zero(value: Tir) -> bool:
    return isinstance(value, T.IntImm) and int(value) == 0


def _choice(c: Context, condition: Expr, then: Flags, other: Flags) -> Tir:
    """`then` where `condition` holds, else `other`."""
    if condition == TRUE or then == other:
        return i64(int(then))
    return T.Select(evaluate(c, condition).tir, i64(int(then)), i64(int(other)))
