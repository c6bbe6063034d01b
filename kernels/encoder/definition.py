"""The layers of a transformer encoder on packed tokens, operator by operator, as in Figure 3 of the paper.

    QKV[b, i, :]  = X[b, i, :] Wqkv + bqkv              one projection for queries, keys and values
    A             = attention of QKV                    cora.kernels.attention; [b, i, heads * head size]
    P[b, i, :]    = A[b, i, :] Wo + bo + R[b, i, :]     with the residual
    N[b, i, :]    = layer norm of P[b, i, :]
    F[b, i, :]    = activation(N[b, i, :] W1 + b1)
    G[b, i, :]    = F[b, i, :] W2 + b2 + R[b, i, :]
    and a layer norm again.

Every operator is over the sequences and their tokens, which are stored without padding, and a dim of constant size.
The products are `cora.kernels.linear`; what is left is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cora
from cora.kernels.attention.definition import Attention, Program, define, packed_qkv
from cora.kernels.encoder.config import LayerConfig
from cora.kernels.gemm.linear import linear


def tokens() -> tuple[Any, Any]:
    """The dims of sequences and of the tokens of each; lengths are named `lens`, as in attention."""
    batch = cora.Dim("batch", cora.size("batch_size"))
    return batch, cora.Dim("i", cora.lengths("lens", batch)[batch])


def layer_norm(name: str, size: int, epsilon: float) -> tuple[cora.Tensor, cora.Tensor, cora.Tensor]:
    """(X - mean) / sqrt(variance + epsilon) * gamma + beta over the last dim: average, variance and the result."""
    batch, i = tokens()
    n = cora.Dim("n", size)
    X = cora.placeholder("X", [batch, i, n])
    gamma, beta = cora.placeholder("gamma", [n]), cora.placeholder("beta", [n])
    average = cora.compute("average", [batch, i], cora.mean(X[batch, i, n], over=n))
    centred = X[batch, i, n] - average[batch, i]
    variance = cora.compute("variance", [batch, i], cora.mean(centred * centred, over=n))
    scale = cora.rsqrt(variance[batch, i] + epsilon)
    return average, variance, cora.compute(name, [batch, i, n], centred * scale * gamma[n] + beta[n])


@dataclass(frozen=True, slots=True)
class LayerOperators:
    """What the kernels of a layer compute, by the names of their outputs; `normed` with average and variance before."""

    qkv: cora.Tensor
    attended: Program
    projected: cora.Tensor
    normed: tuple[cora.Tensor, cora.Tensor, cora.Tensor]
    inner: cora.Tensor
    outer: cora.Tensor


def layer_operators(config: LayerConfig, **choices: Any) -> LayerOperators:
    """The operators of a configuration; `choices` are further fields of `Attention`."""
    h, f, size = config.hidden, config.inner, config.head_size
    kind = Attention(config.heads, config.heads, size, size, size**-0.5, **choices)

    def product(name: str, inputs: int, outputs: int, **more: Any) -> cora.Tensor:
        return linear(inputs, outputs, bias=True, name=name, **more)

    return LayerOperators(
        qkv=product("qkv", h, 3 * h),
        attended=define(kind, packed_qkv, name="attended"),
        projected=product("projected", h, h, residual=True),
        normed=layer_norm("normed", h, config.epsilon),
        inner=product("inner", h, f, activation=config.activation),
        outer=product("outer", f, h, residual=True),
    )
