"""A batch of matrix products of different shapes: the library's `vgemm`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cora.ir.tensor import Tensor
from cora.kernels import RECIPES

__all__ = ["batches", "outputs"]


def outputs() -> Tensor:
    """C[b] = A[b] @ B[b], of lengths m, n and k."""
    output: Tensor = RECIPES["vgemm"].define()
    return output


def batches(outputs: Sequence[Tensor]) -> list[dict[str, Any]]:
    """24 products, each size a multiple of 16 from 64 to 256."""
    rng = np.random.default_rng(1)
    return [{name: (16 * rng.integers(4, 17, 24)).tolist() for name in ("m", "n", "k")}]
