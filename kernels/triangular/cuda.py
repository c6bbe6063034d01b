"""Schedules of triangles and bands for GPUs."""

from __future__ import annotations

import cora

THREADS = 128
LANES = 4
COLUMNS = 32
ROWS = 8


def flat(C: cora.Tensor) -> cora.Schedule:
    """One loop over the packed numbers, four of them a thread."""
    s = (
        cora.schedule(C)
        .fuse(C, "row", "column", name="f")
        .split(C, "f", THREADS * LANES, names=("block", "own"))
    )
    s = s.split(C, "own", LANES, names=("thread", "lane")).vectorize(C, "lane", LANES)
    return s.bind(C, "block", "blockIdx.x").bind(C, "thread", "threadIdx.x")


def rows(C: cora.Tensor) -> cora.Schedule:
    """A thread for each element, as many steps of the reduction as its row has; threads side by side along columns."""
    s = cora.schedule(C).split(C, "i", ROWS, names=("io", "ii")).split(C, "j", COLUMNS, names=("jo", "ji"))
    s = s.reorder(C, "io", "jo", "ii", "ji").bind(C, "io", "blockIdx.x").bind(C, "jo", "blockIdx.y")
    return s.bind(C, "ii", "threadIdx.y").bind(C, "ji", "threadIdx.x")
