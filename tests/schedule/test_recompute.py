"""Copies of operators for one reader, and operators that are computed inside one reader and read by later ones."""

from __future__ import annotations

import pytest

import cora
from tests.operators.harness import Case, check, work_of
from tests.operators.lengths import rows

batch = cora.Dim("batch", cora.size("M"))
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])
A = cora.placeholder("A", [batch, pos])
E = cora.compute("E", [batch, pos], cora.exp(A[batch, pos]))
total = cora.compute("total", [batch], cora.sum(E[batch, pos], over=pos))
P = cora.compute("P", [batch, pos], E[batch, pos] / total[batch])
low = cora.compute("low", [batch], total[batch] * 2)
high = cora.compute("high", [batch, pos], E[batch, pos] - total[batch])

SCHEDULES = {
    "twice": (P, lambda s: s.recompute(E, total)),
    "inlined": (P, lambda s: s.recompute(E, total).inline("E_again").inline(E)),
    "attached": (
        P,
        lambda s: s.recompute(E, total, "own").compute_at("own", total, batch).compute_at(E, P, batch),
    ),
    "read_later": ((low, high), lambda s: s.compute_at(total, low, batch).parallel(low, batch)),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_results(name: str, settings: cora.Settings) -> None:
    given, schedule = SCHEDULES[name]
    outputs = given if isinstance(given, tuple) else (given,)
    case = Case(f"recompute_{name}", outputs, rows(4), {name: schedule})
    kernel = cora.build(schedule(cora.schedule(*outputs)), settings=settings)
    for number in range(len(case.batches)):
        check(case, kernel, work_of(case, number))


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> cora.Settings:
    return cora.Settings(cache_dir=tmp_path_factory.mktemp("recompute"))


def test_what_is_refused() -> None:
    s = cora.schedule(P)
    for make, reason in (
        (lambda: s.recompute(total, P), "nothing else reads it"),
        (lambda: s.recompute(A, E), "no operator 'A'"),
        (lambda: s.recompute(E, E), "does not read it"),
        (lambda: s.recompute(E, P, "total"), "taken"),
        (lambda: s.fuse(P, batch, pos, name="f").recompute(E, P), "scheduled already"),
        (
            lambda: s.compute_at(E, total, pos),
            "also reads it, outside that loop; it may be a reduction of nothing",
        ),
    ):
        with pytest.raises(cora.ScheduleError, match=reason):
            make()
    both = cora.schedule(low, high)
    with pytest.raises(cora.ScheduleError, match="'low' also reads it, outside the loop"):
        both.compute_at(total, high, batch).set_scope(total, "scratch")
    with pytest.raises(cora.ScheduleError, match="'low' reads 'total', which is computed inside 'high'"):
        cora.build(both.compute_at(total, high, batch))


def test_a_part_is_not_enough_for_readers_elsewhere() -> None:
    X = cora.placeholder("X", [pos_of_64 := cora.Dim("n", 64)])
    D = cora.compute("D", [pos_of_64], X[pos_of_64] * 2)
    half = cora.Dim("half", 32)
    first = cora.compute("first", [half], D[half] + 1)
    whole = cora.compute("whole", [pos_of_64], D[pos_of_64] + 1)
    with pytest.raises(
        cora.ScheduleError, match=r"'whole' also reads it, .*not all of its dim 'n' is computed there"
    ):
        cora.schedule(first, whole).compute_at(D, first, half)
