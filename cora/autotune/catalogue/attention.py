"""Scores of ragged self-attention: S = Q K^T, scaled, for each sequence and head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cora.ir.expr import Dim
from cora.ir.tensor import Tensor
from cora.lang.define import compute, lengths, placeholder, size
from cora.lang.ops import sum as total

__all__ = ["batches", "outputs"]

HEADS, HEAD = 8, 64


def outputs() -> Tensor:
    """S[b, h, i, j] = sum over d of Q[b, i, h, d] * K[b, h, d, j] / 8; keys are stored by head and transposed."""
    b = Dim("b", size("M"))
    lens = lengths("lens", b)
    i, j = Dim("i", lens[b]), Dim("j", lens[b])
    h, d = Dim("h", HEADS), Dim("d", HEAD)
    Q, K = placeholder("Q", [b, i, h, d]), placeholder("K", [b, h, d, j])
    return compute("S", [b, h, i, j], total(Q[b, i, h, d] * K[b, h, d, j], over=d) * 0.125)


def batches(outputs: Sequence[Tensor]) -> list[dict[str, Any]]:
    """Lengths like those of sentence pairs: mostly short, some long."""
    rng = np.random.default_rng(3)
    drawn = np.clip(rng.gamma(2.5, 16.0, 32).round(), 4, 128).astype(int)
    return [{"lens": drawn.tolist()}]
