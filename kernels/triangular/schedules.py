"""Schedules of operations on triangles and bands for CPUs."""

from __future__ import annotations

from typing import Literal

import cora
from cora.kernels.blocking import FINE, SEVERAL_LINES, TRIANGLE, WIDE, Blocking
from cora.kernels.triangular import right
from cora.kernels.triangular.trmm import Triangle

LOWER = Triangle()
#: So many numbers of B are not worth a copy, by whether a row of a panel is several cache lines.
CACHED = {True: 1 << 18, False: 1 << 16}
#: Rows and columns of the tiles that OpenBLAS computes.
OFFLOADED = (192, 1024)


def flat(C: cora.Tensor) -> cora.Schedule:
    """Element-wise: the packed triangle is one array; one loop over it, in vectors, in equal shares."""
    s = cora.schedule(C).fuse(C, *C.dims, name="flat").vectorize(C, "flat", 16)
    return s.parallel(C, "flat_o")


def tiled(C: cora.Tensor, *, triangle: Triangle = LOWER, blocking: Blocking = TRIANGLE) -> cora.Schedule:
    """Tiles of micro-kernels along panels of B, whose depth ends at the diagonal.

    From the left a panel is copied by the micro-kernel that uses it first, so the rows with the longest sums come
    first. Of packed rows whose columns are wanted, those of a block of the sum are copied to rows evenly apart. Blocks
    of columns and of rows are shared by cost. From the right the rows of a micro-kernel are columns of C: see
    `right.tiled`.
    """
    return _tiled(C, triangle, blocking, "cost")


def tiled_wide(C: cora.Tensor, *, triangle: Triangle = LOWER) -> cora.Schedule:
    """`tiled` in blocks of 2048 columns: the triangle is read less often, but there are few blocks to share."""
    return _tiled(C, triangle, WIDE, "cost")


def tiled_fine(C: cora.Tensor, *, triangle: Triangle = LOWER) -> cora.Schedule:
    """`tiled` in smaller blocks: for a small triangle on several workers."""
    return _tiled(C, triangle, FINE, "cost")


def uncopied(C: cora.Tensor, *, triangle: Triangle = LOWER) -> cora.Schedule:
    """`tiled` along B where it is: better where B fits a core's own cache. From the right T is left where it is."""
    return _tiled(C, triangle, TRIANGLE, "cost", copied=False)


def openblas(C: cora.Tensor, *, triangle: Triangle = LOWER) -> cora.Schedule:
    """What is dense of a triangle is offloaded: tiles are calls of OpenBLAS up to the diagonal of their first row.

    The rest, near the diagonal, is computed by micro-kernels. BLAS takes rows that are evenly apart, in their order;
    where those of the triangle are not (packed, or with sums that shrink) this is `tiled`.
    """
    if triangle.side == "right" or triangle.storage == "packed" or not triangle.grows:
        return tiled(C, triangle=triangle)
    s = cora.schedule(C).split(C, "j", OFFLOADED[1], names=("jc", "jv"), tail="balanced")
    s = s.split(C, "i", OFFLOADED[0], names=("ic", "iv"), tail="balanced").reorder(
        C, "jc", "ic", "iv", "jv", "p"
    )
    return s.fuse(C, "jc", "ic", name="block").tensorize(C, "iv", "openblas").parallel(C, "block")


def suited(n: int, width: int, workers: int = 1, side: str = "left", *, panel: int = TRIANGLE.columns) -> str:
    """The name of the variant of `trmm` that suits a triangle; a rule of thumb, measured on Zen 4 and Zen 3.

    panel: columns of a panel: by default those of this machine's micro-kernels.
    """
    if side == "left" and n * width <= CACHED[panel >= SEVERAL_LINES]:
        return "uncopied"
    if workers == 1:
        return "tiled_wide"
    blocks = -(-width // TRIANGLE.column_block)
    return "tiled" if blocks % workers == 0 or blocks >= 16 * workers else "tiled_fine"


def tiled_unbalanced(
    C: cora.Tensor, *, triangle: Triangle = LOWER, blocking: Blocking = FINE
) -> cora.Schedule:
    """`tiled_fine` with blocks in equal numbers: the last worker gets the longest sums."""
    return _tiled(C, triangle, blocking, "count")


def rows(C: cora.Tensor, *, triangle: Triangle = LOWER) -> cora.Schedule:
    """Products: for each row of C the panels of 64 columns, vectors along them; rows are shared by cost.

    It is the same for every triangle, and for bands.
    """
    return _rows(C).parallel(C, "i")


def rows_unbalanced(C: cora.Tensor, *, triangle: Triangle = LOWER) -> cora.Schedule:
    """The same, with rows in equal numbers: of a triangle the last worker gets the most work."""
    return _rows(C).parallel(C, "i", balance="count")


def _tiled(
    C: cora.Tensor,
    triangle: Triangle,
    blocking: Blocking,
    balance: Literal["cost", "count"],
    *,
    copied: bool = True,
) -> cora.Schedule:
    if triangle.side == "right":
        return right.tiled(C, triangle, blocking, balance, copied=copied)
    turned = triangle.transposed and triangle.storage == "packed"
    # Its first use fills a panel, so the tile with the longest sums must come first, and be proved to be that.
    fills = copied and (triangle.grows or turned or triangle.storage == "dense")
    s = cora.schedule(C).split(C, "j", blocking.columns, names=("panel", "jv"))
    s = s.split(C, "panel", blocking.column_block // blocking.columns, names=("jc", "jr"), tail="balanced")
    s = s.split(C, "p", blocking.depth_block, names=("pc", "pv"))
    s = s.split(C, "i", blocking.row_block, names=("ic", "ii"), tail="balanced")
    s = s.split(C, "ii", blocking.rows, names=("ir", "iv"), tail="anchored" if fills else "balanced")
    s = s.reorder(C, "jc", "ic", "pc", "ir", "jr", "iv", "jv", "pv").tensorize(C, "iv")
    if fills and triangle.grows:
        s = s.remap(C, "ir", "reversed")
    s = s.fuse(C, "jc", "ic", name="block")
    if turned:
        s = s.cache_read(C, "T", "pc", "turned").vectorize("turned", "column", 16)
    if not copied:
        return s.parallel(C, "block", balance=balance)
    s = s.cache_read(C, "B", "pc", "panels")
    s = s.split_dim("panels", "y", blocking.columns, names=("pb", "pl"))
    s = s.reorder_dims("panels", "pb", "x", "pl")
    if fills:
        return s.fill_at_use("panels").parallel(C, "block", balance=balance)
    s = s.split("panels", "y", blocking.columns, names=("pb", "pl"))
    s = s.reorder("panels", "x", "pb", "pl").vectorize("panels", "pl", blocking.columns)
    return s.parallel(C, "block", balance=balance)


def _rows(C: cora.Tensor) -> cora.Schedule:
    s = cora.schedule(C).split(C, "j", 64, names=("jr", "jv"))
    return s.reorder(C, "jr", "p", "jv").vectorize(C, "jv", 64)
