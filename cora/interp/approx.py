"""Values, the error that a kernel may make on them, and the operations of the language on both.

Values are exact in the sense of the interpreter: float64 for every floating-point type, int64 for
every integer type, bool. `error` is a first-order bound on how far a kernel that computes in the
declared types may be from that value: every operation passes on the errors of its operands, times
the derivative, and adds one rounding of its result (epsilon of its type, relative). A sum of n
terms adds epsilon * sqrt(n) * sum of |terms|: relative to the sum of absolute terms, and with
sqrt(n) the size that the accumulated roundings of n additions have in practice (Higham and Mary,
A New Approach to Probabilistic Rounding Error Analysis, 2019). Constant factors (a function that
is good to 3 ulp, an unlucky sum) are left to whoever compares.

Infinities, NaN, integers and bools have error 0. What is not continuous (comparisons, argmax, float
to integer) is taken to decide as the exact values do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from cora.errors import InternalError
from cora.interp.points import starts_of
from cora.ir import dtypes
from cora.ir.expr import COMPARISONS, BinaryOp, ReduceOp, UnaryOp

Vector = NDArray[Any]
Floats = NDArray[np.float64]

_erfc = np.vectorize(math.erfc, otypes=[np.float64])
_erf = np.vectorize(math.erf, otypes=[np.float64])
_GELU_SCALE = math.sqrt(2 / math.pi)
_GELU_CUBE = 0.044715


@dataclass(frozen=True, slots=True, eq=False)
class Approx:
    """Values (float64, int64 or bool) and a bound on the error of each: vectors of one length."""

    value: Vector
    error: Floats

    def take(self, which: NDArray[np.int64]) -> Approx:
        """The entries at the positions `which`."""
        return Approx(self.value[which], self.error[which])


def exact(value: Vector) -> Approx:
    """Values without error."""
    return Approx(value, np.broadcast_to(np.float64(0), value.shape))


def approx(value: Vector, error: Floats) -> Approx:
    """Values with error; infinities and NaN are exact, and an error of the form 0 * inf is none."""
    return Approx(value, np.where(np.isfinite(value) & ~np.isnan(error), error, 0.0))


def _limits(dtype: str) -> Any:
    return ml_dtypes.finfo(dtypes.to_numpy(dtype))  # type: ignore[no-untyped-call]


def epsilon(dtype: str) -> float:
    """The distance from 1 to the next number of a floating-point type."""
    return float(_limits(dtype).eps)


def smallest_normal(dtype: str) -> float:
    """The smallest normal number: results below it may be flushed to zero."""
    return float(_limits(dtype).smallest_normal)


def _rounding(value: Floats, dtype: str) -> Floats:
    return epsilon(dtype) * np.abs(value) + smallest_normal(dtype)


def numpy_type(dtype: str) -> type[np.generic]:
    """The type in which the interpreter holds values of `dtype`: float64, int64 or bool."""
    if dtypes.is_float(dtype):
        return np.float64
    return np.int64 if dtypes.is_int(dtype) else np.bool_


def literal(value: int | float | bool, dtype: str, count: int) -> Approx:
    """`count` times the constant that `dtype` holds: 0.1 of float32 is the nearest float32."""
    held = np.array(value).astype(dtypes.to_numpy(dtype))
    return exact(np.full(count, held, numpy_type(dtype)))


def convert(a: Approx, dtype: str) -> Approx:
    """`a` in type `dtype`; one rounding is added where a float type cannot hold the value.

    Floats truncate to integers.
    """
    if not dtypes.is_float(dtype):
        return exact(a.value.astype(numpy_type(dtype)))
    value = a.value.astype(np.float64)
    # A value that the type holds exactly (every input, small integers) gains no error.
    rounded = value.astype(dtypes.to_numpy(dtype)).astype(np.float64)
    gained = np.where((rounded == value) & (a.error == 0), 0.0, _rounding(value, dtype))
    return approx(value, a.error + gained)


def store(a: Approx, dtype: str, computed: str) -> Approx:
    """`a`, of type `computed`, as an element of a tensor of `dtype`.

    Integers wrap to the width of the type. Floats are not rounded: the rounding is error.
    """
    if dtype == "bool":
        return exact(a.value != 0)
    held = a if dtype == computed else convert(a, dtype)
    if dtypes.is_int(dtype):
        return exact(held.value.astype(dtypes.to_numpy(dtype)).astype(np.int64))
    return held


def binary(op: BinaryOp, a: Approx, b: Approx, dtype: str) -> Approx:
    """`a op b` for operands of type `dtype`; the caller excludes integer division by zero."""
    x, y = a.value, b.value
    if op in COMPARISONS or op in ("and", "or"):
        return exact(_PREDICATES[op](x, y))
    value = _ARITHMETIC[op](x, y)
    if not dtypes.is_float(dtype):
        return exact(value)
    match op:
        case "min" | "max":
            error = np.maximum(a.error, b.error)
        case "add" | "sub":
            error = a.error + b.error + epsilon(dtype) * np.abs(value)
        case "mul":
            error = np.abs(x) * b.error + np.abs(y) * a.error + _rounding(value, dtype)
        case "div":
            error = (a.error + np.abs(value) * b.error) / np.abs(y) + _rounding(value, dtype)
        case _:
            raise InternalError(f"interpreter: '{op}' on {dtype}")
    return approx(value, error)


_PREDICATES = {
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
}
_ARITHMETIC = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "min": np.minimum,
    "max": np.maximum,
}


def unary(op: UnaryOp, a: Approx, dtype: str) -> Approx:
    """`op(a)` for an operand of type `dtype`."""
    x = a.value
    match op:
        case "not":
            return exact(~x)
        case "neg":
            return Approx(-x, a.error)
        case "abs":
            return Approx(np.abs(x), a.error)
    value, slope = _function(op, x)
    passed = slope * a.error
    if op == "sqrt":  # the slope is infinite at 0, the effect of a small error is not
        passed = np.fmin(passed, np.sqrt(a.error))
    # gelu is x * (1 + erf) / 2: for x < 0 the sum cancels, so its rounding is relative to x.
    scale = x if op in ("gelu", "gelu_tanh") else value
    return approx(value, np.where(a.error == 0, 0.0, passed) + _rounding(scale, dtype))


def _function(op: UnaryOp, x: Floats) -> tuple[Floats, Floats]:
    """The value of a function and the absolute value of its derivative."""
    match op:
        case "exp":
            value = np.exp(x)
            return value, value
        case "log":
            return np.log(x), 1 / np.abs(x)
        case "sqrt":
            value = np.sqrt(x)
            return value, 0.5 / value
        case "rsqrt":
            value = 1 / np.sqrt(x)
            return value, 0.5 * value / np.abs(x)
        case "tanh":
            value = np.tanh(x)
            return value, 1 - value * value
        case "erf":
            return _erf(x), 2 / math.sqrt(math.pi) * np.exp(-x * x)
        case "sigmoid":
            value = 1 / (1 + np.exp(-x))
            return value, value * (1 - value)
        case "gelu":
            phi = 0.5 * _erfc(-x / math.sqrt(2))
            density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
            return _limit_at_minus_inf(x, x * phi), np.abs(phi + x * density)
        case "gelu_tanh":
            t = np.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x))
            inner = _GELU_SCALE * (1 + 3 * _GELU_CUBE * x * x)
            slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner
            return _limit_at_minus_inf(x, 0.5 * x * (1 + t)), np.abs(slope)
    raise InternalError(f"interpreter: unknown function '{op}'")


def _limit_at_minus_inf(x: Floats, value: Floats) -> Floats:
    return np.where(np.isneginf(x), -0.0, value)


def identity(op: ReduceOp, dtype: str) -> float | int:
    """What a reduction over nothing gives (argmax and argmin: -1)."""
    match op:
        case "sum":
            return 0
        case "prod":
            return 1
        case "max":
            return dtypes.lowest(dtype)
        case "min":
            return dtypes.highest(dtype)
        case "argmax" | "argmin":
            return -1
    raise InternalError(f"interpreter: unknown reduction '{op}'")


def reduce(op: ReduceOp, a: Approx, lengths: NDArray[np.int64], dtype: str) -> Approx:
    """Consecutive segments of `a`, of these lengths, each reduced to one value.

    `op` is sum, prod, max or min.
    """
    held = numpy_type(dtype)
    value = np.full(len(lengths), identity(op, dtype), held)
    error: Floats = np.zeros(len(lengths))
    filled = lengths > 0
    if not filled.any():
        return Approx(value, error)
    first = starts_of(lengths)[filled]
    size = np.abs(a.value)
    match op:
        case "sum":
            value[filled] = np.add.reduceat(a.value, first)
            absolute = np.add.reduceat(size, first)
            gained: Vector = epsilon_of(dtype) * np.sqrt(lengths[filled]) * absolute
            error[filled] = np.add.reduceat(a.error, first) + gained
        case "prod":
            value[filled] = np.multiply.reduceat(a.value, first)
            absolute = np.multiply.reduceat(size, first)
            perturbed = np.multiply.reduceat(size + a.error, first)
            gained = epsilon_of(dtype) * lengths[filled] * absolute
            # a product of some of the factors may be flushed to zero, and the others make it larger
            lost = np.multiply.reduceat(np.maximum(size, 1), first) * lengths[filled] * flushed_below(dtype)
            error[filled] = perturbed - absolute + gained + lost
        case "max" | "min":
            fold = np.maximum if op == "max" else np.minimum
            value[filled] = fold.reduceat(a.value, first)
            error[filled] = np.maximum.reduceat(a.error, first)
        case _:
            raise InternalError(f"interpreter: reduce '{op}'")
    return approx(value, error) if dtypes.is_float(dtype) else exact(value)


def epsilon_of(dtype: str) -> float:
    """`epsilon` of floating-point types, 0 of others."""
    return epsilon(dtype) if dtypes.is_float(dtype) else 0.0


def flushed_below(dtype: str) -> float:
    """`smallest_normal` of floating-point types, 0 of others."""
    return smallest_normal(dtype) if dtypes.is_float(dtype) else 0.0


def reduce_position(
    op: ReduceOp, a: Vector, index: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """argmax or argmin of consecutive segments: the smallest `index` of the extreme; -1 if empty.

    As numpy.argmax and numpy.argmin: the first NaN counts as the extreme.
    """
    result = np.full(len(lengths), -1, np.int64)
    filled = lengths > 0
    if not filled.any():
        return result
    first = starts_of(lengths)[filled]
    fold = np.maximum if op == "argmax" else np.minimum
    best = np.repeat(fold.reduceat(a, first), lengths[filled])
    is_best = (a == best) | ((a != a) & (best != best))
    candidates = np.where(is_best, index, np.iinfo(np.int64).max)
    result[filled] = np.minimum.reduceat(candidates, first)
    return result
