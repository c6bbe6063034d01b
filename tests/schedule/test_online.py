"""Sums and their maximum in one pass: values on hostile lengths, bits that depend on one row alone, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cora
from cora.schedule.schedule import Schedule
from cora.schedule.steps import Tail
from tests.reference import assert_matches
from tests.schedule.test_stages import HOSTILE, SETTINGS

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
i = cora.Dim("i", lens[batch])
e = cora.Dim("e", 5)
INF = float("inf")


def softmax_sum(
    seen: Callable[[Any], Any] | None = None, scale: float | None = None, rows: int = 3
) -> tuple[cora.Tensor, ...]:
    """R[batch, r, e] = sum over c of softmax over c of X[batch, r, c] * V[batch, c, e]."""
    r, c = cora.Dim("r", rows), cora.Dim("c", lens[batch])
    X, V = cora.placeholder("X", [batch, r, c]), cora.placeholder("V", [batch, i, e])
    at = X[batch, r, c]
    score = at if seen is None else cora.where(seen((batch, r, c)), at, -INF)
    top = cora.compute("top", [batch, r], cora.max(score, over=c))
    shift = cora.where(top[batch, r] > -INF, top[batch, r], 0.0)
    weight = cora.exp(at - shift if scale is None else at * scale - shift * scale)
    w = cora.compute(
        "w", [batch, r, c], weight if seen is None else cora.where(seen((batch, r, c)), weight, 0.0)
    )
    total = cora.compute("total", [batch, r], cora.sum(w[batch, r, c], over=c))
    inverse = cora.where(cora.equal(total[batch, r], 0.0), 0.0, 1.0 / total[batch, r])
    mixed = cora.sum(w[batch, r, c] * V[batch, c, e], over=c)
    return X, V, top, w, total, cora.compute("R", [batch, r, e], mixed * inverse)


SEEN: dict[str, Callable[[Any], Any] | None] = {
    "all": None,
    "none": lambda at: at[2] < 0,
    "causal": lambda at: at[2] < at[1] * 5 + 1,
    "window": lambda at: (at[2] < at[1] * 6 + 1) & (at[1] * 6 < at[2] + 5),
}


def blocks(
    s: Schedule,
    size: int | None = 4,
    order: tuple[str, ...] = ("co", "r", "e", "ci"),
    tail: Tail = "guard",
) -> Schedule:
    """All rows of a batch together, in blocks of `size` (None: they are split already), and the weights of a block."""
    s = s if size is None else s.split("R", "c", size, names=("co", "ci"), tail=tail)
    return s.reorder("R", *order).online("R", "co", "top", "total").compute_at("w", "R", "co")


def check(s: Schedule, seed: int = 0) -> cora.Kernel:
    """The schedule on hostile lengths, with scores of -inf among the others, and outputs filled with NaN."""
    kernel = cora.build(s, settings=SETTINGS)
    careful = cora.build(s, settings=cora.Settings(cache=False, guards="keep"))
    inputs = [t for t in s.tensors if t.body is None]
    rng = np.random.default_rng(seed)
    for lengths in HOSTILE:
        arrays = [cora.RaggedArray.empty(t, {"lens": lengths}, {"M": len(lengths)}) for t in inputs]
        for array in arrays:
            array.values[:] = rng.standard_normal(array.values.size) * 30
        scores = arrays[[t.name for t in inputs].index("X")].values
        scores[rng.random(scores.size) < 0.3] = -np.inf
        for built in (kernel, careful):
            outputs = {
                t.name: cora.RaggedArray.empty(
                    built.layout(t.name),
                    {"lens": lengths},
                    {"M": len(lengths)},
                    fill=np.nan,
                    dtype=t.dtype,
                    name=t.name,
                )
                for t in s.outputs
            }
            built.run(cora.plan(built, lens=lengths, threads=2), *arrays, outputs=outputs)
            for output in s.outputs:
                assert_matches(cora.interpret(output, arrays), outputs[output.name])
    return kernel


@pytest.mark.parametrize("scale", [None, 0.37])
@pytest.mark.parametrize("name", SEEN)
def test_softmax_weighted_sums(name: str, scale: float | None) -> None:
    check(blocks(cora.schedule(softmax_sum(SEEN[name], scale)[-1])))


SCHEDULES: dict[str, Callable[[Schedule], Schedule]] = {
    "one_row": lambda s: (
        s.split("R", "c", 4, names=("co", "ci"))
        .reorder("R", "r", "co", "e", "ci")
        .online("R", "co", "top", "total")
        .compute_at("w", "R", "co")
    ),
    "tile_of_rows": lambda s: blocks(
        s.split("R", "r", 2, names=("tile", "row")), order=("tile", "co", "row", "e", "ci")
    ),
    "one_element": lambda s: (
        s.split("R", "c", 3, names=("co", "ci")).online("R", "co", "top", "total").compute_at("w", "R", "co")
    ),
    "peeled": lambda s: blocks(s, tail="peel"),
    "masked": lambda s: blocks(s, tail="mask"),
    "parts": lambda s: blocks(s.split("R", "c", parts=3, names=("co", "ci")), size=None),
    "blocks_of_one": lambda s: blocks(s, 1),
    "one_block": lambda s: blocks(s, 64),
    "parallel": lambda s: (
        blocks(s)
        .set_scope("w", "scratch")
        .set_scope("top", "scratch")
        .set_scope("top_before", "scratch")
        .set_scope("top_factor", "scratch")
        .set_scope("total", "scratch")
        .set_scope("total_before", "scratch")
        .vectorize("w", "c", 4)
        .vectorize("top", "c", 4)
        .vectorize("total", "c", 4)
        .parallel("R", batch)
    ),
    "lanes": lambda s: blocks(s, 8, order=("co", "r", "ci", "e")).vectorize("R", e, 8),
    "lanes_reduced": lambda s: blocks(s, 8).vectorize("R", "ci", 8).set_scope("top", "scratch"),
    "last_block": lambda s: blocks(s).peel("R", "co", last=1),
    "rows_in_another_order": lambda s: blocks(s).split("total", "c", 2).reorder("total", "c_o", "r", "c_i"),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    check(SCHEDULES[name](cora.schedule(softmax_sum(SEEN["window"], 0.5)[-1])))
