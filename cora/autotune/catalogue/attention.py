"""Self-attention of ragged sequences: the library's, with all of its stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cora.ir.tensor import Tensor
from cora.kernels.attention.definition import Attention, Program, define

__all__ = ["batches", "outputs", "program"]

HEADS, HEAD = 8, 64


def program() -> Program:
    """Eight heads of 64 elements."""
    return define(Attention(HEADS, HEADS, HEAD, HEAD, HEAD**-0.5))


def outputs() -> Tensor:
    """O[b, i, h, :] = softmax over j of (Q[b, i, h, :] . K[b, j, h, :] / 8) times V[b, j, h, :]."""
    return program().output


def batches(outputs: Sequence[Tensor]) -> list[dict[str, Any]]:
    """Lengths like those of sentence pairs: mostly short, some long."""
    rng = np.random.default_rng(3)
    drawn = np.clip(rng.gamma(2.5, 16.0, 32).round(), 4, 128).astype(int)
    return [{"lens": drawn.tolist()}]
