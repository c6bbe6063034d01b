"""Loops that are cut where a condition begins to fail: what stands beside the condition runs in every iteration."""

from __future__ import annotations

import numpy as np
import pytest

from cora.ir.expr import Const, Expr, Read, binary
from cora.ir.stmt import For, If, Let, Stmt, Store, block, statements
from cora.lower.tails import cut_tails
from tests.codegen.harness import K, N, V, call, compiled, function, lanes, output, serial

OUT, COUNT = output("OUT"), output("COUNT", "int64")
WIDTH = 4
FEW = [0, 1, 3, 4, 5, 8, 11]


def program(end: Expr) -> Stmt:
    """OUT[:n] = 1, four at a time; COUNT[0] is how many iterations there are, which no condition protects."""
    here = K * WIDTH + V
    some = lanes(WIDTH, If(binary("lt", here, N), Store(OUT, here, Const(1.0, "float32"))))
    one_more = Store(COUNT, Const(0), Read(COUNT, Const(0)) + 1)
    loop = For(K, Const(0), end, serial(K, end).kind, block([one_more, some]))
    return cut_tails(block([Store(COUNT, Const(0), Const(0)), loop]))


@pytest.mark.parametrize(
    ("end", "alone", "iterations"),
    [
        ((N + 3) // WIDTH, True, lambda n: -(-n // WIDTH)),
        ((N + 4) // WIDTH, True, lambda n: n // WIDTH + 1),
        ((N + 7) // WIDTH, False, lambda n: -(-n // WIDTH) + 1),
        ((N * 2 + 3) // WIDTH, False, lambda n: -(-2 * n // WIDTH)),
    ],
    ids=["as many as needed", "one more at most", "two more at most", "many more"],
)
def test_iterations_that_are_left(end: Expr, alone: bool, iterations: object) -> None:
    cut = program(end)
    parts = list(statements(cut))
    assert any(isinstance(part, Let) and part.var == K for part in parts) == alone
    f = compiled(function(cut, buffers=(OUT, COUNT)))["f"]
    for n in FEW:
        out, count = np.full(n, np.nan, np.float32), np.full(1, -1, np.int64)
        written, counted = call(f, [out, count], n)
        assert np.array_equal(written, np.ones(n, np.float32))
        assert counted[0] == iterations(n)  # type: ignore[operator]
