"""Schedules of attention for GPUs.

Blocks of up to 64 queries of one sequence and head are tiles, and the keys that a block may see are cut into tiles as
well. All tiles of a batch are one grid: no block of threads is launched for what is not there.
"""

from __future__ import annotations

import cora
from cora.kernels.attention.definition import Program
from cora.kernels.cuda_tiles import LANES, Tile, copy_deep, copy_long, finish, product

#: Rows of a block of queries (`Attention.block`) that suit these schedules, which take any number.
ROWS = 64
#: Columns of a tile: 64 keys, or elements of a value. With 64 rows, a thread has 8 x 4 elements.
COLUMNS = 64
ROW_THREADS = 8
WARPS = 4
WARP = 32


def stored(program: Program, *, queries: str = "Q", values: str = "V") -> cora.Schedule:
    """Three kernels: scores; maximum and sum of each row; weighted sums of values.

    Scores are stored. Weights are not: they are computed from scores where they are used, twice.

    queries, values: the tensors that they are read from.
    """
    p = program
    s = cora.schedule(*p.outputs).recompute(p.weights, p.total).inline("weights_again")
    s = _output(_rows(_scores(s, p, queries), p), p, values)
    return s if p.lse is None else _element_of_rows(s, p, p.lse.name)


def _tile(p: Program) -> Tile:
    return Tile(rows=-(-p.spec.block // ROW_THREADS) * ROW_THREADS, columns=COLUMNS, row_threads=ROW_THREADS)


def _scores(s: cora.Schedule, p: Program, queries: str) -> cora.Schedule:
    """Queries times keys, of which the tiles lie with the tokens innermost."""
    op, tile = p.scores.name, _tile(p)
    s = s.pad_dim(op, "c", LANES).pad_loop(op, "c", LANES)
    s = s.split(op, "row", tile.rows, names=("whole", "r"), tail="cover").split(
        op, "c", tile.columns, names=("ct", "column")
    )
    s = s.reorder(op, "batch", "block", "ct", "group", "member", "whole", "r", "column", "d")
    s = product(s.fuse(op, "batch", "block", "ct", name="tile"), op, "r", "column", "d", tile)
    s = s.compute_at(p.keys_t, op, "po").set_scope(p.keys_t, "scratch")
    s = s.cache_read(op, queries, "po", name="q_tile")
    s = copy_deep(s, "q_tile", *_loops(s, "q_tile"), tile.rows, tile, wide=p.spec.head_size % tile.depth == 0)
    return _grid(finish(_keys(s, p.keys_t.name, tile), op), op)


def _keys(s: cora.Schedule, op: str, tile: Tile) -> cora.Schedule:
    """Keys as they are read, four elements of a token by one thread; threads side by side write side by side."""
    s = s.split(op, "j", tile.columns, names=("jw", "jj"), tail="cover")
    s = s.split(op, "jj", 2 * tile.column_threads, names=("jo", "jp"))
    s = s.split(op, "jp", tile.column_threads, names=("jy", "tx"))
    s = s.split(op, "d", tile.depth, names=("dw", "dd"), tail="cover").split(
        op, "dd", LANES, names=("dy", "dl")
    )
    s = (
        s.reorder(op, "dw", "jw", "jo", "jy", "dy", "tx", "dl")
        .fuse(op, "jy", "dy", name="ty")
        .unroll(op, "jo")
    )
    s = s.vectorize(op, "dl", LANES)
    return s.bind(op, "ty", "threadIdx.y").bind(op, "tx", "threadIdx.x")


def _rows(s: cora.Schedule, p: Program) -> cora.Schedule:
    """Maximum and sum of each row by one warp."""
    op = p.inverse.name
    s = s.split(op, "row", WARPS, names=("turn", "warp"))
    s = s.reorder(op, "batch", "block", "group", "member", "turn", "warp").fuse(
        op, "batch", "block", name="tile"
    )
    s = s.compute_at(p.total, op, "warp").compute_at(p.top, op, "warp")
    for stage in (p.total, p.top):
        s = s.split(stage, "c", WARP, names=("step", "lane")).bind(stage, "lane", "threadIdx.x")
    return _grid(s.bind(op, "warp", "threadIdx.y"), op)


def _output(s: cora.Schedule, p: Program, values: str) -> cora.Schedule:
    """Weights, computed as they are read, times values."""
    op, tile = p.output.name, _tile(p)
    s = s.split(op, "row", tile.rows, names=("whole", "r"), tail="cover").split(
        op, "e", tile.columns, names=("et", "column")
    )
    s = s.reorder(op, "batch", "block", "group", "member", "et", "whole", "r", "column", "c")
    s = s.fuse(op, "batch", "block", name="tile").fuse(op, "member", "et", name="part")
    s = product(s, op, "r", "column", "c", tile).peel(op, "po", last=1)
    s = s.compute_at(p.weights, op, "po").set_scope(p.weights, "scratch")
    s = s.cache_read(op, values, "po", name="v_tile")
    s = copy_deep(s, p.weights.name, "row", "c", tile.rows, tile, wide=True)
    s = copy_long(
        s, "v_tile", *_loops(s, "v_tile"), tile.columns, tile, wide=p.spec.value_size % tile.columns == 0
    )
    return _grid(finish(s, op), op, "part")


def _element_of_rows(s: cora.Schedule, p: Program, op: str) -> cora.Schedule:
    """One number of each row, by one thread."""
    s = s.split(op, "row", ROWS, names=("whole", "r"), tail="cover").reorder(
        op, "batch", "block", "group", "member", "whole", "r"
    )
    return _grid(s.fuse(op, "batch", "block", name="tile").bind(op, "r", "threadIdx.x"), op)


def _grid(s: cora.Schedule, op: str, last: str = "member") -> cora.Schedule:
    """Tiles along x, heads along y and z."""
    return s.bind(op, "tile", "blockIdx.x").bind(op, "group", "blockIdx.y").bind(op, last, "blockIdx.z")


def _loops(s: cora.Schedule, stage: str) -> tuple[str, str]:
    outer, inner = (leaf.name for leaf in s.nest(stage).leaves)
    return outer, inner
