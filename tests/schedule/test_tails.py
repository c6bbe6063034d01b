"""Split tails, parts, tiles, and a vloop moved outside a loop that it depends on."""

from __future__ import annotations

import pytest

import cora
from cora.schedule.schedule import Schedule
from tests.reference import assert_matches
from tests.schedule.test_stages import HOSTILE, SETTINGS, A, B, X, batch, check, h, i
from tests.schedule.test_stages import j as col

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


def test_a_reduction_outside_the_rows_of_a_tile_that_lies_in_one_row() -> None:
    w = cora.compute("w", [batch, i, h], cora.sum(X[batch, i, h, col], over=col))
    s = cora.schedule(w).pad_loop(w, i, 4).pad_dim(w, i, 8).pad_dim(X, i, 4)
    s = s.fuse(w, batch, i, name="row").split(w, "row", 4).reorder(w, "row_o", h, col, "row_i")
    assert str(s.nest(w).leaves[2].extent) == "lens[ffo[row_o * 4]]"
    kernel = cora.build(s.parallel(w, "row_o"), settings=SETTINGS)
    for lengths in HOSTILE:
        x = cora.RaggedArray.empty(X, {"lens": lengths}, {"M": len(lengths)})
        x.values[:] = range(x.values.size)
        assert_matches(cora.interpret(w, [x]), kernel(x.to_layout(kernel.layout("X"))))


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
