"""A batch of matrix products of different shapes: C[b] = A[b] @ B[b]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cora.ir.expr import Dim
from cora.ir.tensor import Tensor
from cora.lang.define import compute, lengths, placeholder, size
from cora.lang.ops import sum as total

__all__ = ["batches", "outputs"]


def outputs() -> Tensor:
    """C[b, i, j] = sum over k of A[b, i, k] * B[b, k, j], of lengths m, n and k."""
    b = Dim("b", size("M"))
    i, j, k = (Dim(d, lengths(f, b)[b]) for d, f in (("i", "m"), ("j", "n"), ("k", "k")))
    A, B = placeholder("A", [b, i, k]), placeholder("B", [b, k, j])
    return compute("C", [b, i, j], total(A[b, i, k] * B[b, k, j], over=k))


def batches(outputs: Sequence[Tensor]) -> list[dict[str, Any]]:
    """24 products, each size a multiple of 16 from 64 to 256."""
    rng = np.random.default_rng(1)
    return [{name: (16 * rng.integers(4, 17, 24)).tolist() for name in ("m", "n", "k")}]
