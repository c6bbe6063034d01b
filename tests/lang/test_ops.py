"""Element-wise operations and reductions: what they build, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cora.errors import UserError
from cora.ir.expr import Binary, Cast, Const, Dim, Reduce, Select, Unary
from cora.lang import ops
from cora.lang.define import compute, lengths, placeholder, size

M = size("M")
b = Dim("b", M)
lens = lengths("lens", b)
p = Dim("p", lens[b])
q = Dim("q", p + 1)
A = placeholder("A", [b, p])
D = placeholder("D", [b, p], dtype="float64")
N = placeholder("N", [b, p], dtype="int32")
C = placeholder("C", [b, p], dtype="bool")
a, d, n, c = A[b, p], D[b, p], N[b, p], C[b, p]


@pytest.mark.parametrize(
    ("built", "op"),
    [
        (ops.equal(a, 1), "eq"),
        (ops.not_equal(a, 1), "ne"),
        (ops.minimum(a, 1), "min"),
        (ops.maximum(a, 1), "max"),
    ],
)
def test_binary(built: Any, op: str) -> None:
    assert built == Binary(op, a, Const(1.0, "float32"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "rsqrt", "tanh", "erf", "gelu", "sigmoid", "abs"])
def test_unary(name: str) -> None:
    assert getattr(ops, name)(a) == Unary(name, a)  # type: ignore[arg-type]
    assert getattr(ops, name)(d).dtype == "float64"


def test_gelu_by_the_tanh_formula() -> None:
    assert ops.gelu(a, approximate="tanh") == Unary("gelu_tanh", a)


def test_where() -> None:
    assert ops.where(a < 0, 0, a) == Select(a < 0, Const(0.0, "float32"), a)
    assert ops.where(c, n, 1).dtype == "int32"


def test_casts() -> None:
    assert ops.cast(a, "int32") == Cast("int32", a)
    assert ops.cast(a, "float32") is a
    assert ops.cast(a, "bool") == ops.not_equal(a, 0)
    assert ops.cast(c, "bool") is c
    assert ops.cast(c, "int64") == Cast("int64", c)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "argmax", "argmin"])
def test_reductions(name: Any) -> None:
    assert getattr(ops, name)(a, over=p) == Reduce(name, a, (p,))
    assert getattr(ops, name)(c, over=p) == Reduce(name, Cast("int64", c), (p,))


@pytest.mark.parametrize("over", [(p, q), (q, p), [q, p]])
def test_outer_dims_come_first_whatever_the_order_given(over: Any) -> None:
    assert ops.sum(a * q, over=over) == Reduce("sum", a * q, (p, q))


def test_a_mean_divides_by_the_number_of_elements_and_is_zero_where_there_are_none() -> None:
    mean = ops.mean(a, over=p)
    assert isinstance(mean, Select)
    assert str(mean.cond) == "0 < max(lens[b], 0)"
    assert mean.other == Const(0.0, "float32")
    assert mean.dtype == "float32"
    assert ops.mean(n, over=p).dtype == "float32"
    assert ops.mean(d, over=p).dtype == "float64"
    compute("O", [b], mean)


def test_the_mean_over_dims_that_are_ragged_within_themselves_counts_them() -> None:
    mean = ops.mean(a * q, over=(p, q))
    assert isinstance(mean, Select)
    assert mean.cond == (Reduce("sum", Const(1), (p, q)) > 0)
    compute("O", [b], mean)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: ops.where(True, a, 0), "where: the condition is a Python bool, .*use cora.equal"),
        (lambda: ops.where(b == 0, a, 0), "where: the condition is a Python bool"),
        (lambda: ops.where(a, a, 0), "where: the condition must be bool; got A.b, p. of type float32"),
        (lambda: ops.where(1, a, 0), "where: the condition must be bool; got 1 of type int64"),
        (lambda: ops.where(a < 0, "x", 0), "expected a number or a cora expression; got str"),
        (lambda: ops.gelu(a, approximate="fast"), "gelu: approximate must be 'none' or 'tanh'; got 'fast'"),
        (lambda: ops.exp(n), "'exp' needs a floating-point operand; got N.b, p. of type int32: cast first"),
        (lambda: ops.sigmoid(c), "'sigmoid' needs .*of type bool"),
        (lambda: ops.abs(c), "'abs' .*of type bool"),
        (lambda: ops.minimum(c, c), "'min' is not defined on bool; cast first"),
        (lambda: ops.cast(a, "float16"), "cast: values have type .*; got 'float16' .*for storage"),
        (lambda: ops.cast(a, "int8"), "cast: values have type .*; got 'int8'"),
        (lambda: ops.cast(a, "string"), "cast: values have type .*; got 'string'"),
        (lambda: ops.sum(a, over=()), "sum: over= must be a Dim or a non-empty sequence of Dims; got ()"),
        (lambda: ops.sum(a, over=3), "sum: over= must be a Dim or .*; got 3"),
        (lambda: ops.max(a, over="p"), "max: over= must be a Dim or .*; got 'p'"),
        (lambda: ops.mean(a, over=[p, M]), "mean: over= must be a Dim or .*; got .p, M."),
        (lambda: ops.argmax(a, over=[p]), "argmax: over= must be one Dim; got .p."),
        (lambda: ops.argmin(a, over=(b, p)), "argmin: over= must be one Dim; got .b, p."),
    ],
)  # fmt: skip
def test_refusals(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        wrong()
