"""The interpreter against programs written out by hand in Python."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from cora.errors import InternalError, UserError
from cora.interp import Reference, interpret
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Dim, Var
from cora.ir.tensor import Tensor
from cora.lang import ops
from cora.lang.define import compute, lengths, placeholder, size
from cora.storage.array import RaggedArray
from tests.reference import array

M = size("M")
b = Dim("b", M)
lens = lengths("lens", b)
p = Dim("p", lens[b])
i, j, k = Dim("i", lens[b]), Dim("j", lens[b]), Dim("k", lens[b])
A = placeholder("A", [b, p])
HOSTILE = [[], [0, 0], [0, 3, 0, 0], [1], [7, 8, 9], [40, 1, 0, 2, 1], [5, 5, 5]]


def ragged(tensor: Tensor, elements: Any, lens: list[int]) -> RaggedArray:
    """`array` for tensors over the dims of this module."""
    return array(tensor, elements, {"lens": lens}, M=len(lens))


def elements(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=n).astype(np.float32)


def rows(flat: np.ndarray, lens: list[int]) -> list[np.ndarray]:
    return np.split(flat, np.cumsum(lens)[:-1]) if lens else []


# --- whole programs ------------------------------------------------------------------------------


def test_the_first_program() -> None:
    O = compute("O", [b, p], 2 * A[b, p])  # noqa: E741
    result = interpret(O, [ragged(A, [1, 2, 3, 4], [3, 1, 0])])
    assert isinstance(result, Reference)
    assert result.to_list() == [[2.0, 4.0, 6.0], [8.0], []]
    assert [r.tolist() for r in result.rows()] == [[2.0, 4.0, 6.0], [8.0], []]
    assert result.indices().tolist() == [[0, 0], [0, 1], [0, 2], [1, 0]]
    assert result.values.dtype == np.float64
    assert str(result) == "Reference(O[b, p]: float32, [[2.0, 4.0, 6.0], [8.0], []])"


@pytest.mark.parametrize("lens", HOSTILE)
def test_softmax(lens: list[int]) -> None:
    largest = compute("largest", [b], ops.max(A[b, p], over=p))
    raised = compute("raised", [b, p], ops.exp(A[b, p] - largest[b]))
    total = compute("total", [b], ops.sum(raised[b, p], over=p))
    softmax = compute("softmax", [b, p], raised[b, p] / total[b])
    flat = elements(sum(lens))
    found, sums = interpret([softmax, total], {"A": ragged(A, flat, lens)})
    for got, row in zip(found.to_list(), rows(flat.astype(float), lens), strict=True):
        e = np.exp(row - row.max()) if len(row) else row
        assert got == pytest.approx((e / e.sum()).tolist(), rel=1e-13)
    assert len(sums.values) == len(lens)


@pytest.mark.parametrize("lens", HOSTILE)
def test_batched_matmul_of_ragged_matrices(lens: list[int]) -> None:
    X, Y = placeholder("X", [b, i, k]), placeholder("Y", [b, k, j])
    C = compute("C", [b, i, j], ops.sum(X[b, i, k] * Y[b, k, j], over=k))
    squares = [n * n for n in lens]
    x, y = elements(sum(squares), 1), elements(sum(squares), 2)
    result = interpret(C, [ragged(X, x, lens), ragged(Y, y, lens)])
    for n, got, xs, ys in zip(
        lens, rows(result.values, squares), rows(x, squares), rows(y, squares), strict=True
    ):
        left, right = xs.astype(float).reshape(n, n), ys.astype(float).reshape(n, n)
        assert np.allclose(got.reshape(n, n), left @ right, rtol=1e-12)


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    n = Dim("n", p + 1)
    C = compute("C", [b, p], ops.sum(A[b, n] * (n + 1), over=n))
    lens = [0, 7, 3, 0, 12]
    given = ragged(A, elements(sum(lens)), lens)
    whole = interpret(C, [given])
    for at_once in (1, 5, 30):
        monkeypatch.setattr("cora.interp.evaluate._POINTS_AT_ONCE", at_once)
        cut = interpret(C, [given])
        assert np.array_equal(cut.values, whole.values)
        assert np.array_equal(cut.error, whole.error)


def test_a_million_products_take_no_minute() -> None:
    X, Y = placeholder("X", [b, i, k]), placeholder("Y", [b, k, j])
    C = compute("C", [b, i, j], ops.sum(X[b, i, k] * Y[b, k, j], over=k))
    lens = [100, 0, 1]
    given = [ragged(T, elements(10001), lens) for T in (X, Y)]
    begin = time.perf_counter()
    interpret(C, given)
    assert time.perf_counter() - begin < 20


def test_triangles_bands_and_dims_that_depend_on_two_outer_dims() -> None:
    q, kv = lengths("q", b), lengths("kv", b)
    row = Dim("row", q[b])
    col = Dim("col", kv[b] - q[b] + row + 1)
    T = compute("T", [b, row, col], 100 * b + 10 * row + col)
    result = interpret(T, sizes={"M": 3}, lengths={"q": [2, 3, 0], "kv": [3, 1, 2]})
    assert result.to_list() == [[[0, 1], [10, 11, 12]], [[], [], [120]], []]
    band = Dim("band", ops.minimum(row + 1, 2))
    B = compute("B", [b, row, band], row - band)
    assert interpret(B, sizes={"M": 1}, lengths={"q": [4]}).to_list() == [[[0], [1, 0], [2, 1], [3, 2]]]


def test_transposition_of_two_ragged_dims() -> None:
    X = placeholder("X", [b, i, j])
    T = compute("T", [b, j, i], X[b, i, j])
    assert interpret(T, [ragged(X, range(5), [2, 0, 1])]).to_list() == [[[0, 2], [1, 3]], [], [[4]]]


def test_gather_through_a_ragged_index() -> None:
    vocab, feature = Dim("vocab", 5), Dim("feature", 2)
    E = placeholder("E", [vocab, feature])
    idx = placeholder("idx", [b, p], dtype="int32")
    G = compute("G", [b, p, feature], E[idx[b, p], feature])
    table = array(E, np.arange(10))
    result = interpret(G, {"idx": ragged(idx, [4, 0, 2], [2, 0, 1]), "E": table})
    assert result.to_list() == [[[8, 9], [0, 1]], [], [[4, 5]]]


def test_lengths_over_two_dims() -> None:
    n = lengths("n", b, p)
    inner = Dim("inner", n[b, p])
    O = compute("O", [b, p, inner], n[b, p] * 10 + inner)  # noqa: E741
    expected = [[[20, 21], []], [], [[10]]]
    for given in ([2, 0, 1], [[2, 0], [], [1]], [np.array([2, 0]), [], (1,)]):
        result = interpret(O, sizes={"M": 3}, lengths={"lens": [2, 0, 1], "n": given})
        assert result.to_list() == expected


def test_a_length_function_is_zero_outside_its_domain() -> None:
    O = compute("O", [b], lens[b + 1])  # noqa: E741
    assert interpret(O, sizes={"M": 3}, lengths={"lens": [5, 6, 7]}).to_list() == [6, 7, 0]


def test_a_scalar_and_a_scalar_of_nothing() -> None:
    total = compute("total", [], ops.sum(A[b, p], over=(b, p)))
    result = interpret(total, [ragged(A, [1, 2, 3], [2, 0, 1])])
    assert result.to_list() == 6.0
    assert [r.tolist() for r in result.rows()] == [[6.0]]
    assert result.indices().shape == (1, 0)
    assert interpret(total, [ragged(A, [], [])]).to_list() == 0.0


def test_six_dims() -> None:
    dims = [Dim(f"d{n}", 2) for n in range(5)]
    last = Dim("last", dims[0] + dims[4])
    X = compute("X", [*dims, last], sum((d * 10**n for n, d in enumerate(dims)), last - last))
    result = interpret(X)
    points = [(*t, n) for t in product(range(2), repeat=5) for n in range(t[0] + t[4])]
    assert result.indices().tolist() == [list(t) for t in points]
    assert result.values.tolist() == [sum(d * 10**n for n, d in enumerate(t[:5])) for t in points]


@pytest.mark.parametrize("given", HOSTILE)
def test_the_index_tuples_are_those_of_the_scalar_evaluator(given: list[int]) -> None:
    q = Dim("q", ops.where(p % 2 < 1, lens[b] - p, lens[p] // 2 - b))
    r = Dim("r", ops.minimum(q, p) - 1)
    T = compute("T", [b, p, q, r], b)
    result = interpret(T, sizes={"M": len(given)}, lengths={"lens": given})
    expected = list(Evaluator({"M": len(given)}, {"lens": given}).points(T.dims))
    assert [tuple(t) for t in result.indices().tolist()] == expected


# --- reductions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "empty", "of_row"),
    [
        ("sum", 0.0, np.sum),
        ("prod", 1.0, np.prod),
        ("max", -math.inf, np.max),
        ("min", math.inf, np.min),
        ("mean", 0.0, np.mean),
        ("argmax", -1, np.argmax),
        ("argmin", -1, np.argmin),
    ],
)
@pytest.mark.parametrize("lens", HOSTILE)
def test_reductions(name: str, empty: Any, of_row: Callable[[Any], Any], lens: list[int]) -> None:
    O = compute("O", [b], getattr(ops, name)(A[b, p], over=p))  # noqa: E741
    flat = elements(sum(lens))
    flat[1::3] = 0.5  # ties
    flat[4::7] = np.nan
    result = interpret(O, [ragged(A, flat, lens)])
    expected = [of_row(r.astype(float)) if len(r) else empty for r in rows(flat, lens)]
    assert result.to_list() == pytest.approx(expected, rel=1e-13, nan_ok=True)


@pytest.mark.parametrize(("dtype", "held"), [("int8", "int32"), ("int32", "int32"), ("int64", "int64")])
def test_extremes_of_nothing_are_those_of_the_type_of_arithmetic(dtype: str, held: str) -> None:
    N = placeholder("N", [b, p], dtype=dtype)
    low = compute("low", [b], ops.max(N[b, p], over=p))
    high = compute("high", [b], ops.min(N[b, p], over=p))
    given = [ragged(N, [-7], [0, 1])]
    limits = np.iinfo(held)
    assert interpret(low, given).to_list() == [limits.min, -7]
    assert interpret(high, given).to_list() == [limits.max, -7]


def test_a_sum_of_comparisons_counts() -> None:
    O = compute("O", [b], ops.sum(A[b, p] > 1, over=p))  # noqa: E741
    result = interpret(O, [ragged(A, [1, 2, 3, 4], [3, 0, 1])])
    assert result.to_list() == [2, 0, 1]
    assert result.values.dtype == np.int64


def test_a_reduction_over_two_ragged_dims_and_one_that_is_ragged_within_itself() -> None:
    q = Dim("q", p + 1)
    O = compute("O", [b], ops.sum(A[b, p] * (q + 1), over=(q, p)))  # noqa: E741
    mean = compute("mean", [b], ops.mean(A[b, p] * (q + 1), over=(p, q)))
    given = ragged(A, [1, 10, 100], [2, 0, 1])
    assert interpret(O, [given]).to_list() == [1 + 10 * 3, 0, 100]
    assert interpret(mean, [given]).to_list() == [31 / 3, 0, 100]


# --- bad input -----------------------------------------------------------------------------------

O = compute("O", [b, p], 2 * A[b, p])  # noqa: E741
GOOD = ragged(A, [1, 2, 3], [2, 1])
d4 = Dim("d4", 4)
B = placeholder("B", [b, p])
SUM = compute("SUM", [b, p], A[b, p] + B[b, p])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: interpret(A, []), "an output must be a computed tensor; got input A.b, p."),
        (lambda: interpret(O, []), r"expected inputs \[A\]; got 0 arrays"),
        (lambda: interpret(O, [GOOD, GOOD]), r"expected inputs \[A\]; got 2 arrays"),
        (lambda: interpret(O, {"B": GOOD}), r"expected inputs \[A\]; missing \['A'\], unknown \['B'\]"),
        (lambda: interpret(O, [[[1.0]]]), "input 'A' must be a RaggedArray; got list"),
        (
            lambda: interpret(O, [ragged(placeholder("A", [b, p], "int32"), [1], [1])]),
            "input 'A' must have dtype float32; got int32",
        ),
        (
            lambda: interpret(O, [array(placeholder("A", [d4]), [1] * 4)], sizes={"M": 1}),
            "lengths 'lens' are given neither by an input nor in lengths=",
        ),
        (
            lambda: interpret(
                O, [array(placeholder("A", [d4]), [1] * 4)], sizes={"M": 1}, lengths={"lens": [4]}
            ),
            r"input 'A' must have the shape of \[b: M, p: lens\[b\]\]; got .*\[d4: 4\]",
        ),
        (
            lambda: interpret(SUM, [GOOD, ragged(B, [1, 2, 3], [1, 2])]),
            "entry 0 of lengths 'lens' is 2 by input 'A' and 1 by input 'B'",
        ),
        (
            lambda: interpret(SUM, [GOOD, ragged(B, [1, 2, 3], [2, 1, 0])]),
            "size 'M' is 2 by input 'A' and 3 by input 'B'",
        ),
        (lambda: interpret(O, [GOOD], sizes={"M": 3}), "size 'M' is 2 by input 'A' and 3 by sizes="),
        (
            lambda: interpret(O, [GOOD], lengths={"lens": [2, 1, 0]}),
            "lengths 'lens' have 2 entries by input 'A' and 3 by lengths=",
        ),
        (lambda: interpret(compute("I", [b], b)), "size 'M' is given neither by an input nor in"),
        (lambda: interpret(compute("I", [b], b), sizes={"M": -1}), "size 'M'.* -1"),
        (lambda: interpret(compute("I", [b], b), sizes={"M": 1.5}), "size 'M'.* 1.5"),
        (
            lambda: interpret(compute("I", [b, p], p), sizes={"M": 2}, lengths={"lens": [1, 2, 3]}),
            "lengths 'lens' must have 2 entries; got 3",
        ),
        (
            lambda: interpret(compute("I", [b, p], p), sizes={"M": 2}, lengths={"lens": [1, -2]}),
            "lengths 'lens'.*-2 at entry 1",
        ),
        (
            lambda: interpret(compute("I", [b, p], p), sizes={"M": 1}, lengths={"lens": [1.5]}),
            "lengths 'lens'.*integers",
        ),
        (
            lambda: interpret(compute("I", [b, p], p), sizes={"M": 1}, lengths={"lens": [True]}),
            "lengths 'lens'.*integers",
        ),
        (
            lambda: interpret(compute("O", [b, p], A[b, p - 1]), [GOOD]),
            r"access to 'A' outside its domain: the index of dim 'p' must be in 0..2 \(end excluded\); "
            r"got -1 at point \(b=0, p=0\)",
        ),
        (
            lambda: interpret(compute("O", [b, p], A[b, p - b]), [GOOD]),
            r"dim 'p' must be in 0..1 .*got -1 at point \(b=1, p=0\)",
        ),
        (
            lambda: interpret(compute("O", [b, p], A[b, p + 1]), [GOOD]),
            r"dim 'p' must be in 0..2 .*got 2 at point \(b=0, p=1\)",
        ),
        (
            lambda: interpret(compute("O", [b, p], A[b + 1, 0]), [GOOD]),
            r"dim 'b' must be in 0..2 .*got 2 at point \(b=1, p=0\)",
        ),
        (
            lambda: interpret(compute("O", [b], ops.sum(A[0, p], over=p)), [ragged(A, range(3), [1, 2])]),
            r"dim 'p' must be in 0..1 .*got 1 at point \(b=1, p=1\)",
        ),
        (
            lambda: interpret(compute("O", [b, p], 3 // (p - 1)), sizes={"M": 1}, lengths={"lens": [2]}),
            r"integer division by zero in 3 // \(p - 1\) at point \(b=0, p=1\)",
        ),
        (lambda: interpret([compute("S", [], 1), compute("S", [], 2)]), "two different .* named 'S'"),
    ],
)
def test_refusals(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        wrong()


def test_nodes_of_lowered_programs_are_no_definitions() -> None:
    with pytest.raises(InternalError, match="Var in a definition: x"):
        interpret(Tensor("T", (), "int64", Var("x")))


def test_inputs_are_read_through_their_layout() -> None:
    padded = GOOD.to_layout(GOOD.layout.with_pad(p, 8), fill=99)
    assert len(padded.values) == 16
    assert interpret(O, [padded]).to_list() == [[2, 4], [6]]
