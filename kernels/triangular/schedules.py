"""Schedules of operations on triangles and bands for CPUs."""

from __future__ import annotations

import cora


def flat(C: cora.Tensor) -> cora.Schedule:
    """Element-wise: the packed triangle is one array; one loop over it, in vectors, in equal shares."""
    s = cora.schedule(C).fuse(C, *C.dims, name="flat").vectorize(C, "flat", 16)
    return s.parallel(C, "flat_o")


def rows(C: cora.Tensor) -> cora.Schedule:
    """Products: for each row of C the panels of 64 columns, vectors along them; rows are shared by cost."""
    return _rows(C).parallel(C, "i")


def rows_unbalanced(C: cora.Tensor) -> cora.Schedule:
    """The same, with rows in equal numbers: of a triangle the last worker gets the most work."""
    return _rows(C).parallel(C, "i", balance="count")


def _rows(C: cora.Tensor) -> cora.Schedule:
    s = cora.schedule(C).split(C, "j", 64, names=("jr", "jv"))
    return s.reorder(C, "jr", "p", "jv").vectorize(C, "jv", 64)
