"""Attention of GPUs in one pass: scores never leave the chip.

A block of threads computes up to 64 queries of one sequence and head. It goes through the keys in tiles of 32, as many
as leave room for scores and weights in shared memory: scores and their running maximum, weights and their running sum,
and sums of values, which are corrected where the maximum grows. All tiles of a batch are one grid.
"""

from __future__ import annotations

from dataclasses import replace

import cora
from cora import UnsupportedError
from cora.kernels.attention.definition import Program
from cora.kernels.cuda_tiles import LANES, Tile, copy_deep, copy_long, finish, product

#: Threads of a block, along y and x.
ROW_THREADS = 16
COLUMN_THREADS = 8
#: Queries of a tile at most.
ROWS = 64
#: Keys of a tile.
KEYS = 32
#: Elements of a value in a tile at most.
WIDEST = 128
#: Steps of a product between two barriers.
DEPTH = 16


def flash(program: Program, *, queries: str = "Q", values: str = "V") -> cora.Schedule:
    """One kernel, and one more for the logarithms of sums. Maximum and sums run along tiles of keys.

    queries, values: the tensors that they are read from.
    """
    p, op = program, program.output.name
    width = _columns(p)
    rows = min(-(-p.spec.block // ROW_THREADS) * ROW_THREADS, ROWS)
    tile = Tile(rows, width, DEPTH, ROW_THREADS, COLUMN_THREADS)
    s = cora.schedule(*p.outputs)
    if p.lse is not None:
        s = s.recompute(p.lse, op).inline(f"{p.lse.name}_again")
    s = s.inline(p.inverse)
    s = s.split(op, "row", tile.rows, names=("whole", "r"), tail="cover" if p.spec.block <= rows else "guard")
    s = s.split(
        op, "e", width, names=("et", "column"), tail="cover" if p.spec.value_size <= width else "guard"
    )
    s = s.split(op, "c", KEYS, names=("keys", "key"))
    s = s.reorder(op, "batch", "block", "group", "member", "et", "whole", "keys", "r", "column", "key")
    s = s.fuse(op, "batch", "block", name="tile").fuse(op, "member", "et", name="part")
    s = product(s, op, "r", "column", "key", tile).online(op, "keys", p.top, p.total)
    kept = [f"{t.name}_before" for t in (p.top, p.total)] + [f"{p.top.name}_factor"]
    for stage in (p.weights.name, p.scores.name):
        s = s.compute_at(stage, op, "keys")
        kept.append(stage)
    if p.lse is None:
        kept += [p.top.name, p.total.name]
    for stage in kept:
        s = s.set_scope(stage, "scratch")
    s = _scores(s, p, queries, replace(tile, columns=KEYS))
    for name in (p.top.name, p.total.name):
        s = _along_rows(s, name, tile, reduces=True)
    s = _along_rows(s, p.weights.name, tile, reduces=False)
    for name in kept[:3]:
        s = _each_row(s, name)
    s = s.cache_read(op, values, "po", name="v_tile")
    s = copy_long(s, "v_tile", *_loops(s, "v_tile"), width, tile, wide=p.spec.value_size % width == 0)
    s = finish(s, op).peel(op, "keys", last=1)
    s = s.bind(op, "tile", "blockIdx.x").bind(op, "group", "blockIdx.y").bind(op, "part", "blockIdx.z")
    return s if p.lse is None else _lse(s, p.lse.name)


def fits(program: Program) -> bool:
    """Whether `flash` takes a program: sums that another kernel reads, for lse, must run in one block of threads."""
    return program.lse is None or program.spec.value_size <= WIDEST


def _columns(p: Program) -> int:
    """Elements of a value in a tile."""
    width = 64 if p.spec.value_size <= 64 else WIDEST
    if not fits(p):
        raise UnsupportedError(
            f"attention: flash computes lse for values of up to {width} elements; got {p.spec.value_size}: use the "
            "variant 'stored'"
        )
    return width


def _scores(s: cora.Schedule, p: Program, queries: str, tile: Tile) -> cora.Schedule:
    """Queries times keys, of which the tiles lie with the tokens innermost."""
    op = p.scores.name
    s = s.split(op, "row", tile.rows, names=("rows", "r"), tail="cover")
    s = s.split(op, "c", KEYS, names=("columns", "column"), tail="cover")
    s = s.reorder(op, "rows", "columns", "r", "column", "d")
    s = product(s, op, "r", "column", "d", tile)
    s = s.compute_at(p.keys_t, op, "po").set_scope(p.keys_t, "scratch")
    s = s.cache_read(op, queries, "po", name="q_tile")
    s = copy_deep(s, "q_tile", *_loops(s, "q_tile"), tile.rows, tile, wide=p.spec.head_size % DEPTH == 0)
    return finish(_keys(s, p.keys_t.name, tile), op)


def _keys(s: cora.Schedule, op: str, tile: Tile) -> cora.Schedule:
    """Keys as they are read, four elements of a token by one thread; threads side by side write side by side."""
    s = s.split(op, "j", KEYS, names=("jw", "jj"), tail="cover")
    s = s.split(op, "jj", COLUMN_THREADS, names=("jy", "tx"))
    s = s.split(op, "d", tile.depth, names=("dw", "dd"), tail="cover").split(
        op, "dd", LANES, names=("dy", "dl")
    )
    s = s.reorder(op, "dw", "jw", "dy", "jy", "tx", "dl").fuse(op, "dy", "jy", name="ty")
    return s.vectorize(op, "dl", LANES).bind(op, "ty", "threadIdx.y").bind(op, "tx", "threadIdx.x")


def _along_rows(s: cora.Schedule, op: str, tile: Tile, *, reduces: bool) -> cora.Schedule:
    """What goes along the rows of a tile of scores: four elements of each row by one thread."""
    s = s.split(op, "row", tile.rows, names=("rows", "r"), tail="cover")
    s = s.split(op, "r", ROW_THREADS, names=("ri", "ry"))
    s = s.split(op, "c", KEYS, names=("columns", "column"), tail="cover").split(
        op, "column", LANES, names=("cx", "cv")
    )
    order = (
        ("rows", "columns", "ry", "cx", "cv", "ri")
        if reduces
        else ("rows", "columns", "ry", "cx", "ri", "cv")
    )
    s = s.reorder(op, *order).bind(op, "ry", "threadIdx.y").bind(op, "cx", "threadIdx.x")
    return s.unroll(op, "ri").unroll(op, "cv") if reduces else s.unroll(op, "ri").vectorize(op, "cv", LANES)


def _each_row(s: cora.Schedule, op: str) -> cora.Schedule:
    """One number of each row, by one thread."""
    s = s.split(op, "row", ROW_THREADS * COLUMN_THREADS, names=("rows", "r"), tail="cover")
    s = s.split(op, "r", COLUMN_THREADS, names=("ry", "rx"))
    return s.bind(op, "ry", "threadIdx.y").bind(op, "rx", "threadIdx.x")


def _lse(s: cora.Schedule, op: str) -> cora.Schedule:
    """Logarithms of sums, one thread for each row."""
    s = s.split(op, "row", ROWS, names=("whole", "r"), tail="guard")
    s = s.reorder(op, "batch", "block", "group", "member", "whole", "r").fuse(
        op, "batch", "block", name="tile"
    )
    s = s.bind(op, "r", "threadIdx.x").bind(op, "tile", "blockIdx.x")
    return s.bind(op, "group", "blockIdx.y").bind(op, "member", "blockIdx.z")


def _loops(s: cora.Schedule, stage: str) -> tuple[str, str]:
    outer, inner = (leaf.name for leaf in s.nest(stage).leaves)
    return outer, inner
