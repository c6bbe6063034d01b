"""What the kernels should compute, sequence by sequence, in NumPy and float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import erf
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: Hostile batches of lengths, around tiles and blocks of 6, 16, 24 and 64.
HOSTILE: tuple[tuple[int, ...], ...] = (
    (),
    (0, 0),
    (0, 3, 0, 0),
    (1,),
    (23, 24, 25, 5, 6, 7),
    (15, 16, 17, 63, 64, 65),
    (2, 1, 131, 3, 1),
    (20, 20, 20),
)


def parts(lengths: Sequence[int]) -> list[slice]:
    """Where the tokens of each sequence are."""
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return [slice(a, b) for a, b in pairwise(starts)]


def seen_by(causal: str, window: int | None, queries: int, keys: int) -> Array:
    """Which key each query sees."""
    i, j = np.arange(queries)[:, None], np.arange(keys)
    if causal == "no":
        return np.ones((queries, keys), bool)
    at = i + (keys - queries if causal == "bottom-right" else 0)
    seen = j <= at
    return seen if window is None else seen & (at - j < window)


def attention(
    q: Array,
    k: Array,
    v: Array,
    lengths: Sequence[int],
    kv_lengths: Sequence[int],
    scale: float,
    causal: str = "no",
    window: int | None = None,
    bias: Callable[[int, int, Array, Array], Array] | None = None,
    mask: Callable[[int, int, Array, Array], Array] | None = None,
) -> tuple[Array, Array]:
    """The result [tokens, heads, value size] and the log-sum-exp [tokens, heads]; functions of (b, h, i, j)."""
    ratio = q.shape[1] // k.shape[1]
    out = np.zeros((len(q), q.shape[1], v.shape[2]))
    lse = np.full((len(q), q.shape[1]), -np.inf)
    for b, (own, other) in enumerate(zip(parts(lengths), parts(kv_lengths), strict=True)):
        rows, columns = lengths[b], kv_lengths[b]
        i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
        seen = seen_by(causal, window, rows, columns)
        for h in range(q.shape[1]):
            x = q[own, h].astype(np.float64) @ k[other, h // ratio].astype(np.float64).T * scale
            if bias is not None:
                x = x + bias(b, h, i, j)
            visible = seen if mask is None else seen & mask(b, h, i, j)
            x = np.where(visible, x, -np.inf)
            top = np.where(visible.any(axis=1), x.max(axis=1, initial=-np.inf), 0.0)[:, None]
            e = np.exp(x - top)
            total = e.sum(axis=1)
            some = total > 0
            mixed = e @ v[other, h // ratio].astype(np.float64)
            out[own, h] = np.divide(mixed, total[:, None], out=np.zeros_like(mixed), where=some[:, None])
            lse[own, h] = np.where(some, np.log(np.where(some, total, 1.0)) + top[:, 0], -np.inf)
    return out, lse


def layer_norm(x: Array, gamma: Array, beta: Array, epsilon: float = 1e-5) -> Array:
    """Over the last axis."""
    x = x.astype(np.float64)
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon) * gamma + beta


def activation(name: str, x: Array) -> Array:
    """gelu, gelu_tanh or relu."""
    match name:
        case "relu":
            return np.maximum(x, 0.0)
        case "gelu":
            return x * 0.5 * (1.0 + np.vectorize(erf, otypes=[float])(x / np.sqrt(2.0)))
        case "gelu_tanh":
            return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    raise ValueError(name)


def encoder_layer(config: Any, w: Any, x: Array, lengths: Sequence[int]) -> Array:
    """One layer (a LayerConfig and LayerWeights) on packed tokens."""

    def attended(tokens: Array) -> Array:
        qkv = tokens @ w.qkv.astype(np.float64) + w.qkv_bias
        q, k, v = np.split(qkv.reshape(len(tokens), 3 * config.heads, config.head_size), 3, axis=1)
        mixed = attention(q, k, v, lengths, lengths, config.head_size**-0.5)[0]
        return np.asarray(mixed.reshape(len(tokens), config.hidden) @ w.out + w.out_bias)

    def fed(tokens: Array) -> Array:
        inner = tokens @ w.inner.astype(np.float64) + w.inner_bias
        return np.asarray(
            (inner if config.activation == "none" else activation(config.activation, inner)) @ w.outer
            + w.outer_bias
        )

    def norm1(tokens: Array) -> Array:
        return layer_norm(tokens, w.norm1_gamma, w.norm1_beta, config.epsilon)

    def norm2(tokens: Array) -> Array:
        return layer_norm(tokens, w.norm2_gamma, w.norm2_beta, config.epsilon)

    x = x.astype(np.float64)
    if config.norm == "post":
        x = norm1(x + attended(x))
        return norm2(x + fed(x))
    x = x + attended(norm1(x))
    return np.asarray(x + fed(norm2(x)))
