"""Vector mathematics as TIR: polynomials of ours, since LLVM calls libm once per lane.

Everything here is made of nodes that LLVM code generation takes directly, so it can be used after
the last TIR pass: arithmetic, `Select`, `Max`, `Min`, `Shuffle`, `reinterpret`, shifts, `Cast` and
the generic LLVM intrinsics `fma`, `sqrt`, `fabs`, `copysign`. No instruction of one CPU is named.

Three rules keep a result independent of where a vector ends:

- **Scalar and vector forms give the same bits** (a NaN's sign and payload excepted): `lanes=1`
  emits the same formulas on scalars.
- **A product that is added to something is an explicit `llvm.fma`.** LLVM contracts `a*b + c` when
  it likes to, which need not be the same for a scalar and for a vector. Without the instruction
  (generic x86-64) `llvm.fma` is a call of libm's `fmaf` per lane: right, the same bits, and slow;
  ask for x86-64-v3 or newer.
- **TVM's simplifier does not respect floats.** It makes `(y + M) - M` into `y`, so that rounding
  to an integer adds M = 1.5 * 2^23 by `llvm.fma`; and `x != x` into false, so that NaN is told
  from numbers by `x <= inf`.

float32: NaN gives NaN, infinities give the mathematical limit. The errors below are the largest
over every third of the 2^32 bit patterns, against float64, on Zen 4; ULP is the spacing of float32
at the exact result, and holds where that is a normal number.

=========  ==========  =========================================================================
operation  ULP         remarks
=========  ==========  =========================================================================
exp        1.01        0 below 2^-126 (x < -87.3365); inf from x > 88.72283
exp2       0.95        0 below 2^-126 (x < -126); inf from 128; exact for integers
log        0.87        denormals included; log(0) = -inf, log of a negative number is NaN
sqrt       0.5         one instruction
rsqrt      1.5         1 / sqrt(x): rsqrt(-0) = -inf
tanh       2.62        odd, tiny x gives x, |tanh| <= 1
erf        6.0         3.6e-7 absolute (6 ULP just below 3.75, after which it is 1); odd; |erf| <= 1
gelu       (absolute)  3.1e-7, and x itself above 6; relative 2.6e-6 for x > -3,
                       6.4e-6 for x > -4, 6.4e-5 for x > -5, then 4e-11 absolute; 0 at -inf
gelu_tanh  (absolute)  5.2e-7, and x itself above 6; relative 2.2e-6 for x > -5.5; below
                       -10 it is -1e-37
sigmoid    2.5         0 where exp(-x) overflows (x < -88.72283); never overflows itself
=========  ==========  =========================================================================

float64: exp, exp2, log and tanh are LLVM's intrinsics and erf and erfc are libm's, called once per
lane (the library must be loaded; in a CPython process it is); sqrt is an instruction; the others
are built from these, within 4e-15 relative, the tails of both gelus within 1e-12. Scalars and
vectors have the same bits here too.
"""

from __future__ import annotations

from typing import Final

from tvm.ir import Expr as PrimExpr

from cora.codegen.vecmath import float32, float64
from cora.codegen.vecmath.lanes import Emitter, Lanes
from cora.codegen.vecmath.reduce import horizontal, maximum, minimum
from cora.errors import UnsupportedError

__all__ = ["OPS", "Emitter", "horizontal", "math", "maximum", "minimum"]

OPS: Final = tuple(float32.FUNCTIONS)
_FUNCTIONS: Final = {"float32": float32.FUNCTIONS, "float64": float64.FUNCTIONS}


def math(e: Emitter, op: str, x: PrimExpr, dtype: str, lanes: int) -> PrimExpr:
    """The elementwise function `op` of `x`, a value of `lanes` lanes of `dtype` (a scalar if 1).

    `op` is one of `OPS`; errors are stated at the top of this module. `gelu` is the exact form
    x * Phi(x), `gelu_tanh` is 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). The result may be an
    expression that is not bound: bind it if it is used more than once.
    """
    table = _FUNCTIONS.get(dtype)
    if table is None or op not in table:
        raise UnsupportedError(f"vector function {op!r} of {dtype}: not one of {', '.join(OPS)}")
    v = Lanes(e, dtype, lanes)
    return table[op](v, v.bind(x, "x"))
