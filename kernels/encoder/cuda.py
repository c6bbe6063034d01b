"""Schedules of the encoder's token-wise operators for GPUs.

All tokens of a batch are one loop, whatever the lengths of the sequences: that is what removes the padding.
"""

from __future__ import annotations

import cora
from cora.kernels.cuda_tiles import LARGE, Tile, constant, copy_deep, copy_long, finish, product

#: Tokens of a block where each has a warp.
WARPS = 4
WARP = 32


def linear(total: cora.Tensor, result: cora.Tensor, *, tile: Tile = LARGE) -> cora.Schedule:
    """A product with weights in tiles of tokens of the whole batch; bias, residual and activation before the stores.

    All accesses are wide if the features fill whole tiles.
    """
    s = cora.schedule(result)
    if result is not total:
        s = s.inline(total)
    op = result.name
    wide = constant(s, op, "k") % tile.depth == 0 and constant(s, op, "n") % tile.columns == 0
    s = s.fuse(op, "batch", "i", name="token").split(op, "token", tile.rows, names=("it", "row"))
    s = s.split(op, "n", tile.columns, names=("jt", "column")).reorder(op, "it", "jt", "row", "column", "k")
    s = product(s, op, "row", "column", "k", tile)
    s = s.cache_read(op, "X", "po", name="x_tile").cache_read(op, "W", "po", name="w_tile")
    s = copy_deep(s, "x_tile", "batch_i", "k", tile, wide=wide)
    s = copy_long(s, "w_tile", "k", "n", tile, wide=wide)
    return finish(s, op).bind(op, "it", "blockIdx.x").bind(op, "jt", "blockIdx.y")


def layer_norm(average: cora.Tensor, variance: cora.Tensor, result: cora.Tensor) -> cora.Schedule:
    """All three for one token by one warp, in its registers."""
    s = cora.schedule(result).fuse(result, "batch", "i", name="token")
    s = s.split(result, "token", WARPS, names=("block", "warp"))
    s = s.compute_at(variance, result, "warp").compute_at(average, result, "warp")
    for operator in (average, variance, result):
        s = s.split(operator, "n", WARP, names=("turn", "lane")).bind(operator, "lane", "threadIdx.x")
    return s.bind(result, "block", "blockIdx.x").bind(result, "warp", "threadIdx.y")
