"""Scalars and vectors of TIR, from node constructors alone.

The operators of TVM's Python classes simplify (`x * 0.0` becomes 0.0, wrong for NaN); constructors do not.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tvm import tirx as T  # noqa: N812

#: A TIR expression, a TIR statement and a TIR buffer; TVM carries no types.
Tir: TypeAlias = Any
TirStmt: TypeAlias = Any
TirBuffer: TypeAlias = Any


def const(value: float, dtype: str) -> Tir:
    """A literal of a scalar type."""
    return T.const(value, dtype)


def i64(value: int) -> Tir:
    """An int64 literal."""
    return T.const(value, "int64")


def typed(dtype: str, lanes: int) -> str:
    """The name of the type of `lanes` lanes of `dtype`."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def splat(x: Tir, lanes: int) -> Tir:
    """The scalar `x` in all lanes; `x` itself for one lane."""
    return x if lanes == 1 else T.Broadcast(x, lanes)


def filled(value: float, dtype: str, lanes: int) -> Tir:
    """A literal in all lanes."""
    return splat(const(value, dtype), lanes)


def ramp(base: Tir, step: int, lanes: int) -> Tir:
    """`base + step * lane`, int64."""
    return base if lanes == 1 else T.Ramp(base, i64(step), lanes)


def lane_of(vector: Tir, lane: int) -> Tir:
    """One lane of a vector, a scalar."""
    return T.Shuffle([vector], [T.const(lane, "int32")])


def int_value(x: Tir) -> int | None:
    """The value of an integer literal; None for anything else."""
    return int(x.value) if isinstance(x, T.IntImm) else None


def intrinsic(dtype: str, name: str, *args: Tir) -> Tir:
    """A pure LLVM intrinsic, `llvm.` left out; its overload follows from the types."""
    return T.call_llvm_pure_intrin(dtype, f"llvm.{name}", *args)


def type_of(x: Tir) -> str:
    """The TIR type of an expression, e.g. "float32x16"."""
    return str(x.expr_ty().dtype)
