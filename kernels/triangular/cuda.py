"""Schedules of triangles and bands for GPUs."""

from __future__ import annotations

import cora
from cora.kernels.cuda_tiles import SMALL, Tile, copy_deep, copy_long, finish, product
from cora.kernels.triangular.trmm import Triangle

LOWER = Triangle()
#: 8 x 4 elements a thread: the conditions near the diagonal take registers as well.
TRIANGLE = Tile(rows=128, columns=64)
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


def rows(C: cora.Tensor, *, triangle: Triangle = LOWER) -> cora.Schedule:
    """A thread for each element, as many steps of the reduction as its row has; threads side by side along columns.

    It is the same for every triangle, and for bands.
    """
    s = cora.schedule(C).split(C, "i", ROWS, names=("io", "ii")).split(C, "j", COLUMNS, names=("jo", "ji"))
    s = s.reorder(C, "io", "jo", "ii", "ji").bind(C, "io", "blockIdx.x").bind(C, "jo", "blockIdx.y")
    return s.bind(C, "ii", "threadIdx.y").bind(C, "ji", "threadIdx.x")


def tiled(C: cora.Tensor, *, triangle: Triangle = LOWER, tile: Tile = TRIANGLE) -> cora.Schedule:
    """Tiles in shared memory, by default 128 x 64 elements a block, whose sums end at the diagonal.

    Steps before the diagonal have no condition, and blocks with long sums start first. Two kinds are `rows`: a packed
    upper triangle whose columns are added, since a tile of it begins at another column in each row; and a unit
    triangle, whose diagonal reads B as well, in rows that no step of the sum needs.
    """
    return _tiled(C, triangle, tile)


def tiled_small(C: cora.Tensor, *, triangle: Triangle = LOWER) -> cora.Schedule:
    """`tiled` with 64 x 64 elements a block: twice the blocks, for a small triangle."""
    return _tiled(C, triangle, SMALL)


def _tiled(C: cora.Tensor, triangle: Triangle, tile: Tile) -> cora.Schedule:
    left = triangle.side == "left"
    crooked = triangle.storage == "packed" and triangle.uplo == "upper" and left != triangle.transposed
    if crooked or triangle.unit:
        return rows(C)
    s = cora.schedule(C).split(C, "i", tile.rows, names=("it", "row"))
    s = s.split(C, "j", tile.columns, names=("jt", "column"))
    if triangle.grows:
        s = s.remap(C, "it" if left else "jt", "descending")
    s = s.reorder(C, "it", "jt", "row", "column", "p")
    s = product(s, C.name, "row", "column", "p", tile)
    # the last steps, which the diagonal passes through; one more where the sum ends at the first row, not the last
    s = s.peel(
        C, "po", last=(tile.rows if left else tile.columns) // tile.depth + (0 if triangle.grows else 1)
    )
    a, b = ("T", "B") if left else ("B", "T")
    s = s.cache_read(C, a, "po", name="a_tile").cache_read(C, b, "po", name="b_tile")
    s = finish(_copied(s, triangle, tile), C.name, unrolled=False)
    # blocks start along x first: all of the longest sums, then the next
    if left:
        return s.bind(C, "it", "blockIdx.y").bind(C, "jt", "blockIdx.x")
    return s.bind(C, "it", "blockIdx.x").bind(C, "jt", "blockIdx.y")


def _copied(s: cora.Schedule, triangle: Triangle, tile: Tile) -> cora.Schedule:
    """The copies of both operands; rows of run-time sizes begin anywhere, so they are copied one by one."""
    left = triangle.side == "left"
    own, other = ("a_tile", "b_tile") if left else ("b_tile", "a_tile")
    size, size_of_other = (tile.rows, tile.columns) if left else (tile.columns, tile.rows)
    if left != triangle.transposed:  # rows of T lie along the depth
        s = copy_deep(s, own, "row", "column", size, tile, wide=False)
    else:
        s = copy_long(s, own, "row", "column", size, tile, wide=False)
    if triangle.transposed and triangle.storage == "dense":
        s = s.reorder_dims(own, "column", "row")
    copy = copy_long if left else copy_deep
    return copy(s, other, "x", "y", size_of_other, tile, wide=False)
