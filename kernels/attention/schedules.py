"""Schedules of attention for CPUs.

Everything about a block of queries happens while its scores are in the cache: the scores, in tiles of micro-kernels;
maximum, exponentials and sum of each row, in lanes; the weighted sums of values, in tiles again. Keys are transposed
once for each sequence and head, just before, into panels that the tiles read from end to end. Every worker has scratch
memory for one block and one head, so nothing of the size of the scores is stored. Sequences are shared among the
workers by cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import cora
from cora.kernels.attention.definition import Program
from cora.kernels.blocking import SEVERAL_LINES

_ROWS, _COLUMNS = cora.tile_shape()


@dataclass(frozen=True, slots=True)
class Tiling:
    """Sizes of the innermost loops.

    Attributes:
        rows, columns: of a tile of accumulators in registers; as many as a micro-kernel has.
        lanes: of the loops over the scores of a row.
        keys: the loop inside which keys are transposed: for all heads of a sequence, or for one at a time.
        values: whether values are copied into panels there. Where a panel has but one cache line of a token's values,
            it is read from places far apart otherwise, and for each block again.
    """

    rows: int = _ROWS
    columns: int = _COLUMNS
    lanes: int = 16
    keys: Literal["batch", "group"] = "group"
    values: bool = _COLUMNS < SEVERAL_LINES


TILING = Tiling()
#: Keys are transposed in square blocks of so many.
SQUARE = 16


def schedule(program: Program, *, tiling: Tiling = TILING) -> cora.Schedule:
    """The best for CPUs with micro-kernels: all stages of a block inside the loop over blocks of the output."""
    p, out = program, program.output.name
    s = cora.schedule(*p.outputs).reorder(out, "batch", "group", "member", "block", "row", "e")
    for stage in (p.lse, p.inverse, p.total, p.weights, p.top, p.scores):
        s = s if stage is None else s.compute_at(stage, out, "block")
    s = s.compute_at(p.keys_t, out, tiling.keys)
    for stage in (p.keys_t, p.scores, p.top, p.weights, p.total, p.inverse):
        s = s.set_scope(stage, "scratch")
    s = _stages(s, p, tiling)
    if tiling.values and p.values is not None:
        s = _value_panels(s, out, p.values, tiling)
    return s.parallel(out, "batch")


def stored(program: Program, *, tiling: Tiling = TILING) -> cora.Schedule:
    """Every stage for the whole batch, one after the other: scores and weights are stored."""
    p = program
    s = cora.schedule(*p.outputs).reorder(p.output, "batch", "group", "member", "block", "row", "e")
    s = _stages(s, p, tiling)
    for stage in (p.keys_t, p.scores, p.top, p.weights, p.total, p.inverse, *p.outputs):
        s = s.parallel(stage, "batch")
    return s


def _stages(s: cora.Schedule, p: Program, tiling: Tiling) -> cora.Schedule:
    """The innermost loops of every stage."""
    keys = p.keys_t.name
    if p.spec.window is None:  # else the keys of a block may begin inside a panel
        s = s.split_dim(keys, "j", tiling.columns, names=("panel", "column"))
        s = s.reorder_dims(keys, "batch", "group", "panel", "d", "column")
    s = s.split(keys, "j", SQUARE, names=("j_o", "j_v"))
    inner = ("d", "j_v") if tiling.keys == "group" else ("group", "d", "j_v")
    s = s.reorder(keys, "j_o", *inner).vectorize(keys, "j_v", SQUARE)
    for stage in (p.top, p.weights, p.total):
        s = s.vectorize(stage, "c", tiling.lanes)
    s = _tiles(s, p.scores.name, "c", "d", tiling)
    return _tiles(s, p.output.name, "e", "c", tiling)


def _value_panels(s: cora.Schedule, out: str, values: str, tiling: Tiling) -> cora.Schedule:
    """The values of a sequence and head, copied into panels of columns."""
    s = s.cache_read(out, values, tiling.keys, name="values")
    dims = [dim.name for dim in s.nest("values").tensor.dims]
    token = "j" if "j" in dims else "i"
    outer = [name for name in dims[:-1] if name != token]
    element = dims[-1]
    s = s.split_dim("values", element, tiling.columns, names=("panel", "column"))
    s = s.reorder_dims("values", *outer, "panel", token, "column")
    return s.vectorize("values", element, tiling.lanes)


def _tiles(s: cora.Schedule, op: str, columns: str, over: str, tiling: Tiling) -> cora.Schedule:
    """Panels of columns outside tiles of rows, each a call of a micro-kernel."""
    s = s.split(op, columns, tiling.columns, names=("panel", "column"))
    s = s.split(op, "row", tiling.rows, names=("tile", "r"))
    return s.reorder(op, "panel", "tile", "r", "column", over).tensorize(op, "r")
