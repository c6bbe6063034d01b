"""Vector mathematics: error bounds, special values, and the same bits for every number of lanes."""

from __future__ import annotations

import functools
import math
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx as T  # noqa: N812
from tvm.target import Target
from tvm.tirx.compilation_pipeline import finalize_device_passes, register_tir_pipeline

from cora.codegen import vecmath
from cora.errors import InternalError, UnsupportedError

Array = np.ndarray[Any, Any]
Body = Callable[..., Any]

LANES = (1, 16, 32)
INEXACT_FACTOR = 0.37  # not a power of two: the product is rounded
PIPELINE = "cora_test_vecmath"
INF = math.inf

# float32: the result is within `ulp` units in the last place of the exact one, or `absolute` of it.
# 2^-126 is the price of results below the normal range.
BOUNDS = {
    "exp": (1.01, 2.0**-126),
    "exp2": (0.95, 2.0**-126),
    "log": (0.87, 0.0),
    "sqrt": (0.5001, 0.0),
    "rsqrt": (1.5, 0.0),
    "tanh": (2.62, 0.0),
    "erf": (6.0, 0.0),
    "gelu": (1.0, 3.2e-7),
    "gelu_tanh": (1.0, 5.2e-7),
    "sigmoid": (2.5, 2.0**-126),
}
# float64: relative; the tails of gelu multiply the rounding of the exponent's argument.
RELATIVE_FLOAT64 = 4e-15
RELATIVE_FLOAT64_TAIL = 1e-12


class Statements:
    """The smallest emitter: a list of statements."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def bind(self, value: Any, hint: str = "t") -> Any:
        variable = T.Var(hint, value.expr_ty().dtype)
        self.items.append(T.Bind(variable, value))
        return variable


def _register_pipeline() -> None:
    passes = [tvm.tirx.transform.AnnotateEntryFunc(), tvm.tirx.transform.MakePackedAPI()]

    def factory() -> tuple[Any, Any, Any]:
        @tvm.transform.module_pass(opt_level=0)
        def run(module: Any, _context: Any) -> Any:
            return tvm.ir.transform.Sequential(passes)(module)

        def finalize() -> Any:
            return tvm.ir.transform.Sequential([tvm.tirx.transform.LowerTVMBuiltin()])

        return run, finalize, finalize_device_passes

    register_tir_pipeline(PIPELINE, factory)


_register_pipeline()


def compile_kernel(
    body: Body,
    in_dtype: str,
    out_dtype: str,
    lanes: int,
    inputs: int = 1,
    target: Target | None = None,
) -> Callable[..., Any]:
    """A kernel that applies `body` to vectors of its inputs and stores the result."""
    n, i = T.Var("n", "int32"), T.Var("i", "int32")
    align = tvm.DataType(in_dtype).bits // 8
    sources = [T.decl_buffer((n,), in_dtype, f"x{k}", data_alignment=align) for k in range(inputs)]
    align = tvm.DataType(out_dtype).bits // 8
    out = T.decl_buffer((n,), out_dtype, "out", data_alignment=align)
    vector = T.Ramp(i * lanes, 1, lanes) if lanes > 1 else i
    e = Statements()
    loads = [e.bind(T.BufferLoad(b, [vector]), "x") for b in sources]
    value = body(e, *loads)
    e.items.append(T.BufferStore(out, value, [vector]))
    loop = T.For(i, 0, T.truncdiv(n, lanes), T.ForKind.SERIAL, T.SeqStmt(e.items))
    attrs = {"global_symbol": "kernel", "tirx.noalias": True}
    function = T.PrimFunc([*sources, out], loop, attrs=tvm.ir.make_node("ir.DictAttrs", **attrs))
    target = target or target_for(Target.from_device(tvm.cpu()).attrs["mcpu"])
    return tvm.compile(function, target, tir_pipeline=PIPELINE)["kernel"]


def spread(value: Any, lanes: int) -> Any:
    """A scalar in every lane."""
    return value if lanes == 1 else T.Broadcast(value, lanes)


def target_for(mcpu: str) -> Target:
    return Target({"kind": "llvm", "mcpu": mcpu, "opt-level": 1})


@functools.cache
def evaluate(op: str, dtype: str, lanes: int) -> Array:
    return apply(op, grid(dtype), lanes)


def apply(op: str, x: Array, lanes: int, target: Target | None = None) -> Array:
    dtype = str(x.dtype)
    kernel = compile_kernel(
        lambda e, v: vecmath.math(e, op, v, dtype, lanes), dtype, dtype, lanes, target=target
    )
    out = np.zeros_like(x)
    kernel(x, out)
    return out


@functools.cache
def grid(dtype: str) -> Array:
    """Special values, log-spaced and linear points of both signs, and random bit patterns."""
    info = np.finfo(dtype)
    tiny, huge = float(info.tiny), float(info.max)
    special = [0.0, -0.0, INF, -INF, math.nan, -math.nan, 1.0, -1.0, tiny, -tiny, huge, -huge]
    special += [float(info.smallest_subnormal), tiny / 2, tiny * 0.75, -tiny / 2]
    special += [127.5, 127.99, 128.0, 128.1, -126.0, -126.1, -127.0, -149.0, -151.0, 1e4, -1e4]
    special += [88.7228317, 88.7228394, 88.73, 89.0, -87.3365402, -87.3365479, -88.0, -104.0]
    special += [3.75, -3.75, 5.5, -5.5, -9.99, -10.01, 20.0, -40.0, 1e5, -1e5, 0.5**0.5]
    spaced = np.geomspace(float(info.smallest_subnormal) * 4, huge / 2, 6000)
    middle = np.geomspace(1e-6, 300.0, 6000)
    near_one = 1.0 + np.linspace(-1e-3, 1e-3, 2001)
    linear = np.concatenate([np.linspace(-130, 130, 16001), np.linspace(-9, 9, 12001)])
    rng = np.random.default_rng(7)
    words = rng.integers(0, 2**info.bits, 12000, dtype=np.uint64).astype(f"uint{info.bits}")
    with np.errstate(all="ignore"):
        points = np.concatenate(
            [special, spaced, -spaced, middle, -middle, near_one, linear, words.view(dtype)]
        ).astype(dtype)
    return np.resize(points, -(-len(points) // 64) * 64)


def reference(op: str, x: Array) -> Array:
    """The exact function in float64, with the mathematical limits at infinity."""
    with np.errstate(all="ignore"):
        match op:
            case "sqrt" | "exp" | "exp2" | "log" | "tanh":
                return np.asarray(getattr(np, op)(x))
            case "rsqrt":
                return 1 / np.sqrt(x)
            case "erf":
                return np.array([math.erf(v) for v in x])
            case "gelu":
                phi = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
                return np.where(phi == 0, 0.0, x * phi)
            case "gelu_tanh":
                u = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
                return np.where(x < -30, 0.0, x / (1 + np.exp(-u)))
            case _:
                return 1 / (1 + np.exp(-x))


def bits(x: Array) -> Array:
    """The bits of x, every NaN with the same ones."""
    canonical = np.where(np.isnan(x), np.array(math.nan, x.dtype), x)
    return canonical.view(f"uint{8 * x.dtype.itemsize}")


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("op", vecmath.OPS)
def test_float32_is_within_its_bound(op: str, lanes: int) -> None:
    x = grid("float32")
    got, exact = evaluate(op, "float32", lanes), reference(op, x.astype("float64"))
    with np.errstate(all="ignore"):
        rounded = exact.astype("float32")
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    infinite = np.isinf(rounded)
    np.testing.assert_array_equal(got[infinite], rounded[infinite])
    finite = np.isfinite(rounded)
    assert np.isfinite(got[finite]).all()
    error = np.abs(got[finite].astype("float64") - exact[finite])
    _, exponent = np.frexp(np.abs(exact[finite]))
    spacing = np.ldexp(1.0, np.maximum(exponent - 24, -149))
    ulp, absolute = BOUNDS[op]
    wrong = (error > ulp * spacing) & (error > absolute)
    assert not wrong.any(), (x[finite][wrong][:5], got[finite][wrong][:5], exact[finite][wrong][:5])


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("op", vecmath.OPS)
def test_float64_is_libm(op: str, lanes: int) -> None:
    x = grid("float64")
    got, exact = evaluate(op, "float64", lanes), reference(op, x)
    relative = RELATIVE_FLOAT64_TAIL if op.startswith("gelu") else RELATIVE_FLOAT64
    np.testing.assert_allclose(got, exact, rtol=relative, atol=1e-300)


@pytest.mark.parametrize("lanes", [16, 32])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", vecmath.OPS)
def test_vectors_give_the_bits_of_scalars(op: str, dtype: str, lanes: int) -> None:
    np.testing.assert_array_equal(bits(evaluate(op, dtype, lanes)), bits(evaluate(op, dtype, 1)))


@pytest.mark.parametrize("op", vecmath.OPS)
def test_one_element_gives_the_bits_of_vectors(op: str) -> None:
    """LLVM vectorizes a loop over scalars; with one element its scalar code runs."""
    kernel = compile_kernel(lambda e, v: vecmath.math(e, op, v, "float32", 1), "float32", "float32", 1)
    chosen = np.concatenate([np.arange(48), np.arange(48, len(grid("float32")), 17)])
    x, out = grid("float32")[chosen], np.zeros(len(chosen), "float32")
    for i in range(len(x)):
        kernel(x[i : i + 1], out[i : i + 1])
    np.testing.assert_array_equal(bits(out), bits(evaluate(op, "float32", 16)[chosen]))


@pytest.mark.parametrize("op", vecmath.OPS)
def test_a_product_as_argument_gives_the_same_bits(op: str) -> None:
    """If LLVM contracts the product with an addition of the formula, then in both forms."""
    x = grid("float32")
    results = []
    for lanes in (1, 16):
        factor = spread(T.const(INEXACT_FACTOR, "float32"), lanes)
        kernel = compile_kernel(
            lambda e, v, n=lanes, f=factor: vecmath.math(e, op, v * f, "float32", n),
            "float32",
            "float32",
            lanes,
        )
        results.append(np.zeros_like(x))
        kernel(x, results[-1])
    np.testing.assert_array_equal(bits(results[0]), bits(results[1]))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86 CPUs")
@pytest.mark.parametrize("mcpu", ["x86-64-v3", "x86-64"])
@pytest.mark.parametrize("op", ["exp", "log", "tanh", "gelu"])
def test_other_x86_levels_give_the_same_bits(op: str, mcpu: str) -> None:
    """With AVX2, and with neither AVX nor FMA instructions (llvm.fma is then libm's fmaf)."""
    x = grid("float32")
    got = apply(op, x, 16, target_for(mcpu))
    np.testing.assert_array_equal(bits(got), bits(evaluate(op, "float32", 16)))


def test_limits_and_odd_functions() -> None:
    x = np.resize(np.array([0.0, -0.0, INF, -INF, 1e-40, -1e-40, 3e-39, 1e-30], "float32"), 16)
    tanh, erf = apply("tanh", x, 16), apply("erf", x, 16)
    np.testing.assert_array_equal(bits(tanh[[0, 1, 4, 5, 6, 7]]), bits(x[[0, 1, 4, 5, 6, 7]]))
    assert tanh[2:4].tolist() == erf[2:4].tolist() == [1.0, -1.0]
    dense = np.linspace(0, 10, 1 << 14).astype("float32")
    for op in ("tanh", "erf"):
        positive, negative = apply(op, dense, 16), apply(op, -dense, 16)
        np.testing.assert_array_equal(bits(positive), bits(-negative))
        assert positive.max() == 1.0
    assert apply("gelu", x, 16)[2:4].tolist() == [INF, 0.0]
    assert apply("exp2", np.arange(-126, 129, dtype="float32").repeat(16), 16).tolist() == (
        np.exp2(np.arange(-126, 128.0)).repeat(16).tolist() + [INF] * 16
    )


@pytest.mark.parametrize("payload", [1, 0x1FF, 0x3FFFFF])
@pytest.mark.parametrize("op", vecmath.OPS)
def test_every_nan_stays_nan(op: str, payload: int) -> None:
    """A NaN's payload meets the integer arithmetic on exponents."""
    words = np.resize(np.array([0x7FC00000 | payload, 0xFFC00000 | payload], "uint32"), 16)
    assert np.isnan(apply(op, words.view("float32"), 16)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_extrema_propagate_nan(op: str, lanes: int, dtype: str) -> None:
    values = np.array([math.nan, INF, -INF, 0.0, 1.5, -2.0, 3.0, float(np.finfo(dtype).tiny)])
    pairs = np.array(np.meshgrid(values, values)).reshape(2, -1).astype(dtype)
    a, b = np.ascontiguousarray(pairs[0]), np.ascontiguousarray(pairs[1])
    function = getattr(vecmath, op)
    kernel = compile_kernel(lambda e, x, y: function(e, x, y, dtype, lanes), dtype, dtype, lanes, inputs=2)
    out = np.zeros_like(a)
    kernel(a, b, out)
    np.testing.assert_array_equal(out, getattr(np, op)(a, b))


def reduce_rows(op: str, rows: Array) -> Array:
    """`vecmath.horizontal` of every row."""
    dtype, lanes = str(rows.dtype), rows.shape[1]
    kernel = compile_kernel(
        lambda e, x: spread(vecmath.horizontal(e, op, x, dtype, lanes), lanes), dtype, dtype, lanes
    )
    out = np.zeros_like(rows)
    kernel(rows.reshape(-1), out.reshape(-1))
    return out[:, 0]


def halves(combine: Callable[[Array, Array], Array], rows: Array) -> Array:
    while rows.shape[1] > 1:
        middle = rows.shape[1] // 2
        rows = combine(rows[:, :middle], rows[:, middle:])
    return rows[:, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("lanes", [1, 2, 8, 16, 32, 64])
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_horizontal(op: str, lanes: int, dtype: str) -> None:
    rng = np.random.default_rng(3)
    if dtype.startswith("float"):
        rows = rng.normal(size=(40, lanes)).astype(dtype)
        rows[np.arange(20), rng.integers(0, lanes, 20)] = math.nan
    else:
        rows = rng.integers(-2, 3, (40, lanes)).astype(dtype)
    combine = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[op]
    np.testing.assert_array_equal(reduce_rows(op, rows), halves(combine, rows))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("op", ["and", "or"])
def test_horizontal_bool(op: str, lanes: int) -> None:
    rows = np.ones((4, lanes), "float32")
    rows[1, lanes // 2] = -1
    rows[2:] = -1
    rows[3, 0] = 1
    zero = spread(T.const(0.0, "float32"), lanes)
    kernel = compile_kernel(
        lambda e, x: spread(T.Cast("int32", vecmath.horizontal(e, op, x > zero, "bool", lanes)), lanes),
        "float32",
        "int32",
        lanes,
    )
    out = np.zeros((4, lanes), "int32")
    kernel(rows.reshape(-1), out.reshape(-1))
    np.testing.assert_array_equal(out[:, 0], (np.all if op == "and" else np.any)(rows > 0, axis=1))


def test_refusals() -> None:
    e, x = Statements(), T.Var("x", "float32")
    with pytest.raises(UnsupportedError, match="'sin' of float32"):
        vecmath.math(e, "sin", x, "float32", 1)
    with pytest.raises(UnsupportedError, match="'exp' of float16"):
        vecmath.math(e, "exp", x, "float16", 1)
    with pytest.raises(UnsupportedError, match="'mean' of float32"):
        vecmath.horizontal(e, "mean", x, "float32", 16)
    with pytest.raises(UnsupportedError, match="'sum' of bool"):
        vecmath.horizontal(e, "sum", x, "bool", 16)
    with pytest.raises(InternalError, match="got 48"):
        vecmath.math(e, "exp", x, "float32", 48)
