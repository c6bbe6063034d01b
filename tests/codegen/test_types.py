"""Element types in memory, arithmetic, comparisons and conversions, in scalars and in lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cora.ir.dtypes import STORED, compute_type, to_numpy
from cora.ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    LaneReduce,
    Read,
    Select,
    UnaryOp,
    Var,
    binary,
    cast,
    unary,
)
from cora.ir.stmt import Alloc, Block, Buffer, For, If, Let, LoopKind, Store
from tests.codegen.harness import (
    BFLOAT16,
    Array,
    J,
    K,
    N,
    V,
    buffer,
    call,
    compiled,
    function,
    lanes,
    output,
    run,
    serial,
)

LANES = 16


def elementwise(dtypes: list[str], out: str, make: Callable[..., Expr]) -> Callable[..., Array]:
    """`O[i] = make(A0[i], A1[i], ..)` in scalars and in masked lanes, which must give the same bits."""
    sources = [buffer(f"A{k}", d) for k, d in enumerate(dtypes)]
    o = output(dtype=out)
    at = K * LANES + V
    scalar = serial(K, N, Store(o, K, make(*(Read(s, K) for s in sources))))
    body = If(binary("lt", at, N), Store(o, at, make(*(Read(s, at) for s in sources))))
    vector = serial(K, (N + LANES - 1) // LANES, lanes(LANES, body))
    fs = compiled(
        function(scalar, buffers=(*sources, o), name="scalar"),
        function(vector, buffers=(*sources, o), name="vector"),
    )

    def apply(*arrays: Array) -> Array:
        n = len(arrays[0])
        given = [*arrays, np.zeros(n, to_numpy(out))]
        one, many = (call(fs[name], given, n)[-1] for name in ("scalar", "vector"))
        assert one.tobytes() == many.tobytes()
        return one

    return apply


def special(dtype: str) -> Array:
    """Values of a type that are easy to get wrong."""
    rng = np.random.default_rng(1)
    t = to_numpy(dtype)
    match dtype:
        case "bool":
            return rng.integers(0, 2, 37).astype(bool)
        case "int8" | "int32" | "int64":
            info = np.iinfo(t)
            edge = np.array([0, 1, -1, info.max, info.min, info.max - 1], t)
            return np.concatenate([edge, rng.integers(-100, 100, 31).astype(t)])
        case _:
            edge = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 65504.0, 1e-7, 6e-8, 1e-40]
            return np.concatenate([edge, rng.normal(size=26)]).astype(t)


@pytest.mark.parametrize("dtype", STORED)
def test_copies_keep_every_value(dtype: str) -> None:
    values = special(dtype)
    copied = elementwise([dtype], dtype, lambda x: x)(values)
    assert np.array_equal(copied.view(np.uint8), values.view(np.uint8))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rounding_to_16_bits_is_to_nearest_even(dtype: str) -> None:
    t = to_numpy(dtype)
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2**32, 4000, dtype=np.uint32).view(np.float32)
    half = np.arange(0, 2**16, 7, dtype=np.uint16).view(t).astype(np.float32)
    with np.errstate(all="ignore"):
        between = ((half[:-1].astype(np.float64) + half[1:]) / 2).astype(np.float32)  # ties
        values = np.concatenate([special("float32"), bits, half, between])
        values = values[~np.isnan(values)]
        expected = values.astype(t)
    assert np.array_equal(
        elementwise(["float32"], dtype, lambda x: x)(values).view(np.uint16), expected.view(np.uint16)
    )


def test_every_nan_stays_a_quiet_nan_in_bfloat16() -> None:
    words = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0x7F80FFFF], np.uint32)
    result = elementwise(["float32"], "bfloat16", lambda x: x)(words.view(np.float32))
    assert np.isnan(result.astype(np.float32)).all()
    assert ((result.view(np.uint16) & 0x40) != 0).all()
    assert np.array_equal(result.view(np.uint16) >> 15, words >> 31)


def test_bfloat16_products_round_once() -> None:
    a, b = special("bfloat16"), special("bfloat16")[::-1].copy()
    product = elementwise(["bfloat16", "bfloat16"], "bfloat16", lambda x, y: x * y)(a, b)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = (a.astype(np.float32) * b.astype(np.float32)).astype(BFLOAT16)
    assert np.array_equal(product.astype(np.float32), expected.astype(np.float32), equal_nan=True)


FLOAT_BINARY: list[tuple[BinaryOp, Any]] = [
    ("add", np.add),
    ("sub", np.subtract),
    ("mul", np.multiply),
    ("div", np.divide),
    ("min", np.minimum),
    ("max", np.maximum),
]


def pairs(values: Array) -> tuple[Array, Array]:
    """All pairs of the given values."""
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("op", "reference"), FLOAT_BINARY)
def test_float_arithmetic(dtype: str, op: BinaryOp, reference: Any) -> None:
    a, b = pairs(special(dtype)[:16])
    result = elementwise([dtype, dtype], dtype, lambda x, y: Binary(op, x, y))(a, b)
    with np.errstate(all="ignore"):
        expected = reference(a, b)
    assert np.array_equal(result, expected, equal_nan=True)


def test_multiplying_by_zero_keeps_nan_and_the_sign_of_zero() -> None:
    a = np.array([np.nan, np.inf, -1.0, 1.0], np.float32)
    result = elementwise(["float32"], "float32", lambda x: x * 0.0)(a)
    assert np.isnan(result[:2]).all()
    assert np.signbit(result[2:]).tolist() == [True, False]


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@pytest.mark.parametrize(
    ("op", "reference"),
    [("lt", np.less), ("le", np.less_equal), ("eq", np.equal), ("ne", np.not_equal)],
)
def test_comparisons(dtype: str, op: BinaryOp, reference: Any) -> None:
    a, b = pairs(special(dtype)[:12])
    result = elementwise([dtype, dtype], "bool", lambda x, y: Binary(op, x, y))(a, b)
    assert np.array_equal(result, reference(a, b))


def test_logic_on_stored_bools() -> None:
    a, b = pairs(np.array([False, True]))
    makes: dict[str, tuple[Callable[[Expr, Expr], Expr], Array]] = {
        "and": (lambda x, y: x & y, a & b),
        "or": (lambda x, y: x | y, a | b),
        "not": (lambda x, y: ~x & y, ~a & b),
        "eq": (lambda x, y: binary("eq", x, y), a == b),
        "ne": (lambda x, y: binary("ne", x, y), a != b),
        "select": (lambda x, y: Select(x, ~y, y), np.where(a, ~b, b)),
    }
    for name, (make, expected) in makes.items():
        assert np.array_equal(elementwise(["bool", "bool"], "bool", make)(a, b), expected), name


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(("op", "reference"), [("floordiv", np.floor_divide), ("mod", np.mod)])
def test_division_of_any_integers(dtype: str, op: BinaryOp, reference: Any) -> None:
    a, b = pairs(np.concatenate([special(dtype)[:6], np.array([7, -7, 16, 3, -3], to_numpy(dtype))]))
    result = elementwise([dtype, dtype], dtype, lambda x, y: Binary(op, x, y))(a, b)
    with np.errstate(all="ignore"):
        expected = reference(a, b)
    assert np.array_equal(result, expected)


@pytest.mark.parametrize("divisor", [1, 2, 3, 8, 10, -1, -3, -4])
@pytest.mark.parametrize(("op", "reference"), [("floordiv", np.floor_divide), ("mod", np.mod)])
def test_division_by_a_constant(divisor: int, op: BinaryOp, reference: Any) -> None:
    for dtype in ("int32", "int64"):
        a = special(dtype)
        k = Const(divisor, dtype)
        result = elementwise([dtype], dtype, lambda x, k=k: Binary(op, x, k))(a)
        with np.errstate(all="ignore"):
            assert np.array_equal(result, reference(a, np.array(divisor, a.dtype)))


@pytest.mark.parametrize(("op", "reference"), [("floordiv", np.floor_divide), ("mod", np.mod)])
def test_division_of_indices(op: BinaryOp, reference: Any) -> None:
    o, table = output(dtype="int64"), buffer("table", "int32", "table")
    size_body = Store(o, K, Binary(op, K, N))
    table_body = Store(o, K, Binary(op, K + 5, cast("int64", Read(table, K))))
    negative_body = Store(o, K, Binary(op, K - 3, Const(6)))
    fs = compiled(
        function(serial(K, N, size_body), buffers=(o,), name="size"),
        function(serial(K, N, table_body), buffers=(table, o), name="table"),
        function(serial(K, N, negative_body), buffers=(o,), name="negative"),
    )
    i, zero = np.arange(9), np.zeros(9, np.int64)
    by = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8], np.int32)
    assert np.array_equal(call(fs["size"], [zero], 9)[0], reference(i, 9))
    with np.errstate(divide="ignore"):
        assert np.array_equal(call(fs["table"], [by, zero], 9)[1], reference(i + 5, by))
    assert np.array_equal(call(fs["negative"], [zero], 9)[0], reference(i - 3, 6))


@pytest.mark.parametrize(
    ("op", "reference"),
    [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("min", np.minimum), ("max", np.maximum)],
)
def test_int32_wraps_around(op: BinaryOp, reference: Any) -> None:
    a, b = pairs(special("int32")[:12])
    result = elementwise(["int32", "int32"], "int32", lambda x, y: Binary(op, x, y))(a, b)
    with np.errstate(over="ignore"):
        assert np.array_equal(result, reference(a, b))


def test_int8_is_computed_in_int32_and_wraps_when_stored() -> None:
    a, b = pairs(special("int8")[:12])
    result = elementwise(["int8", "int8"], "int8", lambda x, y: x * y + 1)(a, b)
    assert np.array_equal(result, (a.astype(np.int32) * b + 1).astype(np.int8))
    wide = elementwise(["int8", "int8"], "int32", lambda x, y: x * y + 1)(a, b)
    assert np.array_equal(wide, a.astype(np.int32) * b + 1)


@pytest.mark.parametrize(
    ("op", "reference"), [("neg", np.negative), ("abs", np.abs), ("exp", np.exp), ("sqrt", np.sqrt)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_unary(op: UnaryOp, reference: Any, dtype: str) -> None:
    if dtype == "int32" and op in ("exp", "sqrt"):
        return
    a = special(dtype)
    result = elementwise([dtype], dtype, lambda x: unary(op, x))(a)
    with np.errstate(all="ignore"):
        expected = reference(a)
    if op == "exp":
        assert np.allclose(result, expected, rtol=1e-6, equal_nan=True)
    else:
        assert np.array_equal(result, expected, equal_nan=True)
        if dtype != "int32":
            assert np.array_equal(np.signbit(result[:2]), np.signbit(expected[:2]))


@pytest.mark.parametrize("source", ["bool", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("target", ["bool", "int32", "int64", "float32", "float64"])
def test_casts(source: str, target: str) -> None:
    a = special(source)
    if source.startswith("float") and target.startswith("int"):
        a = a[np.isfinite(a) & (np.abs(a) < 1e9)] * 3
    result = elementwise([source], target, lambda x: cast(target, x))(a)
    with np.errstate(all="ignore"):
        assert np.array_equal(result, a.astype(to_numpy(target)), equal_nan=target.startswith("float"))


@pytest.mark.parametrize("target", ["int32", "int64"])
def test_floats_out_of_range_saturate_and_nan_becomes_zero(target: str) -> None:
    info = np.iinfo(to_numpy(target))
    a = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30], np.float32)
    result = elementwise(["float32"], target, lambda x: cast(target, x))(a)
    assert result.tolist() == [info.max, info.min, 0, info.max, info.min]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_cast_to_a_storage_type_rounds(dtype: str) -> None:
    a = np.array([1.0, 1.001, 3.14159, -2.71828, 100.3], np.float32)
    wide = compute_type(dtype)
    result = elementwise(["float32"], wide, lambda x: Cast(dtype, x))(a)
    assert np.array_equal(result, a.astype(to_numpy(dtype)).astype(to_numpy(wide)))


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bfloat16"])
def test_lane_reduce(op: Any, dtype: str) -> None:
    parts = Buffer("parts", dtype, Const(8), "local")
    a, o = buffer("A", dtype), output(dtype=compute_type(dtype))
    body = Alloc(
        parts,
        Block(
            (
                lanes(8, Store(parts, V, Read(a, K * 8 + V))),
                Store(o, K, LaneReduce(op, parts, Const(0), 8)),
            )
        ),
    )
    values = np.random.default_rng(3).integers(-3, 4, (5, 8)).astype(to_numpy(dtype))
    program = serial(K, N, body)
    arrays = [values.ravel(), np.zeros(5, to_numpy(compute_type(dtype)))]
    result = run(program, buffers=(a, o), arrays=arrays, n=5)[1]
    reference = getattr(np, op)(values.astype(to_numpy(compute_type(dtype))), axis=1)
    assert np.array_equal(result, reference)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_argmax_in_scalars(dtype: str) -> None:
    """The smallest index of the largest value; the first NaN counts as largest; -1 where empty."""
    a, o = buffer("A", dtype), output(dtype="int64")
    best = Buffer("best", dtype, Const(1), "local")
    where = Buffer("where", "int64", Const(1), "local")
    zero = Const(0)
    x, old = Var("x", dtype), Var("old", dtype)
    first = binary("lt", Read(where, zero), 0)
    is_number = binary("eq", old, old)
    better = first | (is_number & (binary("lt", old, x) | binary("ne", x, x)))
    update = If(better, Block((Store(best, zero, x), Store(where, zero, J))))
    scan = serial(J, N, Let(x, Read(a, K * N + J), Let(old, Read(best, zero), update)))
    start = Block((Store(best, zero, Const(0, dtype)), Store(where, zero, Const(-1))))
    body = Alloc(best, Alloc(where, Block((start, scan, Store(o, K, Read(where, zero))))))
    f = compiled(function(For(K, zero, Const(3), LoopKind.UNROLL, body), buffers=(a, o)))["f"]
    rows = np.array([[1, 5, 5, 2], [4, 3, 2, 1], [-3, -2, -1, -1]]).astype(to_numpy(dtype))
    if dtype == "float32":
        rows[1, 2] = np.nan
    result = call(f, [rows.ravel(), np.zeros(3, np.int64)], 4)[1]
    assert np.array_equal(result, np.argmax(rows, axis=1))
    assert call(f, [rows.ravel()[:0], np.zeros(3, np.int64)], 0)[1].tolist() == [-1] * 3


def test_shared_subexpressions_are_computed_once() -> None:
    a, o = buffer("A"), output()
    x: Expr = Read(a, K)
    for _ in range(40):  # a tree of 2^40 nodes
        x = binary("max", x * 0.5, x)
    result = run(serial(K, N, Store(o, K, x)), buffers=(a, o), arrays=[np.ones(3, np.float32)] * 2, n=3)[1]
    assert result.tolist() == [1, 1, 1]


def test_comparing_large_data_with_lanes_does_not_overflow() -> None:
    a, o = buffer("A", "int64"), output(dtype="bool")
    body = Store(o, K * 8 + V, binary("lt", K * 8 + V, Read(a, K)))
    values = np.array([3, np.iinfo(np.int64).min, np.iinfo(np.int64).max], np.int64)
    result = run(
        serial(K, Const(3), lanes(8, body)), buffers=(a, o), arrays=[values, np.zeros(24, bool)], n=0
    )[1]
    assert np.array_equal(result.reshape(3, 8), np.arange(24).reshape(3, 8) < values[:, None])
