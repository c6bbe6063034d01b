"""Typical goals, with the outcome and the method that is expected to settle them."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

from cora.errors import UserError
from cora.ir.expr import Const, Dim, Expr, Size, Var, binary, cast, ceildiv, round_up, select
from cora.ir.ufun import fusion_maps, maximum_over, scan
from cora.lang.define import lengths, placeholder, size
from cora.lang.ops import equal, maximum, minimum
from cora.prove import Context, Outcome, Prover, Range
from cora.settings import Settings

M, N = size("M"), size("N")
B = Dim("b", M)
LENS = lengths("lens", B)
I = Dim("i", LENS[B])  # noqa: E741
EXACT = scan((), B, LENS[B])
S32 = scan((), B, round_up(LENS[B], 32))
S48 = scan((), B, round_up(LENS[B], 48))
S64 = scan((), B, round_up(LENS[B], 64))
OUTER, INNER = fusion_maps(EXACT)
OUTER32, INNER32 = fusion_maps(S32)
OUTER48, INNER48 = fusion_maps(S48)
FO, FI, F, P = Var("fo"), Var("fi"), Var("f"), Var("p")
LONGEST = maximum_over((B,), round_up(LENS[B], 64))

ROWS = (Range(B, M), Range(I, LENS[B]))
TILES = (Range(FO, ceildiv(S32(M), 32)), Range(FI, Const(32)))
TILES48 = (Range(FO, ceildiv(S48(M), 48)), Range(FI, Const(48)))

ROW = Dim("row", N)
J = Dim("j", ROW + 1)
TRIANGLE = (Range(ROW, N), Range(J, ROW + 1))
BAND = (Range(ROW, N), Range(J, minimum(ROW + 1, 7)))

Q, KV = lengths("q", B), lengths("kv", B)
QI = Dim("qi", Q[B])
CAUSAL = KV[B] - Q[B] + QI + 1
QJ = Dim("qj", CAUSAL)
ATTENTION = (Range(B, M), Range(QI, Q[B]), Range(QJ, maximum(CAUSAL, 0)))

V = placeholder("idx", [B, I], "int32")
PICK = cast("int64", V[B, I])

SHARE = (P * N) // binary("max", M, 1)

PROVED_BY_INTERVALS: list[tuple[Expr, tuple[Range, ...], tuple[Expr, ...]]] = [
    (S32(M) > FO * 32 + FI, TILES, ()),
    (S32(M) > FO * 32 + FI, (Range(FO, S32(M) // 32), Range(FI, Const(32))), ()),
    (INNER32(32 * FO) + FI < round_up(LENS[OUTER32(32 * FO)], 64), TILES, ()),
    (INNER32(32 * FO + FI) < round_up(LENS[OUTER32(32 * FO + FI)], 64), TILES, ()),
    (INNER48(48 * FO) + FI < round_up(LENS[OUTER48(48 * FO)], 96), TILES48, ()),
    (S64(OUTER32(32 * FO)) + INNER32(32 * FO) + FI < S64(M), TILES, ()),
    (OUTER32(32 * FO + FI) < M, TILES, ()),
    (equal(OUTER32(32 * FO + FI), OUTER32(32 * FO)), TILES, ()),
    (equal(INNER32(32 * FO + FI), INNER32(32 * FO) + FI), TILES, ()),
    (equal((S32(OUTER32(32 * FO)) + INNER32(32 * FO)) % 32, 0), TILES, ()),
    (equal((32 * FO + FI) // 32, FO), TILES, ()),
    (equal(EXACT(OUTER(F)) + INNER(F), F), (Range(F, EXACT(M)),), ()),
    (INNER(F) < LENS[OUTER(F)], (Range(F, EXACT(M)),), ()),
    (INNER(F) < LENS[OUTER(F)], (Range(F, round_up(EXACT(M), 32)),), (EXACT(M) > F,)),
    (equal(OUTER(EXACT(B) + I), B) & equal(INNER(EXACT(B) + I), I), ROWS, ()),
    (EXACT(B) + I < EXACT(M), ROWS, ()),
    (S64(B) + I < S64(M), ROWS, ()),
    (equal(EXACT(B) + LENS[B], EXACT(B + 1)), ROWS, ()),
    ((LENS[B] > I) & (LENS[B] > 0), ROWS, ()),
    (LONGEST() > I, ROWS, ()),
    (round_up(I + 1, 32) <= round_up(LENS[B], 64), ROWS, ()),
    (equal(S64(B) % 4, 0), ROWS, ()),
    (J < N, TRIANGLE, ()),
    (ROW * N + J < N * N, TRIANGLE, ()),
    (J < ROW + 1, BAND, ()),
    (minimum(N, 7) > J, BAND, ()),
    (KV[B] > QJ, ATTENTION, ()),
    (select(J < 3, J, Const(2)) < 3, TRIANGLE, ()),
    ((I < 5) | (I >= 5), ROWS, ()),
    (P >= 1, (), (P > 0,)),
    (P - 1 >= 0, (Range(P, N),), (P >= 1,)),
    (P - 1 >= 0, (Range(P, N),), (~(P < 1),)),
    (PICK < N, ROWS, (PICK < N, PICK >= 0)),
    (LENS[PICK] >= 0, ROWS, ()),
    ((I < 3) | (M < 0), ROWS, (I < 3,)),
    ((P + 1 + 1019) // 1020 > F, (Range(P, N), Range(F, N)), (P - F * 1020 >= 0,)),
    (SHARE + LENS[B] >= LENS[B], (*ROWS[:1], Range(P, M)), ()),
    (
        ceildiv(LENS[B], 6) * 6 - P * 6 <= LENS[B],
        (*ROWS[:1], Range(P, N)),
        (minimum(ceildiv(LENS[B], 6), 1) <= P,),
    ),
]

PROVED_BY_Z3: list[tuple[Expr, tuple[Range, ...], tuple[Expr, ...]]] = [
    ((ROW * (ROW + 1)) // 2 + J < (N * (N + 1)) // 2, TRIANGLE, ()),
    (EXACT(F) <= EXACT(P), (Range(P, M + 1), Range(F, P + 1)), ()),
    (equal(I % N % N, I % N), ROWS, (N > 0,)),
    (I < 3, ROWS, ((I < 2) | (I < 3),)),
    (equal(abs(P), maximum(P, -P)) & (abs(P) * abs(P) >= P), (), ()),
]

REFUTED: list[tuple[Expr, tuple[Range, ...], tuple[Expr, ...], str]] = [
    (LENS[B] > I + 1, ROWS, (), "lens=[3, 0, 5], M=3, b=2, i=4"),
    (INNER32(32 * FO) + FI < LENS[OUTER32(32 * FO)], TILES, (), "lens="),
    (INNER48(48 * FO) + FI < round_up(LENS[OUTER48(48 * FO)], 64), TILES48, (), "49"),
    (round_up(LENS[B], 48) <= round_up(LENS[B], 64), ROWS[:1], (), "49"),
    (INNER(F) < LENS[OUTER(F)], (Range(F, round_up(EXACT(M), 32)),), (), "f="),
    (LENS[B] > 0, (Range(B, M),), (), "lens=[3, 0, 5], M=3, b=1"),
    (Q[B] > QJ, ATTENTION, (), "qj="),
    (J < 7, TRIANGLE, (), "N=8"),
    (ROW < J, TRIANGLE, (), "row="),
    (PICK < N, ROWS, (PICK >= 0,), "idx[b, i]="),
    (P >= 0, (), (), "p=-1"),
    (equal(EXACT(M) % 4, 0), (), (), "lens="),
    (N > 0, (), (), "N=0"),
    ((P + 1019) // 1020 > F, (Range(P, N), Range(F, N)), (P - F * 1020 >= 0,), "p=0, f=0"),
    (SHARE > 0, (*ROWS[:1], Range(P, M)), (), "p="),
    (ceildiv(LENS[B], 6) * 6 - P * 6 <= LENS[B], (*ROWS[:1], Range(P, N)), (), "p="),
]


@pytest.fixture(scope="module")
def prover() -> Prover:
    return Prover(Settings())


@pytest.mark.parametrize(("goal", "ranges", "assumptions"), PROVED_BY_INTERVALS, ids=str)
def test_intervals_suffice(
    prover: Prover, goal: Expr, ranges: tuple[Range, ...], assumptions: tuple[Expr, ...]
) -> None:
    proof = prover.prove(goal, Context(ranges, assumptions))
    assert (proof.outcome, proof.method) == (Outcome.PROVED, "interval"), proof
    assert proof.proved
    assert proof.goal is goal


@pytest.mark.parametrize(("goal", "ranges", "assumptions"), PROVED_BY_Z3, ids=str)
def test_z3_is_needed(
    prover: Prover, goal: Expr, ranges: tuple[Range, ...], assumptions: tuple[Expr, ...]
) -> None:
    pytest.importorskip("z3")
    proof = prover.prove(goal, Context(ranges, assumptions))
    assert (proof.outcome, proof.method) == (Outcome.PROVED, "z3"), proof
    without = Prover(Settings(solver="off")).prove(goal, Context(ranges, assumptions))
    assert (without.outcome, without.method) == (Outcome.UNKNOWN, "none")
    assert "switched off" in without.reason


@pytest.mark.parametrize(("goal", "ranges", "assumptions", "part"), REFUTED, ids=str)
def test_counterexamples(
    prover: Prover,
    goal: Expr,
    ranges: tuple[Range, ...],
    assumptions: tuple[Expr, ...],
    part: str,
) -> None:
    proof = prover.prove(goal, Context(ranges, assumptions))
    assert (proof.outcome, proof.method) == (Outcome.REFUTED, "counterexample"), proof
    assert not proof.proved
    assert part in proof.reason


def test_what_is_true_but_not_known_stays_unknown(prover: Prover) -> None:
    """Fermat's theorem for the exponent 3."""
    cubes = ~equal(P * P * P + F * F * F, ROW * ROW * ROW)
    proof = prover.prove(cubes, Context((), (P > 0, F > 0)))
    assert (proof.outcome, proof.method) == (Outcome.UNKNOWN, "z3")
    assert "rlimit" in proof.reason


def test_without_z3(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "z3":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    monkeypatch.delitem(sys.modules, "z3", raising=False)
    goal, ranges, assumptions = PROVED_BY_Z3[0]
    proof = Prover(Settings()).prove(goal, Context(ranges, assumptions))
    assert (proof.outcome, proof.method) == (Outcome.UNKNOWN, "none")
    assert "not installed" in proof.reason


def test_answers_do_not_depend_on_what_was_asked_before(prover: Prover) -> None:
    for goal, ranges, assumptions, _ in reversed(REFUTED):
        context = Context(ranges, assumptions)
        assert Prover(Settings()).prove(goal, context) == prover.prove(goal, context)
    for goal, ranges, assumptions in [*PROVED_BY_INTERVALS, *PROVED_BY_Z3]:
        context = Context(ranges, assumptions)
        assert Prover(Settings()).prove(goal, context) == prover.prove(goal, context)


def test_equal_indices_read_equal_elements(prover: Prover) -> None:
    same = binary("le", V[B, I + J - J], V[B, I])
    assert prover.prove(same, Context((*ROWS, Range(J, N)))).proved
    wraps = cast("int64", V[B, I] * 4) >= 0  # may overflow in 32 bits
    assert not prover.prove(wraps, Context(ROWS, (PICK >= 0,))).proved


def test_statistics_count_methods() -> None:
    prover = Prover(Settings(solver="off"))
    context = Context(ROWS)
    for _ in range(2):
        prover.prove(LENS[B] > I, context)
    prover.prove(LENS[B] > I + 1, context)
    found = prover.statistics
    assert (found["interval"].queries, found["interval"].settled) == (2, 1)
    assert (found["counterexample"].queries, found["counterexample"].settled) == (1, 1)
    assert found["interval"].seconds > 0
    assert "z3" not in found


def test_a_goal_is_a_condition(prover: Prover) -> None:
    with pytest.raises(UserError, match="expected a condition"):
        prover.prove(Size("M") + 1, Context())
