"""Results written out by hand: what does not rest on the interpreter."""

from __future__ import annotations

import math

import numpy as np
import pytest

import cora
from tests.operators.families import attention, elementwise, triangles

NAN, INF = math.nan, math.inf
M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])
A = cora.placeholder("A", [batch, pos])
SETTINGS = cora.Settings(cache=False)
ROWS = [[3.0, -1.0, 3.0], [], [NAN, 5.0], [1.0, NAN, NAN], [-INF], [INF, -INF], [0.0, -0.0]]


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (cora.sum, [5, 0, NAN, NAN, -INF, NAN, 0]),
        (cora.prod, [-9, 1, NAN, NAN, -INF, -INF, -0.0]),
        (cora.max, [3, -INF, NAN, NAN, -INF, INF, 0]),
        (cora.min, [-1, INF, NAN, NAN, -INF, -INF, 0]),
        (cora.mean, [5 / 3, 0, NAN, NAN, -INF, NAN, 0]),
        (cora.argmax, [0, -1, 0, 1, 0, 0, 0]),
        (cora.argmin, [1, -1, 0, 1, 0, 1, 0]),
    ],
)
def test_reductions_of_special_values(op: object, expected: list[float], lanes: bool) -> None:
    O = cora.compute("O", [batch], op(A[batch, pos], over=pos))  # type: ignore[operator]  # noqa: E741
    s = cora.schedule(O).parallel("O", "batch")
    if lanes and op not in (cora.argmax, cora.argmin):
        s = s.vectorize("O", "pos", 16)
    out = cora.build(s, settings=SETTINGS)(cora.ragged(ROWS, A)).to_list()
    np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_integer_identities() -> None:
    I = cora.placeholder("I", [batch, pos], dtype="int32")  # noqa: E741
    outputs = [
        cora.compute(name, [batch], op(I[batch, pos], over=pos))
        for name, op in (("X", cora.max), ("N", cora.min), ("S", cora.sum), ("P", cora.prod))
    ]
    results = cora.build(outputs, settings=SETTINGS)(cora.ragged([[], [2, -7]], I))
    assert [r.to_list() for r in results] == [[-(2**31), 2], [2**31 - 1, -7], [0, -5], [1, -14]]


def test_the_first_program() -> None:
    kernel = cora.build(elementwise.design(cora.schedule(elementwise.O)), settings=SETTINGS)
    out = kernel(cora.ragged([[1, 2, 3], [4], []], elementwise.A))
    assert out.to_list() == [[2.0, 4.0, 6.0], [8.0], []]
    assert out.values.tolist() == [2.0, 4.0, 6.0] + [0.0] * 61 + [8.0] + [0.0] * 63


def test_softmax_of_huge_scores() -> None:
    kernel = cora.build(attention.softmax_out, settings=SETTINGS)
    big = 3e38
    out = kernel(cora.ragged([[big, big], [-big, big, -INF], [-INF, -INF], [], [70000.0]], attention.A))
    assert out.to_list() == [[0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0], [], [1.0]]


def test_a_triangle() -> None:
    L = triangles.L
    O = cora.compute("O", [triangles.row], cora.sum(L[triangles.row, triangles.lower], over=triangles.lower))  # noqa: E741
    assert cora.build(O, settings=SETTINGS)(cora.ragged([[1], [2, 3], [4, 5, 6]], L)).to_list() == [
        1.0,
        5.0,
        15.0,
    ]


def test_transposition() -> None:
    T, O = elementwise.T, elementwise.transposition.outputs[0]  # noqa: E741
    rows = [[[1, 2, 3], [4, 5, 6]], [[7]], []]
    array = cora.ragged(rows, T, lengths={"m": [2, 1, 0], "n": [3, 1, 4]})
    out = cora.build(O, settings=SETTINGS)(array)
    assert out.to_list() == [[[1, 4], [2, 5], [3, 6]], [[7]], [[], [], [], []]]
