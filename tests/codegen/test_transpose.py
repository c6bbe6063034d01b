"""Copies that read down columns: every size of block, tails of both loops, and that nothing else touches memory."""

from __future__ import annotations

import numpy as np
import pytest

import cora
from tests.guard_pages import guarded

LENGTHS = [0, 1, 5, 3, 4, 7, 8, 9, 15, 16, 17, 40, 0]


def transposing(rows: int, lanes: int, dtype: str = "float32") -> cora.Kernel:
    """Y[b, d, i] = X[b, i, d], with lanes along i and d the loop around them."""
    batch = cora.Dim("batch", cora.size("M"))
    i, d = cora.Dim("i", cora.lengths("lens", batch)[batch]), cora.Dim("d", rows)
    X = cora.placeholder("X", [batch, i, d], dtype)
    Y = cora.compute("Y", [batch, d, i], X[batch, i, d])
    s = cora.schedule(Y).split(Y, "i", lanes, names=("io", "iv")).reorder(Y, "io", "d", "iv")
    return cora.build(s.vectorize(Y, "iv", lanes))


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("rows", [1, 3, 8, 16, 20, 33])
def test_every_tail(rows: int, lanes: int) -> None:
    kernel = transposing(rows, lanes)
    plan = cora.plan([kernel], lens=LENGTHS, threads=1)
    x = np.random.default_rng(0).standard_normal((sum(LENGTHS), rows), np.float32)
    expected = np.concatenate([part.T.reshape(-1) for part in np.split(x, np.cumsum(LENGTHS)[:-1])])
    for side in ("end", "begin"):
        out = guarded(np.full(expected.shape, np.nan, np.float32), side)  # type: ignore[arg-type]
        kernel.run(plan, guarded(x.reshape(-1), side).reshape(x.shape), outputs={"Y": out})  # type: ignore[arg-type]
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("dtype", "scalars"), [("float32", 0), ("int32", 0), ("float64", 16)])
def test_nothing_is_loaded_element_by_element(dtype: str, scalars: int) -> None:
    code = transposing(16, 16, dtype).source("ll")
    assert code.count("insertelement <16 x") >= scalars
    assert scalars or code.count("shufflevector <16 x") >= 64


def test_a_value_that_is_computed_is_not_a_copy() -> None:
    batch = cora.Dim("batch", cora.size("M"))
    i, d = cora.Dim("i", cora.lengths("lens", batch)[batch]), cora.Dim("d", 16)
    X = cora.placeholder("X", [batch, i, d])
    Y = cora.compute("Y", [batch, d, i], X[batch, i, d] * 2.0)
    s = (
        cora.schedule(Y)
        .split(Y, "i", 16, names=("io", "iv"))
        .reorder(Y, "io", "d", "iv")
        .vectorize(Y, "iv", 16)
    )
    x = np.random.default_rng(0).standard_normal((20, 16), np.float32)
    y = cora.build(s)(X=x, lens=[3, 17]).values
    np.testing.assert_array_equal(y, np.concatenate([2 * x[:3].T.reshape(-1), 2 * x[3:].T.reshape(-1)]))
