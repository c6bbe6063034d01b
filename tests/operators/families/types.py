"""Every stored type: element-wise, converted, reduced, padded."""

from __future__ import annotations

import numpy as np

import cora
from cora import Schedule
from cora.ir import dtypes
from tests.operators.harness import Array, Batch, Case, Transform
from tests.operators.lengths import rows

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])
BATCHES = rows(16, 32)


def padded(s: Schedule) -> Schedule:
    """Storage of everything padded; loops fused over it."""
    for tensor in s.tensors:
        if "pos" in (d.name for d in tensor.dims):
            s = s.pad_dim(tensor, "pos", 8)
    for tensor in s.tensors:
        if tensor.body is not None and tensor.ndim == 2:
            s = s.pad_loop(tensor, "pos", 8).fuse(tensor, "batch", "pos", name="f")
            s = s.vectorize(tensor, "f", 8).parallel(tensor, "f_o")
    return s


def wide(s: Schedule) -> Schedule:
    """64 lanes, without padding."""
    for tensor in s.tensors:
        if tensor.body is not None:
            s = s.vectorize(tensor, "pos", 64)
    return s


SCHEDULES: dict[str, Transform] = {f.__name__: f for f in (padded, wide)}


def anything(dtype: str) -> Array:
    """The extremes of an integer type, and small values."""
    info = np.iinfo(dtypes.to_numpy(dtype))
    return np.array([info.min, info.min + 1, -3, -1, 0, 1, 2, 7, info.max - 1, info.max])


def _numbers(dtype: str) -> Case:
    """Arithmetic in the compute type, stored in the type itself (integers wrap)."""
    A, B = cora.placeholder("A", [batch, pos], dtype=dtype), cora.placeholder("B", [batch, pos], dtype=dtype)
    a, b = A[batch, pos], B[batch, pos]
    outputs = [
        cora.compute("O", [batch, pos], a * 2 + b, dtype=dtype),
        cora.compute("S", [batch], cora.sum(a, over=pos)),
        cora.compute("G", [batch], cora.max(a, over=pos), dtype=dtype),
        cora.compute("L", [batch], cora.min(b, over=pos), dtype=dtype),
        cora.compute("E", [batch], cora.mean(a, over=pos)),
        cora.compute("C", [batch, pos], a < b),
        cora.compute("D", [batch, pos], cora.where(cora.equal(a, b), cora.abs(a), -b), dtype=dtype),
    ]
    if dtypes.is_int(dtype):
        outputs.append(cora.compute("F", [batch, pos], a // 3 - b % 5, dtype=dtype))
    return Case(f"numbers_{dtype}", tuple(outputs), BATCHES, SCHEDULES)


def _extremes(dtype: str) -> Case:
    """Integers at the ends of their range: sums wrap as they are stored."""
    A = cora.placeholder("A", [batch, pos], dtype=dtype)
    a = A[batch, pos]
    return Case(
        f"extremes_{dtype}",
        (
            cora.compute("O", [batch, pos], a + 1, dtype=dtype),
            cora.compute("G", [batch], cora.max(a, over=pos), dtype=dtype),
            cora.compute("L", [batch], cora.min(a, over=pos), dtype=dtype),
            cora.compute("H", [batch, pos], a // 2, dtype=dtype),
            cora.compute("R", [batch, pos], a % 7, dtype=dtype),
        ),
        BATCHES,
        {"wide": wide},
        {"A": lambda rng, batch, at: rng.choice(anything(dtype), len(at))},
    )


def _positions(dtype: str) -> Case:
    """Positions of extremes."""
    A = cora.placeholder("A", [batch, pos], dtype=dtype)
    return Case(
        f"positions_{dtype}",
        (
            cora.compute("X", [batch], cora.argmax(A[batch, pos], over=pos)),
            cora.compute("N", [batch], cora.argmin(A[batch, pos], over=pos)),
        ),
        BATCHES,
        {"padded": lambda s: s.pad_dim("A", "pos", 8).pad_loop("X", "pos", 8).parallel("X", "batch")},
        {"A": lambda rng, batch, at: rng.integers(-2, 3, len(at))},
    )


f32 = cora.placeholder("f32", [batch, pos])
f64 = cora.placeholder("f64", [batch, pos], dtype="float64")
f16 = cora.placeholder("f16", [batch, pos], dtype="float16")
bf16 = cora.placeholder("bf16", [batch, pos], dtype="bfloat16")
i8 = cora.placeholder("i8", [batch, pos], dtype="int8")
i32 = cora.placeholder("i32", [batch, pos], dtype="int32")
i64 = cora.placeholder("i64", [batch, pos], dtype="int64")
flag = cora.placeholder("flag", [batch, pos], dtype="bool")

mixed = Case(
    "mixed_types",
    (
        cora.compute(
            "a", [batch, pos], f16[batch, pos] + bf16[batch, pos] * i8[batch, pos], dtype="bfloat16"
        ),
        cora.compute("b", [batch, pos], f64[batch, pos] * f32[batch, pos] + i64[batch, pos]),
        cora.compute("c", [batch, pos], cora.cast(f32[batch, pos] * 100.0, "int32"), dtype="int32"),
        cora.compute(
            "e", [batch, pos], cora.where(flag[batch, pos], i32[batch, pos], i8[batch, pos]), dtype="int8"
        ),
        cora.compute("g", [batch, pos], f32[batch, pos] * i32[batch, pos], dtype="float16"),
        cora.compute("k", [batch, pos], cora.cast(i64[batch, pos], "float64") / 3.0, dtype="float32"),
        cora.compute("n", [batch], cora.sum(flag[batch, pos], over=pos)),
        cora.compute("o", [batch], cora.sum(f16[batch, pos] * f16[batch, pos], over=pos), dtype="float16"),
        cora.compute("q", [batch], cora.sum(cora.cast(i8[batch, pos], "int64") * i64[batch, pos], over=pos)),
    ),
    BATCHES,
    SCHEDULES,
)

logic = Case(
    "bool",
    (
        cora.compute("a", [batch, pos], flag[batch, pos] & (i32[batch, pos] > 0) | ~flag[batch, pos]),
        cora.compute("b", [batch, pos], cora.not_equal(flag[batch, pos], i8[batch, pos] < 0)),
        cora.compute("c", [batch, pos], cora.cast(i32[batch, pos], "bool")),
        cora.compute("e", [batch, pos], cora.cast(flag[batch, pos], "float32") * 2.0),
        cora.compute("f", [batch, pos], cora.where(flag[batch, pos], f32[batch, pos], 0.0)),
    ),
    BATCHES,
    SCHEDULES,
)


def wide_range(rng: np.random.Generator, batch: Batch, at: Array) -> Array:
    """Values of all magnitudes, infinities, zeros, NaN."""
    values = rng.standard_normal(len(at)) * 10.0 ** rng.integers(-20, 20, len(at))
    odd = rng.choice([np.inf, -np.inf, 0.0, -0.0, np.nan, 88.0, -88.0, 1.0, -1.0], len(at))
    return np.where(rng.random(len(at)) < 0.3, odd, values)


def _functions(dtype: str) -> Case:
    """Every element-wise function, in its compute type."""
    A = cora.placeholder("A", [batch, pos], dtype=dtype)
    a = A[batch, pos]
    bodies = {
        "Exp": cora.exp(a),
        "Log": cora.log(a),
        "Sqrt": cora.sqrt(a),
        "Rsqrt": cora.rsqrt(a),
        "Tanh": cora.tanh(a),
        "Erf": cora.erf(a),
        "Gelu": cora.gelu(a),
        "GeluTanh": cora.gelu(a, approximate="tanh"),
        "Sigmoid": cora.sigmoid(a),
        "Abs": cora.abs(a),
        "Minimum": cora.minimum(a, 1.0),
        "Maximum": cora.maximum(a, -a),
        "Divide": 1.0 / a,
    }
    outputs = tuple(cora.compute(n, [batch, pos], body, dtype=dtype) for n, body in bodies.items())
    return Case(f"functions_{dtype}", outputs, BATCHES, {"padded": padded}, {"A": wide_range}, ulps=8)


CASES = (
    *(_numbers(t) for t in (*dtypes.FLOATS, *dtypes.INTS)),
    *(_extremes(t) for t in dtypes.INTS),
    *(_positions(t) for t in ("float16", "bfloat16", "float64", "int8", "int32", "int64")),
    mixed,
    logic,
    *(_functions(t) for t in dtypes.FLOATS),
)
