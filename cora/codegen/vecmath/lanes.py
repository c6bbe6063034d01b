"""Values of several lanes: constants, fused operations, polynomials; and where statements go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tvm import tirx as T  # noqa: N812
from tvm.ir import Expr as PrimExpr

from cora.errors import InternalError


class Emitter(Protocol):
    """The statements under construction; `bind` names a value, so that it is computed once."""

    def bind(self, value: PrimExpr, hint: str = "t") -> PrimExpr:
        """Append `Bind(fresh variable of value's type, value)` and return the variable."""
        ...


def lanes_of(x: PrimExpr, indices: Sequence[int]) -> PrimExpr:
    """The lanes of `x` with these indices; a scalar if there is one."""
    return T.Shuffle([x], [T.const(i, "int32") for i in indices])


@dataclass(frozen=True)
class Lanes:
    """Values of `lanes` lanes of one float type, and what is needed to write formulas on them."""

    emitter: Emitter
    dtype: str
    lanes: int

    def __post_init__(self) -> None:
        if self.lanes not in (1, 2, 4, 8, 16, 32, 64):
            raise InternalError(f"lanes must be a power of two up to 64; got {self.lanes}")

    def type_of(self, element: str) -> str:
        """The type of a value with as many lanes of `element`."""
        return element if self.lanes == 1 else f"{element}x{self.lanes}"

    def bind(self, value: PrimExpr, hint: str = "t") -> PrimExpr:
        """A variable with this value; the value itself if it is one."""
        return value if isinstance(value, T.Var) else self.emitter.bind(value, hint)

    def of(self, value: float, element: str | None = None) -> PrimExpr:
        """The constant `value` in every lane."""
        scalar = T.const(value, element or self.dtype)
        return scalar if self.lanes == 1 else T.Broadcast(scalar, self.lanes)

    def cast(self, element: str, x: PrimExpr) -> PrimExpr:
        """x converted, lane by lane."""
        return T.Cast(self.type_of(element), x)

    def bits(self, x: PrimExpr, element: str = "uint32") -> PrimExpr:
        """The same bits as another 32-bit type; unsigned, because signed overflow is undefined."""
        return T.reinterpret(self.type_of(element), x)

    def intrinsic(self, name: str, *args: PrimExpr) -> PrimExpr:
        """The LLVM intrinsic of this name for this type; the result has this type too."""
        short = self.dtype.replace("float", "f")
        suffix = short if self.lanes == 1 else f"v{self.lanes}{short}"
        return T.call_llvm_pure_intrin(self.type_of(self.dtype), f"llvm.{name}.{suffix}", *args)

    def fma(self, a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
        """a * b + c, rounded once."""
        return self.intrinsic("fma", a, b, c)

    def horner(self, x: PrimExpr, coefficients: Sequence[float]) -> PrimExpr:
        """The polynomial with these coefficients, highest power first."""
        value = self.of(coefficients[0])
        for c in coefficients[1:]:
            value = self.fma(value, x, self.of(c))
        return value

    def at_least(self, low: float, x: PrimExpr) -> PrimExpr:
        """The larger of `low` and x, NaN if x is NaN: `low > x ? low : x`."""
        return T.Max(self.of(low), x)

    def at_most(self, high: float, x: PrimExpr) -> PrimExpr:
        """The smaller of `high` and x, NaN if x is NaN: `high < x ? high : x`."""
        return T.Min(self.of(high), x)

    def per_lane(self, function: str, x: PrimExpr) -> PrimExpr:
        """A libm function of one argument, called once per lane."""
        if self.lanes == 1:
            return T.call_pure_extern(self.dtype, function, x)
        calls = [
            self.bind(T.call_pure_extern(self.dtype, function, lanes_of(x, [i])), "y")
            for i in range(self.lanes)
        ]
        return T.Shuffle(calls, [T.const(i, "int32") for i in range(self.lanes)])


Function = Callable[[Lanes, PrimExpr], PrimExpr]


def sqrt(v: Lanes, x: PrimExpr) -> PrimExpr:
    """The square root, correctly rounded."""
    return v.intrinsic("sqrt", x)


def rsqrt(v: Lanes, x: PrimExpr) -> PrimExpr:
    """1 / sqrt(x), each operation correctly rounded."""
    return v.of(1.0) / v.intrinsic("sqrt", x)
