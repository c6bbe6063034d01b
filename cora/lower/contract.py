"""Contraction: a product that is added to something becomes one fused multiply-add, rounded once.

It is decided here, on the expressions of the definition, before loops are cut into full parts and tails: every
element is rounded alike, whatever guards it needs and wherever in a vector it lies. Code generation keeps LLVM from
contracting anything else.
"""

from __future__ import annotations

from cora.ir import dtypes
from cora.ir.expr import Binary, Expr, Fma, unary
from cora.ir.stmt import Stmt, map_stmt
from cora.ir.visit import transform


def contract(s: Stmt) -> Stmt:
    """`s` with `a * b + c`, `c + a * b`, `a * b - c` and `c - a * b` of floats as fused multiply-adds."""
    return map_stmt(s, contract, lambda e: transform(e, _fused))


def _fused(e: Expr) -> Expr | None:
    if not dtypes.is_float(e.dtype):
        return None
    match e:
        case Binary(op="add", a=Binary(op="mul", a=a, b=b), b=c):
            return Fma(a, b, c)
        case Binary(op="add", a=c, b=Binary(op="mul", a=a, b=b)):
            return Fma(a, b, c)
        case Binary(op="sub", a=Binary(op="mul", a=a, b=b), b=c):
            return Fma(a, b, unary("neg", c))
        case Binary(op="sub", a=c, b=Binary(op="mul", a=a, b=b)):
            return Fma(unary("neg", a), b, c)
    return None
