"""The error bound of a reference: float32 arithmetic stays within it, mistakes do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cora.interp import Reference, interpret
from cora.ir.expr import Dim
from cora.ir.tensor import Tensor
from cora.lang import ops
from cora.lang.define import compute, lengths, placeholder, size
from cora.storage.array import RaggedArray
from tests.reference import array as array_of
from tests.reference import assert_matches, assert_padding_zero

EPS = float(np.finfo(np.float32).eps)
TINY = float(np.finfo(np.float32).smallest_normal)
M = size("M")
b = Dim("b", M)
lens = lengths("lens", b)
p = Dim("p", lens[b])
d = Dim("d", 2000)
X, Y = placeholder("X", [d]), placeholder("Y", [d])
x, y = X[d], Y[d]
rng = np.random.default_rng(3)
XS = (rng.normal(size=2000) * 3).astype(np.float32)
YS = (rng.normal(size=2000) + 0.01).astype(np.float32)


def array(tensor: Tensor, elements: Any, lens: list[int] | None = None) -> RaggedArray:
    if lens is None:
        return array_of(tensor, elements)
    return array_of(tensor, elements, {"lens": lens}, M=len(lens))


def run(body: Any, dtype: str | None = None) -> Reference:
    given = {"X": array(X, XS), "Y": array(Y, YS)}
    O = compute("O", [d], body, dtype=dtype)  # noqa: E741
    names = {"X", "Y"} & {n for n in given if n + "[" in str(O.body)}
    return interpret(O, {n: given[n] for n in names})


def sigmoid(v: np.ndarray) -> np.ndarray:
    return np.float32(1) / (np.float32(1) + np.exp(-v))


FORMULAS: list[tuple[Callable[[], Any], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = [
    (lambda: x + y, lambda u, v: u + v),
    (lambda: x * y - x, lambda u, v: u * v - u),
    (lambda: (x + y) * (x - y), lambda u, v: (u + v) * (u - v)),
    (lambda: x * x - (x - y) * (x + y), lambda u, v: u * u - (u - v) * (u + v)),  # cancels
    (lambda: x / y / 3.0, lambda u, v: u / v / np.float32(3)),
    (lambda: 1.0 / (x * y + y), lambda u, v: np.float32(1) / (u * v + v)),
    (lambda: ops.exp(x * 3.0 - y), lambda u, v: np.exp(u * np.float32(3) - v)),
    (lambda: ops.log(ops.abs(x * y)), lambda u, v: np.log(np.abs(u * v))),
    (lambda: ops.sqrt(ops.abs(x - y)), lambda u, v: np.sqrt(np.abs(u - v))),
    (lambda: ops.rsqrt(x * x + y * y), lambda u, v: np.float32(1) / np.sqrt(u * u + v * v)),
    (lambda: ops.tanh(x * y), lambda u, v: np.tanh(u * v)),
    (lambda: ops.sigmoid(x * y), lambda u, v: sigmoid(u * v)),
    (lambda: ops.maximum(x * y, x + y), lambda u, v: np.maximum(u * v, u + v)),
    (lambda: ops.where(x < y, x * y, x / y), lambda u, v: np.where(u < v, u * v, u / v)),
]


@pytest.mark.parametrize(("build", "in_float32"), FORMULAS)
def test_float32_arithmetic_is_within_the_bound(
    build: Callable[[], Any], in_float32: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> None:
    reference = run(build())
    computed = in_float32(XS, YS)
    assert computed.dtype == np.float32
    assert_matches(reference, array(reference.tensor, computed), ulps=2)
    # and one part in ten thousand too much is found somewhere
    with pytest.raises(AssertionError, match="elements are wrong; the first at"):
        assert_matches(reference, array(reference.tensor, computed * np.float32(1.0001)), ulps=2)


@pytest.mark.parametrize(
    ("build", "limit"),
    [
        (lambda: x, 0.0),
        (lambda: -x, 0.0),
        (lambda: ops.maximum(x, y), 0.0),
        (lambda: x + y, 1.0),
        (lambda: x * y, 1.0),
        (lambda: x * 0.1, 1.0),
        (lambda: x / y + x / y, 2.0),
        (lambda: x * y * x, 2.0),
        (lambda: ops.tanh(x), 1.0),
        (lambda: ops.exp(x), 1.0),
    ],
)
def test_the_bound_is_one_epsilon_of_the_result_for_each_operation(
    build: Callable[[], Any], limit: float
) -> None:
    reference = run(build())
    assert np.all(reference.error <= limit * EPS * np.abs(reference.values) * (1 + 1e-12) + 4 * TINY)
    if limit:
        assert np.all(reference.error >= 0.9 * limit * EPS * np.abs(reference.values))


@pytest.mark.parametrize(
    "name", ["exp", "log", "sqrt", "rsqrt", "tanh", "erf", "gelu", "gelu_tanh", "sigmoid", "abs"]
)
def test_functions_pass_on_errors_times_their_slope(name: str) -> None:
    function = getattr(ops, name, lambda v: ops.gelu(v, approximate="tanh"))
    near = placeholder("near", [d], dtype="float64")
    at = np.linspace(0.05, 3, 2000) * (1 if name in ("log", "sqrt", "rsqrt") else (-1) ** np.arange(2000))
    inner = compute("inner", [d], ops.cast(near[d], "float32") * 1.5)
    outer = compute("outer", [d], function(inner[d]))
    exact = compute("exact", [d], function(near[d]))
    passed, result = interpret([inner, outer], [array(near, at)])
    h = 1e-6
    above, below = (interpret(exact, [array(near, 1.5 * at + s)]).values for s in (h, -h))
    slope = np.abs(above - below) / (2 * h)
    scale = np.abs(passed.values if name.startswith("gelu") else result.values)
    own = 0 if name == "abs" else EPS * scale
    assert result.error == pytest.approx(slope * passed.error + own, rel=1e-4, abs=1e-13)


def test_a_sum_is_bounded_by_the_sum_of_its_absolute_terms() -> None:
    total = compute("total", [], ops.sum(X[d] * Y[d], over=d))
    reference = interpret(total, [array(X, XS), array(Y, YS)])
    absolute = float(np.abs(XS.astype(float) * YS).sum())
    expected = EPS * absolute * (1 + np.sqrt(2000))
    assert reference.error == pytest.approx([expected], rel=1e-6)
    serial = np.float32(0)
    for term in XS * YS:
        serial += term
    assert_matches(reference, array(total, [serial]))
    assert_matches(reference, array(total, [np.dot(XS, YS)]))


@pytest.mark.parametrize("n", [2, 30, 1000, 4000])
def test_a_sum_that_lost_a_term_is_found(n: int) -> None:
    A = placeholder("A", [b, p])
    total = compute("total", [b], ops.sum(A[b, p], over=p))
    terms = np.random.default_rng(n).uniform(0.5, 1, n).astype(np.float32)
    reference = interpret(total, [array(A, terms, [n])])
    serial = np.cumsum(terms, dtype=np.float32)[-1]
    assert_matches(reference, array(total, [serial], [n]))
    with pytest.raises(AssertionError, match=r"total\[b\]: 1 of 1 elements are wrong"):
        assert_matches(reference, array(total, [serial - terms.min()], [n]))


def test_products_and_extremes() -> None:
    A = placeholder("A", [b, p])
    values = np.array([1.5, -2, 0.25, 0, 3, 7], np.float32)
    product = compute("product", [b], ops.prod(A[b, p] + 0.1, over=p))
    largest = compute("largest", [b], ops.max(A[b, p] * 3.0, over=p))
    found = interpret([product, largest], [array(A, values, [3, 0, 3])])
    assert found[0].error[1] == 0
    assert np.all(found[0].error[[0, 2]] > 3 * EPS * np.abs(found[0].values[[0, 2]]))
    assert np.all(found[0].error < 10 * EPS * np.maximum(np.abs(found[0].values), 1e-3))
    assert found[1].error == pytest.approx([6 * EPS, 0, 21 * EPS])  # -2 * 3 may be off by 6
    assert found[1].to_list() == [4.5, -np.inf, 21]


def test_the_error_of_an_intermediate_tensor_is_carried_on() -> None:
    for dtype, eps, tiny in (
        ("float32", 0.0, 0.0),
        ("float16", 2.0**-10, 2.0**-14),
        ("bfloat16", 2.0**-7, TINY),
    ):
        half = compute("half", [d], X[d] * Y[d], dtype=dtype)
        back = compute("back", [d], half[d] + 0.0)
        reference = interpret(back, [array(X, XS), array(Y, YS)])
        expected = (2 * EPS + eps) * np.abs(reference.values) + tiny + TINY
        assert reference.error == pytest.approx(expected, rel=1e-9)


def test_stored_16_bit_floats_are_within_the_bound() -> None:
    reference = run(x * y, dtype="bfloat16")
    rounded = (XS * YS).astype(ml_dtypes.bfloat16)
    assert_matches(reference, array(reference.tensor, rounded), ulps=1)
    with pytest.raises(AssertionError, match="elements are wrong"):
        assert_matches(reference, array(reference.tensor, rounded.astype(np.float32) * 1.02), ulps=1)


def test_double_precision_has_a_smaller_bound() -> None:
    D = placeholder("D", [d], dtype="float64")
    O = compute("O", [d], D[d] * 3)  # noqa: E741
    reference = interpret(O, [array(D, XS)])
    assert np.all(reference.error <= 2**-52 * np.abs(reference.values) * 1.01)


def test_integers_bools_infinities_and_nan_are_exact() -> None:
    big = Dim("big", 4)
    S = placeholder("S", [big])
    given = [array(S, [np.inf, -np.inf, np.nan, 1e38])]
    scaled = interpret(compute("O", [big], S[big] * 2), given)
    assert scaled.error[:3].tolist() == [0, 0, 0]
    assert np.isnan(interpret(compute("O", [big], S[big] - S[big]), given).values[0])
    masked = interpret(compute("O", [big], ops.exp(S[big] - 5.0)), given)  # exp(-inf): error 0 * inf
    assert masked.error[1] <= TINY
    for body in (S[big] < 1, ops.cast(ops.where(S[big] < 9, 1.5, 2.5), "int32") + big):
        assert interpret(compute("O", [big], body), given).error.tolist() == [0] * 4


# --- the helpers of the tests --------------------------------------------------------------------

A = placeholder("A", [b, p])
TWICE = compute("T", [b, p], 2 * A[b, p])


def twice(values: list[float]) -> Reference:
    return interpret(TWICE, [array(A, values, [2, 0, 1])])


def test_the_first_difference_is_named() -> None:
    reference = twice([1, 2, 3])
    assert_matches(reference, array(TWICE, [2, 4, 6], [2, 0, 1]))
    with pytest.raises(AssertionError, match=r"T\[b, p\]: 2 of 3 .* first at \[0, 1\]: expected .*4.0"):
        assert_matches(reference, array(TWICE, [2, 4.001, 7], [2, 0, 1]))
    with pytest.raises(AssertionError, match="expected 3 valid elements; got 2"):
        assert_matches(reference, array(TWICE, [2, 4], [2, 0, 0]))
    other = placeholder("T", [b, p], dtype="float64")
    with pytest.raises(AssertionError, match="expected float32; got float64"):
        assert_matches(reference, array(other, [2, 4, 6], [2, 0, 1]))


@pytest.mark.parametrize(
    ("inputs", "outputs", "right"),
    [
        ([np.nan, np.inf, 1], [np.nan, np.inf, 2], True),
        ([np.nan, np.inf, 1], [0, np.inf, 2], False),
        ([np.nan, np.inf, 1], [np.nan, -np.inf, 2], False),
        ([np.nan, np.inf, 1], [np.nan, 3e38, 2], False),
        ([0, 0, 1], [np.nan, 0, 2], False),
        ([1, 0, 1], [np.inf, 0, 2], False),
        ([0, 0, 1], [0, -0.0, 2], True),
        ([3e38, -3e38, 1], [np.inf, -np.inf, 2], True),
        ([3e38, -3e38, 1], [-np.inf, -np.inf, 2], False),
        ([3e38, 1, 1], [np.nan, 2, 2], False),
    ],
)
def test_nan_infinity_and_overflow(inputs: list[float], outputs: list[float], right: bool) -> None:
    reference, computed = twice(inputs), array(TWICE, outputs, [2, 0, 1])
    if right:
        assert_matches(reference, computed)
    else:
        with pytest.raises(AssertionError, match="elements are wrong"):
            assert_matches(reference, computed)


def test_integers_must_be_equal() -> None:
    count = compute("C", [b, p], p + 2**40)
    reference = interpret(count, sizes={"M": 2}, lengths={"lens": [2, 1]})
    right = [2**40, 2**40 + 1, 2**40]
    assert_matches(reference, array(count, right, [2, 1]))
    with pytest.raises(AssertionError, match=r"first at \[1, 0\]"):
        assert_matches(reference, array(count, [*right[:2], 2**40 + 1], [2, 1]))


def test_padding_must_be_zero() -> None:
    packed = array(TWICE, [2, 4, 6], [2, 0, 1])
    assert_padding_zero(packed)
    padded = packed.to_layout(packed.layout.with_pad(p, 4))
    assert_padding_zero(padded)
    for wrong in (np.nan, 1e-30):
        spoilt = packed.to_layout(packed.layout.with_pad(p, 4))
        spoilt.values[3] = wrong
        assert_matches(twice([1, 2, 3]), spoilt)
        with pytest.raises(AssertionError, match=r"T: 1 of 5 elements of the padding .* at offset 3"):
            assert_padding_zero(spoilt)
