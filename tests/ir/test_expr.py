"""Expressions: promotion, folding, refusals, structural equality, pickling, printing."""

from __future__ import annotations

import copy
import math
import operator
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cora.errors import CoraError, UserError
from cora.ir import dtypes
from cora.ir.expr import (
    FALSE,
    TRUE,
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    LaneReduce,
    Node,
    Read,
    Reduce,
    Select,
    Size,
    Unary,
    Var,
    binary,
    cast,
    ceildiv,
    conjunction,
    constant,
    fold_constants,
    round_up,
    select,
    unary,
    wrap,
)
from cora.ir.stmt import Buffer
from cora.ir.tensor import Tensor
from cora.ir.ufun import Given, UFun, cuts, formal, fusion_maps, maximum_over, scan
from cora.ir.visit import (
    children,
    free_dims,
    free_vars,
    rebuild,
    sizes_of,
    substitute,
    transform,
    walk,
)

M = Size("M")
b = Dim("b", M)
LENS = UFun("lens", (formal(0, M),), Given())
p = Dim("p", LENS(b))
F32 = Tensor("A", (b, p), "float32")[b, p]
F64 = Tensor("D", (b,), "float64")[b]
F16 = Tensor("H", (b,), "float16")[b]
BF16 = Tensor("G", (b,), "bfloat16")[b]
I8 = Tensor("E", (b,), "int8")[b]
I32 = Tensor("I", (b,), "int32")[b]
I64 = Tensor("L", (b,), "int64")[b]
BOOL = Tensor("C", (b,), "bool")[b]
x, y, z = Var("x"), Var("y"), Var("z")

# --- types ---------------------------------------------------------------------------------------


def test_values_are_loaded_in_the_type_of_arithmetic() -> None:
    assert [e.dtype for e in (F32, F64, F16, BF16, I8, I32, I64, BOOL)] == [
        "float32", "float64", "float32", "float32", "int32", "int32", "int64", "bool",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("a", "c", "expected"),
    [
        (F32, F64, "float64"),
        (F32, F16, "float32"),
        (I8, I32, "int32"),
        (I32, I64, "int64"),
        (I64, F32, "float32"),
        (b, I32, "int64"),
        (BOOL, F32, "float32"),
        (BOOL, I32, "int32"),
        (F32, 2, "float32"),
        (F64, 2.5, "float64"),
        (2, F64, "float64"),
        (2.5, I64, "float32"),
        (I32, 2, "int32"),
        (I32, 2**40, "int64"),
        (b, np.int32(2), "int64"),
        (np.float64(0.5), F32, "float32"),
    ],
)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "min", "max"])
def test_promotion(op: Any, a: Any, c: Any, expected: str) -> None:
    result = binary(op, a, c)
    assert result.dtype == expected
    assert isinstance(result, Binary)
    assert result.a.dtype == result.b.dtype == expected


def test_division_of_integers_is_in_float32() -> None:
    assert (I64 / I32).dtype == "float32"
    assert (b / 2).dtype == "float32"
    assert (F64 / 2).dtype == "float64"
    assert (I64 // 2).dtype == "int64"


@pytest.mark.parametrize("op", ["lt", "le", "eq", "ne"])
def test_comparisons_are_bool(op: Any) -> None:
    assert binary(op, F32, I64).dtype == "bool"


def test_select_brings_its_branches_to_one_type() -> None:
    chosen = select(BOOL, I32, 0.5)
    assert chosen.dtype == "float32"
    assert isinstance(chosen, Select)
    assert chosen.then == Cast("float32", I32)
    assert select(BOOL, 1, F64).dtype == "float64"
    assert select(BOOL, BOOL, True).dtype == "bool"


def test_argmax_gives_an_index_and_max_a_value() -> None:
    assert Reduce("argmax", F32, (p,)).dtype == "int64"
    assert Reduce("max", F32, (p,)).dtype == "float32"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, Const(3, "int64")),
        (True, Const(True, "bool")),
        (0.5, Const(0.5, "float32")),
        (np.float64(0.5), Const(0.5, "float32")),
        (np.int8(3), Const(3, "int64")),
        (np.bool_(True), Const(True, "bool")),
    ],
)
def test_wrapped_literals(value: Any, expected: Const) -> None:
    assert wrap(value) == expected
    assert type(wrap(value).value) is type(expected.value)  # type: ignore[attr-defined]


def test_numpy_scalars_on_the_left_are_literals() -> None:
    assert np.float32(2) * F32 == 2.0 * F32
    assert (np.int64(2) < b) == (b > 2)


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: bool(b < 3), r"the truth of b < 3 is not known .* use cora\.where"),
        (lambda: 0 <= b < 3, "chained comparisons"),
        (lambda: (b < 3) and (b > 1), "& | ~ instead of and, or, not"),
        (lambda: list(F32), r"A\[b, p\] is a scalar expression and cannot be iterated"),
        (lambda: F32 + "a", "expected a number or a cora expression; got str: 'a'"),
        (lambda: F32 + None, "got NoneType"),
        (lambda: F32 * np.ones(2), "got ndarray"),
        (lambda: np.ones(2) * F32, "got ndarray"),
        (lambda: F32 + np.array(1.0), "got ndarray"),
        (lambda: F32 + Tensor("T", (b,), "float32"), "got Tensor: T"),
        (lambda: b + 2**63, "the integer 9223372036854775808 does not fit int64"),
        (lambda: (b < 3) & F32, r"'and' needs bool operands; got A\[b, p\] of type float32"),
        (lambda: 1 | (b < 3), "'or' needs bool operands; got 1 of type int64"),
        (lambda: ~F32, r"'~' needs a bool; got A\[b, p\] of type float32"),
        (lambda: F32 // 2, "'floordiv' is for integers; got float32 and float32"),
        (lambda: I32 % 2.0, "'mod' is for integers; got int32 and float32"),
        (lambda: BOOL + BOOL, "'add' is not defined on bool; cast first"),
        (lambda: BOOL < BOOL, "'lt' is not defined on bool; cast first"),
        (lambda: -BOOL, "'neg' .*got C.b. of type bool: cast first"),
        (lambda: abs(BOOL), "'abs' .*got C.b. of type bool: cast first"),
        (lambda: unary("exp", b), "'exp' needs a floating-point operand; got b of type int64"),
        (lambda: unary("erf", BOOL), "'erf' .*of type bool"),
        (lambda: b // 0, "integer division of b by zero"),
        (lambda: b % 0, "integer division of b by zero"),
        (lambda: Const(3) // 0, "integer division by zero in a constant expression"),
        (lambda: fold_constants("and", 1, 2, "int64"), "'and' is not an integer operation"),
        (lambda: dtypes.check_stored("uint8", "here"), "here: dtype must be one of .*got 'uint8'"),
        (lambda: dtypes.check_stored(np.dtype("int8"), "here"), "here: dtype must be one of"),
        (lambda: dtypes.from_numpy(np.dtype("complex64")), "array: dtype must be one of"),
    ],
)  # fmt: skip
def test_refusals(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        wrong()
    assert isinstance(caught.value, CoraError)


# --- folding -------------------------------------------------------------------------------------

SMALL = st.integers(-12, 12)
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": min,
    "max": max,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
}


@given(st.sampled_from(sorted(OPERATIONS)), SMALL, SMALL)
@settings(deadline=None, derandomize=True, max_examples=300)
def test_two_literals_fold_to_what_python_computes(op: Any, left: int, right: int) -> None:
    if op in ("floordiv", "mod") and right == 0:
        with pytest.raises(UserError, match="by zero"):
            binary(op, Const(left), Const(right))
        return
    folded = binary(op, Const(left), Const(right))
    expected = OPERATIONS[op](left, right)
    assert folded == Const(expected, "bool" if isinstance(expected, bool) else "int64")


def value_of(e: Expr, at: dict[str, int]) -> Any:
    """Plain Python evaluation of integer expressions over variables, without any folding."""
    match e:
        case Const(value=v):
            return v
        case Var(name=name):
            return at[name]
        case Binary(op="and", a=a, b=c):
            return value_of(a, at) and value_of(c, at)
        case Binary(op="or", a=a, b=c):
            return value_of(a, at) or value_of(c, at)
        case Binary(op=op, a=a, b=c):
            return OPERATIONS[op](value_of(a, at), value_of(c, at))
        case Unary(op="neg", a=a):
            return -value_of(a, at)
        case Unary(op="not", a=a):
            return not value_of(a, at)
        case Unary(op="abs", a=a):
            return abs(value_of(a, at))
        case Select(cond=c, then=t, other=o):
            return value_of(t if value_of(c, at) else o, at)
    raise AssertionError(e)


@st.composite
def pairs(draw: st.DrawFn, depth: int = 4) -> tuple[Expr, Expr]:
    """The same random integer expression twice: with folding, and from raw nodes without."""
    kind = draw(st.sampled_from(["leaf", "binary", "neg", "select"])) if depth else "leaf"
    if kind == "leaf":
        leaf = draw(st.sampled_from([x, y, z, *(Const(v) for v in (-2, -1, 0, 1, 2, 7))]))
        return leaf, leaf
    folded, raw = draw(pairs(depth=depth - 1))
    other_folded, other_raw = draw(pairs(depth=depth - 1))
    if kind == "neg":
        return -folded, Unary("neg", raw)
    if kind == "select":
        op = draw(st.sampled_from(["lt", "le", "eq", "ne"]))
        join = draw(st.sampled_from(["and", "or"]))
        left, right = binary(op, folded, other_folded), binary("lt", folded, x)
        raw_cond = Binary(join, Binary(op, raw, other_raw), Binary("lt", raw, x))
        return (
            select(binary(join, left, right), folded, other_folded),
            Select(raw_cond, raw, other_raw),
        )
    op = draw(st.sampled_from(["add", "sub", "mul", "min", "max", "floordiv", "mod"]))
    if op in ("floordiv", "mod"):
        by = draw(st.sampled_from([-3, -1, 1, 2, 5]))
        return binary(op, folded, by), Binary(op, raw, Const(by))
    return binary(op, folded, other_folded), Binary(op, raw, other_raw)


@given(pairs(), SMALL, SMALL, SMALL)
@settings(deadline=None, derandomize=True, max_examples=300)
def test_folding_keeps_the_value(pair: tuple[Expr, Expr], vx: int, vy: int, vz: int) -> None:
    folded, raw = pair
    at = {"x": vx, "y": vy, "z": vz}
    assert value_of(folded, at) == value_of(raw, at)


@given(pairs(), SMALL, SMALL, SMALL)
@settings(deadline=None, derandomize=True, max_examples=300)
def test_what_is_printed_means_in_python_what_it_meant(
    pair: tuple[Expr, Expr], vx: int, vy: int, vz: int
) -> None:
    at = {"x": vx, "y": vy, "z": vz}
    names = {"where": lambda c, t, o: t if c else o, "min": min, "max": max}
    for e in pair:
        assert eval(str(e), {"__builtins__": names}, at) == value_of(e, at)


def test_trivial_cases_fold() -> None:
    assert x + 0 is x
    assert 0 + x is x
    assert x - 0 is x
    assert x * 1 is x
    assert 1 * x is x
    assert x // 1 is x
    assert x * 0 == Const(0)
    assert x % 1 == Const(0)
    assert binary("min", x, x) is x
    assert ~~(x < y) == (x < y)
    assert ~TRUE == FALSE
    assert (TRUE & (x < y)) == (x < y)
    assert (FALSE & (x < y)) == FALSE
    assert (FALSE | (x < y)) == (x < y)
    assert (TRUE | (x < y)) == TRUE
    assert select(TRUE, x, y) is x
    assert select(FALSE, x, y) is y
    assert -Const(3) == Const(-3)
    assert conjunction([]) == TRUE
    assert conjunction([TRUE, x < y, x < y]) == (x < y)


def test_floats_do_not_fold() -> None:
    # x * 0.0 is NaN for infinities, x + 0.0 turns -0.0 into 0.0.
    assert isinstance(F32 * 0.0, Binary)
    assert isinstance(F32 + 0.0, Binary)
    assert isinstance(binary("min", F32, F32), Binary)


def test_an_overflow_is_not_folded_into_a_literal_that_its_type_cannot_hold() -> None:
    top = constant(2**31 - 1, "int32")
    assert isinstance(top + constant(1, "int32"), Binary)
    assert isinstance(-constant(-(2**31), "int32"), Unary)
    assert isinstance(cast("int32", Const(2**40)), Cast)
    assert isinstance(cast("int32", Const(math.inf, "float32")), Cast)
    assert isinstance(cast("int64", Const(math.nan, "float32")), Cast)


def test_casts() -> None:
    assert cast("float32", F32) is F32
    assert cast("int64", Const(-2.7, "float32")) == Const(-2)
    assert cast("float64", Const(3)) == Const(3.0, "float64")
    assert cast("bool", Const(2)) == TRUE
    assert cast("int64", I32) == Cast("int64", I32)


@given(st.integers(0, 1000), st.integers(1, 64))
@settings(deadline=None, derandomize=True)
def test_rounding_up(n: int, k: int) -> None:
    assert ceildiv(Const(n), k) == Const(-(-n // k))
    assert round_up(Const(n), k) == Const(-(-n // k) * k)


# --- identity ------------------------------------------------------------------------------------

BUFFER = Buffer("buf", "float32", M, "input")
ROW_STARTS = scan((), b, LENS(b))
NODES: list[Expr] = [
    Const(1), Const(1.0, "float32"), Const(True, "bool"), M, b, p, x, x + y, -x, I32 + b, F32,
    select(x < y, x, y), LENS(b), Reduce("sum", F32, (p,)), Read(BUFFER, x),
    LaneReduce("sum", BUFFER, x, 8), ROW_STARTS(b), fusion_maps(ROW_STARTS)[0](x),
    fusion_maps(ROW_STARTS)[1](x), maximum_over((b,), LENS(b))(), cuts(ROW_STARTS, Const(4))(x),
]  # fmt: skip


@pytest.mark.parametrize("node", NODES, ids=str)
def test_copies_are_equal(node: Expr) -> None:
    for twin in (pickle.loads(pickle.dumps(node)), copy.deepcopy(node)):
        assert twin == node
        assert hash(twin) == hash(node)
        assert str(twin) == str(node)


def test_all_nodes_differ() -> None:
    assert len(set(NODES)) == len(NODES)


def test_pickles_do_not_carry_the_hash_of_another_process() -> None:
    dumped = pickle.dumps(F32 + 1)
    source = (
        "import pickle; from cora.ir.expr import *; from cora.ir.tensor import Tensor; "
        "from cora.ir.ufun import *; M = Size('M'); b = Dim('b', M); "
        "p = Dim('p', UFun('lens', (formal(0, M),), Given())(b)); "
        f"e = Tensor('A', (b, p), 'float32')[b, p] + 1; l = pickle.loads({dumped!r}); "
        "assert e == l and hash(e) == hash(l) and len({e, l}) == 1"
    )
    subprocess.run([sys.executable, "-c", source], check=True)


def test_equality_is_structural_and_typed() -> None:
    assert Const(0.0, "float32") != Const(-0.0, "float32")
    assert Const(math.nan, "float32") == Const(math.nan, "float32")
    assert Const(1, "int32") != Const(1, "int64")
    assert Const(1) != 1
    assert Var("b") != Dim("b", M)
    assert Dim("b", M) == Dim("b", Size("M"))
    assert Dim("b", M) != Dim("b", M + 1)
    assert x + y != y + x
    assert (b == 3) is False  # not element-wise: that is cora.equal
    assert Tensor("A", (b,), "float32") != Tensor("A", (b,), "float32", F32)


def test_equal_functions_of_different_dims_are_equal() -> None:
    r = Dim("row", M)
    assert scan((), b, LENS(b)) == scan((), r, LENS(r))


def test_nodes_are_frozen() -> None:
    with pytest.raises(AttributeError):
        b.name = "c"  # type: ignore[misc]


def test_a_shared_expression_hashes_in_linear_time() -> None:
    e: Expr = x
    for _ in range(200):
        e = e + e
    twin: Expr = x
    for _ in range(200):
        twin = twin + twin
    assert hash(e) == hash(twin)


# --- printing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (x + y * z, "x + y * z"),
        ((x + y) * z, "(x + y) * z"),
        (x - (y - z), "x - (y - z)"),
        (x - y - z, "x - y - z"),
        (x // (y * z), "x // (y * z)"),
        (-(x + y), "-(x + y)"),
        ((x < y) & (y < z), "(x < y) & (y < z)"),
        (~((x < y) | (y < z)), "~((x < y) | (y < z))"),
        (binary("eq", x < y, y < z), "(x < y) == (y < z)"),
        (binary("min", x, y + 1), "min(x, y + 1)"),
        (binary("max", x, 0) * 2, "max(x, 0) * 2"),
        (select(x < y, x, y), "where(x < y, x, y)"),
        (I32 + b, "int64(I[b]) + b"),
        (unary("exp", F32), "exp(A[b, p])"),
        (Reduce("sum", F32, (b, p)), "sum(A[b, p], over=(b, p))"),
        (LENS(b) + 1, "lens[b] + 1"),
        (Read(BUFFER, x + 1), "buf[x + 1]"),
        (LaneReduce("max", BUFFER, x, 8), "max(buf[x : x + 8])"),
    ],
)
def test_printing(e: Expr, text: str) -> None:
    assert str(e) == text == repr(e)


def test_printing_of_tensors_and_functions() -> None:
    assert str(F32.tensor) == "A[b, p]: float32"
    assert str(ROW_STARTS) == "offset"
    assert str(LENS) == "lens"


# --- walking -------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", NODES, ids=str)
def test_rebuilding_from_its_children_gives_the_node(node: Expr) -> None:
    assert rebuild(node, children(node)) == node
    assert transform(node, lambda e: None) is node
    assert substitute(node, {Var("elsewhere"): x}) is node


def test_walk_is_outermost_first() -> None:
    assert [str(n) for n in walk(x + y * z)] == ["x + y * z", "x", "y * z", "y", "z"]


def test_substitution_folds_and_does_not_repeat() -> None:
    assert substitute(x + y, {x: Const(1), y: Const(2)}) == Const(3)
    assert substitute(x + y, {x: y, y: x}) == y + x
    assert substitute(F32, {p: p - 1}) == Access(F32.tensor, (b, p - 1))


def test_transform_sees_rewritten_children() -> None:
    def rule(e: Expr) -> Expr | None:
        return Const(0) if e == x or e == Const(0) - y else None

    assert transform((x - y) * z, rule) == Const(0)


def test_free_dims_and_variables() -> None:
    q = Dim("q", p + 1)
    assert free_dims(F32) == {b, p}
    assert free_dims(Reduce("sum", F32, (p,))) == {b}
    assert free_dims(Reduce("sum", x, (p,))) == {b}  # through the extent
    assert free_dims(Reduce("sum", F32 * q, (p, q))) == {b}
    assert free_dims(LENS(b) + M) == {b}
    assert free_vars(x + y * x) == {x, y}
    assert sizes_of(M + LENS(b)) == {M}


def test_scans_number_their_dims_and_have_one_entry_more() -> None:
    j = Dim("j", LENS(b))
    fun = scan((b,), j, LENS(b) + j)
    assert [d.name for d in fun.domain] == ["%0", "%1"]
    assert fun.domain[1].extent == LENS(fun.domain[0]) + 1
    assert fun.dtype == "int64"
    assert all(isinstance(f, Node) and f.dtype == "int32" for f in fusion_maps(fun))
    assert isinstance(fun(b, j), Call)
