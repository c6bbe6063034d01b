"""The body of a tile for the tensor cores, recognized: operands as base and strides, or a ScheduleError."""

from __future__ import annotations

from collections.abc import Mapping

from cora.errors import ScheduleError
from cora.ir import dtypes
from cora.ir.expr import ONE, ZERO, Binary, Const, Expr, Read, Reduce, Var, binary
from cora.ir.poly import polynomial
from cora.ir.simplify import simplify
from cora.ir.stmt import Buffer, LoopKind, Operand, WarpProduct
from cora.ir.visit import free_vars, substitute
from cora.schedule.nest import LoopNest

_HALVES = ("float16", "bfloat16")
#: How many of the innermost loops a product of a warp stands for.
INNERMOST = 5
#: Bytes whose address the hardware takes at once.
_GROUP_BYTES = 16


def warp_product(
    nest: LoopNest, reduction: Reduce, out: Buffer, slot: Expr, conditions: tuple[Expr, ...]
) -> WarpProduct:
    """What the innermost loops of a nest compute, into its accumulators from `slot` on.

    reduction: over flat buffers. conditions: of an iteration, besides those of its store.

    Raises ScheduleError if it is no product that the tensor cores compute.
    """
    where = f"tensor_core: '{nest.tensor.name}'"
    tile = nest.leaves[-INNERMOST:]
    rows, columns, k, pair, twin = (leaf.var for leaf in tile)
    lane = next(leaf.var for leaf in nest.leaves if leaf.kind is LoopKind.THREAD_X)
    inner = {rows, columns, k, pair, twin, lane}
    for condition in conditions:
        if free_vars(condition) & inner:
            raise ScheduleError(
                f"{where}: every step of the sum must exist, for all threads of a warp; not all do: {condition}. Stage "
                "both operands in shared memory (cache_read), in steps that divide the reduction"
            )
    match reduction:
        case Reduce(op="sum", body=Binary(op="mul", a=Read() as first, b=Read() as second)):
            pass
        case _:
            raise ScheduleError(f"{where}: expected a sum of products of two operands; it is {reduction}")
    if free_vars(first.offset) & {columns, twin}:
        first, second = second, first
    row = binary("floordiv", lane, Const(4)) + pair * 8 + rows * 16
    column = binary("mod", lane, Const(4)) * 2 + twin + columns * 8
    at_row: dict[Expr, Expr] = {rows: ZERO, pair: ZERO, lane: Const(4)}
    at_column: dict[Expr, Expr] = {columns: ZERO, twin: ONE, lane: ZERO}
    for read in (first, second):
        _check_type(where, read.buffer, tf32=nest.tf32)
    a = _operand(where, first, inner, (row, at_row), (k, {k: ONE}))
    b = _operand(where, second, inner, (k, {k: ONE}), (column, at_column))
    if first.buffer.dtype != second.buffer.dtype:
        raise ScheduleError(
            f"{where}: operands must have one type; they are {first.buffer.dtype}, {second.buffer.dtype}"
        )
    if a.column != ONE or ONE not in (b.row, b.column):
        raise ScheduleError(
            f"{where}: the elements of '{a.buffer.name}' along the reduction must be adjacent, and those of "
            f"'{b.buffer.name}' along it or along the columns; reorder_dims"
        )
    group = _GROUP_BYTES // dtypes.itemsize(a.buffer.dtype)
    for operand, stride in ((a, a.row), (b, b.column if b.row == ONE else b.row)):
        for value in (operand.offset, stride):
            if any(factor % group for _, factor in polynomial(value)):
                raise ScheduleError(
                    f"{where}: rows of '{operand.buffer.name}' must begin at multiples of {group} elements; pad_dim"
                )
    extents = [int(str(leaf.extent)) for leaf in tile[:2]]
    return WarpProduct(extents[0], extents[1], out, slot, a, b)


def _check_type(where: str, buffer: Buffer, *, tf32: bool) -> None:
    if buffer.scope == "shared" and (buffer.dtype == "float32" if tf32 else buffer.dtype in _HALVES):
        return
    types = "float32, with tf32," if tf32 else "float16 or bfloat16"
    hint = "; tf32=True rounds float32 to 11 bits" if buffer.dtype == "float32" and not tf32 else ""
    raise ScheduleError(
        f"{where}: operands must be {types} in shared memory (cache_read); '{buffer.name}' is {buffer.dtype}, "
        f"{buffer.scope}{hint}"
    )


def _operand(
    where: str,
    read: Read,
    inner: set[Var],
    row: tuple[Expr, Mapping[Expr, Expr]],
    column: tuple[Expr, Mapping[Expr, Expr]],
) -> Operand:
    """A matrix operand; row, column: its indices over the loops of the tile, and a point at which that index is 1."""
    buffer = read.buffer
    origin: dict[Expr, Expr] = dict.fromkeys(inner, ZERO)
    base = simplify(substitute(read.offset, origin))
    along_row, along_column = (
        simplify(substitute(read.offset, {**origin, **point}) - base) for _, point in (row, column)
    )
    if simplify(base + row[0] * along_row + column[0] * along_column - read.offset) != ZERO:
        raise ScheduleError(f"{where}: the place {read.offset} in '{buffer.name}' is none of a matrix")
    return Operand(buffer, base, along_row, along_column)
