"""Split tails, parts, tiles, and a vloop moved outside a loop that it depends on."""

from __future__ import annotations

import pytest

import cora
from cora.schedule.schedule import Schedule
from tests.schedule.test_stages import A, B, batch, check, i

j = cora.Dim("j", i + 1)
L = cora.placeholder("L", [batch, i, j])
R = cora.compute("R", [batch, i], cora.sum(L[batch, i, j], over=j))


@pytest.mark.parametrize(
    "schedule",
    [
        cora.schedule(B).split(B, i, 8, tail="balanced"),
        cora.schedule(B).split(B, i, 8, tail="anchored"),
        cora.schedule(B).split(B, i, 8, tail="anchored").vectorize(B, "i_i"),
        cora.schedule(B).split(B, i, parts=3).vectorize(B, "i_i"),
        cora.schedule(B).split(B, i, parts=3).split(B, "i_i", 4).parallel(B, batch),
        cora.schedule(B).tile(B, (batch, i), (2, 4)),
        cora.schedule(B).reorder(B, i, batch),
        cora.schedule(B).reorder(B, i, batch).parallel(B, i),
    ],
    ids=lambda s: "-".join(type(step).__name__ for step in s.steps),
)
def test_elementwise(schedule: Schedule) -> None:
    check(schedule, A)


@pytest.mark.parametrize(
    "schedule",
    [
        cora.schedule(R).split(R, j, 4, tail="anchored").split(R, i, 3, tail="balanced"),
        cora.schedule(R).split(R, j, parts=2).vectorize(R, "j_i", lanes=8),
        cora.schedule(R).reorder(R, i, batch).vectorize(R, j),
        cora.schedule(R).split(R, i, 4).reorder(R, "i_o", batch, "i_i"),
    ],
    ids=lambda s: "-".join(type(step).__name__ for step in s.steps),
)
def test_reductions_over_a_triangle(schedule: Schedule) -> None:
    check(schedule, L)


def test_balanced_parts_need_no_guard() -> None:
    kernel = check(cora.schedule(B).split(B, i, 8, tail="balanced"), A)
    assert not [g for g in kernel.artifact.guards if g.kept]


def test_a_vloop_outside_its_batch_runs_to_the_longest() -> None:
    nest = cora.schedule(B).reorder(B, i, batch).nest(B)
    assert [leaf.name for leaf in nest.leaves] == ["i", "batch"]
    assert str(nest.leaves[0].extent) == "longest[]"
    assert [str(c) for c in nest.conditions] == ["i < lens[batch]"]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda s: s.split(B, i), "either a factor or parts="),
        (lambda s: s.split(B, i, 4, parts=2), "either a factor or parts="),
        (lambda s: s.split(B, i, parts=0), "expected a positive integer; got 0"),
        (lambda s: s.split(B, i, 4, tail="shifty"), "tail must be one of guard, anchored, balanced"),
        (lambda s: s.split(B, i, 4, names=("a", "a")), "must differ"),
    ],
)
def test_refusals(steps: object, message: str) -> None:
    with pytest.raises(cora.ScheduleError, match=message):
        steps(cora.schedule(B))  # type: ignore[operator]
