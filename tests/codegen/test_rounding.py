"""Products are rounded as the program says: LLVM contracts nothing, `Fma` rounds once."""

from __future__ import annotations

import numpy as np
import pytest

from cora.ir.expr import Binary, Expr, Fma, Read, Unary
from cora.ir.stmt import Stmt, Store
from tests.codegen.harness import Array, K, N, V, buffer, lanes, output, run, serial

COUNT = 256
A, B, C, O = buffer("A"), buffer("B"), buffer("C"), output("O")  # noqa: E741


def _arrays() -> list[Array]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(COUNT).astype(np.float32) for _ in range(2))
    noise = rng.standard_normal(COUNT).astype(np.float32) * np.float32(1e-4)
    return [a, b, -a * b + noise, np.full(COUNT, np.nan, np.float32)]


def _loop(value: Expr, at: Expr, vector: bool) -> Stmt:
    store = Store(O, at, value)
    return serial(K, N // 16, lanes(16, store)) if vector else serial(K, N, store)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("form", ["product", "function", "fused"])
def test_rounding_of_a_product_that_is_added_to(form: str, vector: bool) -> None:
    at: Expr = K * 16 + V if vector else K
    a, b, c = (Read(buffer, at) for buffer in (A, B, C))
    x, y, z, _ = arrays = _arrays()
    match form:
        case "product":
            value: Expr = Binary("add", Binary("mul", a, b), c)
            expected = x * y + z
        case "function":
            value = Binary("add", Unary("gelu", Binary("mul", a, b)), c)
            alone = run(
                _loop(Unary("gelu", Binary("mul", a, b)), at, vector),
                buffers=(A, B, C, O),
                arrays=arrays,
                n=COUNT,
            )
            expected = alone[-1] + z
        case _:
            value = Fma(a, b, c)
            expected = (x.astype(np.float64) * y + z).astype(np.float32)
    result = run(_loop(value, at, vector), buffers=(A, B, C, O), arrays=arrays, n=COUNT)[-1]
    np.testing.assert_array_equal(result, expected)
