"""Which worker runs which iterations: orders, lists, shares, and how even they are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import cora
from cora.schedule.schedule import Schedule
from tests.reference import assert_matches
from tests.schedule.test_stages import HOSTILE, SETTINGS, A, B, M, P, S, T, X, batch, check, e, h, i, m, z


@pytest.mark.parametrize(
    "schedule",
    [
        cora.schedule(B).remap(B, batch, "descending"),
        cora.schedule(B).remap(B, batch, "descending").parallel(B, batch),
        cora.schedule(B).remap(B, batch, "descending").parallel(B, batch, balance="count").vectorize(B, i),
        cora.schedule(B).parallel(B, batch, balance="longest_first"),
        cora.schedule(B).parallel(B, batch, balance="longest_first").vectorize(B, i),
        cora.schedule(B).split(B, i, 4, tail="peel").parallel(B, batch, balance="longest_first"),
        cora.schedule(B)
        .split(B, batch, 2)
        .parallel(B, "batch_o", balance="count")
        .remap(B, "batch_i", table="p"),
        cora.schedule(B).peel(B, batch, last=1).remap(B, batch, "descending"),
        cora.schedule(B).remap(B, i, "reversed").parallel(B, batch),
        cora.schedule(B)
        .split(B, i, 4, tail="anchored")
        .remap(B, "i_o", "reversed")
        .remap(B, batch, "reversed"),
    ],
    ids=lambda s: "-".join(type(step).__name__ for step in s.steps),
)
def test_orders(schedule: Schedule) -> None:
    if any(getattr(step, "table", "") for step in schedule.steps):
        kernel = cora.build(schedule, settings=SETTINGS)
        a = cora.ragged([[1.0], [], [2.0, 3.0]], A)
        assert_matches(cora.interpret(B, [a]), kernel(a, p=[1, 0], threads=2))
        return
    check(schedule, A)


@pytest.mark.parametrize("balance", ["cost", "count", "longest_first"])
def test_bits_do_not_depend_on_the_workers(balance: str) -> None:
    s = cora.schedule(P)
    for op in (z, e, m):
        s = s.compute_at(op, P, batch)
    kernel = check(s.parallel(P, batch, balance=balance), X)  # type: ignore[arg-type]
    lens = [3, 0, 9, 1, 1, 7]
    x = cora.RaggedArray.empty(X, {"lens": lens}, {"M": len(lens)})
    x.values[:] = np.random.default_rng(0).standard_normal(x.values.size)
    results = {kernel(x, threads=n).values.tobytes() for n in (1, 2, 3, 8)}
    assert len(results) == 1


def test_a_permutation_is_given_at_run_time() -> None:
    s = cora.schedule(B).remap(B, batch, table="order").parallel(B, batch)
    for settings in (SETTINGS, cora.Settings(cache=False, guards="keep")):
        kernel = cora.build(s, settings=settings)
        for lengths in HOSTILE:
            a = cora.RaggedArray.empty(A, {"lens": lengths}, {"M": len(lengths)})
            a.values[:] = np.arange(a.values.size)
            order = np.random.default_rng(1).permutation(len(lengths))
            assert_matches(cora.interpret(B, [a]), kernel(a, order=order, threads=2))
    a = cora.ragged([[1.0], [2.0]], A)
    for wrong in ([0, 0], [1, 2], [-1, 0], [0], [0, 1, 2]):
        with pytest.raises(cora.UserError, match=r"order|size 'M'"):
            kernel(a, order=wrong)
    with pytest.raises(cora.UserError, match="'order' are not known"):
        kernel(a)


def test_names_of_permutations() -> None:
    for taken, message in (("A", "an input"), ("lens", "lengths over"), ("M", "a size")):
        s = cora.schedule(B).remap(B, batch, table=taken)
        with pytest.raises(cora.UserError, match=f"'{taken}' names {message}.* and a permutation"):
            cora.build(s, settings=SETTINGS)


def test_orders_of_loops_inside_one_another() -> None:
    """A stage has a loop of the name of the one around it, and both run in an order of their own."""
    reads = cora.sum(S[batch] * 1.0, over=cora.Dim("one", 1))
    reader = cora.compute("reader", [batch], reads + S[M - 1 - batch])
    s = cora.schedule(reader).compute_at(S, reader, batch)
    s = s.remap(S, batch, "descending").remap(reader, batch, table="order")
    kernel = cora.build(s, settings=SETTINGS)
    a = cora.ragged([[1.0], [], [2.0, 3.0]], A)
    assert kernel(a, order=[1, 2, 0]).to_list() == [6.0, 0.0, 6.0]


def test_the_costliest_come_first() -> None:
    kernel = cora.build(cora.schedule(B).remap(B, batch, "descending"), settings=SETTINGS)
    plan = cora.plan(kernel, lens=[2, 5, 0, 5, 9])
    tables = dict(
        zip((t.kind for t in kernel.artifact.prelude.tables), plan.prepared(kernel).tables, strict=True)
    )
    assert tables["order"].tolist() == [4, 1, 3, 0, 2]


LENS = [4, 1, 1, 1, 1, 1, 1, 30, 1, 2, 3, 16, 1, 1, 1, 1]


def test_shares() -> None:
    """Against a simulation that is written down here."""
    body = cora.compute("O", [batch, i, h], A[batch, i] * 2.0)
    kernels = {
        b: cora.build(cora.schedule(body).parallel(body, batch, balance=b), settings=SETTINGS)  # type: ignore[arg-type]
        for b in ("cost", "count", "longest_first")
    }
    for workers in (1, 2, 8, 64):
        ratios = {}
        for balance, kernel in kernels.items():
            (shares,) = kernel.balance(cora.plan(kernel, lens=LENS, threads=3), workers)
            assert (shares.loop, shares.balance) == ("O.batch", balance)
            assert len(shares.work) == workers
            assert sum(shares.work) == 3 * sum(LENS)
            assert shares.longest == max(shares.work)
            ratios[balance] = shares.ratio
        _compare(ratios, workers)


def _compare(ratios: dict[str, float], workers: int) -> None:
    n, total = len(LENS), sum(LENS)
    by_count = [sum(LENS[n * w // workers : n * (w + 1) // workers]) for w in range(workers)]
    assert ratios["count"] == pytest.approx(max(by_count) * workers / total)
    sums = np.concatenate([[0], np.cumsum(LENS)])
    cuts = [0, *(int(np.argmin(np.abs(sums * workers - w * total))) for w in range(1, workers)), n]
    by_cost = [sum(LENS[a:b]) for a, b in itertools.pairwise(cuts)]
    assert ratios["cost"] == pytest.approx(max(by_cost) * workers / total)
    loads = [0] * workers
    longest = [0] * workers
    for cost in sorted(LENS, reverse=True):
        w = int(np.argmin(loads))
        loads[w] += cost + 1
        longest[w] += cost
    assert ratios["longest_first"] == pytest.approx(max(longest) * workers / total)
    assert ratios["longest_first"] <= ratios["cost"] <= ratios["count"]


def test_shares_count_what_is_computed_inside() -> None:
    s = cora.schedule(T).compute_at(S, T, batch).parallel(T, batch)
    kernel = cora.build(s, settings=SETTINGS)
    (shares,) = kernel.balance(cora.plan(kernel, lens=[4, 4, 4, 4], threads=2))
    assert shares.work == (2 * (4 + 2), 2 * (4 + 2))  # a sum of four, then tanh and a sum
    assert shares.ratio == 1.0
    assert str(shares) == "T.batch (cost): 2 workers, max/mean work 1.000"


def test_a_giant_row_is_shared_at_points_of_its_own() -> None:
    """Row chunks, fused over all rows: their bounds depend on the row alone, so neighbours change no bit."""
    s = cora.schedule(B).split(B, i, 8, tail="peel").fuse(B, batch, "i_o", name="chunk").parallel(B, "chunk")
    kernel = check(s, A)
    (shares,) = kernel.balance(cora.plan(kernel, lens=[640, 1, 2, 3]), 8)
    assert shares.ratio < 1.2
    by_row = cora.build(cora.schedule(B).parallel(B, batch), settings=SETTINGS)
    (whole,) = by_row.balance(cora.plan(by_row, lens=[640, 1, 2, 3]), 8)
    assert whole.ratio > 7


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda s: s.remap(B, batch), "either a policy or table="),
        (lambda s: s.remap(B, batch, "descending", table="x"), "either a policy or table="),
        (lambda s: s.remap(B, batch, table="1x"), "expected policy 'descending' or 'reversed', or 'given'"),
        (lambda s: s.remap(B, batch, "longest"), "expected policy 'descending' or 'reversed', or 'given'"),
        (lambda s: s.remap(B, i, "descending"), "must depend on that loop alone; it is 1"),
        (lambda s: s.remap(B, i, table="x"), r"the extent lens\[batch\] of 'i' depends on loops outside"),
        (
            lambda s: s.parallel(B, batch, balance="fair"),
            "must be one of cost, count, longest_first; got 'fair'",
        ),
        (lambda s: s.parallel(B, i, balance="longest_first"), "must depend on that loop alone"),
        (lambda _: cora.schedule(S).remap(S, i, table="x"), "is a reduction loop"),
        (
            lambda s: s.remap(B, batch, "descending").pad_loop(B, batch, 4),
            "'batch' is not an original loop",
        ),
    ],
)
def test_refusals(steps: object, message: str) -> None:
    with pytest.raises(cora.ScheduleError, match=message):
        steps(cora.schedule(B))  # type: ignore[operator]


def test_loops_that_shrink_count_at_their_largest() -> None:
    """Blocks of a row, the last one short: the loop over a block is not taken for as long as the block behind it."""
    size, rows = 4, cora.Dim("block", (i.extent + 3) // 4)
    at = cora.Dim("at", cora.minimum(size, i.extent - size * rows))
    blocks = cora.compute("blocks", [batch, rows, at], A[batch, rows * size + at] * 2.0)
    kernel = cora.build(cora.schedule(blocks).parallel(blocks, batch), settings=SETTINGS)
    (shares,) = kernel.balance(cora.plan(kernel, lens=[40] * 10, threads=2), 2)
    assert shares.work == (200, 200)
    (shares,) = kernel.balance(cora.plan(kernel, lens=[20, 20, 4, 4, 4, 4], threads=2), 2)
    assert shares.ratio < 1.5


def test_a_cut_is_rounded_to_the_nearest_iteration() -> None:
    """Ten blocks of nearly equal size are five for each of two workers."""
    s = cora.schedule(B).fuse(B, batch, i, name="f").split(B, "f", 48, names=("fo", "fi"), tail="balanced")
    kernel = cora.build(s.parallel(B, "fo"), settings=SETTINGS)
    (shares,) = kernel.balance(cora.plan(kernel, lens=[435], threads=2), 2)
    assert sorted(shares.work) == [217, 218]
