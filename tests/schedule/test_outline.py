"""Reductions as operators of their own: values, bits, where they may then be computed, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import cora
from cora.schedule.schedule import Schedule
from tests.schedule.test_pieces import MEAN
from tests.schedule.test_stages import SETTINGS, A, S, X, batch, check, e, h, i, j, z
from tests.schedule.test_tails import L, R
from tests.schedule.test_tails import j as column

SCALED = cora.compute("SCALED", [batch], cora.max(A[batch, i], over=i) * 0.5 + 1.0)
HALF = cora.compute("HALF", [batch, i], cora.sum(X[batch, i, h, j], over=[h, j]) * 0.5, dtype="float16")
WHICH = cora.compute("WHICH", [batch], cora.argmax(A[batch, i], over=i))
SPREAD = cora.compute("SPREAD", [batch], cora.max(A[batch, i], over=i) - cora.min(A[batch, i], over=i))


@pytest.mark.parametrize("op", [S, MEAN, SCALED], ids=lambda t: t.name)
def test_values(op: cora.Tensor) -> None:
    s = cora.schedule(op).outline(op)
    assert [nest.name for nest in s.nests][-2:] == [f"{op.name}_reduced", op.name]
    check(s.parallel(f"{op.name}_reduced", batch).vectorize(op, batch), A)


@pytest.mark.parametrize(
    "schedule",
    [
        cora.schedule(z).outline(z, "sums").compute_at("sums", z, h).set_scope("sums", "scratch"),
        cora.schedule(z).outline(z, "sums").compute_at("sums", z, batch).reorder_dims("sums", batch, h, i),
        cora.schedule(z).outline(z, "sums").rfactor("sums", j, 4, name="parts"),
        cora.schedule(z).inline(e).outline(z, "sums").split("sums", i, 4),
        cora.schedule(HALF).outline(HALF, "sums"),
    ],
    ids=lambda s: "-".join(type(step).__name__ for step in s.steps),
)
def test_it_is_scheduled_like_any_operator(schedule: Schedule) -> None:
    check(schedule, X)


def test_a_triangle() -> None:
    check(cora.schedule(R).outline(R, "sums").vectorize("sums", column), L)


def test_bits_stay() -> None:
    x = cora.ragged([np.random.default_rng(0).standard_normal(n).tolist() for n in (0, 1, 50, 3)], A)
    whole = cora.compute("whole", [batch], cora.sum(A[batch, i], over=i) * 0.3)
    before, after = (
        cora.build(s, settings=SETTINGS) for s in (cora.schedule(whole), cora.schedule(whole).outline(whole))
    )
    assert before(x).values.tobytes() == after(x).values.tobytes()


def test_a_condition_around_the_reduction_protects_what_it_reads() -> None:
    before = cora.sum(X[batch, i - 1, h, j], over=j)
    shifted = cora.compute("shifted", [batch, i, h], cora.where(i > 0, before, -1.0))
    check(cora.schedule(shifted).outline(shifted, "sums"), X)


def test_json() -> None:
    s = cora.schedule(SCALED).outline(SCALED, "most").vectorize(SCALED, batch)
    again = cora.from_json([SCALED], s.to_json())
    assert again == s
    assert again.state == s.state


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda: cora.schedule(e).outline(e), "expected an element with one reduction; it is"),
        (lambda: cora.schedule(SPREAD).outline(SPREAD), "expected an element with one reduction; it is"),
        (lambda: cora.schedule(WHICH).outline(WHICH), "it is an argmax, not a sum, prod, max or min"),
        (lambda: cora.schedule(S).vectorize(S, i).outline(S), "'S' is scheduled already"),
        (lambda: cora.schedule(S).outline(S, "S"), "the name 'S' is taken"),
        (lambda: cora.schedule(S).outline(S, "a b"), "outline of 'S'"),
        (lambda: cora.schedule(S).outline("T"), "no operator 'T'"),
    ],
)
def test_refusals(steps: object, message: str) -> None:
    with pytest.raises((cora.ScheduleError, cora.UserError), match=message):
        steps()  # type: ignore[operator]
