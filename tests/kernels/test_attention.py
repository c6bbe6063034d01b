"""Attention against NumPy, on hostile batches, in every variant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import cora
from cora.kernels.attention import Attention, Place, attention
from cora.kernels.attention.call import kernel_of
from cora.kernels.attention.recipe import ATTENTION
from cora.kernels.attention.schedules import Tiling
from tests.kernels import reference
from tests.kernels.reference import HOSTILE, Array

#: Absolute error of results of order 1: a few roundings of each of some hundred terms.
TOLERANCE = 4e-6


def arrays(
    lengths: Sequence[int],
    kv_lengths: Sequence[int],
    heads: int = 2,
    kv_heads: int = 2,
    size: int = 8,
    value_size: int | None = None,
) -> tuple[Array, Array, Array]:
    """Random q, k and v."""
    rng = np.random.default_rng(len(lengths) + sum(lengths))
    shapes = (
        (sum(lengths), heads, size),
        (sum(kv_lengths), kv_heads, size),
        (sum(kv_lengths), kv_heads, value_size or size),
    )
    q, k, v = (rng.standard_normal(shape, np.float32) for shape in shapes)
    return q, k, v


def check(result: Array, expected: Array) -> None:
    """Close everywhere, infinite where expected, and no NaN."""
    assert result.dtype == np.float32
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=TOLERANCE)


@pytest.mark.parametrize("lengths", HOSTILE, ids=str)
@pytest.mark.parametrize(
    ("causal", "window"),
    [("no", None), ("bottom-right", None), ("top-left", None), ("bottom-right", 5), ("top-left", 30)],
)
def test_self_attention(lengths: tuple[int, ...], causal: str, window: int | None) -> None:
    q, k, v = arrays(lengths, lengths)
    chosen = False if causal == "no" else causal
    out = attention(q, k, v, lengths, causal=chosen, window=window, threads=2)
    check(out, reference.attention(q, k, v, lengths, lengths, 8**-0.5, causal, window)[0])


CROSS = (
    ((0, 3, 5, 0), (4, 0, 5, 0)),
    ((1, 30, 2), (70, 1, 3)),
    ((25, 50), (24, 7)),
)


@pytest.mark.parametrize(("lengths", "kv_lengths"), CROSS, ids=str)
@pytest.mark.parametrize(
    ("causal", "window"), [("no", None), ("bottom-right", None), ("top-left", None), ("bottom-right", 4)]
)
def test_separate_lengths_of_keys(
    lengths: tuple[int, ...], kv_lengths: tuple[int, ...], causal: str, window: int | None
) -> None:
    q, k, v = arrays(lengths, kv_lengths)
    chosen = False if causal == "no" else causal
    out, lse = attention(q, k, v, lengths, kv_lengths, causal=chosen, window=window, lse=True)
    expected, sums = reference.attention(q, k, v, lengths, kv_lengths, 8**-0.5, causal, window)
    check(out, expected)
    check(lse, sums)
    blind = np.isneginf(lse)
    assert not out[blind].any()
    if 0 not in kv_lengths:  # then only the first queries of a sequence with fewer keys see none
        assert blind.any() == (causal == "bottom-right")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("causal", "window"), [("no", None), ("bottom-right", 30)])
def test_tilings_for_other_processors_give_the_same_bits(
    packed: bool, causal: str, window: int | None
) -> None:
    lengths = (0, 1, 47, 0, 24, 130)
    q, k, v = arrays(lengths, lengths, size=32)
    inputs = [np.stack([q, k, v], axis=1)] if packed else [q, k, v]
    kind = {"heads": 2, "head_size": 32, "packed": packed, "causal": causal, "window": window}
    expected = reference.attention(q, k, v, lengths, lengths, 32**-0.5, causal, window)[0]
    results = []
    for tiling in (Tiling(6, 64, values=False), Tiling(6, 16, values=True), Tiling(8, 12, values=True)):
        kernel = ATTENTION.build(definition=kind, schedule={"tiling": tiling})
        out = np.full_like(q, np.nan)
        kernel.run(cora.plan(kernel, lens=lengths, threads=2), *inputs, outputs={"O": out})
        results.append(out)
    check(results[0], expected)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize("size", [1, 7, 32, 40, 56, 72, 80, 96, 120, 128, 256])
def test_any_head_size(size: int) -> None:
    lengths = (5, 0, 26)
    q, k, v = arrays(lengths, lengths, size=size)
    check(
        attention(q, k, v, lengths),
        reference.attention(q, k, v, lengths, lengths, size**-0.5)[0],
    )


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 1), (6, 2), (3, 3), (1, 1)])
def test_groups_of_heads(heads: int, kv_heads: int) -> None:
    lengths, kv_lengths = (4, 0, 27), (9, 2, 26)
    q, k, v = arrays(lengths, kv_lengths, heads, kv_heads, 16, 24)
    out = attention(q, k, v, lengths, kv_lengths, scale=0.4)
    check(out, reference.attention(q, k, v, lengths, kv_lengths, 0.4)[0])


def test_bias_and_mask_with_ragged_operands() -> None:
    lengths = (3, 0, 29)
    q, k, v = arrays(lengths, lengths)
    rng = np.random.default_rng(5)
    slope = np.float32([0.5, 0.25])
    table = rng.standard_normal((sum(n * n for n in lengths),), np.float32)
    keep = rng.random(sum(lengths)) < 0.7

    def bias(at: Place) -> Any:
        distance = cora.cast(at.j - at.i, "float32")
        pairs = cora.placeholder("table", [at.batch, at.rows, at.keys])
        return cora.placeholder("slope", [at.heads])[at.head] * distance + pairs[at.batch, at.i, at.j]

    def mask(at: Place) -> Any:
        return cora.placeholder("keep", [at.batch, at.keys], "bool")[at.batch, at.j]

    starts = np.concatenate([[0], np.cumsum(lengths)])
    squares = np.concatenate([[0], np.cumsum(np.square(lengths))])
    operands = {"slope": slope, "table": table, "keep": keep}
    out = attention(q, k, v, lengths, bias=bias, mask=mask, operands=operands)
    expected = reference.attention(
        q,
        k,
        v,
        lengths,
        lengths,
        8**-0.5,
        bias=lambda b, h, i, j: slope[h] * (j - i) + table[squares[b] + i * lengths[b] + j],
        mask=lambda b, h, i, j: keep[starts[b] + j] & (i >= 0),
    )[0]
    check(out, expected)


def test_causal_with_mask_may_leave_nothing() -> None:
    lengths = (26, 4)
    q, k, v = arrays(lengths, lengths)
    out, lse = attention(q, k, v, lengths, causal=True, mask=lambda at: at.j > 2, lse=True)
    expected, sums = reference.attention(
        q, k, v, lengths, lengths, 8**-0.5, "bottom-right", mask=lambda b, h, i, j: (j > 2) & (i >= 0)
    )
    check(out, expected)
    check(lse, sums)
    assert np.isneginf(lse).sum() == 2 * 6


def test_large_scores_do_not_overflow() -> None:
    lengths = (40, 1)
    q, k, v = arrays(lengths, lengths)
    q *= 1000.0
    out, lse = attention(q, k, v, lengths, causal=True, lse=True)
    expected, sums = reference.attention(q, k, v, lengths, lengths, 8**-0.5, "bottom-right")
    np.testing.assert_allclose(out, expected, atol=2e-3)
    np.testing.assert_allclose(lse, sums, rtol=1e-5)


def test_nan_stays_in_its_sequence() -> None:
    lengths = (3, 30, 2)
    q, k, v = arrays(lengths, lengths)
    clean = attention(q, k, v, lengths)
    q[5] = np.nan
    out = attention(q, k, v, lengths)
    assert np.isnan(out[5]).all()
    rest = np.delete(np.arange(35), 5)
    np.testing.assert_array_equal(out[rest], clean[rest])


def test_two_workers_share_the_sequences() -> None:
    """The work of a sequence counts: neither worker gets nearly all of it."""
    for causal in ("no", "bottom-right"):
        kernel = kernel_of(Attention(8, 8, 64, 64, 0.125, causal))  # type: ignore[arg-type]
        lengths = np.random.default_rng(3).integers(5, 100, 64)
        (shares,) = kernel.balance(cora.plan(kernel, lens=lengths, threads=2), 2)
        assert shares.ratio < 1.1


def test_bits_depend_neither_on_neighbours_nor_on_threads() -> None:
    lengths = (7, 100, 1, 64)
    q, k, v = arrays(lengths, lengths)
    for causal in (False, True):
        together = attention(q, k, v, lengths, causal=causal, threads=3)
        for own in reference.parts(lengths):
            alone = attention(q[own], k[own], v[own], [own.stop - own.start], causal=causal, threads=1)
            np.testing.assert_array_equal(together[own], alone)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_heads": 2}, "multiple of that of key heads"),
        ({"causal": "left"}, "'no', 'bottom-right' or 'top-left'"),
        ({"window": 0, "causal": "top-left"}, "window: expected a positive integer"),
        ({"scale": float("nan")}, "scale: expected a positive number"),
        ({"head_size": 0}, "head_size: expected a positive integer"),
    ],
)
def test_kinds_that_do_not_exist(change: dict[str, Any], message: str) -> None:
    with pytest.raises(cora.UserError, match=message):
        Attention(**{"heads": 3, "kv_heads": 1, "head_size": 4, "value_size": 4, "scale": 1.0, **change})


def test_a_window_needs_causal() -> None:
    with pytest.raises(cora.UnsupportedError, match="window without causal"):
        Attention(1, 1, 4, 4, 1.0, window=4)


def test_arguments_that_do_not_fit() -> None:
    q, k, v = arrays((3, 2), (3, 2))
    with pytest.raises(cora.UserError, match="k has 2 heads, v 1"):
        attention(q, k, v[:, :1].copy(), [3, 2])
    with pytest.raises(cora.UserError, match="q have 8 elements, those of k 4"):
        attention(q, k[..., :4].copy(), v, [3, 2])
    with pytest.raises(cora.UserError, match="q has 2 sequences, k 1"):
        attention(q, k, v, [3, 2], [5])
    with pytest.raises(cora.UserError, match="mask must give an expression of type bool"):
        attention(q, k, v, [3, 2], mask=lambda at: at.i)
    with pytest.raises(cora.UserError, match="no placeholder of bias or mask is named 'x'"):
        attention(q, k, v, [3, 2], operands={"x": q})
