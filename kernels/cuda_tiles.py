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


def finish(s: cora.Schedule, op: str, *, unrolled: bool = True) -> cora.Schedule:
    """The threads of `product`, staged ahead, and its stores in wide accesses where they are aligned.

    unrolled: all steps between two barriers, not 4 of them.
    """
    s = s.pipeline(op, "po")
    s = s.unroll(op, "pm") if unrolled else s
    return s.bind(op, "ry", "threadIdx.y").bind(op, "jx", "threadIdx.x").vectorize(op, "jv", LANES)


def copy_deep(
    s: cora.Schedule, stage: str, outer: str, inner: str, across: int, tile: Tile = LARGE, *, wide: bool
) -> cora.Schedule:
    """The copy of an operand of which a row in memory, along `inner`, holds the tile's depth.

    outer: along the rows or columns of the tile, of which there are `across`. wide: rows begin at multiples of 4
    elements.
    """
    ty, tx = tile.row_threads, tile.column_threads
    s = _covered(_covered(s, stage, outer, across, "ow"), stage, inner, tile.depth, "iw")
    if wide:
        vectors = tile.depth // LANES
        s = s.split(stage, "iw", LANES, names=("px", "pv"))
        s = s.split(stage, "ow", ty * tx // vectors, names=("oq", "orow"))
        s = s.split(stage, "orow", tx // vectors, names=("ty", "ox"))
        s = s.reorder(stage, "ow_part", "iw_part", "oq", "ty", "ox", "px", "pv")
        s = s.fuse(stage, "ox", "px", name="tx").vectorize(stage, "pv", LANES)
    else:
        s = s.split(stage, "ow", ty, names=("oq", "ty")).split(stage, "iw", tx, names=("iq", "tx"))
    return _staged(s, stage)


def copy_long(
    s: cora.Schedule, stage: str, outer: str, inner: str, across: int, tile: Tile = LARGE, *, wide: bool
) -> cora.Schedule:
    """The copy of an operand of which a row in memory, along `inner`, is a row or column of the tile.

    outer: along its depth. across: elements of the row. wide: rows begin at multiples of 4 elements.
    """
    s = _covered(_covered(s, stage, inner, across, "iw"), stage, outer, tile.depth, "ow")
    s = s.split(stage, "ow", tile.row_threads, names=("oq", "ty"))
    if wide:
        s = s.split(stage, "iw", LANES, names=("iv", "jv")).vectorize(stage, "jv", LANES)
        s = s.split(stage, "iv", tile.column_threads, names=("iq", "tx"))
    else:
        s = s.split(stage, "iw", tile.column_threads, names=("iq", "tx"))
    return _staged(s, stage)


def _covered(s: cora.Schedule, stage: str, loop: str, size: int, name: str) -> cora.Schedule:
    """A loop that runs over the tile whatever is left of it, guarded, so that loops inside have constant extents.

    Where more than the tile is copied, there are several parts.
    """
    (leaf,) = (leaf for leaf in s.nest(stage).leaves if leaf.name == loop)
    fits = leaf.largest is not None and leaf.largest <= size
    return s.split(stage, loop, size, names=(f"{name}_part", name), tail="cover" if fits else "guard")


def _staged(s: cora.Schedule, stage: str) -> cora.Schedule:
    names = [leaf.name for leaf in s.nest(stage).leaves]
    for loop in ("oq", "iq"):
        if loop in names:
            s = s.unroll(stage, loop)
    return s.bind(stage, "ty", "threadIdx.y").bind(stage, "tx", "threadIdx.x")


def constant(s: cora.Schedule, op: cora.Tensor | str, loop: str) -> int:
    """The number of iterations of a loop of constant extent."""
    (extent,) = (leaf.extent for leaf in s.nest(op).leaves if leaf.name == loop)
    return int(str(extent))
