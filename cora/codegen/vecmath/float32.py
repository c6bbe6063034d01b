"""The functions of float32, and the coefficients that they use."""

from __future__ import annotations

import math
from typing import Final

from tvm import tirx as T  # noqa: N812
from tvm.ir import Expr as PrimExpr

from cora.codegen.vecmath.lanes import Function, Lanes, rsqrt, sqrt

# 1.5 * 2^23: adding it to |y| < 2^22 leaves round-to-even(y) in the low bits of the sum.
_ROUND: Final = 12582912.0
_LOG2E: Final = 1.4426950408889634
# ln 2 = HI + LO, each the nearest float32. k * HI enters an fma, so HI needs no trailing zeros.
_LN2_HI: Final = float.fromhex("0x1.62e430p-1")
_LN2_LO: Final = float.fromhex("-0x1.05c610p-29")
_MIN_NORMAL: Final = 2.0**-126
_ONE_BITS: Final = 0x3F800000

# The coefficients, highest power first, are minimax fits by Lawson's iteration (reweighted least
# squares on 3000 to 4000 Chebyshev nodes, in float64; the rational one linearised with the previous
# denominator), rounded to the nearest float32. "fit" is the error before rounding.

# 2^f on |f| <= 1/2, fit 2.0e-9 relative. p(0) = 1 exactly, so powers of two are exact.
_EXP2: Final = (
    0.00015353361959569156,
    0.0013398873852565885,
    0.00961843691766262,
    0.055503323674201965,
    0.24022647738456726,
    0.6931471824645996,
    1.0,
)
# (e^f - 1 - f) / f^2 on |f| <= 0.35, fit 3.3e-9 relative to e^f.
_EXP: Final = (
    0.0013813161058351398,
    0.008369410410523415,
    0.04166845604777336,
    0.16666515171527863,
    0.4999999403953552,
)
# e^f is finite in float32 up to here, and normal from here.
_EXP_MAX: Final = 88.72283172607422
_EXP_MIN: Final = -87.33654022216797
# (log(1+f) - f + f^2/2) / f^3 on sqrt(1/2) <= 1+f <= sqrt(2), fit 5.8e-9 relative to log(1+f).
_LOG: Final = (
    -0.07634496688842773,
    0.1276157647371292,
    -0.13160182535648346,
    0.14201757311820984,
    -0.16623356938362122,
    0.20001226663589478,
    -0.2500081956386566,
    0.3333333134651184,
)
_SQRT_HALF_BITS: Final = 0x3F3504F3
# erf(x) = x P(x^2) / Q(x^2) on |x| <= 3.75 (1 - erf is 1.1e-7 there), fit 9.8e-9 relative. All
# coefficients are positive: no cancellation.
_ERF_CUT: Final = 3.75
_ERF_P: Final = (
    2.199119990109466e-06,
    0.0002873268094845116,
    0.003546588821336627,
    0.05211539939045906,
    0.18435542285442352,
    1.128379225730896,
)
_ERF_Q: Final = (
    3.974716310040094e-05,
    0.001122665242291987,
    0.014531197026371956,
    0.11175866425037384,
    0.49671387672424316,
    1.0,
)
# Phi(-a) = 1 / (2 P(a)^16) on 0 <= a <= 6 (the form of Abramowitz and Stegun 7.1.28). What was
# minimised is the relative error times (a * Phi(-a))^0.6, which lies between the relative and the
# absolute error of gelu: 3.3e-8.
_GELU: Final = (
    1.5414643428357522e-07,
    -1.0929427389783086e-06,
    7.401625680358848e-06,
    5.059168688603677e-05,
    2.8818301871069707e-05,
    0.003287459025159478,
    0.021137183532118797,
    0.04986776411533356,
    1.0,
)
# P(1e5)^16 overflows to infinity, so that beyond it |x| * Phi(-|x|) is 0 and never inf * 0.
_GELU_CUT: Final = 1.0e5
# gelu_tanh(x) = x / (1 + 2^(x * (C1 x^2 + C0))); beyond the cut 2^(...) leaves the float32 range.
_GELU_TANH_C0: Final = -2.0 * 0.7978845608028654 * _LOG2E
_GELU_TANH_C1: Final = _GELU_TANH_C0 * 0.044715
_GELU_TANH_CUT: Final = -10.0


# ---- float32: the exponential family ----


def _round(v: Lanes, x: PrimExpr, scale: float) -> tuple[PrimExpr, PrimExpr]:
    """(t, k): k is x * scale rounded to an integer; the low bits of t are that integer."""
    t = v.bind(v.fma(x, v.of(scale), v.of(_ROUND)))
    return t, v.bind(t - v.of(_ROUND), "k")


def _exponent(v: Lanes, t: PrimExpr) -> PrimExpr:
    """The integer of `_round` at the place of a float's exponent."""
    return v.bits(t) << v.of(23, "uint32")


def _times_power(v: Lanes, p: PrimExpr, t: PrimExpr) -> PrimExpr:
    """p * 2^k by adding k to p's exponent: right as long as the result is normal.

    p in [sqrt(1/2), sqrt(2)]; p = 1 with k = 128 gives infinity.
    """
    return v.bits(v.bits(p) + _exponent(v, t), "float32")


def _in_range(v: Lanes, x: PrimExpr, low: float, high: float, value: PrimExpr) -> PrimExpr:
    """`value` for low <= x <= high, 0 below, infinity above, NaN for NaN."""
    value = T.Select(x >= v.of(low), value, v.of(0.0))
    return T.Select(x <= v.of(high), value, x + v.of(math.inf))


def _exp2(v: Lanes, x: PrimExpr) -> PrimExpr:
    below_128 = 128.0 - 2.0**-17
    return _in_range(v, x, -126.0, below_128, _exp2_clamped(v, x))


def _exp2_clamped(v: Lanes, x: PrimExpr) -> PrimExpr:
    """2^x for -126 <= x <= 128. Anything else, NaN included, gives a meaningless number."""
    t, k = _round(v, x, 1.0)
    f = v.bind(x - k, "f")
    return _times_power(v, v.horner(f, _EXP2), t)


def _reduce_exp(v: Lanes, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """(t, e^f - 1) with x = k ln 2 + f, |f| <= ln 2 / 2, k in the low bits of t."""
    t, k = _round(v, x, _LOG2E)
    f = v.fma(k, v.of(-_LN2_HI), x)
    f = v.bind(v.fma(k, v.of(-_LN2_LO), f), "f")
    square = v.bind(f * f)
    return t, v.fma(square, v.horner(f, _EXP), f)


def _exp(v: Lanes, x: PrimExpr) -> PrimExpr:
    t, g = _reduce_exp(v, x)
    value = _times_power(v, g + v.of(1.0), t)
    return _in_range(v, x, _EXP_MIN, _EXP_MAX, value)


def _sigmoid(v: Lanes, x: PrimExpr) -> PrimExpr:
    y = v.bind(v.of(0.0) - x, "y")
    return v.of(1.0) / (v.of(1.0) + _exp(v, y))


def _tanh(v: Lanes, x: PrimExpr) -> PrimExpr:
    """em1 / (em1 + 2) with em1 = e^(2|x|) - 1 = 2^k g + (2^k - 1), which never cancels."""
    a = v.intrinsic("fabs", x)
    y = v.bind(v.at_most(20.0, v.bind(a + a, "a")), "y")
    t, g = _reduce_exp(v, y)
    power = v.bind(v.bits(_exponent(v, t) + v.of(_ONE_BITS, "uint32"), "float32"), "s")
    em1 = v.bind(v.fma(power, g, power - v.of(1.0)), "em1")
    return v.intrinsic("copysign", em1 / (em1 + v.of(2.0)), x)


def _gelu_tanh(v: Lanes, x: PrimExpr) -> PrimExpr:
    x = v.bind(v.at_least(_GELU_TANH_CUT, x), "x")
    square = v.bind(x * x)
    y = x * v.fma(square, v.of(_GELU_TANH_C1), v.of(_GELU_TANH_C0))
    y = v.bind(v.at_least(-126.0, y), "y")
    return x / (v.of(1.0) + _exp2_clamped(v, y))


# ---- float32: the others ----


def _log(v: Lanes, x: PrimExpr) -> PrimExpr:
    """x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); denormals are scaled first."""
    tiny = x < v.of(_MIN_NORMAL)
    bits = v.bind(v.bits(T.Select(tiny, x * v.of(2.0**23), x)), "bits")
    shift = v.bits(bits - v.of(_SQRT_HALF_BITS, "uint32"), "int32")
    exponent = v.bind(shift >> v.of(23, "int32"), "k")
    k = v.cast("float32", exponent) - T.Select(tiny, v.of(23.0), v.of(0.0))
    k = v.bind(k, "k")
    mantissa = bits - (v.bits(exponent) << v.of(23, "uint32"))
    f = v.bind(v.bits(mantissa, "float32") - v.of(1.0), "f")
    square = v.bind(f * f)
    tail = v.fma(square * f, v.horner(f, _LOG), k * v.of(_LN2_LO))
    value = v.fma(k, v.of(_LN2_HI), f + v.fma(square, v.of(-0.5), tail))
    not_positive = T.Select(T.EQ(x, v.of(0.0)), v.of(-math.inf), v.of(math.nan))
    value = T.Select(x < v.of(math.inf), value, x)
    return T.Select(x > v.of(0.0), value, not_positive)


def _erf(v: Lanes, x: PrimExpr) -> PrimExpr:
    a = v.bind(v.at_most(_ERF_CUT, v.intrinsic("fabs", x)), "a")
    square = v.bind(a * a)
    ratio = (a * v.horner(square, _ERF_P)) / v.horner(square, _ERF_Q)
    return v.intrinsic("copysign", v.at_most(1.0, ratio), x)


def _gelu(v: Lanes, x: PrimExpr) -> PrimExpr:
    """max(x, 0) - |x| Phi(-|x|)."""
    a = v.bind(v.at_most(_GELU_CUT, v.intrinsic("fabs", x)), "a")
    power = v.bind(v.horner(a, _GELU), "p")
    for _ in range(4):
        power = v.bind(power * power, "p")
    return v.at_least(0.0, x) - (a * v.of(0.5)) / power


FUNCTIONS: Final[dict[str, Function]] = {
    "exp": _exp,
    "exp2": _exp2,
    "log": _log,
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "tanh": _tanh,
    "erf": _erf,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "sigmoid": _sigmoid,
}
