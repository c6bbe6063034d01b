"""Schedules of the encoder's operators for GPUs.

All tokens of a batch are one loop, whatever the lengths of the sequences: that is what removes the padding.
"""

from __future__ import annotations

from typing import Any

import cora
from cora.kernels.attention import cuda as attention
from cora.kernels.attention.definition import Attention, define, packed_qkv
from cora.kernels.encoder import definition
from cora.kernels.encoder.config import LayerConfig
from cora.kernels.gemm.cuda import tokens
from cora.kernels.gemm.linear import linear

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
    h, f, size = config.hidden, config.inner, config.head_size
    kind = Attention(config.heads, config.heads, size, size, size**-0.5, block=attention.ROWS)

    def product(name: str, inputs: int, outputs: int, **more: Any) -> cora.Schedule:
        return tokens(linear(inputs, outputs, bias=True, name=name, **more))

    attended = define(kind, packed_qkv, name="attended")
    return {
        "qkv": product("qkv", h, 3 * h),
        "attended": attention.stored(attended, queries="QKV", values="QKV"),
        "projected": product("projected", h, h, residual=True),
        "normed": layer_norm(*definition.layer_norm("normed", h, config.epsilon)),
        "inner": product("inner", h, f, activation=config.activation),
        "outer": product("outer", f, h, residual=True),
    }
