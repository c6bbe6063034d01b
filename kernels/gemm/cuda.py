"""Schedules of products for GPUs: tiles of both operands in shared memory, 8 x 8 sums in the registers of a thread."""

from __future__ import annotations

import cora
from cora.kernels.cuda_tiles import LARGE, constant, copy_deep, copy_long, finish, product
from cora.kernels.gemm.storage import Storage

PACKED = Storage()


def tiles(C: cora.Tensor, *, storage: Storage = PACKED) -> cora.Schedule:
    """A batch of products: one grid of tiles, of all matrices, exactly as many as there are."""
    s = storage.applied(cora.schedule(C))
    s = s.split(C, "i", LARGE.rows, names=("it", "row")).split(C, "j", LARGE.columns, names=("jt", "column"))
    s = s.reorder(C, "batch", "it", "jt", "row", "column", "p").fuse(C, "batch", "it", "jt", name="tile")
    s = product(s, C.name, "row", "column", "p").peel(C, "po", last=1)  # full steps have no condition
    s = s.cache_read(C, "A", "po", name="a_tile").cache_read(C, "B", "po", name="b_tile")
    s = copy_deep(s, "a_tile", "i", "p", LARGE.rows, wide=False)
    s = copy_long(s, "b_tile", "p", "j", LARGE.columns, wide=False)
    return finish(s, C.name).bind(C, "tile", "blockIdx.x")


def tokens(Y: cora.Tensor) -> cora.Schedule:
    """A linear layer: tiles of the tokens of the batch; all accesses are wide if the features fill whole tiles."""
    s = cora.schedule(Y).fuse(Y, "batch", "pos", name="token")
    wide = constant(s, Y, "p") % LARGE.depth == 0 and constant(s, Y, "j") % LARGE.columns == 0
    s = s.split(Y, "token", LARGE.rows, names=("it", "row")).split(
        Y, "j", LARGE.columns, names=("jt", "column")
    )
    s = product(s.reorder(Y, "it", "jt", "row", "column", "p"), Y.name, "row", "column", "p")
    s = s.cache_read(Y, "X", "po", name="a_tile").cache_read(Y, "W", "po", name="b_tile")
    s = copy_deep(s, "a_tile", "batch_pos", "p", LARGE.rows, wide=wide)
    s = copy_long(s, "b_tile", "p", "j", LARGE.columns, wide=wide)
    return finish(s, Y.name).bind(Y, "it", "blockIdx.x").bind(Y, "jt", "blockIdx.y")
