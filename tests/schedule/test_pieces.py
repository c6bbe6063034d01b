"""Operation splitting and horizontal fusion."""

from __future__ import annotations

import numpy as np
import pytest

import cora
from tests.reference import assert_matches
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


@pytest.mark.parametrize("op", [S, D], ids=lambda t: t.name)
@pytest.mark.parametrize("parallel", [False, True])
def test_a_reduction_in_pieces_that_share_the_loop_over_its_elements(op: cora.Tensor, parallel: bool) -> None:
    main, tail = f"{op.name}_main", f"{op.name}_tail"
    s = cora.schedule(op).split_op(op, i, multiple=16).vectorize(main, i)
    if parallel:
        s = s.parallel(main, batch).parallel(tail, batch)
    text = check(s.hfuse(main, tail, depth=1), A).ir("lowered")
    assert text.count("for batch in") == 1
    assert text.count("cuts") == (2 if parallel else 0)


def test_the_shared_loop_is_cut_by_the_work_of_all() -> None:
    longer = cora.compute("longer", [batch, i, j], X[batch, i, 0 * i, j] * 2.0)
    s = cora.schedule(longer, B).parallel(longer, batch).parallel(B, batch).hfuse(longer, B, depth=1)
    kernel = cora.build(s, settings=cora.Settings(cache=False))
    (costs,) = (t for t in kernel.artifact.prelude.tables if t.kind == "cuts")
    plan = cora.plan(kernel, lens=[1, 2, 3], threads=2)
    tables = dict(
        zip((t.key for t in kernel.artifact.prelude.tables), plan.prepared(kernel).tables, strict=True)
    )
    sums = next(array.tolist() for array in tables.values() if array.tolist() == [0, 2, 8, 20])
    assert sums == [0, 1 + 1, 2 + 6, 8 + 12]
    assert tables[costs.key].tolist() == [0, 2, 3]


def test_inner_loops_are_shared() -> None:
    total = cora.compute("total", [batch, i, h], cora.sum(X[batch, i, h, j], over=j))
    s = cora.schedule(total, m).hfuse(total, m, depth=3)
    kernel = cora.build(s, settings=cora.Settings(cache=False))
    assert kernel.ir("lowered").count("for h in") == 1
    x = cora.RaggedArray.empty(X, {"lens": [2, 0, 3]}, {"M": 3})
    x.values[:] = np.arange(x.values.size)
    for reference, result in zip(cora.interpret([total, m], [x]), kernel(x), strict=True):
        assert_matches(reference, result)


def test_shared_loops_under_different_names() -> None:
    """A loop inside is called like a shared one outside."""
    r, c = cora.Dim("r", 4), cora.Dim("c", 4)
    source = cora.placeholder("source", [r, c])
    one = cora.compute("one", [r, c], source[r, c] + 1.0)
    other = cora.compute("other", [c, r], source[r, c] * 2.0)
    kernel = cora.build(
        cora.schedule(one, other).hfuse(one, other, depth=1), settings=cora.Settings(cache=False)
    )
    assert kernel.ir("lowered").count("for r in") == 1
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    first, second = kernel(x)
    assert first.to_list() == (x + 1).tolist()
    assert second.to_list() == (2 * x.T).tolist()


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda s: s.hfuse("z_main", "z_tail", depth=-1), "depth: expected 0 or a number of loops"),
        (lambda s: s.hfuse("z_main", "z_tail", depth=9), "'z_main' has not as many loops of its own"),
        (lambda s: s.hfuse("z_main", "z_tail", depth=4), "'j' of 'z_main' is a reduction loop"),
        (lambda s: s.split("z_tail", batch, 2).hfuse("z_main", "z_tail", depth=1), "is not like 'batch'"),
        (
            lambda s: s.parallel("z_tail", batch).hfuse("z_main", "z_tail", depth=1),
            "parallel to M, is not like",
        ),
        (
            lambda s: s.peel("z_main", batch, last=1).hfuse("z_main", "z_tail", depth=1),
            "'batch' of 'z_main' is not one loop",
        ),
        (
            lambda s: (
                s.split("z_main", i, 4, tail="balanced")
                .split("z_tail", i, 4, tail="peel")
                .hfuse("z_main", "z_tail", depth=2)
            ),
            "the order would be lost: in one iteration of the shared loops 'i' is",
        ),
    ],
)
def test_shared_loops_that_are_refused(steps: object, message: str) -> None:
    s = cora.schedule(z).inline(e).split_op(z, j, multiple=4)
    with pytest.raises(cora.ScheduleError, match=message):
        cora.build(steps(s), settings=cora.Settings(cache=False))  # type: ignore[operator]


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
            "adds to what another piece stores first, and workers do not wait",
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
