"""Schedules of B @ op(T), for CPUs: tiles of micro-kernels whose rows are columns of the result.

A micro-kernel has one depth for each of its rows, and from the right it is the columns of C whose sums end at the
diagonal. So the sums are computed the other way round, like a triangle from the left, and turned where they are stored.
"""

from __future__ import annotations

from typing import Literal

import cora
from cora.kernels.blocking import Blocking
from cora.kernels.triangular.trmm import Triangle

#: Vector lanes of what is copied across.
LANES = 16
#: Columns of T that are copied at a time; a multiple of the rows of a tile.
TURNED = 96
#: Rows of C in a block, at most: their sums are scratch.
MOST = 512


def tiled(
    C: cora.Tensor,
    triangle: Triangle,
    blocking: Blocking,
    balance: Literal["cost", "count"],
    *,
    copied: bool,
) -> cora.Schedule:
    """Blocks of rows of C in parallel, each with the panels of its rows of B, which are copied across.

    copied: whether what the columns of a dense triangle that is not transposed hold is copied to rows.
    """
    s = cora.schedule(C).outline(C, "sums")
    bare = s.nest("sums").tensor.body == C.body
    s = s.split(C, "i", min(blocking.column_block, MOST), names=("ic", "ii"))
    s = s.split(C, "j", LANES, names=("jo", "jl")).reorder(C, "ic", "jo", "ii", "jl")
    s = s.compute_at("sums", C, "ic").set_scope("sums", "scratch").reorder_dims("sums", "j", "i")
    s = s.split("sums", "i", blocking.columns, names=("panel", "iv"))
    s = s.split("sums", "p", blocking.depth_block, names=("pc", "pv"))
    s = s.split("sums", "j", TURNED, names=("jb", "jw")).split("sums", "jw", blocking.rows, names=("jr", "jv"))
    s = s.reorder("sums", "pc", "jb", "jr", "panel", "jv", "iv", "pv").tensorize("sums", "jv")
    s = _triangle(s, triangle, copied)
    s = s.cache_read("sums", "B", "pc", "panels").split_dim("panels", "x", blocking.columns, names=("pb", "pl"))
    s = s.reorder_dims("panels", "pb", "y", "pl").split("panels", "x", LANES, names=("xo", "xl"))
    s = s.reorder("panels", "xo", "y", "xl").vectorize("panels", "xl", LANES)
    if not bare:  # turned first, so that the rest of the element is computed along rows
        s = s.cache_read(C, "sums", "jo", "upright").vectorize("upright", "j", LANES)
    return s.vectorize(C, "jl", LANES).parallel(C, "ic", balance=balance)


def _triangle(s: cora.Schedule, triangle: Triangle, copied: bool) -> cora.Schedule:
    """A copy of T where its columns are wanted: of packed rows to rows that are evenly apart, of dense ones across."""
    if triangle.transposed or (triangle.storage == "dense" and not copied):
        return s
    if triangle.storage == "packed":
        # in an upper triangle a column begins at another place in each row: few columns would be a wide region
        s = s.cache_read("sums", "T", "jb" if triangle.uplo == "lower" else "pc", "turned")
        return s.vectorize("turned", "column", LANES)
    s = s.cache_read("sums", "T", "jb", "turned").reorder_dims("turned", "column", "row")
    s = s.split("turned", "row", LANES, names=("ro", "rl")).reorder("turned", "ro", "column", "rl")
    return s.vectorize("turned", "rl", LANES)
