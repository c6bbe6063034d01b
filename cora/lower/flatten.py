"""Ragged accesses to flat offsets (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cora.ir.expr import Expr
from cora.ir.tensor import Tensor
from cora.storage.layout import Layout
from cora.storage.offsets import offset


def flatten(
    tensor: Tensor,
    indices: Sequence[Expr],
    layouts: Mapping[str, Layout],
    simplifier: Callable[[Expr], Expr],
) -> Expr:
    """The offset of `tensor[indices]` in its buffer, simplified: `T[f]` where loops and storage are fused alike."""
    return simplifier(offset(layouts[tensor.name], indices))
