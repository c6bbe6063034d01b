"""Schedules of attention for CPUs.

Everything about a block of queries happens while its scores are in the cache: the scores, in tiles of micro-kernels;
maximum, exponentials and sum of each row, in lanes; the weighted sums of values, in tiles again. Keys are transposed
once for each sequence and head, just before. Sequences are shared among the workers by cost.
"""

from __future__ import annotations

import cora
from cora.kernels.attention.definition import Program

#: Rows and columns of a tile of accumulators in registers.
TILE_ROWS = 6
TILE_COLUMNS = 64
LANES = 16


def schedule(program: Program) -> cora.Schedule:
    """The best schedule for the program on a CPU with micro-kernels."""
    return fused(program) if program.lse is None else stored(program)


def fused(program: Program) -> cora.Schedule:
    """All stages of a block inside the loop over blocks of the output."""
    p = program
    s = cora.schedule(p.output).reorder(p.output, "batch", "group", "member", "block", "row", "e")
    for stage in (p.mixed, p.total, p.weights, p.top, p.scores):
        s = s.compute_at(stage, p.output, "block")
    s = s.compute_at(p.keys_t, p.output, "group")
    s = _stages(s, p).vectorize(p.output, "e", _lanes(p.spec.value_size))
    return s.parallel(p.output, "batch")


def stored(program: Program) -> cora.Schedule:
    """Every stage for the whole batch, one after the other: scores and weights are stored."""
    p = program
    s = cora.schedule(*p.outputs)
    s = _stages(s, p).vectorize(p.output, "e", _lanes(p.spec.value_size))
    stages = (p.keys_t, p.scores, p.top, p.weights, p.total, p.mixed, *p.outputs)
    for stage in stages:
        s = s.parallel(stage, "batch")
    return s


def _stages(s: cora.Schedule, p: Program) -> cora.Schedule:
    """The innermost loops of every stage."""
    s = s.reorder(p.keys_t, "d", "j").vectorize(p.keys_t, "j", LANES)
    for stage in (p.top, p.weights, p.total):
        s = s.vectorize(stage, "c", LANES)
    s = s.split(p.scores, "c", TILE_COLUMNS, names=("panel", "column"))
    s = s.split(p.scores, "row", TILE_ROWS, names=("tile", "r"), tail="balanced")
    s = s.reorder(p.scores, "panel", "tile", "r", "column", "d").tensorize(p.scores, "r")
    loops = ["block", "row", "group", "member", "e", "c"]
    held = {leaf.name for leaf in s.nest(p.mixed).leaves}
    if "block" in held:
        s = s.reorder(p.mixed, "batch", "group", "member", "block", "row", "e", "c")
    del loops
    s = s.split(p.mixed, "row", TILE_ROWS, names=("tile", "r"), tail="balanced")
    s = s.split(p.mixed, "e", TILE_COLUMNS, names=("panel", "column"))
    return s.reorder(p.mixed, "tile", "panel", "r", "column", "c").tensorize(p.mixed, "r")


def _lanes(size: int) -> int:
    """Vector lanes for a loop of constant extent: the most that are all used, up to one register."""
    return next((lanes for lanes in (16, 8, 4, 2) if size % lanes == 0), 16)
