"""Tiles as calls of the micro-kernel library, cut into shapes that the processor's family has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from tvm import tirx as T  # noqa: N812

from cora.codegen.emit_expr import evaluate
from cora.codegen.nodes import Tir, i64
from cora.codegen.values import Context, Value, find
from cora.ir.expr import TRUE, Expr
from cora.ir.stmt import Operand, Tile
from cora.tiles.contract import SYMBOL, Flags
from cora.tiles.family import TileFamily

#: Buffer, offset, row stride, column stride, bend.
_Place: TypeAlias = tuple[Tir, Tir, Tir, Tir, Tir]


@dataclass(frozen=True, slots=True, eq=False)
class TileCall:
    """What all calls of one tile share.

    depth, limit: row r has min(max(depth + step * r, 0), limit) products. skip: of these, how many come first and are
    done already, so that a call adds the others (None: none). fixed: the number of products of every row, in place of
    all that. reads: the operand that is read in vectors. packs: whether what is read is written to b.
    """

    s: Tile
    family: TileFamily
    rows: Tir
    columns: Tir
    depth: Tir
    limit: Tir
    places: Mapping[str, _Place]
    starts: Tir
    ends: Tir
    skip: Tir | None = None
    fixed: Tir | None = None
    reads: str = "b"
    packs: bool = False

    @staticmethod
    def make(c: Context, s: Tile, family: TileFamily) -> TileCall:
        """The values that the calls need, computed once."""
        rows, columns, depth, limit = (
            _index(c, evaluate(c, e)) for e in (s.rows, s.columns, s.depth, s.limit)
        )
        places = {name: _place(c, operand) for name, operand in s.operands().items()}
        begin = Flags.START_ROW if s.start else Flags.NONE
        starts = c.scope.bind(_choice(c, s.first, begin, Flags.START_C), "starts")
        ends = _choice(c, s.last, Flags.RESIDUAL if s.residual else Flags.NONE, Flags.NONE)
        ends = c.scope.bind(ends, "ends")
        return TileCall(s, family, rows, columns, depth, limit, places, starts, ends)

    def at_depth(self, depth: Tir) -> TileCall:
        """The same for as many products in every row; without an end, where some rows have more."""
        return replace(self, fixed=depth, ends=i64(0) if self.s.step else self.ends)

    def beyond(self, depth: Tir) -> TileCall:
        """What follows so many products in each row, added to what they gave."""
        return replace(self, skip=depth, starts=i64(int(Flags.START_C)))

    def depth_of(self, c: Context, row: Tir) -> Tir:
        """How many products a row has."""
        if self.fixed is not None:
            return self.fixed
        depth = T.Add(self.depth, row) if self.s.step else self.depth
        own = T.Min(T.Max(depth, i64(0)), self.limit)
        return c.scope.bind(own if self.skip is None else T.Sub(own, self.skip), "depth")

    def address(self, name: str, row: Tir, column: Tir) -> Tir:
        """Where an element of an operand lies."""
        buffer, offset, row_stride, column_stride, bend = self.places[name]
        at = T.Add(offset, T.Add(T.Mul(row, row_stride), T.Mul(column, column_stride)))
        if not is_zero(bend) and not is_zero(row):
            pairs = T.truncdiv(T.Mul(row, T.Sub(row, i64(1))), i64(2))
            at = T.Add(at, T.Mul(pairs, bend))
        return T.address_of(T.BufferLoad(buffer, [at]))

    def emit(self, c: Context, r0: Tir, rows: Tir, c0: Tir, columns: Tir) -> None:
        """`rows` by `columns` from (r0, c0); nothing happens where one of them is not positive."""
        inner = c.child()
        if self.s.fill is None:
            self._calls(inner, r0, rows, c0, columns)
        else:
            first, later = inner.child(), inner.child()
            self._filling(first, r0, rows, c0, columns)
            self._calls(later, r0, rows, c0, columns)
            fills = evaluate(inner, self.s.fill.when).tir
            inner.scope.add(T.IfThenElse(fills, first.scope.stmt(), later.scope.stmt()))
        some = T.And(T.GT(rows, i64(0)), T.GT(columns, i64(0)))
        c.scope.add(T.IfThenElse(some, inner.scope.stmt(), None))

    def _filling(self, c: Context, r0: Tir, rows: Tir, c0: Tir, columns: Tir) -> None:
        """The first use of a part of b: what all rows read is written to b; what only some read is not used again."""
        source = replace(self, reads="source")
        depth = self.depth_of(c, r0)
        replace(source, packs=True).at_depth(depth)._calls(c, r0, rows, c0, columns)
        if self.s.step:
            source.beyond(depth)._calls(c, r0, rows, c0, columns)

    def _calls(self, c: Context, r0: Tir, rows: Tir, c0: Tir, columns: Tir) -> None:
        """All rows of one depth; or each row one deeper than the one before; or, where the limit cuts that, one by
        one."""
        depth = self.depth_of(c, r0)
        if self.s.step == 0 or self.fixed is not None:
            self._call(c, r0, rows, c0, columns, depth)
            return
        last = self.depth_of(c, T.Add(r0, T.Sub(rows, i64(1))))
        flat, steps, single = c.child(), c.child(), c.child()
        self._call(flat, r0, rows, c0, columns, depth)
        self._call(steps, r0, rows, c0, columns, depth, Flags.TRIANGLE)
        row = single.scope.var("row", "int64")
        inner = single.child()
        own = self.depth_of(inner, T.Add(r0, row))
        self._call(inner, T.Add(r0, row), i64(1), c0, columns, own)
        one_by_one = T.For(row, i64(0), rows, T.ForKind.SERIAL, inner.scope.stmt())
        grown = T.Sub(last, depth)
        regular = T.IfThenElse(T.EQ(grown, T.Sub(rows, i64(1))), steps.scope.stmt(), one_by_one)
        c.scope.add(T.IfThenElse(T.EQ(grown, i64(0)), flat.scope.stmt(), regular))

    def _call(
        self,
        c: Context,
        r0: Tir,
        rows: Tir,
        c0: Tir,
        columns: Tir,
        depth: Tir,
        mode: Flags = Flags.NONE,
    ) -> None:
        """One call; none where a block adds nothing to what is there."""
        lanes = self.family.lanes
        vectors = c.scope.bind(T.truncdiv(T.Add(columns, i64(lanes - 1)), i64(lanes)), "vectors")
        rest = T.Sub(columns, T.Mul(T.Sub(vectors, i64(1)), i64(lanes)))
        zero = i64(0)
        done = zero if self.skip is None else self.skip
        out = self.address("out", r0, c0)
        start = self.address("start", zero, c0) if self.s.start else out
        residual = self.address("residual", r0, c0) if self.s.residual else out
        a, b = self.places["a"], self.places[self.reads]
        a_row = a[2] if is_zero(a[4]) or is_zero(r0) else T.Add(a[2], T.Mul(r0, a[4]))
        asked = T.Add(T.Add(self.starts, self.ends), i64(int(mode)))
        flags = T.Add(asked, i64(int(Flags.PACK))) if self.packs else asked
        arguments = (
            rows, vectors,
            self.address("a", r0, done), a_row, a[4], a[3],
            self.address(self.reads, done, c0), b[2],
            out, self.places["out"][2],
            depth,
            start,
            residual, self.places["residual"][2] if self.s.residual else zero,
            self.address("b", done, c0) if self.packs else out, self.places["b"][2],
            flags, rest,
        )  # fmt: skip
        call = T.Evaluate(T.call_extern("int32", SYMBOL, *arguments))
        if self.skip is None and self.s.first == TRUE:
            c.scope.add(call)
        else:
            changes = T.Or(T.GT(depth, zero), T.NE(asked, i64(int(Flags.START_C))))
            c.scope.add(T.IfThenElse(changes, call, None))


def generated(c: Context, call: TileCall, r0: Tir, rows: Tir, c0: Tir, columns: Tir) -> None:
    """Append calls of our own micro-kernels for `rows` by `columns` from (r0, c0)."""
    width = call.family.lanes * call.family.max_vectors

    def row_chunk(inner: Context, first: Tir, count: Tir) -> None:
        def column_chunk(innermost: Context, left: Tir, n: Tir) -> None:
            call.emit(innermost, _plus(r0, first), count, _plus(c0, left), n)

        chunks(inner, columns, call.s.max_columns, width, column_chunk)

    chunks(c, rows, call.s.max_rows, call.family.max_rows, row_chunk)


def chunks(
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
    count_of = T.Max(T.truncdiv(T.Add(count, i64(size - 1)), i64(size)), i64(0))
    c.scope.add(T.For(var, i64(0), count_of, T.ForKind.SERIAL, inner.scope.stmt()))


def is_zero(value: Tir) -> bool:
    """Whether a value is the constant 0."""
    return isinstance(value, T.IntImm) and int(value) == 0


def _plus(a: Tir, b: Tir) -> Tir:
    return b if is_zero(a) else a if is_zero(b) else T.Add(a, b)


def _index(c: Context, value: Value) -> Tir:
    return c.scope.bind(value.tir, "n")


def _place(c: Context, operand: Operand) -> _Place:
    offset, row, column, bend = (
        _index(c, evaluate(c, e)) for e in (operand.offset, operand.row, operand.column, operand.bend)
    )
    return find(c, operand.buffer), offset, row, column, bend


def _choice(c: Context, condition: Expr, then: Flags, other: Flags) -> Tir:
    """`then` where `condition` holds, else `other`."""
    if condition == TRUE or then == other:
        return i64(int(then))
    return T.Select(evaluate(c, condition).tir, i64(int(then)), i64(int(other)))
