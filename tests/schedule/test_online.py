"""Sums and their maximum in one pass: values on hostile lengths, bits that depend on one row alone, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cora
from cora.lang.check import program
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
                read = program([output])
                own = [array for t, array in zip(inputs, arrays, strict=True) if t in read]
                assert_matches(cora.interpret(output, own), outputs[output.name])
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
    "sums_in_blocks": lambda s: (
        blocks(s, 8)
        .split("total", "c", 2, names=("a", "b"))
        .cache_write("total", "a")
        .split("top", "c", 3, names=("x", "y"))
        .cache_write("top", "x")
    ),
    "last_block": lambda s: blocks(s).peel("R", "co", last=1),
    "rows_in_another_order": lambda s: blocks(s).split("total", "c", 2).reorder("total", "c_o", "r", "c_i"),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    check(SCHEDULES[name](cora.schedule(softmax_sum(SEEN["window"], 0.5)[-1])))


def test_several_sums_and_the_final_maximum() -> None:
    """Two sums beside the operator, one of them of weighted values, and an output that reads the final maximum."""
    r, c = cora.Dim("r", 3), cora.Dim("c", lens[batch])
    X, Z = cora.placeholder("X", [batch, r, c]), cora.placeholder("Z", [batch, i])
    V = cora.placeholder("V", [batch, cora.Dim("k", lens[batch]), e])
    top = cora.compute("top", [batch, r], cora.max(X[batch, r, c], over=c))
    peak = top[batch, r]
    weight = cora.exp(X[batch, r, c] - cora.where(peak > -INF, peak, 0.0))
    total = cora.compute("total", [batch, r], cora.sum(weight, over=c))
    moment = cora.compute("moment", [batch, r], cora.sum(Z[batch, c] * weight * 0.5, over=c))
    ratio = moment[batch, r] / cora.maximum(total[batch, r], 1e-6)
    R = cora.compute("R", [batch, r, e], cora.sum(weight * V[batch, c, e], over=c) * 0.1 + ratio)
    lse = cora.compute("lse", [batch, r], cora.log(total[batch, r]) + cora.where(peak > -INF, peak, 0.0))
    s = cora.schedule(R, lse).split(R, "c", 4, names=("co", "ci")).reorder(R, "co", "r", "e", "ci")
    s = s.online(R, "co", top, total, moment)
    assert [nest.name for nest in s.nests][-2:] == ["R", "lse"]
    check(s)
    check(s.parallel(R, batch).parallel(lse, batch))
    first = cora.schedule(lse, R).split(R, "c", 4, names=("co", "ci")).online(R, "co", top, moment, total)
    assert [nest.name for nest in first.nests][-2:] == ["R", "lse"]


def test_bits_depend_on_the_row_alone() -> None:
    s = blocks(cora.schedule(softmax_sum()[-1])).parallel("R", batch)
    kernel, inputs = cora.build(s, settings=SETTINGS), [t for t in s.tensors if t.body is None]
    rng = np.random.default_rng(3)
    x, v = rng.standard_normal((3, 100)).astype(np.float32), rng.standard_normal((100, 5)).astype(np.float32)
    found = set()
    for before, after in (([], []), ([7], [1]), ([1, 0, 129], [3, 3])):
        lengths = [*before, 100, *after]
        arrays = {t: cora.RaggedArray.empty(t, {"lens": lengths}, {"M": len(lengths)}) for t in inputs}
        for name, own in (("X", x), ("V", v)):
            (array,) = (a for t, a in arrays.items() if t.name == name)
            array.values[:] = rng.standard_normal(array.values.size)
            begin = sum(before) * (own.size // 100)
            array.values[begin : begin + own.size] = own.ravel()
        for threads in (1, 3):
            out = kernel(*arrays.values(), threads=threads)
            found.add(out.values[len(before) * 15 : len(before) * 15 + 15].tobytes())
    assert len(found) == 1


def test_json() -> None:
    R = softmax_sum()[-1]
    s = blocks(cora.schedule(R))
    again = cora.from_json([R], s.to_json())
    assert again == s
    assert again.state == s.state


def variant(
    *,
    weight: Callable[[Any, Any], Any] = lambda x, top: cora.exp(x - cora.where(top > -INF, top, 0.0)),
    best: Callable[[Any], Any] = lambda x: x,
    total: Callable[[Any], Any] = lambda w: w,
    summed: Callable[[Any, Any], Any] = lambda term, x: term,
    out: Callable[[Any, Any], Any] = lambda mixed, total: mixed / total,
    dtype: str = "float32",
    extent: Any = None,
) -> Schedule:
    """`softmax_sum` with one part of it changed, its weights inside the sums."""
    c, k = cora.Dim("c", lens[batch]), cora.Dim("k", lens[batch] if extent is None else extent)
    X, V = cora.placeholder("X", [batch, i]), cora.placeholder("V", [batch, cora.Dim("n", lens[batch]), e])
    top = cora.compute("top", [batch], cora.max(best(X[batch, k]), over=k))
    term = weight(X[batch, c], top[batch])
    sums = cora.compute("total", [batch], total(cora.sum(term, over=c)), dtype=dtype)
    R = cora.compute(
        "R", [batch, e], out(cora.sum(summed(term, X[batch, c]) * V[batch, c, e], over=c), sums[batch])
    )
    s = cora.schedule(R).split(R, "c", 4, names=("co", "ci"))
    return s.reorder(R, "co", "e", "ci")


def shifted(x: Any, top: Any, k: float = 1.0) -> Any:
    return cora.exp(x * k - cora.where(top > -INF, top, 0.0) * k)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no_guard_of_infinity": (
        lambda: variant(weight=lambda x, top: cora.exp(x - top)).online("R", "co", "top", "total"),
        r"must be score - shift.*where\(top > -inf, top, 0\)",
    ),
    "negative_scale": (
        lambda: variant(weight=lambda x, top: shifted(x, top, -2.0)).online("R", "co", "top", "total"),
        "with a positive constant k",
    ),
    "another_scale_of_the_score": (
        lambda: variant(
            weight=lambda x, top: cora.exp(x * 2.0 - cora.where(top > -INF, top, 0.0) * 3.0)
        ).online("R", "co", "top", "total"),
        "must be score - shift",
    ),
    "another_score": (
        lambda: variant(best=lambda x: x * x).online("R", "co", "top", "total"),
        "'top' is the maximum of X.*and the exponents of 'R' have X",
    ),
    "seen_by_the_maximum_alone": (
        lambda: variant(best=lambda x: cora.where(x < 3.0, x, -INF)).online("R", "co", "top", "total"),
        "'R' sums what satisfies anything",
    ),
    "two_factors": (
        lambda: variant(weight=lambda x, top: shifted(x, top) * shifted(x, top)).online("R", "co", "top"),
        "must have one factor that depends on 'top', an exponential; they have 2",
    ),
    "no_factor": (
        lambda: variant(summed=lambda term, x: cora.exp(x)).online("R", "co", "top", "total"),
        "terms of 'R' must have one factor that depends on 'top', an exponential; they have 0",
    ),
    "no_exponential": (
        lambda: variant(weight=lambda x, top: x - top).online("R", "co", "top", "total"),
        r"must be exp\(\.\.\), or where\(seen, exp\(\.\.\), 0\)",
    ),
    "a_factor_that_adds": (
        lambda: variant(weight=lambda x, top: shifted(x, top) + 1.0).online("R", "co", "top", "total"),
        r"must be exp\(\.\.\), or",
    ),
    "other_rows": (
        lambda: variant(extent=lens[batch] - 1).online("R", "co", "top", "total"),
        "'top' reduces over .* values of 'k', 'R' over",
    ),
    "more_than_a_sum": (
        lambda: variant(total=lambda w: w + 1.0).online("R", "co", "top", "total"),
        "'total' must be a reduction and nothing else",
    ),
    "a_sum_that_rounds": (
        lambda: variant(dtype="float16").online("R", "co", "top", "total"),
        "'total' is stored as float16, which rounds",
    ),
    "not_read": (
        lambda: variant(out=lambda mixed, total: mixed).online("R", "co", "top", "total"),
        "no operator 'total'",
    ),
    "no_maximum": (
        lambda: variant().online("R", "co", "total", "top"),
        "must have one factor that depends on 'total', an exponential; they have 0",
    ),
    "inner_loop": (
        lambda: variant().online("R", "ci", "top", "total"),
        "expected the outermost reduction loop",
    ),
    "no_reduction_loop": (
        lambda: variant().online("R", "e", "top", "total"),
        "expected the outermost reduction",
    ),
    "strided": (
        lambda: (
            cora.schedule(softmax_sum()[-1])
            .split("R", "c", 4, names=("co", "ci"))
            .reorder("R", "ci", "co")
            .online("R", "ci", "top", "total")
        ),
        "must reduce one block after the other",
    ),
    "anchored": (
        lambda: (
            cora.schedule(softmax_sum()[-1])
            .split("R", "c", 4, names=("co", "ci"), tail="anchored")
            .online("R", "co", "top", "total")
        ),
        "must reduce one block after the other",
    ),
    "twice": (lambda: variant().online("R", "co", "top", "top"), "an operator stands twice"),
    "again": (
        lambda: variant().online("R", "co", "top", "total").online("R", "co", "top", "total"),
        "'top' is scheduled already",
    ),
    "scheduled": (
        lambda: variant().vectorize("total", "c", 4).online("R", "co", "top", "total"),
        "'total' is scheduled already",
    ),
    "tensorized": (
        lambda: variant().tensorize("R", "e").online("R", "co", "top", "total"),
        "those of a micro-kernel",
    ),
    "kept": (
        lambda: variant().cache_write("R", "co").online("R", "co", "top", "total"),
        "continues what is stored",
    ),
    "kept_later": (
        lambda: cora.build(variant().online("R", "co", "top", "total").cache_write("R", "co")),
        "its accumulators must live outside the loop, which runs in order",
    ),
    "weights_outside": (
        lambda: cora.build(
            cora.schedule(softmax_sum()[-1])
            .split("R", "c", 4, names=("co", "ci"))
            .online("R", "co", "top", "total")
        ),
        "'w' reads 'top', which is computed inside 'R', and does not run after that",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(cora.ScheduleError, match=message):
        make()


def test_what_reads_a_running_value_waits_for_the_final_one() -> None:
    r, c = cora.Dim("r", 3), cora.Dim("c", lens[batch])
    X, V, *_ = softmax_sum()
    top = cora.compute("top", [batch, r], cora.max(X[batch, r, c], over=c))
    weight = cora.exp(X[batch, r, c] - cora.where(top[batch, r] > -INF, top[batch, r], 0.0))
    total = cora.compute("total", [batch, r], cora.sum(weight, over=c))
    inverse = cora.compute("inverse", [batch, r], 1.0 / total[batch, r])
    mixed = cora.sum(weight * V[batch, c, e], over=c)
    R = cora.compute("R", [batch, r, e], mixed * inverse[batch, r] + total[batch, r])
    s = cora.schedule(R).split(R, "c", 4, names=("co", "ci")).reorder(R, "co", "r", "e", "ci")
    s = s.online(R, "co", top, total)
    for loop in (batch, "co"):
        with pytest.raises(cora.ScheduleError, match=r"inverse' .*reads 'total'"):
            cora.build(s.compute_at(inverse, R, loop))
    plain = cora.compute("P", [batch, r, e], mixed * inverse[batch, r])
    s = cora.schedule(plain).split(plain, "c", 4, names=("co", "ci"))
    with pytest.raises(cora.ScheduleError, match="inline what stands between them"):
        s.online(plain, "co", top, total)
