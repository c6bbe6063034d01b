"""Facts hold on every batch, for arguments inside the domains, at their edges and beyond."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cora.ir.evaluate import Evaluator
from cora.ir.expr import TRUE, ZERO, Binary, Call, Const, Dim, Expr, Var, binary, round_up
from cora.ir.facts import (
    closure,
    facts,
    in_domain,
    is_nonnegative,
    maximum_fact,
    pair_facts,
)
from cora.ir.ufun import UFun, cuts, descending, fusion_maps, longest_first, maximum_over, permutation, scan
from cora.lang.define import lengths, size
from cora.prove import smt

M = size("M")
B = Dim("b", M)
LENS = lengths("lens", B)
I = Dim("i", LENS[B])  # noqa: E741
INNER = lengths("inner", B, I)
X, Y, Z = Var("x"), Var("y"), Var("z")

EXACT = scan((), B, LENS[B])
PADDED = scan((), B, round_up(LENS[B], 4))
SQUARES = scan((), B, LENS[B] * LENS[B] * 6)
NESTED = scan((B,), I, round_up(INNER[B, I], 2))
TRIANGLE = scan((), Dim("row", M), Dim("row", M) + 1)
MIXED_SIGNS = scan((), B, LENS[B] - 2)
NOTHING = scan((), B, Const(0))
CUTS = cuts(PADDED, Const(3))
ORDER = descending(SQUARES)
LISTS, STARTS = longest_first(EXACT, M - 1)
GIVEN_ORDER = permutation("given", M)

ONE_ARGUMENT = [
    LENS.fun,
    *(EXACT, PADDED, SQUARES, TRIANGLE, MIXED_SIGNS, NOTHING, CUTS),
    *(ORDER, LISTS, STARTS, GIVEN_ORDER),
    *fusion_maps(EXACT),
    *fusion_maps(PADDED),
    *fusion_maps(TRIANGLE),
    *fusion_maps(MIXED_SIGNS),
]
TWO_ARGUMENTS = [INNER.fun, NESTED, *fusion_maps(NESTED)]


@st.composite
def batches(draw: st.DrawFn) -> Evaluator:
    values = draw(st.lists(st.integers(0, 6), max_size=4))
    inner = draw(st.lists(st.integers(0, 5), min_size=sum(values), max_size=sum(values)))
    order = draw(st.permutations(range(len(values))))
    return Evaluator({"M": len(values)}, {"lens": values, "inner": inner, "given": order})


def arguments() -> list[Expr]:
    """Shapes of arguments: plain, tiled, and sums that start at a row."""
    return [X, 4 * X + Y, 4 * X + 2 * Y + Z, X + 1, ZERO, M, Const(3)]


def applications() -> list[Call]:
    found = [fun(arg) for fun in ONE_ARGUMENT for arg in arguments()]
    found += [fun(arg, Y) for fun in TWO_ARGUMENTS for arg in (X, ZERO, M)]
    found += [fun(X, 4 * Y + Z) for fun in TWO_ARGUMENTS]
    for offset in (EXACT, PADDED, TRIANGLE, MIXED_SIGNS):
        found += [fun(offset(X) + Y) for fun in fusion_maps(offset)]
    found += [fun(X, NESTED(X, Y) + Z) for fun in fusion_maps(NESTED)]
    return [*found, maximum_over((B,), LENS[B])(), maximum_over((B, I), INNER[B, I] - 3)()]


FACTS = [f for call in applications() for f in facts(call)]
PAIRS = [
    f
    for offset in (EXACT, PADDED, SQUARES, TRIANGLE, MIXED_SIGNS, NOTHING)
    for a, b in ((X, Y), (X, X + 1), (X + 3, X), (X, X + 2), (X, M), (ZERO, Y))
    for f in pair_facts(offset(a), offset(b))
] + pair_facts(NESTED(X, Y), NESTED(X, Z))
PAIRS += [f for fun in (ORDER, LISTS, GIVEN_ORDER) for f in pair_facts(fun(X), fun(Y))]
LONGEST = maximum_over((B, I), INNER[B, I])
CLOSED = closure(
    [
        fusion_maps(PADDED)[1](4 * X + Y) < LENS[fusion_maps(PADDED)[0](4 * X)],
        EXACT(X) <= EXACT(Y),
        INNER[X, Y] <= LONGEST(),
    ]
)


@settings(max_examples=60, deadline=None)
@given(batches(), st.integers(-3, 30), st.integers(-2, 9), st.integers(-2, 7))
def test_every_fact_holds_on_every_batch(batch: Evaluator, x: int, y: int, z: int) -> None:
    env = {X: x, Y: y, Z: z}
    for fact in [*FACTS, *PAIRS, *CLOSED, maximum_fact(LONGEST(), (X, Y))]:
        assert batch.value(fact, env), f"{fact} is false for {env}"


def test_facts_are_there() -> None:
    """A count per kind, so that the test above is not about nothing."""
    ffo, ffi = fusion_maps(PADDED)
    assert len(facts(LENS[X])) == 1
    assert len(facts(PADDED(X))) == 4
    assert len(facts(ffo(4 * X + Y))) == 5  # sign, range, two of the row, tile lemma
    assert len(facts(ffi(4 * X + Y))) == 4  # sign, range, axiom, tile lemma
    assert len(facts(ffi(4 * X))) == 5  # ... and two of a multiple of 4
    assert len(facts(ffo(PADDED(X) + Y))) == 6  # ... and the inverse, and a tile that starts there
    assert len(facts(CUTS(X))) == len(facts(STARTS(X))) == 5
    assert len(facts(ORDER(X))) == len(facts(LISTS(X))) == len(facts(GIVEN_ORDER(X))) == 2
    assert len(pair_facts(ORDER(X), ORDER(Y))) == 1
    assert facts(fusion_maps(MIXED_SIGNS)[1](X)) == []
    assert len(pair_facts(PADDED(X), PADDED(Y))) == 2
    assert len(pair_facts(PADDED(X), PADDED(X + 1))) == 1


def test_signs() -> None:
    assert is_nonnegative(round_up(LENS[B], 4))
    assert is_nonnegative(binary("max", LENS[B] - B, 0))
    assert not is_nonnegative(LENS[B] - 1)
    assert not is_nonnegative(X)
    assert not is_nonnegative(MIXED_SIGNS(B))


def test_domain() -> None:
    e = Evaluator({"M": 2}, {"lens": [2, 0], "inner": [1, 1]})
    inside = in_domain(INNER[X, Y])
    points = {(x, y) for x in range(-1, 4) for y in range(-1, 4) if e.value(inside, {X: x, Y: y})}
    assert points == {(0, 0), (0, 1)}


def test_closure_is_bounded_and_reproducible() -> None:
    goal = [fusion_maps(PADDED)[1](4 * X + Y) < M]
    assert closure(goal) == closure(goal)
    sizes = [len(closure(goal, depth)) for depth in range(5)]
    assert sizes[0] == 0
    assert sizes == sorted(sizes)
    assert len(set(closure(goal))) == sizes[3] < 100


def unguarded(fact: Expr) -> Expr:
    match fact:
        case Binary(op="or", b=b):
            return b
    return fact


@pytest.mark.parametrize("offset", [EXACT, PADDED])
def test_facts_are_consistent_and_need_their_guards(offset: UFun) -> None:
    """The fusion axioms on their domains have a model; for all integers they have none."""
    pytest.importorskip("z3")
    ffo, ffi = fusion_maps(offset)
    f = ffi(offset(X) + Y)
    some = [X >= 0, X < M, binary("eq", Y, LENS[X] + 9)]  # Y lies beyond its row
    about = closure([f, ffo(offset(X) + Y), *some])
    assert smt.is_unsatisfiable(smt.write([*about, *some], ~TRUE), 2_000_000) is False
    bare = [unguarded(fact) for fact in about]
    assert smt.is_unsatisfiable(smt.write([*bare, *some], ~TRUE), 2_000_000) is True
