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
    """A product with weights in tiles of micro-kernels; bias and residual in them, the activation behind each."""
    s = cora.schedule(result)
    if result is not total:
        s = s.inline(total)
    op = result.name
    s = s.fuse(op, "batch", "i", name="token").split(op, "n", TILE_COLUMNS, names=("panel", "column"))
    s = s.split(op, "token", CHUNK, names=("chunk", "t"), tail="balanced")
    s = s.split(op, "t", TILE_ROWS, names=("tile", "r"), tail="balanced")
    s = s.reorder(op, "chunk", "panel", "tile", "r", "column", "k").tensorize(op, "r")
    return s.parallel(op, "chunk")


def layer_norm(average: cora.Tensor, variance: cora.Tensor, result: cora.Tensor) -> cora.Schedule:
    """All three for one token, in lanes."""
    s = cora.schedule(result).fuse(result, "batch", "i", name="token")
    s = s.compute_at(variance, result, "token").compute_at(average, result, "token")
    for operator in (average, variance, result):
        s = s.vectorize(operator, "n", LANES)
    return s.parallel(result, "token")
