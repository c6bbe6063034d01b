"""Schedules of operations on triangles and bands for CPUs."""

from __future__ import annotations

from typing import Literal

import cora
from cora.kernels.blocking import BLOCKING, Blocking


def flat(C: cora.Tensor) -> cora.Schedule:
    """Element-wise: the packed triangle is one array; one loop over it, in vectors, in equal shares."""
    s = cora.schedule(C).fuse(C, *C.dims, name="flat").vectorize(C, "flat", 16)
    return s.parallel(C, "flat_o")


def tiled(C: cora.Tensor, *, blocking: Blocking = BLOCKING) -> cora.Schedule:
    """A triangle from the left: tiles of micro-kernels along panels of B, whose depth ends at the diagonal.

    Blocks of columns and of rows are shared by cost. A triangle from the right has no such tiles: its sums end at
    another place in each column, so it is `rows`.
    """
    return _tiled(C, blocking, "cost")


def tiled_unbalanced(C: cora.Tensor, *, blocking: Blocking = BLOCKING) -> cora.Schedule:
    """The same, with blocks in equal numbers: the last worker gets the longest sums."""
    return _tiled(C, blocking, "count")


def rows(C: cora.Tensor) -> cora.Schedule:
    """Products: for each row of C the panels of 64 columns, vectors along them; rows are shared by cost."""
    return _rows(C).parallel(C, "i")


def rows_unbalanced(C: cora.Tensor) -> cora.Schedule:
    """The same, with rows in equal numbers: of a triangle the last worker gets the most work."""
    return _rows(C).parallel(C, "i", balance="count")


def _tiled(C: cora.Tensor, blocking: Blocking, balance: Literal["cost", "count"]) -> cora.Schedule:
    if C.dims[0].extent != cora.size("n"):  # from the right
        return _rows(C).parallel(C, "i", balance=balance)
    s = cora.schedule(C).split(C, "j", blocking.columns, names=("panel", "jv"))
    s = s.split(C, "panel", blocking.column_block // blocking.columns, names=("jc", "jr"), tail="balanced")
    s = s.split(C, "p", blocking.depth_block, names=("pc", "pv"))
    s = s.split(C, "i", blocking.rows, names=("ir", "iv"), tail="balanced")
    s = s.reorder(C, "jc", "pc", "ir", "jr", "iv", "jv", "pv")
    return s.parallel(C, "jc", balance=balance).tensorize(C, "iv")


def _rows(C: cora.Tensor) -> cora.Schedule:
    s = cora.schedule(C).split(C, "j", 64, names=("jr", "jv"))
    return s.reorder(C, "jr", "p", "jv").vectorize(C, "jv", 64)
