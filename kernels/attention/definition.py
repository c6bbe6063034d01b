"""Attention of ragged sequences, as a definition: what is computed, not how.

For every sequence b, query i and head h, with g = h // ratio and j over the keys that the query may see,

    O[b, i, h, :] = sum over j of softmax over j of (scale * Q[b, i, h, :] . K[b, j, g, :] + bias) times V[b, j, g, :]

Queries come in *blocks* of up to `rows` rows. The keys of a block are a range that depends on the block: all keys, or
for causal attention those from the first that its first row sees to the last that its last row sees. So the scores of
a block are a dense matrix, and nothing outside the triangle or the band is computed but for the corners of a block.
In memory `[batch, block, row, group, member, d]` is the plain `[batch, i, head, d]`.

A query that sees no key gives 0, and -inf as the logarithm of the sum of exponentials.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import cora
from cora import UnsupportedError, UserError

Causal = Literal["no", "bottom-right", "top-left"]
MINUS_INFINITY = -float("inf")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a score stands: what `bias` and `mask` are functions of.

    batch: a dim. head, i, j: integer expressions. rows, keys: the dims of queries and keys of a sequence, and heads
    that of heads, for placeholders of further operands: `cora.placeholder("slope", [at.heads])[at.head]`.
    """

    batch: Any
    head: Any
    i: Any
    j: Any
    heads: Any
    rows: Any
    keys: Any


Score = Callable[[Place], Any]


@dataclass(frozen=True, slots=True)
class Attention:
    """What kind of attention: everything that a kernel is built for. Lengths are not part of it.

    heads, kv_heads: of queries, and of keys and values; the first is a multiple of the second. head_size, value_size:
    of queries and keys, and of values. causal: query i sees the keys up to its own place: the last query the last
    key ("bottom-right"), or query i the key i ("top-left"). window: and of these only so many, the nearest.
    scale: factor of the scores. bias: is added to the scaled score. mask: keys for which it is false are not seen.
    one_length: queries and keys have the same lengths. lse: also compute the log-sum-exp of the scores.
    block: rows of a block.
    """

    heads: int
    kv_heads: int
    head_size: int
    value_size: int
    scale: float
    causal: Causal = "no"
    window: int | None = None
    one_length: bool = True
    bias: Score | None = None
    mask: Score | None = None
    lse: bool = False
    block: int = 24

    def __post_init__(self) -> None:
        for name in ("heads", "kv_heads", "head_size", "value_size", "block"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"attention: {name}: expected a positive integer; got {value!r}")
        if self.heads % self.kv_heads:
            raise UserError(
                f"attention: the number of query heads must be a multiple of that of key heads; "
                f"got {self.heads} and {self.kv_heads}"
            )
        if self.causal not in ("no", "bottom-right", "top-left"):
            raise UserError(
                f"attention: causal: expected 'no', 'bottom-right' or 'top-left'; got {self.causal!r}"
            )
        if self.window is not None:
            if isinstance(self.window, bool) or not isinstance(self.window, int) or self.window < 1:
                raise UserError(f"attention: window: expected a positive integer; got {self.window!r}")
            if self.causal == "no":
                raise UnsupportedError("attention: a window without causal; give a mask instead")
        if not self.scale > 0:
            raise UserError(f"attention: scale: expected a positive number; got {self.scale!r}")

    @property
    def ratio(self) -> int:
        """Query heads for each key head."""
        return self.heads // self.kv_heads


@dataclass(frozen=True, slots=True)
class Sequences:
    """The dims of a batch of queries and keys.

    batch, i, j: sequences, queries, keys. q_lens, kv_lens: their lengths; one and the same for self-attention.
    """

    batch: Any
    q_lens: Any
    kv_lens: Any
    i: Any
    j: Any

    @staticmethod
    def of(one_length: bool) -> Sequences:
        """Lengths are `lens`, or `lens` and `kv_lens`."""
        batch = cora.Dim("batch", cora.size("batch_size"))
        q_lens = cora.lengths("lens", batch)
        kv_lens = q_lens if one_length else cora.lengths("kv_lens", batch)
        return Sequences(batch, q_lens, kv_lens, cora.Dim("i", q_lens[batch]), cora.Dim("j", kv_lens[batch]))


@dataclass(frozen=True, slots=True)
class Program:
    """The operators of attention, in the order in which they are computed.

    keys_t: keys with the tokens innermost. scores: products of queries and keys. top: the largest score of a row.
    weights: exponentials. total: their sum. inverse: its inverse, or 0. output: the result. lse: if asked for.
    values: the tensor that values are read from; None if they are computed.
    """

    spec: Attention
    keys_t: cora.Tensor
    scores: cora.Tensor
    top: cora.Tensor
    weights: cora.Tensor
    total: cora.Tensor
    inverse: cora.Tensor
    output: cora.Tensor
    lse: cora.Tensor | None
    values: str | None

    @property
    def outputs(self) -> tuple[cora.Tensor, ...]:
        """What the kernel computes."""
        return (self.output,) if self.lse is None else (self.output, self.lse)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where queries, keys and values are read: functions of (batch, token, head, element)."""

    q: Callable[..., Any]
    k: Callable[..., Any]
    v: Callable[..., Any]


def separate(spec: Attention, seq: Sequences) -> Sources:
    """Three tensors: Q[batch, i, heads, d], K[batch, j, kv_heads, d], V[batch, j, kv_heads, e]."""
    heads, groups = cora.Dim("heads", spec.heads), cora.Dim("groups", spec.kv_heads)
    d, e = cora.Dim("d", spec.head_size), cora.Dim("e", spec.value_size)
    Q = cora.placeholder("Q", [seq.batch, seq.i, heads, d])
    K = cora.placeholder("K", [seq.batch, seq.j, groups, d])
    V = cora.placeholder("V", [seq.batch, seq.j, groups, e])
    return Sources(lambda *at: Q[at], lambda *at: K[at], lambda *at: V[at])


def packed_qkv(spec: Attention, seq: Sequences) -> Sources:
    """One tensor QKV[batch, i, 3, heads, d], as the encoder's projection writes it."""
    part, heads, d = cora.Dim("part", 3), cora.Dim("heads", spec.heads), cora.Dim("d", spec.head_size)
    QKV = cora.placeholder("QKV", [seq.batch, seq.i, part, heads, d])

    def read(number: int) -> Callable[..., Any]:
        return lambda batch, token, head, element: QKV[batch, token, number, head, element]

    return Sources(read(0), read(1), read(2))


def define(
    spec: Attention, sources: Callable[[Attention, Sequences], Sources] = separate, name: str = "O"
) -> Program:
    """The program of `spec` over the given sources; its output is called `name`."""
    seq = Sequences.of(spec.one_length)
    read = sources(spec, seq)
    batch, q, k = seq.batch, seq.q_lens[seq.batch], seq.kv_lens[seq.batch]
    R = spec.block
    group, member = cora.Dim("group", spec.kv_heads), cora.Dim("member", spec.ratio)
    block = cora.Dim("block", (q + R - 1) // R)
    row = cora.Dim("row", cora.minimum(R, q - block * R))
    d, e = cora.Dim("d", spec.head_size), cora.Dim("e", spec.value_size)
    i = block * R + row
    head = group * spec.ratio + member if spec.ratio > 1 else group
    first, end = _range(spec, q, k, block * R, cora.minimum(q, block * R + R) - 1)
    c = cora.Dim("c", end - first if first is not None else end)
    j = c if first is None else first + c

    keys_t = cora.compute("keys_t", [batch, group, d, seq.j], read.k(batch, seq.j, group, d))
    around = [batch, group, member, block, row]
    scores = cora.compute(
        "scores", [*around, c], cora.sum(read.q(batch, i, head, d) * keys_t[batch, group, d, j], over=d)
    )
    place = Place(batch, head, i, j, cora.Dim("heads", spec.heads), seq.i, seq.j)
    seen = _seen(spec, q, k, place)
    raw = scores[(*around, c)]
    plain = spec.bias is None
    score = raw if plain else raw * spec.scale + _expression("bias", spec.bias, place, ("float32", "float64"))
    visible = score if seen is None else cora.where(seen, score, MINUS_INFINITY)
    top = cora.compute("top", around, cora.max(visible, over=c))
    shift = cora.where(top[tuple(around)] > MINUS_INFINITY, top[tuple(around)], 0.0)
    distance = raw * spec.scale - shift * spec.scale if plain else score - shift
    weight = cora.exp(distance)
    weights = cora.compute("weights", [*around, c], weight if seen is None else cora.where(seen, weight, 0.0))
    total = cora.compute("total", around, cora.sum(weights[(*around, c)], over=c))
    sum_ = total[tuple(around)]
    inverse = cora.compute("inverse", around, cora.where(cora.equal(sum_, 0.0), 0.0, 1.0 / sum_))
    factor: Any = inverse[tuple(around)]
    lse = None
    if spec.lse:
        largest = shift * spec.scale if plain else shift
        value = cora.where(cora.equal(sum_, 0.0), MINUS_INFINITY, cora.log(sum_) + largest)
        lse = cora.compute("lse", [batch, block, row, group, member], value)
        # The factor is 0 there as it is; an output that reads lse can be computed together with it.
        factor = cora.where(cora.equal(lse[batch, block, row, group, member], MINUS_INFINITY), 0.0, factor)
    v = read.v(batch, j, group, e)
    mixed = cora.sum(weights[(*around, c)] * v, over=c)
    output = cora.compute(name, [batch, block, row, group, member, e], mixed * factor)
    values = getattr(getattr(v, "tensor", None), "name", None)
    return Program(spec, keys_t, scores, top, weights, total, inverse, output, lse, values)


def _range(spec: Attention, q: Any, k: Any, low: Any, high: Any) -> tuple[Any | None, Any]:
    """The keys that queries from `low` to `high` may see: the first (None: 0), and the end."""
    if spec.causal == "no":
        return None, k
    shift = k - q if spec.causal == "bottom-right" and not spec.one_length else 0
    end = cora.maximum(cora.minimum(high + shift + 1, k), 0)
    if spec.window is None:
        return None, end
    return cora.minimum(cora.maximum(low + shift + 1 - spec.window, 0), end), end


def _seen(spec: Attention, q: Any, k: Any, at: Place) -> Any | None:
    """The condition under which query i sees key j, of the keys of its block; None: always."""
    conditions = []
    if spec.causal != "no":
        shift = k - q if spec.causal == "bottom-right" and not spec.one_length else 0
        conditions.append(at.j < at.i + shift + 1)
        if spec.window is not None:
            conditions.append(at.i + shift < at.j + spec.window)
    if spec.mask is not None:
        conditions.append(_expression("mask", spec.mask, at, ("bool",)))
    seen = None
    for condition in conditions:
        seen = condition if seen is None else seen & condition
    return seen


def _expression(name: str, function: Score | None, at: Place, types: tuple[str, ...]) -> Any:
    assert function is not None
    value = function(at)
    if getattr(value, "dtype", None) not in types:
        got = f"{value} of type {value.dtype}" if hasattr(value, "dtype") else repr(value)
        raise UserError(f"attention: {name} must give an expression of type {types[0]}; got {got}")
    return value
