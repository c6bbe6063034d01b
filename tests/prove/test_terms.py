"""Normal forms have the value of what they were made from; equal expressions have one normal form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cora.ir.evaluate import Evaluator
from cora.ir.expr import Const, Expr, Var, binary, ceildiv, round_up
from cora.prove.terms import Extremum, Leaf, Poly, Quotient, Terms, freeze

X, Y = Var("x"), Var("y")


def expressions() -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from([X, Y, Const(0), Const(1), Const(-7), Const(12)])

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        two = st.sampled_from(["add", "sub", "mul", "min", "max"])
        divide = st.sampled_from(["floordiv", "mod"])
        divisors = st.sampled_from([1, 2, 3, 4, 12]).map(Const)
        return (
            st.builds(binary, two, inner, inner)
            | st.builds(binary, divide, inner, divisors)
            | inner.map(abs)
            | inner.map(lambda e: -e)
        )

    return st.recursive(leaves, grow, max_leaves=8)


def value(terms: Terms, p: Poly, env: dict[Expr, int]) -> int:
    total = 0
    for mono, c in p.items():
        for number in mono:
            match terms.atoms[number]:
                case Leaf(expr=e):
                    c *= env[e]
                case Quotient(numerator=n, divisor=k):
                    c *= value(terms, dict(n), env) // k
                case Extremum(op=op, a=a, b=b):
                    sides = [value(terms, dict(side), env) for side in (a, b)]
                    c *= min(sides) if op == "min" else max(sides)
        total += c
    return total


@given(expressions(), st.integers(-30, 30), st.integers(-30, 30))
def test_normal_forms_keep_the_value(e: Expr, x: int, y: int) -> None:
    terms = Terms()
    p = terms.poly(e)
    env: dict[Expr, int] = {X: x, Y: y}
    expected = Evaluator({}, {}).value(e, env)
    assert value(terms, p, env) == expected
    factor = terms.factor(p)
    assert expected == 0 if factor == 0 else expected % factor == 0


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((X + 5) * 4 // 4, X + 5),
        ((32 * X + Y) // 32, X + Y // 32),
        ((32 * X + Y) % 32, Y % 32),
        ((X // 3 + 5) // 4, (X + 15) // 12),
        ((2 * X + 3) // 4, (X + 1) // 2),
        (ceildiv(X + 64, 64), ceildiv(X, 64) + 1),
        (round_up(round_up(X, 4), 4), round_up(X, 4)),
        (X % 4 + X // 4 * 4, X),
        (binary("min", X + 1, X), X),
        (binary("max", Y, X), binary("max", X, Y)),
    ],
    ids=str,
)
def test_equal_expressions_have_one_normal_form(a: Expr, b: Expr) -> None:
    terms = Terms()
    assert freeze(terms.poly(a)) == freeze(terms.poly(b))
