"""The layers of a transformer encoder on packed tokens, operator by operator, as in Figure 3 of the paper.

    QKV[b, i, :]  = X[b, i, :] Wqkv + bqkv              one projection for queries, keys and values
    A             = attention of QKV                    cora.kernels.attention; [b, i, heads * head size]
    P[b, i, :]    = A[b, i, :] Wo + bo + R[b, i, :]     with the residual
    N[b, i, :]    = layer norm of P[b, i, :]
    F[b, i, :]    = activation(N[b, i, :] W1 + b1)
    G[b, i, :]    = F[b, i, :] W2 + b2 + R[b, i, :]
    and a layer norm again.

Every operator is over the dims [batch, i] of the tokens, which are stored without padding, and a dim of constant size.
"""

from __future__ import annotations

from typing import Any, Literal

import cora
from cora import UserError

Activation = Literal["none", "relu", "gelu", "gelu_tanh"]
ACTIVATIONS: tuple[Activation, ...] = ("none", "relu", "gelu", "gelu_tanh")


def tokens() -> tuple[Any, Any]:
    """The dims of sequences and of the tokens of each; lengths are named `lens`, as in attention."""
    batch = cora.Dim("batch", cora.size("M"))
    return batch, cora.Dim("i", cora.lengths("lens", batch)[batch])


def linear(
    name: str, inputs: int, outputs: int, *, activation: Activation = "none", residual: bool = False
) -> tuple[cora.Tensor, cora.Tensor]:
    """`name`[batch, i, n] = activation(sum over k of X[batch, i, k] W[k, n] + bias[n]) + R[batch, i, n].

    Gives the sum with bias and residual, and the result (the same without an activation). An activation and a
    residual do not go together.
    """
    if activation not in ACTIVATIONS:
        raise UserError(f"linear: activation: expected one of {', '.join(ACTIVATIONS)}; got {activation!r}")
    if residual and activation != "none":
        raise UserError("linear: an activation and a residual do not go together")
    batch, i = tokens()
    k, n = cora.Dim("k", inputs), cora.Dim("n", outputs)
    X = cora.placeholder("X", [batch, i, k])
    W = cora.placeholder("W", [k, n])
    bias = cora.placeholder("bias", [n])
    value = cora.sum(X[batch, i, k] * W[k, n], over=k) + bias[n]
    if residual:
        value = value + cora.placeholder("R", [batch, i, n])[batch, i, n]
    if activation == "none":
        plain = cora.compute(name, [batch, i, n], value)
        return plain, plain
    total = cora.compute(f"{name}_sum", [batch, i, n], value)
    return total, cora.compute(name, [batch, i, n], activate(activation, total[batch, i, n]))


def activate(activation: Activation, x: Any) -> Any:
    """The activation of an expression: gelu is exact (by erf), gelu_tanh its approximation, both as in PyTorch."""
    match activation:
        case "none":
            return x
        case "relu":
            return cora.maximum(x, 0.0)
        case "gelu":
            return cora.gelu(x)
        case "gelu_tanh":
            return cora.gelu(x, approximate="tanh")
    raise UserError(f"activation: expected one of {', '.join(ACTIVATIONS)}; got {activation!r}")


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
