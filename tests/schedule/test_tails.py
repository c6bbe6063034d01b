"""Split tails, parts, tiles, and a vloop moved outside a loop that it depends on."""

from __future__ import annotations

import pytest

import cora
from cora.schedule.schedule import Schedule
from tests.reference import assert_matches
from tests.schedule.test_stages import HOSTILE, SETTINGS, A, B, S, X, batch, check, h, i
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
        cora.schedule(B).split(B, i, 8, tail="peel"),
        cora.schedule(B).split(B, i, 8, tail="peel").vectorize(B, "i_i", 4).parallel(B, batch),
        cora.schedule(B).split(B, i, 4, tail="peel").parallel(B, "i_o"),
        cora.schedule(B).split(B, i, 4, tail="peel").fuse(B, batch, "i_o", name="f").parallel(B, "f"),
        cora.schedule(B).split(B, i, 8, tail="peel").split(B, "i_o", 2).split(B, "i_i", 3, tail="peel"),
        cora.schedule(B).split(B, i, 8, tail="peel").reorder(B, "i_o", batch, "i_i"),
        cora.schedule(B).split(B, i, 8, tail="shifted").vectorize(B, "i_i").parallel(B, batch),
        cora.schedule(B).split(B, i, 16, tail="shifted").split(B, "i_i", 3, tail="shifted"),
        cora.schedule(B).split(B, i, 4, tail="shifted").fuse(B, batch, "i_o", name="f").vectorize(B, "i_i"),
        cora.schedule(B).split(B, i, 8, tail="mask").vectorize(B, "i_i"),
        cora.schedule(B).peel(B, i, last=2).parallel(B, batch),
        cora.schedule(B).peel(B, i, first=3),
        cora.schedule(B).split(B, i, 4).peel(B, "i_o", last=1).vectorize(B, "i_i"),
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


@pytest.mark.parametrize("lanes", [4, 8])
def test_full_parts_and_the_rest_have_code_of_their_own(lanes: int) -> None:
    s = cora.schedule(B).split(B, i, 8, tail="peel").vectorize(B, "i_i", lanes).parallel(B, batch)
    text = check(s, A).ir("lowered")
    full, rest = text.split("for i_o in ")[1:]
    assert full.startswith("0..")
    assert "if " not in full
    assert "if " in rest  # the lanes of the last vector
    assert f"for i_i_o in 0..{8 // lanes}:" in full


def test_a_tile_of_accumulators_in_two_sizes() -> None:
    """The loops over a tile, inside the reduction, have the tile's size in its main part and the rest's in the tail."""
    w = cora.compute("w", [batch, i, h], cora.sum(X[batch, i, h, col], over=col))
    s = cora.schedule(w).split(w, i, 4, tail="peel").reorder(w, "i_o", h, col, "i_i")
    text = check(s.parallel(w, batch), X).ir("lowered")
    assert text.count("for i_i in 0..4:") == 3
    assert text.count("for i_i in 0..lens_2 - i_o * 4:") == 3
    assert "if " not in text


def test_a_reduction_with_a_peeled_tail() -> None:
    check(cora.schedule(S).split(S, i, 8, tail="peel"), A)
    text = check(cora.schedule(S).split(S, i, 8, tail="peel").vectorize(S, "i_i", 4), A).ir("lowered")
    assert "for i_i_o in 0..2:" in text


def test_the_last_part_moves_back_over_its_neighbour() -> None:
    s = cora.schedule(B).split(B, i, 8, tail="shifted").vectorize(B, "i_i").parallel(B, batch)
    text = check(s, A).ir("lowered")
    fits, short = text.split("else:")
    assert "min(i_o * 8, base_2)" in fits.split("if 8 <= lens_1:")[1]
    assert fits.count("if ") == 1  # the distinction itself
    assert "< lens_1:" in short


def test_a_masked_loop_stays_one_loop() -> None:
    s = cora.schedule(B).split(B, i, 8, tail="mask").vectorize(B, "i_i").parallel(B, batch)
    text = check(s, A).ir("lowered")
    assert text.count("# vectorize") == 1
    assert "if i_o * 8 + i_i < " in text


def test_conditions_are_decided_in_the_parts_of_a_peeled_loop() -> None:
    first = cora.compute("D", [batch, i], cora.where(i > 0, A[batch, i - 1], 0.0))
    text = check(cora.schedule(first).peel(first, i, first=1), A).ir("lowered")
    assert text.count("where(") == 1
    assert "where(" not in text.split("for i in ")[2]


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
        (
            lambda s: s.split(B, i, 4, tail="shifty"),
            "tail must be one of guard, mask, peel, balanced, anchored, shifted",
        ),
        (lambda s: s.split(B, i, 4, names=("a", "a")), "must differ"),
        (lambda s: s.split(B, i, 4, tail="shifted").parallel(B, "i_o"), "two workers would write them"),
        (
            lambda s: s.split(B, i, 4, tail="shifted").reorder(B, "i_i", "i_o").parallel(B, "i_i"),
            "two workers",
        ),
        (
            lambda s: s.split(B, i, 4, tail="shifted").fuse(B, batch, "i_o", name="f").parallel(B, "f"),
            "two workers would write them",
        ),
        (
            lambda _: cora.schedule(S).split(S, i, 4, tail="shifted"),
            "'i' is a reduction loop: it would add them twice",
        ),
        (
            lambda _: cora.schedule(S).split_op(S, i, multiple=4).split("S_tail", batch, 2, tail="shifted"),
            "'S_tail' continues what it, or another piece, has stored",
        ),
        (
            lambda _: cora.schedule(S).split(S, batch, 2, tail="shifted").split_op(S, i, multiple=4),
            "would add twice",
        ),
        (lambda s: s.peel(B, i), "either first= or last="),
        (lambda s: s.peel(B, i, last=0), "expected a positive integer; got 0"),
        (lambda s: s.peel(B, i, last=1).peel(B, i, first=1), "is cut at"),
    ],
)
def test_refusals(steps: object, message: str) -> None:
    with pytest.raises(cora.ScheduleError, match=message):
        steps(cora.schedule(B))  # type: ignore[operator]


def test_a_rest_within_one_vector_has_no_loop() -> None:
    """The rest of the columns is less than a tile, so its lanes are masked where they are, in registers."""
    w = cora.compute("w", [batch, i, h], cora.sum(X[batch, i, h, col], over=col))
    s = cora.schedule(w).split(w, i, 8, tail="peel").reorder(w, "i_o", h, col, "i_i").vectorize(w, "i_i", 8)
    full, rest = check(s.parallel(w, batch), X).ir("lowered").split("for i_o in ")[1:]
    assert "for i_i_o in 0..1:" in full
    assert "if " not in full
    assert "for i_i_o" not in rest
    assert "i_i_o" not in rest


def test_a_loop_that_may_have_no_iteration_keeps_its_condition() -> None:
    """In the first two rows of a triangle the loop inside has one iteration at most, and in the first one none."""
    row = cora.Dim("row", cora.size("N"))
    below = cora.Dim("below", row)
    source = cora.placeholder("source", [row, below])
    doubled = cora.compute("doubled", [row, below], source[row, below] * 2.0)
    kernel = cora.build(cora.schedule(doubled).peel(doubled, row, first=2), settings=SETTINGS)
    first, rest = kernel.ir("lowered").split("for row in ")[1:]
    assert "if 0 < row:" in first
    assert "for below" not in first
    assert "for below in 0..row:" in rest
    for n in (0, 1, 2, 3, 7):
        x = cora.RaggedArray.empty(source, {}, {"N": n})
        x.values[:] = range(x.values.size)
        assert_matches(cora.interpret(doubled, [x]), kernel(x))
