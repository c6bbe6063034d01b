"""Ragged accesses to flat offsets (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cora.ir.expr import Access, Expr, Read
from cora.ir.stmt import Buffer
from cora.ir.tensor import Tensor
from cora.ir.visit import transform
from cora.storage.layout import Layout
from cora.storage.offsets import offset


@dataclass(frozen=True, slots=True)
class Flat:
    """An operator over flat buffers: where its element goes, and its value."""

    buffer: Buffer
    offset: Expr
    body: Expr


def flatten(
    tensor: Tensor,
    indices: Sequence[Expr],
    layouts: Mapping[str, Layout],
    simplifier: Callable[[Expr], Expr],
) -> Expr:
    """The offset of `tensor[indices]` in its buffer, simplified: `T[f]` where loops and storage are fused alike."""
    return simplifier(offset(layouts[tensor.name], indices))


def flatten_body(
    body: Expr,
    layouts: Mapping[str, Layout],
    buffers: Mapping[str, Buffer],
    simplifier: Callable[[Expr], Expr],
) -> Expr:
    """Every access in `body` as a read of a flat buffer."""

    def rule(e: Expr) -> Expr | None:
        match e:
            case Access(tensor=tensor, indices=indices):
                return Read(buffers[tensor.name], flatten(tensor, indices, layouts, simplifier))
        return None

    return transform(body, rule)
