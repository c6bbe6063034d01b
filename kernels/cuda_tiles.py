"""Loops of a dense tile of a product on a GPU, the same for all kernels that have one.

A block computes `rows` x `columns` elements with `row_threads` x `column_threads` threads, `depth` steps of
the reduction at a time, whose operands lie in shared memory. The elements of a thread lie `row_threads` rows, and
groups of 4 columns `4 * column_threads` apart, from one another: threads side by side read side by side, from memory
and from shared memory alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import cora

#: Elements of a wide access.
LANES = 4


@dataclass(frozen=True, slots=True)
class Tile:
    """Elements of a block, its threads, and steps of the reduction between two barriers."""

    rows: int = 128
    columns: int = 128
    depth: int = 16
    row_threads: int = 16
    column_threads: int = 16


LARGE = Tile()
SMALL = Tile(rows=64, columns=64)


def product(s: cora.Schedule, op: str, row: str, column: str, over: str, tile: Tile = LARGE) -> cora.Schedule:
    """The innermost loops of `op`, from `row`, `column` (of constant extent, those of the tile) and `over` inwards.

    What is read is staged at loop "po" afterwards; `finish` comes last.
    """
    s = s.split(op, row, tile.row_threads, names=("ri", "ry"))
    s = s.split(op, column, tile.column_threads * LANES, names=("jg", "jq"))
    s = s.split(op, "jq", LANES, names=("jx", "jv"))
    s = s.split(op, over, tile.depth, names=("po", "pi")).split(op, "pi", LANES, names=("pm", "pv"))
    return s.reorder(op, "po", "ry", "jx", "pm", "pv", "ri", "jg", "jv").unroll(op, "pv")


def finish(s: cora.Schedule, op: str) -> cora.Schedule:
    """The threads of `product`, and its stores in wide accesses where they are aligned."""
    return s.bind(op, "ry", "threadIdx.y").bind(op, "jx", "threadIdx.x").vectorize(op, "jv", LANES)


def copy_deep(
    s: cora.Schedule, stage: str, outer: str, inner: str, tile: Tile = LARGE, *, wide: bool
) -> cora.Schedule:
    """The copy of an operand of which a row in memory, along `inner`, holds the tile's depth; `outer` is along the rows
    or columns of the tile. wide: rows begin at multiples of 4 elements."""
    ty, tx = tile.row_threads, tile.column_threads
    if not wide:
        s = s.split(stage, inner, tx, names=("iq", "tx")).split(stage, outer, ty, names=("oq", "ty"))
        return s.bind(stage, "ty", "threadIdx.y").bind(stage, "tx", "threadIdx.x")
    across = tile.depth // LANES
    s = s.split(stage, inner, tile.depth, names=("iq", "id")).split(stage, "id", LANES, names=("px", "pv"))
    s = s.split(stage, outer, ty * tx // across, names=("oq", "orow"))
    s = s.split(stage, "orow", tx // across, names=("ty", "ox")).reorder(
        stage, "oq", "iq", "ty", "ox", "px", "pv"
    )
    s = s.fuse(stage, "ox", "px", name="tx")
    s = s.vectorize(stage, "pv", LANES)
    return s.bind(stage, "ty", "threadIdx.y").bind(stage, "tx", "threadIdx.x")


def copy_long(
    s: cora.Schedule, stage: str, outer: str, inner: str, tile: Tile = LARGE, *, wide: bool
) -> cora.Schedule:
    """The copy of an operand of which a row in memory, along `inner`, is a row or column of the tile; `outer` is along
    its depth. wide: rows begin at multiples of 4 elements."""
    ty, tx = tile.row_threads, tile.column_threads
    s = s.split(stage, outer, ty, names=("oq", "ty"))
    if not wide:
        s = s.split(stage, inner, tx, names=("iq", "tx"))
        return s.bind(stage, "ty", "threadIdx.y").bind(stage, "tx", "threadIdx.x")
    s = s.split(stage, inner, LANES, names=("iv", "jv")).split(stage, "iv", tx, names=("iq", "tx"))
    s = s.vectorize(stage, "jv", LANES)
    return s.bind(stage, "ty", "threadIdx.y").bind(stage, "tx", "threadIdx.x")


def constant(s: cora.Schedule, op: cora.Tensor | str, loop: str) -> int:
    """The number of iterations of a loop of constant extent."""
    (extent,) = (leaf.extent for leaf in s.nest(op).leaves if leaf.name == loop)
    return int(str(extent))
