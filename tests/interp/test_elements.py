"""The interpreter, element by element: functions, casts, stores, lazy branches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cora.interp import approx, interpret
from cora.ir.expr import Dim
from cora.lang import ops
from cora.lang.define import compute, lengths, placeholder, size
from cora.storage.array import RaggedArray
from tests.reference import array

M = size("M")
b = Dim("b", M)
lens = lengths("lens", b)
p = Dim("p", lens[b])
A = placeholder("A", [b, p])


def ragged(elements: Any, lens: list[int]) -> RaggedArray:
    return array(A, elements, {"lens": lens}, M=len(lens))


d4 = Dim("d4", 4)
SPECIAL = [math.inf, -math.inf, math.nan, -0.0]


def on(values: list[float], build: Callable[[Any], Any], dtype: str = "float64") -> list[Any]:
    """`build` applied to four elements."""
    X = placeholder("X", [d4], dtype=dtype)
    result = interpret(compute("O", [d4], build(X[d4])), [array(X, values)])
    return result.to_list()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("exp", math.exp),
        ("log", math.log),
        ("sqrt", math.sqrt),
        ("rsqrt", lambda x: 1 / math.sqrt(x)),
        ("tanh", math.tanh),
        ("erf", math.erf),
        ("gelu", lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2)))),
        ("sigmoid", lambda x: 1 / (1 + math.exp(-x))),
        ("abs", abs),
    ],
)
def test_functions(name: str, function: Callable[[float], float]) -> None:
    values = [0.25, 1.0, 3.5, 0.001]
    expected = [function(v) for v in values]
    assert on(values, getattr(ops, name)) == pytest.approx(expected, rel=1e-14)


def test_gelu_by_the_tanh_formula() -> None:
    values = [0.25, -1.0, 3.5, -20.0]
    expected = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in values]
    assert on(values, lambda x: ops.gelu(x, approximate="tanh")) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exp", [math.inf, 0.0, math.nan, 1.0]),
        ("log", [math.inf, math.nan, math.nan, -math.inf]),
        ("sqrt", [math.inf, math.nan, math.nan, 0.0]),
        ("rsqrt", [0.0, math.nan, math.nan, -math.inf]),
        ("tanh", [1.0, -1.0, math.nan, 0.0]),
        ("erf", [1.0, -1.0, math.nan, 0.0]),
        ("gelu", [math.inf, 0.0, math.nan, 0.0]),
        ("sigmoid", [1.0, 0.0, math.nan, 0.5]),
        ("abs", [math.inf, math.inf, math.nan, 0.0]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_functions_of_infinities_and_nan(name: str, expected: list[float]) -> None:
    assert on(SPECIAL, getattr(ops, name)) == pytest.approx(expected, nan_ok=True, abs=0)


@pytest.mark.filterwarnings("error")
def test_nothing_is_said_about_overflow() -> None:
    values = [800.0, -800.0, 1e300, -1e300]
    assert on(values, ops.sigmoid) == [1.0, 0.0, 1.0, 0.0]
    assert on(values, lambda x: x * 1e300)[2:] == [math.inf, -math.inf]
    assert on(values, lambda x: x / 0)[:2] == [math.inf, -math.inf]


def test_nan_in_minimum_and_comparisons() -> None:
    assert on(SPECIAL, lambda x: ops.minimum(x, 1)) == pytest.approx([1, -math.inf, math.nan, 0], nan_ok=True)
    assert on(SPECIAL, lambda x: ops.maximum(1, x)) == pytest.approx([math.inf, 1, math.nan, 1], nan_ok=True)
    assert on(SPECIAL, lambda x: ops.equal(x, x)) == [True, True, False, True]
    assert on(SPECIAL, lambda x: ops.not_equal(x, x)) == [False, False, True, False]
    assert on(SPECIAL, lambda x: ~(x < 0) & (x <= 0) | (x > 9)) == [True, False, False, True]


def test_integer_division_is_pythons() -> None:
    values = [7, -7, 8, -8]
    for by in (3, -3):
        assert on(values, lambda x, by=by: x // by, "int64") == [v // by for v in values]
        assert on(values, lambda x, by=by: x % by, "int64") == [v % by for v in values]
    assert on(values, lambda x: x / 2, "int64") == [3.5, -3.5, 4.0, -4.0]


def test_casts() -> None:
    values = [2.7, -2.7, 0.0, 1e6]
    assert on(values, lambda x: ops.cast(x, "int32")) == [2, -2, 0, 1000000]
    assert on(values, lambda x: ops.cast(x, "bool")) == [True, True, False, True]
    assert on([0.1] * 4, lambda x: ops.cast(x, "float32")) == [0.1] * 4  # kept in float64


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("int8", [44, -56, 2, -1]), ("int32", [300, 200, 2, -1]), ("bool", [True, True, True, True])],
)
def test_integers_wrap_where_they_are_stored(dtype: str, expected: list[int]) -> None:
    X = placeholder("X", [d4], dtype="int64")
    given = [array(X, [300, 200, 2, -1])]
    stored = compute("S", [d4], X[d4], dtype=dtype)
    assert interpret(stored, given).to_list() == expected
    if dtype == "int8":  # and are read back wrapped, in the type of arithmetic
        assert interpret(compute("O", [d4], stored[d4] * 2), given).to_list() == [88, -112, 4, -2]


def test_floats_are_stored_as_they_are() -> None:
    X = placeholder("X", [d4], dtype="bfloat16")
    given = [array(X, np.array([0.1, 1.5, -2.0, 300.0], ml_dtypes.bfloat16))]
    third = compute("third", [d4], X[d4] / 3, dtype="bfloat16")
    back = compute("back", [d4], third[d4] * 3)
    assert interpret(back, given).values == pytest.approx(given[0].values.astype(float), rel=1e-15)
    truncated = compute("truncated", [d4], X[d4], dtype="int8")
    assert interpret(truncated, given).to_list() == [0, 1, -2, 44]


def test_a_literal_is_what_its_type_holds() -> None:
    X = placeholder("X", [d4])
    result = interpret(compute("O", [d4], ops.equal(X[d4], 0.1)), [array(X, [0.1] * 4)])
    assert result.to_list() == [True] * 4


def test_where_evaluates_only_the_branch_taken() -> None:
    shifted = compute("shifted", [b, p], ops.where(p > 0, A[b, p - 1], -1))
    given = ragged([1, 2, 3, 4], [3, 0, 1])
    assert interpret(shifted, [given]).to_list() == [[-1, 1, 2], [], [-1]]
    quotient = compute("quotient", [b, p], ops.where(p > 0, 6 // p, 0))
    assert interpret(quotient, sizes={"M": 1}, lengths={"lens": [4]}).to_list() == [[0, 6, 3, 2]]
    averaged = compute("averaged", [b], ops.where(lens[b] > 1, ops.sum(A[b, p], over=p), A[b, 0]))
    assert interpret(averaged, [ragged([1, 2, 3, 4], [3, 1])]).to_list() == [6, 4]


def test_integer_arithmetic_wraps_at_the_store_only() -> None:
    N = placeholder("N", [d4], dtype="int32")
    square = compute("S", [d4], N[d4] * N[d4])
    half = compute("H", [d4], N[d4] * N[d4] // 4)
    given = [array(N, [2**17, 3, -5, 2**16])]
    assert square.dtype == half.dtype == "int32"
    assert interpret(square, given).to_list() == [0, 9, 25, 0]
    assert interpret(half, given).to_list() == [0, 2, 6, 2**30]


def test_a_shared_expression_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    e: Any = A[b, p]
    for _ in range(8):
        e = e * 0.5 + e * 0.5
    evaluated = []
    one = approx.binary
    monkeypatch.setattr(approx, "binary", lambda *a: evaluated.append(a) or one(*a))
    result = interpret(compute("O", [b, p], e), [ragged([3.0], [1])])
    assert result.to_list() == [[3.0]]
    assert len(evaluated) == 16  # a product and a sum for each round
