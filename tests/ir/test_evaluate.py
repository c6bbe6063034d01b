"""The reference evaluation of index expressions against direct computation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from cora.errors import UnsupportedError, UserError
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Cast, Const, Dim, Expr, Size, Var, binary, cast, round_up, select, unary
from cora.ir.ufun import UFun, cuts, fusion_maps, maximum_over, scan
from cora.lang.define import lengths, size

M = size("M")
B = Dim("b", M)
LENS = lengths("lens", B)
I = Dim("i", LENS[B])  # noqa: E741
INNER = lengths("inner", B, I)
X, Y = Var("x"), Var("y")


def batch(values: list[int]) -> Evaluator:
    return Evaluator({"M": len(values)}, {"lens": values})


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (X + Y * 2, 7 - 6),
        (X - Y, 10),
        (X // Y, -3),
        (X % Y, -2),
        (Y // 2, -2),
        (Y % 2, 1),
        (-X, -7),
        (abs(Y), 3),
        (binary("min", X, Y), -3),
        (binary("max", X, Y), 7),
        (X < Y, False),
        (X <= 7, True),
        (binary("eq", X, 7), True),
        (binary("ne", X, 7), False),
        ((X < Y) | (Y < X), True),
        ((X < Y) & (Y < X), False),
        (~(X < Y), True),
        (select(X < Y, X, Y), -3),
        (Cast("int64", Const(-1.5, "float32")), -1),
        (Cast("bool", X), True),
        (cast("int32", X) + 1, 8),
    ],
)
def test_operations(expr: Expr, expected: int | bool) -> None:
    assert Evaluator({}, {}).value(expr, {X: 7, Y: -3}) == expected


def test_select_evaluates_one_branch() -> None:
    undefined = select(X < 1, Const(5), X // (Y - Y) + Size("absent"))
    assert Evaluator({}, {}).value(undefined, {X: 0, Y: 1}) == 5
    with pytest.raises(UserError, match="absent"):
        Evaluator({}, {}).value(undefined, {X: 1, Y: 1})


def test_terms_that_are_not_index_expressions_come_from_the_environment() -> None:
    unknown = Var("x", "int32")
    assert Evaluator({}, {}).value(cast("int64", unknown) + 1, {unknown: 4}) == 5
    with pytest.raises(UserError, match="x: no value was given"):
        Evaluator({}, {}).value(X)
    with pytest.raises(UnsupportedError, match="exp"):
        Evaluator({}, {}).value(unary("exp", Const(1.0, "float32")))
    with pytest.raises(UserError, match="division by zero"):
        Evaluator({}, {}).value(X // Y, {X: 1, Y: 0})


def test_lengths_outside_their_domain_are_zero() -> None:
    e = batch([3, 0, 5])
    assert [e.value(LENS[X], {X: v}) for v in (-1, 0, 1, 2, 3)] == [0, 3, 0, 5, 0]


def test_scan_and_fusion_maps() -> None:
    offset = scan((), B, round_up(LENS[B], 4))
    ffo, ffi = fusion_maps(offset)
    e = batch([3, 0, 5])
    assert e.table(offset) == [0, 4, 4, 12]
    assert e.table(ffo) == [0] * 4 + [2] * 8
    assert e.table(ffi) == [0, 1, 2, 3, *range(8)]
    assert [e.call(ffo, (f,)) for f in (-1, 12)] == [0, 0]
    assert [e.call(offset, (r,)) for r in (-1, 4)] == [0, 0]


def test_functions_over_a_ragged_domain() -> None:
    inner = [[1, 2, 3], [], [4, 5]]
    e = Evaluator({"M": 3}, {"lens": [3, 0, 2], "inner": inner})
    offset = scan((B,), I, INNER[B, I])
    ffo, ffi = fusion_maps(offset)
    assert e.table(INNER.fun) == [1, 2, 3, 4, 5]
    assert e.value(INNER[2, 1]) == 5
    assert e.value(INNER[1, 0]) == 0
    assert e.table(offset) == [0, 1, 3, 6, 0, 0, 4, 9]
    assert e.table(ffo) == [0, 1, 1, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert e.table(ffi) == [0, 0, 1, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4]


def test_negative_extents_count_as_zero() -> None:
    width = Dim("w", B - 1)
    e = batch([1, 1, 1, 1])
    assert e.table(scan((B,), width, Const(2))) == [0, 0, 2, 0, 2, 4]  # nothing at all for b = 0
    assert list(e.points((B, width))) == [(2, 0), (3, 0), (3, 1)]
    assert Evaluator({"M": 0}, {"lens": []}).table(scan((), B, LENS[B])) == [0]


def test_maximum() -> None:
    assert batch([3, 0, 5]).table(maximum_over((B,), round_up(LENS[B], 4))) == [8]
    assert batch([]).table(maximum_over((B,), LENS[B])) == [0]
    assert batch([4, 2]).table(maximum_over((B, I), I - 10)) == [-7]


@pytest.mark.parametrize("values", [[3, 0, 5], [], [0, 0], [1, 100, 1, 1, 1, 0], [2] * 7])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_cuts(values: list[int], parts: int) -> None:
    cost = scan((), B, LENS[B])
    found = batch(values).table(cuts(cost, Const(parts)))
    total = sum(values)
    for w, cut in enumerate(found):
        if 0 < w < parts:
            starts = [sum(values[:r]) for r in range(len(values) + 1)]
            reached = min(r for r, c in enumerate(starts) if c * parts >= w * total)
            around = [r for r in (reached - 1, reached) if r >= 0]
            assert cut == min(around, key=lambda r: abs(starts[r] * parts - w * total))
    assert (found[0], found[-1], len(found)) == (0, len(values), parts + 1)
    assert found == sorted(found)


@pytest.mark.parametrize(
    "given",
    [
        [[1, 2, 3], [], [4, 5]],
        [1, 2, 3, 4, 5],
        np.array([1, 2, 3, 4, 5], dtype="int32"),
        ([np.array([1, 2, 3]), np.array([], dtype="int64"), (4, np.int64(5))]),
    ],
)
def test_lengths_may_be_flat_or_nested(given: object) -> None:
    e = Evaluator({"M": 3}, {"lens": [3, 0, 2], "inner": given})
    assert e.table(INNER.fun) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("sizes", "given", "message"),
    [
        ({}, {"lens": [1]}, "size 'M': no value"),
        ({"M": 1}, {}, "lengths 'lens': no values"),
        ({"M": 2}, {"lens": [1]}, "lengths 'lens': expected 2 values.*got 1"),
        ({"M": 1}, {"lens": [1, 2]}, "lengths 'lens': expected 1 values.*got 2"),
        ({"M": 2}, {"lens": [1, -2]}, "lengths 'lens': a length must be >= 0; got -2 at 1"),
        ({"M": 2}, {"lens": [1, 2.5]}, "lengths 'lens': expected integers; got float: 2.5"),
    ],
)
def test_bad_batches_are_named(sizes: dict[str, int], given: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Evaluator(sizes, given).table(LENS.fun)


def test_work_grows_linearly_with_the_batch() -> None:
    class Counting(Evaluator):
        count = 0

        def value(self, expr: Expr, env: Mapping[Expr, int | float | bool] | None = None) -> Any:
            self.count += 1
            return super().value(expr, env)

    def work(n: int) -> int:
        offset = scan((), B, round_up(LENS[B], 8))
        e = Counting({"M": n}, {"lens": [(7 * i) % 50 for i in range(n)]})
        for fun in (offset, *fusion_maps(offset)):
            e.table(fun)
        return e.count

    assert work(1000) <= 10 * work(100) + 100


def test_a_definition_without_a_name_clash() -> None:
    """Functions with one definition share their values, whatever dims they were written in."""
    other = Dim("other", M)
    first, second = scan((), B, LENS[B]), scan((), other, LENS[other])
    assert first == second
    assert isinstance(first, UFun)
    assert not math.isnan(batch([1]).value(first(Dim("b", M)), {Dim("b", M): 1}))
