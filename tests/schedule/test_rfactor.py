"""Reductions in two stages: values, bits that depend on one row alone, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import cora
from cora.schedule.schedule import Schedule
from tests.schedule.test_pieces import MEAN, D
from tests.schedule.test_stages import SETTINGS, A, B, S, X, batch, check, e, h, i, j, m, z
from tests.schedule.test_tails import L, R
from tests.schedule.test_tails import j as column

PRODUCT = cora.compute("PRODUCT", [batch], cora.prod(1 + 0.01 * A[batch, i], over=i))
SPREAD = cora.compute("SPREAD", [batch], cora.max(A[batch, i], over=i) - cora.min(A[batch, i], over=i))
BOTH = cora.compute("BOTH", [batch, h], cora.sum(X[batch, i, h, j] * 0.5, over=[i, j]))
WHICH = cora.compute("WHICH", [batch], cora.argmax(A[batch, i], over=i))


@pytest.mark.parametrize("op", [S, D, PRODUCT, MEAN, SPREAD], ids=lambda t: t.name)
def test_rows_in_chunks(op: cora.Tensor) -> None:
    s = cora.schedule(op).rfactor(op, i, 4, name="part")
    assert [nest.name for nest in s.nests][-1] == op.name
    check(s.vectorize("part", "i_i", 4).parallel("part", batch).parallel(op, batch), A)


@pytest.mark.parametrize(
    "schedule",
    [
        cora.schedule(S).rfactor(S, i, parts=3).parallel("S_partial", batch),
        cora.schedule(S).rfactor(S, i, 100),
        cora.schedule(S).rfactor(S, i, 4).rfactor(S, "i_o", 2, name="more"),
        cora.schedule(S).rfactor(S, i, 8).compute_at("S_partial", S, batch).parallel(S, batch),
        cora.schedule(S).rfactor(S, i, 2).split("S_partial", batch, 2, tail="shifted"),
    ],
    ids=lambda s: "-".join(type(step).__name__ for step in s.steps),
)
def test_chunks_are_scheduled_like_any_operator(schedule: Schedule) -> None:
    check(schedule, A)


def test_a_triangle_in_chunks() -> None:
    check(cora.schedule(R).rfactor(R, column, 4).fuse("R_partial", i, "j_o", name="f"), L)


@pytest.mark.parametrize("over", [i, j], ids=lambda d: d.name)
def test_one_of_two_dims_in_chunks(over: cora.Dim) -> None:
    check(cora.schedule(BOTH).rfactor(BOTH, over, 3), X)


def test_a_condition_around_the_reduction_protects_what_it_reads() -> None:
    before = cora.sum(X[batch, i - 1, h, j], over=j)
    shifted = cora.compute("shifted", [batch, i, h], cora.where(i > 0, before, -1.0))
    check(cora.schedule(shifted).rfactor(shifted, j, 8), X)
    text = cora.build(cora.schedule(MEAN).rfactor(MEAN, i, 8), settings=SETTINGS).ir("lowered")
    assert text.count("where(") == 1  # of the empty row, in the combining stage alone


def test_after_inlining() -> None:
    check(cora.schedule(z).inline(e).rfactor(z, j, 8).vectorize("z_partial", "j_i", 8), X)


def test_bits_depend_on_the_row_alone() -> None:
    s = cora.schedule(S).rfactor(S, i, 16).fuse("S_partial", batch, "i_o", name="chunk")
    s = s.vectorize("S_partial", "i_i").parallel("S_partial", "chunk").parallel(S, batch)
    kernel = cora.build(s, settings=SETTINGS)
    row = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    found = set()
    for before, after in (([], []), ([3.0] * 7, [1.0]), ([], [2.0] * 50), ([1.0] * 129, [5.0] * 40)):
        for threads in (1, 2, 5):
            out = kernel(cora.ragged([before, row.tolist(), after], A), threads=threads)
            found.add(np.float32(out.values[1]).tobytes())
    assert len(found) == 1
    shares = kernel.balance(cora.plan(kernel, lens=[7, 10_000, 1]), 8)
    assert shares[0].loop == "S_partial.chunk"
    assert shares[0].ratio < 1.05


def test_json() -> None:
    s = cora.schedule(S).rfactor(S, i, 4).vectorize("S_partial", "i_i")
    again = cora.from_json([S], s.to_json())
    assert again == s
    assert again.state == s.state


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda: cora.schedule(S).rfactor(S, i), "either a factor or parts="),
        (lambda: cora.schedule(S).rfactor(S, i, 4, parts=2), "either a factor or parts="),
        (lambda: cora.schedule(S).rfactor(S, i, 0), "factor: expected a positive integer; got 0"),
        (lambda: cora.schedule(S).rfactor(S, batch, 4), "expected a dim it reduces over: i"),
        (lambda: cora.schedule(B).rfactor(B, i, 4), r"expected a dim it reduces over: \(none\)"),
        (lambda: cora.schedule(S).rfactor(S, i, 4, name="A"), "the name 'A' is taken"),
        (lambda: cora.schedule(S).rfactor(S, i, 4, name="1a"), "must be an identifier"),
        (lambda: cora.schedule(WHICH).rfactor(WHICH, i, 4), "argmax has no partial results"),
        (lambda: cora.schedule(S).vectorize(S, i).rfactor(S, i, 4), "'S' is scheduled already"),
        (
            lambda: cora.schedule(S).split_op(S, i, multiple=4).rfactor("S_main", i, 4),
            "'S' is scheduled already",
        ),
        (lambda: cora.schedule(e).compute_at(m, e, h).rfactor(m, j, 4), "'m' is scheduled already"),
    ],
)
def test_refusals(steps: object, message: str) -> None:
    with pytest.raises((cora.ScheduleError, cora.UserError), match=message):
        steps()  # type: ignore[operator]
