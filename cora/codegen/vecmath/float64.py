"""The functions of float64: libm, once per lane."""

from __future__ import annotations

from typing import Final

from tvm.ir import Expr as PrimExpr

from cora.codegen.vecmath.lanes import Function, Lanes, rsqrt, sqrt

# gelu_tanh(x) = x / (1 + e^(x * (C1 x^2 + C0))).
_GELU_TANH_C0: Final = -2.0 * 0.7978845608028654
_GELU_TANH_C1: Final = _GELU_TANH_C0 * 0.044715


def _call(name: str) -> Function:
    return lambda v, x: v.intrinsic(name, x)


def _sigmoid(v: Lanes, x: PrimExpr) -> PrimExpr:
    return v.of(1.0) / (v.of(1.0) + v.intrinsic("exp", v.of(0.0) - x))


def _gelu(v: Lanes, x: PrimExpr) -> PrimExpr:
    """x/2 * erfc(-x / sqrt(2)), accurate in the tail; erfc is 0 below the cut."""
    x = v.bind(v.at_least(-40.0, x), "x")
    return (x * v.of(0.5)) * v.per_lane("erfc", v.bind(x * v.of(-(0.5**0.5)), "z"))


def _gelu_tanh(v: Lanes, x: PrimExpr) -> PrimExpr:
    """x * sigmoid(...), since 1 + tanh cancels in the tail; the result is 0 below the cut."""
    x = v.bind(v.at_least(-30.0, x), "x")
    square = v.bind(x * x)
    slope = v.fma(square, v.of(_GELU_TANH_C1), v.of(_GELU_TANH_C0))
    return x / (v.of(1.0) + v.intrinsic("exp", x * slope))


FUNCTIONS: Final[dict[str, Function]] = {
    "exp": _call("exp"),
    "exp2": _call("exp2"),
    "log": _call("log"),
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "tanh": _call("tanh"),
    "erf": lambda v, x: v.per_lane("erf", x),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "sigmoid": _sigmoid,
}
