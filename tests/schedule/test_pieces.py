"""Operation splitting and horizontal fusion."""

from __future__ import annotations

import pytest

import cora
from tests.schedule.test_stages import A, B, S, X, batch, check, e, h, i, j, m, z

D = cora.compute("D", [batch], cora.max(A[batch, i], over=i))
double = cora.compute("double", [batch], S[batch] * 2.0)
plus = cora.compute("plus", [batch], double[batch] + 1.0)
MEAN = cora.compute("MEAN", [batch], cora.mean(A[batch, i], over=i))


def test_full_tiles_and_a_tail_with_loops_of_their_own() -> None:
    s = cora.schedule(B).split_op(B, i, multiple=8)
    s = s.split("B_main", i, 8).vectorize("B_main", "i_i").parallel("B_main", batch)
    kernel = check(s.parallel("B_tail", batch), A)
    assert not [g for g in kernel.artifact.guards if g.kept]


@pytest.mark.parametrize("index", [1, 7, 100])
def test_split_at_an_index(index: int) -> None:
    check(cora.schedule(B).split_op(B, i, index=index).vectorize("B_main", i), A)


def test_pieces_of_pieces_run_in_order() -> None:
    s = cora.schedule(B).split_op(B, i, multiple=16, names=("full", "rest"))
    s = s.split_op("rest", i, multiple=4, names=("quarters", "last"))
    assert [nest.name for nest in s.nests] == ["full", "quarters", "last"]
    check(s.vectorize("full", i).vectorize("quarters", i, lanes=4), A)


@pytest.mark.parametrize("op", [S, D], ids=lambda t: t.name)
def test_a_reduction_loop_in_two_pieces(op: cora.Tensor) -> None:
    s = cora.schedule(op).split_op(op, i, multiple=16)
    check(s.vectorize(f"{op.name}_main", i).parallel(f"{op.name}_main", batch), A)


def test_pieces_side_by_side_in_one_parallel_loop() -> None:
    s = cora.schedule(B).split_op(B, i, multiple=8).parallel("B_main", batch).parallel("B_tail", batch)
    kernel = check(s.hfuse("B_main", "B_tail"), A)
    assert kernel.ir("lowered").count("# parallel") == 1


def test_operators_side_by_side() -> None:
    s = cora.schedule(S, D).parallel(S, batch).parallel(D, batch).hfuse(S, D)
    kernel = cora.build(s, settings=cora.Settings(cache=False))
    assert kernel.ir("lowered").count("# parallel") == 1
    a = cora.ragged([[1, 2, 3], [], [5]], A)
    total, largest = kernel(a)
    assert total.to_list() == [6.0, 0.0, 5.0]
    assert largest.to_list() == [3.0, float("-inf"), 5.0]


def test_json_round_trip() -> None:
    s = cora.schedule(B).split_op(B, i, multiple=8).parallel("B_main", batch).parallel("B_tail", batch)
    s = s.hfuse("B_main", "B_tail")
    assert cora.from_json([B], s.to_json()) == s


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda: cora.schedule(B).split_op(B, i), "either multiple= or index="),
        (lambda: cora.schedule(B).split_op(B, i, multiple=0), "expected a positive integer"),
        (lambda: cora.schedule(B).split_op(B, i, multiple=4, names=("a", "a")), "two different names"),
        (lambda: cora.schedule(B).split_op(B, i, multiple=4, names=("A", "b")), "the name 'A' is taken"),
        (
            lambda: cora.schedule(B).split_op(B, i, multiple=4).vectorize(B, i),
            "is split; name a piece: B_main, B_tail",
        ),
        (lambda: cora.schedule(MEAN).split_op(MEAN, i, multiple=4), "must be a bare sum, prod, max or min"),
        (lambda: cora.schedule(e).compute_at(m, e, h).split_op(e, j, multiple=4), "attached stages"),
        (lambda: cora.schedule(B).hfuse(B), "two or more different nests"),
        (lambda: cora.schedule(e).hfuse(e, m), "'e' reads 'm'"),
        (
            lambda: cora.schedule(S).split_op(S, i, multiple=4).hfuse("S_main", "S_tail"),
            "adds to what another piece",
        ),
        (lambda: cora.build(cora.schedule(S, D).hfuse(S, D)), "outermost loop of 'S' must be parallel"),
    ],
)
def test_refusals(steps: object, message: str) -> None:
    with pytest.raises(cora.ScheduleError, match=message):
        steps()  # type: ignore[operator]


def test_a_group_may_not_wait_for_its_own_reader() -> None:
    after = cora.compute("after", [batch], S[batch] * 2.0)
    last = cora.compute("last", [batch], D[batch] + after[batch])
    late = cora.schedule(after, last).parallel(S, batch).parallel(D, batch).hfuse(S, D)
    with pytest.raises(cora.ScheduleError, match="'after' reads 'S' before the group is done"):
        cora.build(late, settings=cora.Settings(cache=False))


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.split_op(S, i, multiple=4),
        lambda s: s.inline(double),
        lambda s: s.compute_at(S, double, batch),
    ],
)
def test_what_is_side_by_side_stays_as_it_is(step: object) -> None:
    s = cora.schedule(D, plus).hfuse(S, D, plus)
    with pytest.raises(cora.ScheduleError, match=r"fused horizontally already|scheduled already"):
        step(s)  # type: ignore[operator]


def test_a_group_may_not_wait_for_a_piece_that_adds_to_it() -> None:
    s = cora.schedule(z).split_op(z, i, multiple=4, names=("a", "b"))
    s = s.split_op("a", j, multiple=2, names=("a1", "a2")).split_op("b", j, multiple=2, names=("b1", "b2"))
    for piece in ("a1", "b1"):
        s = s.parallel(piece, batch)
    check(s, X)
    with pytest.raises(cora.ScheduleError, match="'a2' adds to 'z' before the group is done"):
        cora.build(s.hfuse("a1", "b1"), settings=cora.Settings(cache=False))


def test_softmax_rows_in_pieces_use_the_same_input() -> None:
    p = cora.compute("p", [batch, i, h, j], X[batch, i, h, j] * 0.5)
    s = cora.schedule(p).split_op(p, j, multiple=8).vectorize("p_main", j, lanes=8)
    check(s.parallel("p_main", batch).parallel("p_tail", batch).hfuse("p_main", "p_tail"), X)
