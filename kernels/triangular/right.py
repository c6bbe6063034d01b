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
#: Rows of C in a block, at most: their sums are scratch.
MOST = 512
#: Columns of C and steps of their sums for which T is copied at a time. Both are multiples of the rows of a tile, and
#: the copied rows are no power of two apart, or they would meet in few places of the cache.
COLUMNS, DEPTH = 192, 240


def tiled(
    C: cora.Tensor,
    triangle: Triangle,
    blocking: Blocking,
    balance: Literal["cost", "count"],
    *,
    copied: bool,
) -> cora.Schedule:
    """Blocks of rows of C in parallel; their rows of B are copied across, to panels.

    copied: whether a dense triangle is copied where its columns are wanted; a packed one is in any case.
    """
    s = cora.schedule(C).outline(C, "sums")
    bare = s.nest("sums").tensor.body == C.body
    s = s.split(C, "i", min(blocking.column_block, MOST), names=("ic", "ii"))
    s = s.compute_at("sums", C, "ic").set_scope("sums", "scratch").reorder_dims("sums", "j", "i")
    s = s.split("sums", "i", blocking.columns, names=("panel", "iv"))
    s = s.split("sums", "p", DEPTH, names=("pc", "pv"))
    s = s.split("sums", "j", COLUMNS, names=("jb", "jw"))
    s = s.split("sums", "jw", blocking.rows, names=("jr", "jv"))
    # blocks of the sum inside those of columns: their number ends at the diagonal, and so does what is copied of T
    s = s.reorder("sums", "jb", "pc", "jr", "panel", "jv", "iv", "pv").tensorize("sums", "jv")
    if not triangle.transposed and (copied or triangle.storage == "packed"):
        s = _turned(s.cache_read("sums", "T", "pc", "turned"), triangle)
    s = s.cache_read("sums", "B", "ic", "panels")
    s = s.split_dim("panels", "x", blocking.columns, names=("pb", "pl")).reorder_dims(
        "panels", "pb", "y", "pl"
    )
    s = s.split("panels", "x", LANES, names=("xo", "xl"))
    s = s.reorder("panels", "xo", "y", "xl").vectorize("panels", "xl", LANES)
    s = s.split(C, "j", LANES, names=("jo", "jl")).reorder(C, "ic", "jo", "ii", "jl")
    if not bare:  # turned first, so that the rest of the element is computed along rows
        s = s.cache_read(C, "sums", "jo", "upright").vectorize("upright", "j", LANES)
    return s.vectorize(C, "jl", LANES).parallel(C, "ic", balance=balance)


def _turned(s: cora.Schedule, triangle: Triangle) -> cora.Schedule:
    """The copy of a dense T across; of packed rows, which are not evenly apart, as they lie."""
    if triangle.storage == "packed":
        return s.vectorize("turned", "column", LANES)
    s = s.reorder_dims("turned", "column", "row").split("turned", "row", LANES, names=("ro", "rl"))
    return s.reorder("turned", "ro", "column", "rl").vectorize("turned", "rl", LANES)
