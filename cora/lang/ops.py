"""Element-wise operations and reductions of the definition language."""

from __future__ import annotations

from collections.abc import Sequence

from cora.errors import UserError
from cora.ir import dtypes
from cora.ir.expr import Const, Dim, Expr, ExprLike, Reduce, ReduceOp, binary, select, unary, wrap
from cora.ir.expr import cast as convert
from cora.ir.visit import free_dims


def where(condition: ExprLike, then: ExprLike, other: ExprLike) -> Expr:
    """`then` where `condition` holds, else `other`; the branch not taken is not evaluated.

    So `then` may hold an access that is legal only where the condition holds (shifts, masks, convolutions).
    """
    if isinstance(condition, bool):
        raise UserError(
            "where: the condition is a Python bool, not an expression; `==` compares structure: "
            "use cora.equal(a, b) to compare values"
        )
    cond = wrap(condition)
    if cond.dtype != "bool":
        raise UserError(f"where: the condition must be bool; got {cond} of type {cond.dtype}")
    return select(cond, then, other)


def equal(a: ExprLike, b: ExprLike) -> Expr:
    """`a == b`, element-wise."""
    return binary("eq", a, b)


def not_equal(a: ExprLike, b: ExprLike) -> Expr:
    """`a != b`, element-wise (true for NaN)."""
    return binary("ne", a, b)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The smaller of two values; NaN if either is NaN, as numpy.minimum."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The larger of two values; NaN if either is NaN, as numpy.maximum."""
    return binary("max", a, b)


def exp(x: ExprLike) -> Expr:
    """e ** x."""
    return unary("exp", x)


def log(x: ExprLike) -> Expr:
    """The natural logarithm; -inf at 0, NaN below."""
    return unary("log", x)


def sqrt(x: ExprLike) -> Expr:
    """The square root; NaN below 0."""
    return unary("sqrt", x)


def rsqrt(x: ExprLike) -> Expr:
    """1 / sqrt(x)."""
    return unary("rsqrt", x)


def tanh(x: ExprLike) -> Expr:
    """The hyperbolic tangent."""
    return unary("tanh", x)


def erf(x: ExprLike) -> Expr:
    """The error function."""
    return unary("erf", x)


def gelu(x: ExprLike, approximate: str = "none") -> Expr:
    """x * Phi(x), exact ("none") or by the tanh formula ("tanh"), as in PyTorch."""
    if approximate not in ("none", "tanh"):
        raise UserError(f"gelu: approximate must be 'none' or 'tanh'; got {approximate!r}")
    return unary("gelu" if approximate == "none" else "gelu_tanh", x)


def sigmoid(x: ExprLike) -> Expr:
    """1 / (1 + e ** -x)."""
    return unary("sigmoid", x)


def abs(x: ExprLike) -> Expr:
    """The absolute value."""
    return unary("abs", x)


def cast(x: ExprLike, dtype: str) -> Expr:
    """`x` converted to a type of arithmetic: float32, float64, int32, int64 or bool (x != 0)."""
    value = wrap(x)
    if dtype not in ("float32", "float64", "int32", "int64", "bool"):
        raise UserError(
            f"cast: values have type float32, float64, int32, int64 or bool; got {dtype!r} "
            "(16-bit floats and int8 are for storage: give compute(..., dtype=...))"
        )
    return binary("ne", value, 0) if dtype == "bool" and value.dtype != "bool" else convert(dtype, value)


def sum(body: ExprLike, over: Dim | Sequence[Dim]) -> Expr:
    """The sum of `body` over one or several dims; 0 where they are empty. Accumulates in the type of `body`."""
    return _reduce("sum", body, over)


def prod(body: ExprLike, over: Dim | Sequence[Dim]) -> Expr:
    """The product of `body` over one or several dims; 1 where they are empty."""
    return _reduce("prod", body, over)


def max(body: ExprLike, over: Dim | Sequence[Dim]) -> Expr:
    """The maximum; the type's lowest value (-inf) where empty; NaN if any is NaN."""
    return _reduce("max", body, over)


def min(body: ExprLike, over: Dim | Sequence[Dim]) -> Expr:
    """The minimum; the type's highest value (inf) where empty; NaN if any is NaN."""
    return _reduce("min", body, over)


def mean(body: ExprLike, over: Dim | Sequence[Dim]) -> Expr:
    """The arithmetic mean; 0 where empty. Integers are averaged in float32."""
    value = wrap(body)
    dims = _dims("mean", over)
    if not dtypes.is_float(value.dtype):
        value = convert("float32", value)
    total = _reduce("sum", value, dims)
    count: Expr = Const(1)
    for dim in dims:
        count = count * binary("max", dim.extent, 0)
    if free_dims(count) & frozenset(dims):  # the shape is ragged within the reduction itself
        count = _reduce("sum", Const(1), dims)
    return select(binary("lt", 0, count), total / convert(value.dtype, count), 0.0)


def argmax(body: ExprLike, over: Dim) -> Expr:
    """The smallest index at which `body` is largest (int64); the first NaN counts as largest; -1 where empty."""
    return _reduce("argmax", body, _one_dim("argmax", over))


def argmin(body: ExprLike, over: Dim) -> Expr:
    """The smallest index at which `body` is smallest (int64); the first NaN counts as smallest; -1 where empty."""
    return _reduce("argmin", body, _one_dim("argmin", over))


def _reduce(op: ReduceOp, body: ExprLike, over: Dim | Sequence[Dim]) -> Expr:
    value = wrap(body)
    dims = _dims(op, over)
    if value.dtype == "bool":
        value = convert("int64", value)
    return Reduce(op, value, dims)


def _dims(op: str, over: Dim | Sequence[Dim]) -> tuple[Dim, ...]:
    dims = (over,) if isinstance(over, Dim) else tuple(over) if isinstance(over, Sequence) else ()
    if not dims or not all(isinstance(d, Dim) for d in dims):
        raise UserError(f"{op}: over= must be a Dim or a non-empty sequence of Dims; got {over!r}")
    ordered: list[Dim] = []
    waiting = list(dims)
    while waiting:  # outer dims first, whatever the order given
        ready = [d for d in waiting if not free_dims(d.extent) & frozenset(x for x in waiting if x != d)]
        if not ready:
            raise UserError(
                f"{op}: the extents of {', '.join(d.name for d in waiting)} depend on one another"
            )
        ordered.append(ready[0])
        waiting.remove(ready[0])
    return tuple(ordered)


def _one_dim(op: str, over: Dim | Sequence[Dim]) -> Dim:
    if not isinstance(over, Dim):
        raise UserError(f"{op}: over= must be one Dim; got {over!r}")
    return over
