"""`attention`: the function to call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

import cora
from cora import UserError
from cora.kernels.arrays import Tokens, tokens
from cora.kernels.attention.definition import Attention, Causal, Score, define
from cora.kernels.attention.schedules import schedule


def attention(
    q: Any,
    k: Any,
    v: Any,
    lengths: Any = None,
    kv_lengths: Any = None,
    *,
    cu_seqlens: Any = None,
    kv_cu_seqlens: Any = None,
    causal: bool | str = False,
    window: int | None = None,
    scale: float | None = None,
    bias: Score | None = None,
    mask: Score | None = None,
    operands: Mapping[str, Any] | None = None,
    lse: bool = False,
    threads: int | None = None,
) -> Any:
    """softmax(scale * q k^T + bias) v for each sequence and head of a ragged batch, in float32, forward only.

    q: [tokens, heads, head_size]; k: [kv tokens, kv_heads, head_size]; v: [kv tokens, kv_heads, value_size], with
    heads a multiple of kv_heads. All three are RaggedArrays [batch, i, heads, size], NumPy arrays or PyTorch tensors
    with `lengths` or `cu_seqlens` (those of keys too, unless `kv_lengths` or `kv_cu_seqlens` are given), or jagged
    nested tensors, [batch, i, heads, size] or [batch, heads, i, size]. Memory is used as it is.

    causal: True or "bottom-right": the last query of a sequence sees its last key, those before it one less each;
    "top-left": query i sees the keys up to i. window: of those, only the nearest so many. scale: 1 / sqrt(head_size)
    by default. bias, mask: functions of a `Place` that give an expression, a term of the scaled score, and whether a
    key is seen; `operands` are the arrays of the placeholders in them, by name. lse: also give the logarithm of the
    sum of exponentials, [tokens, heads]. threads: all processors by default.

    A query that sees no key gives 0, with lse -inf. Gives an array of the kind of q, [tokens, heads, value_size].
    A kernel is built when a kind of attention is first asked for (functions count as the same if they are the same
    object). Raises UserError for arguments that do not fit one another; UnsupportedError for tensors that require
    gradients.
    """
    query = tokens("q", q, lengths, cu_seqlens, inner=2)
    key, value = (
        tokens(n, a, *_pair(lengths, cu_seqlens, kv_lengths, kv_cu_seqlens), inner=2)
        for n, a in (("k", k), ("v", v))
    )
    spec = _spec(query, key, value, causal, window, scale, bias, mask, lse)
    kernel = kernel_of(spec)
    named: dict[str, Any] = {"lens": query.lengths, "threads": threads, **(operands or {})}
    if not spec.one_length:
        named["kv_lens"] = key.lengths
    if operands is not None:
        unknown = sorted(set(operands) - (set(kernel.inputs) - {"Q", "K", "V"}))
        if unknown:
            raise UserError(f"attention: operands: no placeholder of bias or mask is named '{unknown[0]}'")
    result = kernel(Q=query.values, K=key.values, V=value.values, **named)
    shape = (len(query.values), spec.heads, spec.value_size)
    if not lse:
        return query.wrap(result.values.reshape(shape))
    output, sums = result
    return query.wrap(output.values.reshape(shape)), query.wrap(sums.values.reshape(shape[:2]))


@lru_cache(maxsize=64)
def kernel_of(spec: Attention) -> cora.Kernel:
    """The kernel for a kind of attention: inputs Q, K, V and the operands; outputs O, and lse if asked for."""
    return cora.build(cora.Deferred(("attention", spec), lambda: schedule(define(spec))))


def _pair(lengths: Any, starts: Any, kv_lengths: Any, kv_starts: Any) -> tuple[Any, Any]:
    """Lengths and cu_seqlens of keys: those of queries if they have none of their own."""
    if kv_lengths is None and kv_starts is None:
        return lengths, starts
    return kv_lengths, kv_starts


def _spec(
    query: Tokens,
    key: Tokens,
    value: Tokens,
    causal: bool | str,
    window: int | None,
    scale: float | None,
    bias: Score | None,
    mask: Score | None,
    lse: bool,
) -> Attention:
    _, heads, head_size = query.values.shape
    _, kv_heads, key_size = key.values.shape
    if key_size != head_size:
        raise UserError(f"attention: heads of q have {head_size} elements, those of k {key_size}")
    if value.values.shape[1] != kv_heads:
        raise UserError(f"attention: k has {kv_heads} heads, v {value.values.shape[1]}")
    if not np.array_equal(key.lengths, value.lengths):
        raise UserError("attention: k and v have different lengths")
    if len(key.lengths) != len(query.lengths):
        raise UserError(f"attention: q has {len(query.lengths)} sequences, k {len(key.lengths)}")
    direction: Causal = {False: "no", True: "bottom-right"}.get(causal, causal)  # type: ignore[assignment,arg-type]
    return Attention(
        heads,
        kv_heads,
        head_size,
        value.values.shape[2],
        max(head_size, 1) ** -0.5 if scale is None else float(scale),
        direction,
        window,
        bool(np.array_equal(query.lengths, key.lengths)),
        bias,
        mask,
        lse,
    )
