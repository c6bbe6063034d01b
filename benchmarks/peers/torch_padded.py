"""PyTorch's batched product on a fully padded batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.peers.blas import Call, Gemm


class PaddedBmm:
    """`torch.bmm` with its own padded arrays: every matrix is as large as the largest of the batch."""

    name = "torch_padded"

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def set_threads(self, threads: int) -> None:
        """Use this many threads from now on."""
        self._torch.set_num_threads(threads)

    def gemm(self, problems: Sequence[Gemm]) -> Call:
        """A call that computes the padded products; padding the operands is not part of it."""
        rows, columns, depth = self.padded_shape(problems)
        A = np.zeros((len(problems), rows, depth), np.float32)
        B = np.zeros((len(problems), depth, columns), np.float32)
        for a, b, p in zip(A, B, problems, strict=True):
            a[: p.A.shape[0], : p.A.shape[1]] = p.A
            b[: p.B.shape[0], : p.B.shape[1]] = p.B
        left, right = self._torch.from_numpy(A), self._torch.from_numpy(B)
        out = self._torch.empty(len(problems), rows, columns)
        bmm = self._torch.bmm

        def call() -> None:
            bmm(left, right, out=out)

        call.out = out  # type: ignore[attr-defined]
        return call

    @staticmethod
    def padded_shape(problems: Sequence[Gemm]) -> tuple[int, int, int]:
        """The largest m, n and k of a batch."""
        return (
            max(p.A.shape[0] for p in problems),
            max(p.B.shape[1] for p in problems),
            max(p.A.shape[1] for p in problems),
        )

    @staticmethod
    def stored_bytes(problems: Sequence[Gemm]) -> int:
        """Bytes of the padded operands and the result."""
        m, n, k = PaddedBmm.padded_shape(problems)
        return 4 * len(problems) * (m * k + k * n + m * n)


@cache
def padded_bmm() -> PaddedBmm | None:
    """PyTorch; None if it is not installed."""
    try:
        return PaddedBmm(import_module("torch"))
    except ImportError:
        return None
