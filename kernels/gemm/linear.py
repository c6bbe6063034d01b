"""A linear layer on packed tokens: Y[t] = activation(X[t] @ W + bias) + residual[t]."""

from __future__ import annotations

from typing import Any

import cora
from cora.kernels.epilogue import activated


def linear(
    features_in: int,
    features_out: int,
    *,
    bias: bool = False,
    activation: str = "none",
    residual: bool = False,
    name: str = "Y",
    dtype: str = "float32",
) -> cora.Tensor:
    """The output `name`[batch, pos, j] of a linear layer; its size is `batch_size`, its lengths are `lens`.

    Sequences lie behind one another, so that Y is a matrix of sum(lens) x features_out.

    The inputs are, in the order of their use:
        X: `dtype` [batch, pos, p]: tokens of `features_in` numbers.
        W: `dtype` [p, j]: the same for all.
        bias: float32 [j], and residual: float32 [batch, pos, j], only if asked for.

    Args:
        features_in: numbers of a token of X.
        features_out: numbers of a token of Y.
        bias: whether a row is added to the product.
        activation: a name of `cora.kernels.epilogue.ACTIVATIONS`, applied to that.
        residual: whether a tensor like Y is added last.
        name: of the output.
        dtype: of X and W; sums, bias, residual and output are float32.

    Raises:
        UserError: a negative number of features, or an unknown activation.
    """
    batch = cora.Dim("batch", cora.size("batch_size"))
    pos = cora.Dim("pos", cora.lengths("lens", batch)[batch])
    p, j = cora.Dim("p", features_in), cora.Dim("j", features_out)
    X = cora.placeholder("X", [batch, pos, p], dtype=dtype)
    W = cora.placeholder("W", [p, j], dtype=dtype)
    value: Any = cora.sum(X[batch, pos, p] * W[p, j], over=p)
    if bias:
        value = value + cora.placeholder("bias", [j])[j]
    value = activated(activation, value)
    if residual:
        value = value + cora.placeholder("residual", [batch, pos, j])[batch, pos, j]
    return cora.compute(name, [batch, pos, j], value)
