"""Softmax over the rows of attention scores, as users of NumPy and PyTorch compute it on batches of unequal lengths.

Scores are one array for each sequence, [i, heads, j]; of PyTorch also one array padded to the longest sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peers.torch_encoder import Way, inferring, installed

Array = npt.NDArray[np.float32]


def softmax_ways(scores: Sequence[Array], threads: int) -> Mapping[str, Way]:
    """NumPy by sequence, in arrays that exist; of PyTorch, where it is installed, the padded array and by sequence.

    NumPy runs on one thread whatever `threads` is.
    """
    outs = [np.empty_like(part) for part in scores]

    def by_numpy() -> None:
        for part, out in zip(scores, outs, strict=True):
            np.subtract(part, part.max(axis=-1, keepdims=True, initial=-np.inf), out=out)
            np.exp(out, out=out)
            np.divide(out, out.sum(axis=-1, keepdims=True), out=out)

    ways = {"numpy by sequence": Way(by_numpy, lambda: np.concatenate([out.ravel() for out in outs]))}
    if not installed():
        return ways
    torch = import_module("torch")
    torch.set_num_threads(threads)
    longest = max((part.shape[2] for part in scores), default=0)
    padded = torch.zeros(len(scores), longest, scores[0].shape[1] if scores else 0, longest)
    for place, part in zip(padded, scores, strict=True):
        rows, _, keys = part.shape
        place[:rows, :, :keys] = torch.from_numpy(part)
        place[:rows, :, keys:] = -torch.inf
    parts = [torch.from_numpy(part) for part in scores]
    whole, each = torch.empty_like(padded), [torch.empty_like(part) for part in parts]

    def by_sequence() -> list[Any]:
        return [torch.softmax(part, -1, out=out) for part, out in zip(parts, each, strict=True)]

    def valid(y: Any) -> Any:
        cut = (row[: p.shape[0], :, : p.shape[2]] for row, p in zip(y, scores, strict=True))
        return torch.cat([row.flatten() for row in cut])

    ways["torch padded"] = inferring(torch, lambda: torch.softmax(padded, -1, out=whole), valid)
    ways["torch by sequence"] = inferring(
        torch, by_sequence, lambda found: torch.cat([y.flatten() for y in found])
    )
    return ways
