"""Tiles as calls of routines that are not ours: a user's micro-kernel, or a library's matrix product.

What a routine does not compute of a tile, our own micro-kernels do: edges, the part of a triangle that differs from
row to row, strides that the routine does not take.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from tvm import tirx as T  # noqa: N812

from cora.codegen.emit_expr import evaluate
from cora.codegen.nodes import Tir, const, i64
from cora.codegen.tile_call import TileCall, chunks, generated
from cora.codegen.values import Context
from cora.errors import InternalError, UnsupportedError
from cora.ir.expr import ONE, TRUE
from cora.ir.stmt import Routine, Tile
from cora.tiles.family import TileFamily

#: CBLAS' names of row-major storage and of operands as they are, and transposed.
_ROW_MAJOR, _NO_TRANS, _TRANS = 101, 111, 112
_INT32_MAX = 2**31 - 1


def emit_tile(c: Context, s: Tile, family: TileFamily | None) -> None:
    """Append the calls that compute `s`. Raises UnsupportedError if the processor has no micro-kernels."""
    if family is None:
        raise UnsupportedError(
            "tensorize: no micro-kernels for this processor; build the schedule without tensorize"
        )
    if c.lanes > 1:
        raise InternalError("a tile stands inside a vector loop")
    call = TileCall.make(c, s, family)
    if s.by is None:
        generated(c, call, i64(0), call.rows, i64(0), call.columns)
    else:
        first = const(1, "bool") if s.first == TRUE else evaluate(c, s.first).tir
        _by_routine(c, _Routine(call, s.by, c.scope.bind(first, "first")))


@dataclass(frozen=True, slots=True, eq=False)
class _Routine:
    """Calls of a routine for parts of one tile; `first`: whether they begin the sum, or add to what is there."""

    call: TileCall
    routine: Routine
    first: Tir

    def fits(self, rows: Tir, columns: Tir, depth: Tir) -> Tir:
        """Whether the routine computes so large a part."""
        if self.routine.convention == "cblas":
            return self._fits_blas(rows, columns, depth)
        if self.routine.edges:
            return const(1, "bool")
        return T.And(T.EQ(rows, i64(self.routine.rows)), T.EQ(columns, i64(self.routine.columns)))

    def emit(self, c: Context, r0: Tir, rows: Tir, c0: Tir, columns: Tir, depth: Tir) -> None:
        """Append the call for `rows` by `columns` from (r0, c0)."""
        a, b, out = (self.call.places[name] for name in ("a", "b", "out"))
        a_at, b_at, out_at = (
            self.call.address(name, *at)
            for name, at in (("a", (r0, i64(0))), ("b", (i64(0), c0)), ("out", (r0, c0)))
        )
        if self.routine.convention == "given":
            adds = T.Select(self.first, i64(0), i64(1))
            sizes = (rows, columns, depth)
            arguments = (*sizes, a_at, a[2], a[3], b_at, b[2], out_at, out[2], adds)
        else:
            one, zero = const(1, "float32"), const(0, "float32")
            lda, ldb, ldc = self._leading(rows, columns, depth)
            int32 = [T.Cast("int32", n) for n in (rows, columns, depth, lda, ldb, ldc)]
            kinds = [const(n, "int32") for n in (_ROW_MAJOR, self._trans, _NO_TRANS)]
            beta = T.Select(self.first, zero, one)
            arguments = (*kinds, *int32[:3], one, a_at, int32[3], b_at, int32[4], beta, out_at, int32[5])
        c.scope.add(T.Evaluate(T.call_extern("int32", self.routine.symbol, *arguments)))

    @property
    def _trans(self) -> int:
        """How the left operand lies: lowering has checked that its columns or its rows are adjacent."""
        return _NO_TRANS if self.call.s.a.column == ONE else _TRANS

    def _leading(self, rows: Tir, columns: Tir, depth: Tir) -> tuple[Tir, Tir, Tir]:
        """The leading dimensions: a matrix of one row has whatever BLAS wants."""
        a, b, out = (self.call.places[name] for name in ("a", "b", "out"))
        one = i64(1)
        if self._trans == _NO_TRANS:
            lda = T.Select(T.EQ(rows, one), T.Max(depth, one), a[2])
        else:
            lda = T.Select(T.EQ(depth, one), rows, a[3])
        ldb = T.Select(T.EQ(depth, one), columns, b[2])
        return lda, ldb, T.Select(T.EQ(rows, one), columns, out[2])

    def _fits_blas(self, rows: Tir, columns: Tir, depth: Tir) -> Tir:
        """Whether there are products, rows do not overlap, and all numbers have 32 bits."""
        lda, ldb, ldc = self._leading(rows, columns, depth)
        across = depth if self._trans == _NO_TRANS else rows
        goals = [T.GT(depth, i64(0)), T.LE(depth, i64(_INT32_MAX))]
        for leading, least in ((lda, across), (ldb, columns), (ldc, columns)):
            goals += [T.GE(leading, least), T.LE(leading, i64(_INT32_MAX))]
        return reduce(T.And, goals)


def _by_routine(c: Context, routine: _Routine) -> None:
    """The tile in parts that are no larger than the routine takes."""
    call, s = routine.call, routine.call.s

    def row_part(inner: Context, r0: Tir, rows: Tir) -> None:
        def part(innermost: Context, c0: Tir, columns: Tir) -> None:
            _part(innermost, routine, r0, rows, c0, columns)

        chunks(inner, call.columns, s.max_columns, routine.routine.columns or s.max_columns, part)

    chunks(c, call.rows, s.max_rows, routine.routine.rows or s.max_rows, row_part)


def _part(c: Context, routine: _Routine, r0: Tir, rows: Tir, c0: Tir, columns: Tir) -> None:
    """One part; nothing where it is empty. The products that all rows have come first, then what some have beyond."""
    call = routine.call
    inner = c.child()
    depth = call.depth_of(inner, r0)
    own, other = inner.child(), inner.child()
    routine.emit(own, r0, rows, c0, columns, depth)
    generated(other, call.at_depth(depth), r0, rows, c0, columns)
    fits = routine.fits(rows, columns, depth)
    dense = own.scope.stmt() if _always(fits) else T.IfThenElse(fits, own.scope.stmt(), other.scope.stmt())
    if call.s.first == TRUE:
        inner.scope.add(dense)
    else:  # a block that adds nothing leaves what is there
        inner.scope.add(T.IfThenElse(T.Or(routine.first, T.GT(depth, i64(0))), dense, None))
    if call.s.step:
        generated(inner, call.beyond(depth), r0, rows, c0, columns)
    some = T.And(T.GT(rows, i64(0)), T.GT(columns, i64(0)))
    c.scope.add(T.IfThenElse(some, inner.scope.stmt(), None))


def _always(condition: Tir) -> bool:
    return isinstance(condition, T.IntImm) and bool(condition)
