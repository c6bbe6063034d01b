"""Attention and multi-head attention as PyTorch's users run them on batches of unequal lengths.

As in `torch_encoder`, data is prepared beforehand and only the computation is timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peers.torch_encoder import MICRO_BATCHES, Way, inferring, installed

Array = npt.NDArray[np.float32]
Lengths = npt.NDArray[np.int32]


def sdpa_ways(
    q: Array, k: Array, v: Array, lengths: Lengths, threads: int, *, causal: bool = False
) -> Mapping[str, Way]:
    """scaled_dot_product_attention of packed q, k, v [tokens, heads, size]: padded to the longest with a mask,
    sequence by sequence, and as two products around a softmax, sequence by sequence.

    Empty where PyTorch is not installed.
    """
    if not installed():
        return {}
    torch = import_module("torch")
    torch.set_num_threads(threads)
    attend = torch.nn.functional.scaled_dot_product_attention
    sizes = [n for n in lengths.tolist() if n]
    parts = [[p.transpose(0, 1).contiguous() for p in torch.from_numpy(a).split(sizes)] for a in (q, k, v)]
    padded = [
        torch.nn.utils.rnn.pad_sequence([p.transpose(0, 1) for p in group], batch_first=True).transpose(1, 2)
        for group in parts
    ]
    longest = max(sizes, default=0)
    valid = torch.arange(longest)[None] < torch.tensor(sizes)[:, None]
    mask = valid[:, None, None, :]
    if causal:
        mask = mask & torch.ones(longest, longest, dtype=torch.bool).tril()[None, None]
    triangles = [torch.full((n, n), float("-inf")).triu(1) if causal else None for n in sizes]

    def products() -> list[Any]:
        results = []
        for qs, ks, vs, triangle in zip(*parts, triangles, strict=True):
            scores = qs @ ks.transpose(1, 2) * (q.shape[2] ** -0.5)
            if triangle is not None:
                scores = scores + triangle
            results.append(torch.softmax(scores, -1) @ vs)
        return results

    def packed(results: list[Any]) -> Any:
        return torch.cat([r.transpose(0, 1) for r in results])

    return {
        "torch padded": inferring(
            torch,
            lambda: attend(*padded, attn_mask=mask),
            lambda y: torch.cat([row.transpose(0, 1)[:n] for row, n in zip(y, sizes, strict=True)]),
        ),
        "torch by sequence": inferring(
            torch, lambda: [attend(*three, is_causal=causal) for three in zip(*parts, strict=True)], packed
        ),
        "torch products": inferring(torch, products, packed),
    }


def mha_ways(
    qkv: tuple[Array, Array], out: tuple[Array, Array], heads: int, x: Array, lengths: Lengths, threads: int
) -> Mapping[str, Way]:
    """Multi-head attention of packed x [tokens, hidden] with weights (matrix [inputs, outputs], bias): padded, in
    sorted micro-batches, and with projections of packed tokens around a loop over sequences."""
    if not installed():
        return {}
    torch = import_module("torch")
    torch.set_num_threads(threads)
    functional = torch.nn.functional
    qkv_w, qkv_b = torch.from_numpy(qkv[0].T.copy()), torch.from_numpy(qkv[1])
    out_w, out_b = torch.from_numpy(out[0].T.copy()), torch.from_numpy(out[1])
    parts = [p for p in torch.from_numpy(x).split(lengths.tolist()) if len(p)]
    sizes = [len(p) for p in parts]

    def module(tokens: Any, mask: Any) -> Any:
        """x [batch, i, hidden]; mask [batch, 1, 1, i] of the keys that exist."""
        projected = functional.linear(tokens, qkv_w, qkv_b).unflatten(2, (3, heads, -1))
        q, k, v = projected.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return functional.linear(mixed.transpose(1, 2).flatten(2), out_w, out_b)

    def batch_of(numbers: list[int]) -> tuple[Any, Any]:
        tokens = torch.nn.utils.rnn.pad_sequence([parts[n] for n in numbers], batch_first=True)
        counts = torch.tensor([sizes[n] for n in numbers])
        valid = torch.arange(tokens.shape[1])[None] < counts[:, None]
        return tokens, None if bool(valid.all()) else valid[:, None, None, :]

    def grouped(groups: list[list[int]]) -> Way:
        batches = [batch_of(group) for group in groups]

        def packed(results: list[Any]) -> Any:
            by_number = {
                n: result[place][: sizes[n]]
                for group, result in zip(groups, results, strict=True)
                for place, n in enumerate(group)
            }
            return torch.cat([by_number[n] for n in range(len(parts))])

        return inferring(torch, lambda: [module(*batch) for batch in batches], packed)

    tokens = torch.from_numpy(x)

    def by_sequence() -> Any:
        projected = functional.linear(tokens, qkv_w, qkv_b).unflatten(1, (3, heads, -1))
        mixed = torch.empty(len(x), heads, x.shape[1] // heads)
        at = 0
        for n in sizes:
            q, k, v = projected[at : at + n].permute(1, 2, 0, 3)
            mixed[at : at + n] = functional.scaled_dot_product_attention(q, k, v).transpose(0, 1)
            at += n
        return functional.linear(mixed.flatten(1), out_w, out_b)

    order = sorted(range(len(parts)), key=lambda n: sizes[n])
    found = {
        "torch padded": grouped([list(range(len(parts)))]),
        "torch by sequence": inferring(torch, by_sequence, lambda y: y),
    }
    for size in MICRO_BATCHES:
        if size < len(parts):
            groups = [order[at : at + size] for at in range(0, len(order), size)]
            found[f"torch micro-batches of {size}"] = grouped(groups)
    return found
