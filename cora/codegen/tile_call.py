"""Tiles as calls of the micro-kernel library, cut into shapes that the processor's family has."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx as T  # noqa: N812

from cora.codegen.emit_expr import evaluate, find
from cora.codegen.nodes import Tir, i64
from cora.codegen.values import Context, Value
from cora.errors import InternalError, UnsupportedError
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
    call = _Call(c, s, family, _index(c, evaluate(c, s.depth)))
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

    def __init__(self, c: Context, s: Tile, family: TileFamily, depth: Tir) -> None:
        self.s = s
        self.family = family
        self.depth = depth
        self.places = {name: self._place(c, operand) for name, operand in s.operands().items()}
        self.flags = (Flags.START_ROW if s.start else Flags.NONE) | (
            Flags.RESIDUAL if s.residual else Flags.NONE
        )

    def _place(self, c: Context, operand: Operand) -> tuple[Tir, Tir, Tir, Tir]:
        """Buffer, offset, row stride, column stride."""
        numbers = (_index(c, evaluate(c, e)) for e in (operand.offset, operand.row, operand.column))
        return (find(c, operand.buffer), *numbers)

    def _address(self, name: str, row: Tir, column: Tir) -> Tir:
        buffer, offset, row_stride, column_stride = self.places[name]
        at = T.Add(offset, T.Add(T.Mul(row, row_stride), T.Mul(column, column_stride)))
        return T.address_of(T.BufferLoad(buffer, [at]))

    def emit(self, c: Context, r0: Tir, rows: Tir, c0: Tir, columns: Tir) -> None:
        """One call: `rows` by `columns` from (r0, c0); nothing happens where one of them is not positive."""
        lanes = self.family.lanes
        vectors = c.scope.bind(T.truncdiv(T.Add(columns, i64(lanes - 1)), i64(lanes)), "vectors")
        rest = T.Sub(columns, T.Mul(T.Sub(vectors, i64(1)), i64(lanes)))
        zero = i64(0)
        out = self._address("out", r0, c0)
        start = self._address("start", zero, c0) if self.s.start else out
        residual = self._address("residual", r0, c0) if self.s.residual else out
        a, b = self.places["a"], self.places["b"]
        arguments = (
            rows, vectors,
            self._address("a", r0, zero), a[2], a[3],
            self._address("b", zero, c0), b[2],
            out, self.places["out"][2],
            self.depth,
            start,
            residual, self.places["residual"][2] if self.s.residual else zero,
            out, i64(int(self.flags)), rest,
        )  # fmt: skip
        call = T.call_extern("int32", SYMBOL, *arguments)
        some = T.And(T.GT(rows, zero), T.GT(columns, zero))
        c.scope.add(T.IfThenElse(some, T.Evaluate(call), None))
