"""A batch of matrix products in which every entry has its own shape (paper, Fig. 8).

    C[b] = activation(alpha * A[b] @ B[b] + beta * C0[b] + bias[b])

A[b] is m[b] x k[b], B[b] is k[b] x n[b], C[b] is m[b] x n[b], for any m, n, k, zero among them.
"""

from __future__ import annotations

from typing import Any

import cora
from cora.kernels.epilogue import activated


def vgemm(
    *, alpha: bool = False, beta: bool = False, bias: bool = False, activation: str = "none"
) -> cora.Tensor:
    """The output C[batch, i, j] of a batch of products; its size is `batch_size`, its lengths are `m`, `n`, `k`.

    The inputs are, in the order of their use:
        alpha: float32, a scalar (of shape []), only if asked for; else 1.
        A: float32 [batch, i, p]: matrices of m x k.
        B: float32 [batch, p, j]: matrices of k x n.
        beta: float32, a scalar, and C0: float32 [batch, i, j], only if asked for.
        bias: float32 [batch, j]: added to each row, only if asked for.

    Where k is 0 the product is 0, so that C is activation(beta * C0 + bias).

    Args:
        alpha: whether the product is multiplied by a scalar.
        beta: whether a scalar times C0 is added.
        bias: whether a row is added.
        activation: a name of `cora.kernels.epilogue.ACTIVATIONS`, applied last.

    Raises:
        UserError: an unknown activation.
    """
    batch = cora.Dim("batch", cora.size("batch_size"))
    m, n, depth = (cora.lengths(name, batch) for name in ("m", "n", "k"))
    i, j, p = cora.Dim("i", m[batch]), cora.Dim("j", n[batch]), cora.Dim("p", depth[batch])
    A = cora.placeholder("A", [batch, i, p])
    B = cora.placeholder("B", [batch, p, j])
    value: Any = cora.sum(A[batch, i, p] * B[batch, p, j], over=p)
    if alpha:
        value = cora.placeholder("alpha", [])[()] * value
    if beta:
        value = value + cora.placeholder("beta", [])[()] * cora.placeholder("C0", [batch, i, j])[batch, i, j]
    if bias:
        value = value + cora.placeholder("bias", [batch, j])[batch, j]
    return cora.compute("C", [batch, i, j], activated(activation, value))
