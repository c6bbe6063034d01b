"""Schedules of the encoder's token-wise operators for CPUs.

All tokens of a batch are one loop, whatever the lengths of the sequences: that is what removes the padding.
"""

from __future__ import annotations

import cora

#: Tokens and columns of a tile of accumulators in registers.
TILE_ROWS = 6
TILE_COLUMNS = 64
#: Tokens that a worker takes at a time: they stay in its cache while panels of the weights pass by.
CHUNK = 192
LANES = 16


def linear(total: cora.Tensor, result: cora.Tensor) -> cora.Schedule:
    """A product with weights in tiles of micro-kernels, with bias and residual in them; then the activation."""
    s = cora.schedule(result)
    s = s.fuse(total, "batch", "i", name="token").split(total, "token", CHUNK, names=("chunk", "t"))
    s = s.split(total, "t", TILE_ROWS, names=("tile", "r")).split(
        total, "n", TILE_COLUMNS, names=("panel", "column")
    )
    s = s.reorder(total, "chunk", "panel", "tile", "r", "column", "k").tensorize(total, "r")
    s = s.parallel(total, "chunk")
    if result is not total:
        s = s.fuse(result, "batch", "i", "n", name="flat").vectorize(result, "flat", LANES)
        s = s.parallel(result, "flat_o")
    return s


def layer_norm(average: cora.Tensor, variance: cora.Tensor, result: cora.Tensor) -> cora.Schedule:
    """All three for one token, in lanes."""
    s = cora.schedule(result).fuse(result, "batch", "i", name="token")
    s = s.compute_at(variance, result, "token").compute_at(average, result, "token")
    for operator in (average, variance, result):
        s = s.vectorize(operator, "n", LANES)
    return s.parallel(result, "token")
