"""Schedules of the encoder's token-wise operators for CPUs; those of its products are `cora.kernels.gemm.schedules`.

All tokens of a batch are one loop, whatever the lengths of the sequences: that is what removes the padding.
"""

from __future__ import annotations

import cora

LANES = 16


def layer_norm(average: cora.Tensor, variance: cora.Tensor, result: cora.Tensor) -> cora.Schedule:
    """All three for one token, in lanes."""
    s = cora.schedule(result).fuse(result, "batch", "i", name="token")
    s = s.compute_at(variance, result, "token").compute_at(average, result, "token")
    for operator in (average, variance, result):
        s = s.vectorize(operator, "n", LANES)
    return s.parallel(result, "token")
