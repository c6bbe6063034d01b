"""Simplification on random integer expressions, ranges and values: nothing changes, bounds hold, divisors divide."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cora.ir.bounds import bounds, multiple_of
from cora.ir.evaluate import Evaluator
from cora.ir.expr import (
    Binary,
    BinaryOp,
    Const,
    Dim,
    Expr,
    Select,
    Size,
    Var,
    binary,
    ceildiv,
    round_up,
    select,
)
from cora.ir.poly import linear_in, polynomial, stride_in
from cora.ir.simplify import Simplifier, common_factor, simplify
from cora.ir.ufun import UFun, cuts, fusion_maps, maximum_over, scan
from cora.ir.visit import walk
from cora.lang.define import lengths, size

M, N = size("M"), size("N")
B = Dim("b", M)
LENS = lengths("lens", B)
PADDED = scan((), B, round_up(LENS[B], 4))
EXACT = scan((), B, LENS[B])
FFO, FFI = fusion_maps(PADDED)
EXACT_FFO, EXACT_FFI = fusion_maps(EXACT)
LONGEST = maximum_over((B,), LENS[B])
CUTS = cuts(PADDED, Const(3))
FUNCTIONS: list[UFun] = [LENS.fun, PADDED, EXACT, FFO, FFI, EXACT_FFO, EXACT_FFI, CUTS]

X, Y, Z = Var("x"), Var("y"), Var("z")
# Each variable runs from 0; the last one's end depends on another variable, as the extents of vloops do.
RANGES: list[dict[Expr, Expr]] = [
    {},
    {X: Const(4), Y: Const(8), Z: Const(1)},
    {X: M, Y: Const(4), Z: X + 1},
    {X: Const(16), Y: N, Z: LENS[X]},
    {X: ceildiv(PADDED(M), 4), Y: Const(4), Z: Const(3)},
]
COMPARISONS: st.SearchStrategy[BinaryOp] = st.sampled_from(["lt", "le", "eq", "ne"])
QUICK = settings(
    max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> Expr:
    """An index expression over x, y, z, sizes, and the functions of a fused loop."""
    if depth == 0 or draw(st.integers(0, 9)) == 0:
        atoms: list[Expr] = [X, Y, Z, M, N, Const(draw(st.integers(-9, 17)))]
        return draw(st.sampled_from(atoms))
    op = draw(
        st.sampled_from(
            ["add", "add", "sub", "mul", "scale", "floordiv", "mod", "min", "max", "select", "call"]
        )
    )
    a = draw(expressions(depth=depth - 1))
    if op in ("floordiv", "mod"):
        k = draw(st.sampled_from([1, 2, 3, 4, 8, -2, -3]))
        return binary(op, a, k)  # type: ignore[arg-type]
    if op == "scale":
        return a * draw(st.sampled_from([2, 4, 8, -1, -3, 0]))
    if op == "call":
        return draw(st.sampled_from(FUNCTIONS))(a) if draw(st.integers(0, 5)) else LONGEST()
    b = draw(expressions(depth=depth - 1))
    if op == "select":
        return select(binary(draw(COMPARISONS), a, b), draw(expressions(depth=1)), draw(expressions(depth=1)))
    return binary(op, a, b)  # type: ignore[arg-type]


@st.composite
def batches(draw: st.DrawFn) -> Evaluator:
    rows = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 8]), max_size=4))
    return Evaluator({"M": len(rows), "N": draw(st.integers(0, 6))}, {"lens": rows})


@st.composite
def points(draw: st.DrawFn, e: Evaluator, ranges: dict[Expr, Expr]) -> dict[Expr, int] | None:
    """Values of x, y, z in their ranges (negative too where there is none); None if a range is empty."""
    env: dict[Expr, int] = {}
    for var in (X, Y, Z):
        if var not in ranges:
            env[var] = draw(st.integers(-10, 20))
            continue
        end = e.value(ranges[var], env)
        if end <= 0:
            return None
        env[var] = draw(st.integers(0, end - 1))
    return env


@given(st.data())
@QUICK
def test_simplify_changes_no_value(data: st.DataObject) -> None:
    expression = data.draw(expressions())
    ranges = data.draw(st.sampled_from(RANGES))
    e = data.draw(batches())
    env = data.draw(points(e, ranges))
    if env is None:
        return
    simple = simplify(expression, ranges)
    assert e.value(simple, env) == e.value(expression, env), f"{expression}  ->  {simple}"
    assert Simplifier(ranges)(simple) == simplify(simple, ranges)


@given(st.data())
@QUICK
def test_comparisons_keep_their_truth(data: st.DataObject) -> None:
    op = data.draw(COMPARISONS)
    goal = binary(op, data.draw(expressions(depth=3)), data.draw(expressions(depth=3)))
    ranges = data.draw(st.sampled_from(RANGES))
    e = data.draw(batches())
    env = data.draw(points(e, ranges))
    if env is not None:
        assert e.value(simplify(goal, ranges), env) == e.value(goal, env), goal


@given(st.data())
@QUICK
def test_bounds_hold(data: st.DataObject) -> None:
    expression = data.draw(expressions(depth=3))
    ranges = data.draw(st.sampled_from(RANGES[1:]))
    e = data.draw(batches())
    env = data.draw(points(e, ranges))
    if env is None:
        return
    low, high = bounds(expression, ranges)
    value = e.value(expression, env)
    assert low is None or low <= value, f"{expression} >= {low}"
    assert high is None or value <= high, f"{expression} <= {high}"


@given(st.data())
@QUICK
def test_multiple_of_divides(data: st.DataObject) -> None:
    expression = data.draw(expressions(depth=3))
    ranges = data.draw(st.sampled_from(RANGES))
    e = data.draw(batches())
    env = data.draw(points(e, ranges))
    if env is None:
        return
    factor = multiple_of(expression)
    value = e.value(expression, env)
    assert value == 0 if factor == 0 else value % factor == 0, f"{factor} divides {expression} = {value}"


@given(st.data())
@QUICK
def test_linear_in(data: st.DataObject) -> None:
    expression = data.draw(expressions(depth=3))
    found = linear_in(expression, X)
    if found is None:
        return
    coefficient, rest = found
    assert not any(node == X for node in walk(rest))
    e = data.draw(batches())
    env = data.draw(points(e, {}))
    assert env is not None
    assert e.value(expression, env) == coefficient * env[X] + e.value(rest, env)


@given(st.data())
@QUICK
def test_stride_in(data: st.DataObject) -> None:
    expression = data.draw(expressions(depth=3))
    stride = stride_in(expression, X)
    if stride is None:
        return
    assert not any(node == X for node in walk(stride))
    e = data.draw(batches())
    env = data.draw(points(e, {}))
    assert env is not None
    step = e.value(expression, {**env, X: env[X] + 1}) - e.value(expression, env)
    assert step == e.value(stride, env)


@given(st.data())
@QUICK
def test_polynomials_are_their_expressions(data: st.DataObject) -> None:
    a, b = data.draw(expressions(depth=3)), data.draw(expressions(depth=3))
    e = data.draw(batches())
    env = data.draw(points(e, {}))
    assert env is not None
    x, y = e.value(a, env), e.value(b, env)
    assert e.value(polynomial(a).expr(), env) == x
    assert e.value((polynomial(a) * polynomial(b)).expr(), env) == x * y
    assert e.value((polynomial(a) - polynomial(b)).expr(), env) == x - y
    assert polynomial(a + b) == polynomial(b + a)


@given(st.data())
@QUICK
def test_common_factor(data: st.DataObject) -> None:
    body = data.draw(expressions(depth=3))
    factor, rest = common_factor(body, frozenset((B,)))
    e = data.draw(batches())
    env = data.draw(points(e, {}))
    assert env is not None
    assert e.value(body, env) == e.value(factor, env) * e.value(rest, env)


TILE: dict[Expr, Expr] = {X: Const(100), Y: Const(4), Z: M}


@pytest.mark.parametrize(
    ("expression", "simple"),
    [
        ((X * 4 + Y) // 4, X),
        ((X * 4 + Y) % 4, Y),
        ((X * 8 + Y) // 4, X * 2),
        ((X * 4 + Y + 4) // 4, X + 1),
        (Z // 3 * 3 + Z % 3, Z),
        (round_up(N, 8) // 8 * 8, round_up(N, 8)),
        (X // 2 // 4, X // 8),
        (X + Y - X, Y),
        (PADDED(FFO(X)) + FFI(X), X),
        (FFO(X * 4 + Y), FFO(X * 4)),
        (FFI(X * 4 + Y), FFI(X * 4) + Y),
        (binary("max", Y, 0), Y),
        (binary("min", Y, 3), Y),
        (binary("lt", Y, 4), Const(True, "bool")),
        (binary("le", 4, Y), Const(False, "bool")),
        (select(binary("lt", X, 200), X, Y), X),
        (PADDED(Const(0)), Const(0)),
    ],
    ids=str,
)
def test_identities(expression: Expr, simple: Expr) -> None:
    assert simplify(expression, TILE) == simple


@pytest.mark.parametrize(
    "expression",
    [(X * 4 + Y) // 3, (X * 4 + Z) // 4, FFO(X * 3 + Y), EXACT_FFO(X * 4 + Y), EXACT(FFO(X)) + FFI(X), Z % 4],
    ids=str,
)
def test_what_is_not_an_identity_stays(expression: Expr) -> None:
    simple = simplify(expression, TILE)
    assert {type(n) for n in walk(simple)} >= {type(expression)} - {Binary}
    rng = random.Random(0)
    for _ in range(200):
        rows = [rng.randint(0, 9) for _ in range(rng.randint(1, 4))]
        e = Evaluator({"M": len(rows), "N": 3}, {"lens": rows})
        env: dict[Expr, int] = {X: rng.randrange(100), Y: rng.randrange(4), Z: rng.randrange(len(rows))}
        assert e.value(simple, env) == e.value(expression, env)


def test_simplify_is_lazy_where_select_is() -> None:
    guarded = Select(binary("lt", 0, Y), binary("floordiv", X, Y), X)
    e = Evaluator({"M": 0, "N": 0}, {"lens": []})
    assert e.value(simplify(guarded), {X: 7, Y: 0}) == 7
    assert e.value(simplify(guarded), {X: 7, Y: 2}) == 3


def test_equal_expressions_cancel() -> None:
    a = (M + N) * Size("K")
    b = Size("K") * N + M * Size("K")
    assert polynomial(simplify(a)) == polynomial(simplify(b))
    assert simplify(a - b) == Const(0)


def test_division_by_the_size_of_a_block_that_holds_whole_tiles() -> None:
    """(g*q + r) // (g*m) and % (g*m): for all small q, r, and where r leaves its range the term stays as it is."""
    e = Evaluator({"M": 0, "N": 0}, {"lens": []})
    for g, m, shift, end in (
        (4, 2, 0, 4),
        (4, 3, 1, 3),
        (2, 4, 0, 2),
        (8, 2, -4, 3),
        (4, 2, 0, 5),
        (4, 2, 1, 4),
    ):
        index = X * g + Y + shift * 4 + (shift % 3)
        for op in ("floordiv", "mod"):
            expression = binary(op, index, g * m)  # type: ignore[arg-type]
            simple = simplify(expression, {X: M, Y: Const(end)})
            for x in range(-3, 20):
                for y in range(end):
                    assert e.value(simple, {X: x, Y: y}) == e.value(expression, {X: x, Y: y}), (
                        expression,
                        simple,
                    )
    ranges: dict[Expr, Expr] = {X: M, Y: Const(4)}
    assert str(simplify(binary("floordiv", X * 4 + Y, 8), ranges)) == "x // 2"
    assert str(simplify(binary("mod", X * 4 + Y, 8), ranges)) == "x % 2 * 4 + y"
    assert str(simplify(binary("mod", X * 4 + Y, 8), {X: M})) == "(x * 4 + y) % 8"
    within = FFI(X * 4) + Y
    assert simplify(binary("floordiv", within, 4), ranges) == binary("floordiv", FFI(X * 4), 4)
    assert simplify(binary("mod", within, 4), ranges) == Y


def test_the_rest_of_full_parts_has_constant_bounds() -> None:
    rest = M - M // 8 * 8
    assert bounds(rest) == (0, 7)
    assert bounds(N * 2 + rest * 3 - M) == (None, None)
    assert bounds(Const(1) - rest - rest) == (-13, 1)
    assert bounds(M // 8 * 8 - M) == (-7, 0)
    assert simplify(binary("floordiv", M // 8 * 8 + X, 8), {X: rest}) == M // 8
