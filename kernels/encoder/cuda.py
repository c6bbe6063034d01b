"""Schedules of the encoder's operators for GPUs.

All tokens of a batch are one loop, whatever the lengths of the sequences: that is what removes the padding.
"""

from __future__ import annotations

import cora
from cora.kernels.attention import cuda as attention
from cora.kernels.encoder.config import LayerConfig
from cora.kernels.encoder.definition import layer_operators
from cora.kernels.gemm.cuda import tokens

#: Tokens of a block, where each has a warp.
WARPS = 4
WARP = 32


def layer_norm(average: cora.Tensor, variance: cora.Tensor, result: cora.Tensor) -> cora.Schedule:
    """All three for one token by one warp, in its registers."""
    s = cora.schedule(result).fuse(result, "batch", "i", name="token")
    s = s.split(result, "token", WARPS, names=("block", "warp"))
    s = s.compute_at(variance, result, "warp").compute_at(average, result, "warp")
    for operator in (average, variance, result):
        s = s.split(operator, "n", WARP, names=("turn", "lane")).bind(operator, "lane", "threadIdx.x")
    return s.bind(result, "block", "blockIdx.x").bind(result, "warp", "threadIdx.y")


def layer_schedules(config: LayerConfig) -> dict[str, cora.Schedule]:
    """The schedule of each kernel of a layer, by its name in `LayerKernels`; weights are matrices by rows."""
    o = layer_operators(config, block=attention.ROWS)
    return {
        "qkv": tokens(o.qkv),
        "attended": attention.stored(o.attended, queries="QKV", values="QKV"),
        "projected": tokens(o.projected),
        "normed": layer_norm(*o.normed),
        "inner": tokens(o.inner),
        "outer": tokens(o.outer),
    }
