"""The text given to Z3 means what the expression means."""

from __future__ import annotations

import pytest

from cora.errors import InternalError
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Cast, Const, Dim, Expr, Size, Var, binary, cast, select, unary
from cora.ir.ufun import maximum_over
from cora.lang.define import lengths, size
from cora.prove import Context, smt

pytest.importorskip("z3")

X, Y, T = Var("x"), Var("y"), Var("t", "bool")
M = size("M")
B = Dim("b", M)
LENS = lengths("lens", B)

EXPRESSIONS: list[Expr] = [
    X + Y,
    X - Y,
    X * Y,
    *(X // k for k in (1, 4, -4)),
    *(X % k for k in (1, 4, -4)),
    X // Y,
    X % Y,
    binary("min", X, Y),
    binary("max", X, Y),
    -X,
    abs(X),
    select(X < Y, X + 10, Y + 20),
    select(T, X, Y),
    cast("int64", X < Y) + Cast("int64", T),
    cast("int64", Var("x", "int64")),
    X // 4 * 4 + X % 4 - (Y // 4) % 3,
    *(select(c, Const(1), Const(0)) for c in (X < Y, X <= Y, X > Y, X >= Y)),
    *(select(binary(op, X, Y), Const(1), Const(0)) for op in ("eq", "ne")),
    select((X < 0) & T, Const(1), Const(0)),
    select((X < 0) | T, Const(1), Const(0)),
    select(~(X < 0), Const(1), Const(0)),
    select(binary("eq", T, X < 0), Const(1), Const(0)),
]
POINTS = [(7, 3, True), (7, -3, False), (-7, 3, False), (-8, -4, True), (0, 5, True), (5, 5, False)]


@pytest.mark.parametrize("e", EXPRESSIONS, ids=str)
def test_operations_mean_what_they_evaluate_to(e: Expr) -> None:
    for x, y, t in POINTS:
        here = [binary("eq", X, x), binary("eq", Y, y), binary("eq", T, Const(t, "bool"))]
        expected = Evaluator({}, {}).value(e, {X: x, Y: y, T: t})
        for claimed, follows in ((expected, True), (expected + 1, False)):
            query = smt.write(here, binary("eq", e, claimed))
            assert smt.is_unsatisfiable(query, 100_000) is follows, (e, x, y, t, claimed)


def test_equal_arguments_give_equal_values() -> None:
    longest = maximum_over((B,), LENS[B])
    same = binary("eq", LENS[X], LENS[Y]) & binary("eq", longest(), longest())
    assert smt.is_unsatisfiable(smt.write([binary("eq", X, Y)], same), 100_000) is True
    assert smt.is_unsatisfiable(smt.write([], same), 100_000) is False


def test_sizes_are_not_negative() -> None:
    assert smt.is_unsatisfiable(smt.write([], Size("M") + 1 > 0), 100_000) is True
    assert smt.is_unsatisfiable(smt.write([], Size("M") > 0), 100_000) is False


def test_the_limit_is_respected() -> None:
    hard = ~binary("eq", X * X * X + Y * Y * Y, 33 * M * M * M)
    assert smt.is_unsatisfiable(smt.write([X > 0, Y > 0, M > 0], hard), 1_000) is None


def test_scripts_are_reproducible() -> None:
    goal = LENS[X // 2] <= LENS[Y % 3] + M
    assert smt.script(goal, Context()) == smt.script(goal, Context())


def test_other_terms_are_refused() -> None:
    with pytest.raises(InternalError, match="not an expression of integers"):
        smt.write([], unary("exp", Const(1.0, "float32")) < 1.0)
