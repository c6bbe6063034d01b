"""Expressions: the one tree that definitions, extents, guards, offsets and kernels are written in.

Grammar (every node is frozen, hashable and compared by structure):

    expr := Const | Size | Dim | Var | Binary | Unary | Cast | Select
          | Call(ufun, args)            an uninterpreted function of the lengths (a length, A_d, ffo, ffi, ...)
          | Access(tensor, indices)     an element of a ragged tensor, by index            (definitions)
          | Reduce(op, body, over)      a reduction over dims                              (definitions)
          | Read(buffer, offset)        an element of a flat buffer                        (lowered programs)
          | Fma(a, b, c)                `a * b + c`, rounded once                          (lowered programs)
          | LaneReduce(op, buffer, offset, lanes)    `lanes` elements combined in a fixed order    (lowered programs)

`Select` is lazy: the branch not taken is not evaluated, so it may hold an access that would be illegal.
Integer division and modulo round towards minus infinity, as in Python.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, Union

import numpy as np

from cora.errors import UserError
from cora.ir import dtypes
from cora.ir.node import Node

if TYPE_CHECKING:
    from cora.ir.stmt import Buffer
    from cora.ir.tensor import Tensor
    from cora.ir.ufun import UFun

BinaryOp = Literal[
    "add", "sub", "mul", "div", "floordiv", "mod", "min", "max",
    "lt", "le", "eq", "ne", "and", "or",
]  # fmt: skip
UnaryOp = Literal[
    "neg", "abs", "not", "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "gelu", "gelu_tanh", "sigmoid",
]  # fmt: skip
ReduceOp = Literal["sum", "prod", "max", "min", "argmax", "argmin"]

COMPARISONS = frozenset({"lt", "le", "eq", "ne"})
LOGICAL = frozenset({"and", "or"})
FLOAT_MATH = frozenset({"exp", "log", "sqrt", "rsqrt", "tanh", "erf", "gelu", "gelu_tanh", "sigmoid"})

ExprLike: TypeAlias = Union["Expr", int, float, bool]


class Expr(Node):
    """Base of all expressions; carries the operators.

    `==` compares structure and gives a Python bool; the element-wise comparison is `cora.equal`.
    """

    __slots__ = ()
    # NumPy scalars and arrays on the left leave the operation to us, instead of taking us for an object.
    __array_ufunc__: ClassVar[None] = None

    @property
    def dtype(self) -> str:
        """The type of the value."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        raise UserError(
            f"the truth of {self} is not known while the program is defined: use cora.where, "
            "and & | ~ instead of and, or, not, chained comparisons"
        )

    def __iter__(self) -> Iterator[Expr]:
        raise UserError(f"{self} is a scalar expression and cannot be iterated over")

    def __add__(self, other: ExprLike) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary("mod", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return binary("mod", other, self)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __abs__(self) -> Expr:
        return unary("abs", self)

    def __lt__(self, other: ExprLike) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return binary("lt", other, self)

    def __ge__(self, other: ExprLike) -> Expr:
        return binary("le", other, self)

    def __and__(self, other: ExprLike) -> Expr:
        return binary("and", self, other)

    def __rand__(self, other: ExprLike) -> Expr:
        return binary("and", other, self)

    def __or__(self, other: ExprLike) -> Expr:
        return binary("or", self, other)

    def __ror__(self, other: ExprLike) -> Expr:
        return binary("or", other, self)

    def __invert__(self) -> Expr:
        return unary("not", self)

    def __str__(self) -> str:
        from cora.ir.printer import show

        return show(self)

    __repr__ = __str__


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(Expr):
    """A literal of type `type`."""

    value: int | float | bool
    type: str = dtypes.INDEX

    def _key(self) -> tuple[object, ...]:
        # repr tells -0.0 from 0.0, 1 from 1.0, and makes NaN equal to itself
        return repr(self.value), self.type

    def __reduce__(self) -> tuple[object, ...]:
        return Const, (self.value, self.type)

    @property
    def dtype(self) -> str:
        return self.type


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Size(Expr):
    """A run-time size: a non-negative integer that is bound, by name, when a batch arrives."""

    name: str

    @property
    def dtype(self) -> str:
        return dtypes.INDEX


@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class Dim(Expr):
    """A named dimension `name` of `extent`, used directly as an index.

    `extent` is an integer, a size, or an integer expression over sizes, lengths and *outer* dims:
    `lens[batch]`, `row + 1`, `cora.minimum(row + 1, w)`, `kv[batch] - q[batch] + i + 1`. A negative extent counts
    as 0. A dim whose extent mentions other dims is variable (a vdim, and the loop over it a vloop; paper section 3).
    Raises UserError if the name is no identifier, or the extent no integer expression of these. (Names that begin
    with % are the compiler's own.)
    """

    name: str
    extent: Expr

    def __init__(self, name: str, extent: ExprLike) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "extent", _dim_extent(name, extent))

    @property
    def dtype(self) -> str:
        return dtypes.INDEX


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(Expr):
    """A loop variable or a local value of a lowered program."""

    name: str
    type: str = dtypes.INDEX

    @property
    def dtype(self) -> str:
        return self.type


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(Expr):
    """`a op b`; both operands have one type, comparisons and logic give bool."""

    op: BinaryOp
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        try:
            return self._dtype
        except AttributeError:
            value = "bool" if self.op in COMPARISONS or self.op in LOGICAL else self.a.dtype
            object.__setattr__(self, "_dtype", value)
            return value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unary(Expr):
    """An element-wise function of one operand."""

    op: UnaryOp
    a: Expr

    @property
    def dtype(self) -> str:
        return self.a.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Expr):
    """`a` converted to `type` (floats to integers truncate towards zero)."""

    type: str
    a: Expr

    @property
    def dtype(self) -> str:
        return self.type


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(Expr):
    """`then` where `cond` holds, `other` elsewhere; only the branch taken is evaluated."""

    cond: Expr
    then: Expr
    other: Expr

    @property
    def dtype(self) -> str:
        return self.then.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expr):
    """An uninterpreted function applied to integer arguments; its table is an auxiliary array of the prelude."""

    fun: UFun
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        return dtypes.INDEX


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Access(Expr):
    """The element of `tensor` at `indices`, in the type used for arithmetic."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        return dtypes.compute_type(self.tensor.dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduce(Expr):
    """`op` of `body` over all valid values of the dims `over` (outer dims first)."""

    op: ReduceOp
    body: Expr
    over: tuple[Dim, ...]

    @property
    def dtype(self) -> str:
        return dtypes.INDEX if self.op in ("argmax", "argmin") else self.body.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Read(Expr):
    """The element of a flat buffer at `offset`, in the type used for arithmetic."""

    buffer: Buffer
    offset: Expr

    @property
    def dtype(self) -> str:
        return dtypes.compute_type(self.buffer.dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fma(Expr):
    """`a * b + c` of one floating-point type, rounded once."""

    a: Expr
    b: Expr
    c: Expr

    @property
    def dtype(self) -> str:
        return self.a.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LaneReduce(Expr):
    """`op` (sum, prod, max, min) of `buffer[offset .. offset + lanes]`, by halves: a fixed order of combination."""

    op: ReduceOp
    buffer: Buffer
    offset: Expr
    lanes: int

    @property
    def dtype(self) -> str:
        return dtypes.compute_type(self.buffer.dtype)


def _dim_extent(name: object, extent: ExprLike) -> Expr:
    """The extent of a dim as an index expression, checked."""
    from cora.ir.visit import walk

    internal = isinstance(name, str) and name.startswith("%")
    if not internal and not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise UserError(f"Dim: the name must be an identifier in ASCII; got {name!r}")
    value = wrap(extent)
    if not dtypes.is_int(value.dtype):
        raise UserError(f"Dim '{name}': the extent must be an integer; got {value} of type {value.dtype}")
    if isinstance(value, Const) and value.value < 0:
        raise UserError(f"Dim '{name}': the extent must not be negative; got {value}")
    if any(isinstance(node, (Access, Reduce)) for node in walk(value)):
        raise UserError(
            f"Dim '{name}': the extent must be an expression of sizes, lengths and outer dims; "
            f"got {value}, which reads a tensor or reduces (use cora.lengths for run-time lengths)"
        )
    return cast(dtypes.INDEX, value)


TRUE = Const(True, "bool")
FALSE = Const(False, "bool")
ZERO = Const(0)
ONE = Const(1)


def constant(value: int | float | bool, dtype: str) -> Const:
    """A literal converted to `dtype`."""
    match dtype:
        case "bool":
            return Const(bool(value), dtype)
        case _ if dtypes.is_float(dtype):
            return Const(float(value), dtype)
        case _:
            return Const(int(value), dtype)


def fits(value: int | float | bool, dtype: str) -> bool:
    """Whether `dtype` can hold `value`; always for a floating-point type, which rounds."""
    if not dtypes.is_int(dtype):
        return True
    return math.isfinite(value) and dtypes.lowest(dtype) <= value <= dtypes.highest(dtype)


def wrap(value: ExprLike, like: Expr | None = None) -> Expr:
    """`value` as an expression; a Python number takes the type of `like` where that loses nothing."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool):
        return Const(value, "bool")
    if isinstance(value, np.generic):
        return wrap(value.item(), like)
    if isinstance(value, int):
        if not fits(value, dtypes.INDEX):
            raise UserError(f"the integer {value} does not fit {dtypes.INDEX}")
        if like is not None and like.dtype != "bool" and fits(value, like.dtype):
            return constant(value, like.dtype)
        return Const(value)
    if isinstance(value, float):
        integral = like is None or not dtypes.is_float(like.dtype)
        return Const(value, "float32" if integral or like is None else like.dtype)
    raise UserError(f"expected a number or a cora expression; got {type(value).__name__}: {value!r}")


def cast(dtype: str, a: Expr) -> Expr:
    """`a` in type `dtype`; nothing where it has that type already."""
    if a.dtype == dtype:
        return a
    if isinstance(a, Const) and fits(a.value, dtype):
        return constant(a.value, dtype)
    return Cast(dtype, a)


def binary(op: BinaryOp, a: ExprLike, b: ExprLike) -> Expr:
    """`a op b` with the operands brought to one type, and trivial integer cases folded."""
    left = wrap(a, b if isinstance(b, Expr) else None)
    right = wrap(b, left)
    if op in LOGICAL:
        for side in (left, right):
            if side.dtype != "bool":
                raise UserError(f"'{op}' needs bool operands; got {side} of type {side.dtype}")
        return _logical(op, left, right)
    common = dtypes.promote(left.dtype, right.dtype)
    if op == "div" and not dtypes.is_float(common):
        common = "float32"
    if op in ("floordiv", "mod") and not dtypes.is_int(common):
        raise UserError(f"'{op}' is for integers; got {left.dtype} and {right.dtype}")
    if common == "bool" and op not in ("eq", "ne"):
        raise UserError(f"'{op}' is not defined on bool; cast first")
    left, right = cast(common, left), cast(common, right)
    return _fold_int(op, left, right) if dtypes.is_int(common) else Binary(op, left, right)


def unary(op: UnaryOp, a: ExprLike) -> Expr:
    """`op(a)`, checked against the type of `a`."""
    x = wrap(a)
    if op == "not":
        if x.dtype != "bool":
            raise UserError(f"'~' needs a bool; got {x} of type {x.dtype}")
        match x:
            case Const(value=v):
                return Const(not v, "bool")
            case Unary(op="not", a=inner):
                return inner
        return Unary(op, x)
    if x.dtype == "bool" or (op in FLOAT_MATH and not dtypes.is_float(x.dtype)):
        raise UserError(f"'{op}' needs a floating-point operand; got {x} of type {x.dtype}: cast first")
    if isinstance(x, Const) and op == "neg" and fits(-x.value, x.type):
        return constant(-x.value, x.type)
    return Unary(op, x)


def select(cond: Expr, then: ExprLike, other: ExprLike) -> Expr:
    """Lazy choice, both branches brought to one type."""
    a = wrap(then, other if isinstance(other, Expr) else None)
    b = wrap(other, a)
    common = dtypes.promote(a.dtype, b.dtype)
    a, b = cast(common, a), cast(common, b)
    match cond:
        case Const(value=True):
            return a
        case Const(value=False):
            return b
    return Select(cond, a, b)


def conjunction(terms: list[Expr]) -> Expr:
    """All of `terms`; TRUE for none."""
    result: Expr = TRUE
    for term in terms:
        result = _logical("and", result, term)
    return result


def ceildiv(a: Expr, b: int) -> Expr:
    """The smallest integer >= a / b."""
    return a if b == 1 else binary("floordiv", a + (b - 1), b)


def round_up(a: Expr, b: int) -> Expr:
    """The smallest multiple of `b` that is >= a."""
    return a if b == 1 else ceildiv(a, b) * b


def _logical(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    neutral = TRUE if op == "and" else FALSE
    if a in (neutral, b):
        return b
    if b == neutral:
        return a
    if isinstance(a, Const):
        return a
    if isinstance(b, Const):
        return b
    return Binary(op, a, b)


def _fold_int(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    match op, a, b:
        case _, Const(value=int(x)), Const(value=int(y)):
            folded = fold_constants(op, x, y, a.dtype)
            # What overflows is left to the machine.
            return folded if fits(folded.value, folded.type) else Binary(op, a, b)
        case "add", Const(value=0), x:
            return x
        case "add" | "sub", x, Const(value=0):
            return x
        case "mul", Const(value=0), _:
            return a
        case "mul", _, Const(value=0):
            return b
        case "mul", Const(value=1), x:
            return x
        case "mul" | "floordiv", x, Const(value=1):
            return x
        case "mod", _, Const(value=1):
            return constant(0, a.dtype)
        case "floordiv" | "mod", _, Const(value=0):
            raise UserError(f"integer division of {a} by zero")
        case "min" | "max", _, _ if a == b:
            return a
    return Binary(op, a, b)


def fold_constants(op: BinaryOp, x: int, y: int, dtype: str) -> Const:
    """The value of `x op y` for two integer literals."""
    match op:
        case "add":
            return Const(x + y, dtype)
        case "sub":
            return Const(x - y, dtype)
        case "mul":
            return Const(x * y, dtype)
        case "floordiv" | "mod":
            if y == 0:
                raise UserError("integer division by zero in a constant expression")
            return Const(x // y if op == "floordiv" else x % y, dtype)
        case "min":
            return Const(min(x, y), dtype)
        case "max":
            return Const(max(x, y), dtype)
        case "lt":
            return Const(x < y, "bool")
        case "le":
            return Const(x <= y, "bool")
        case "eq":
            return Const(x == y, "bool")
        case "ne":
            return Const(x != y, "bool")
    raise UserError(f"'{op}' is not an integer operation")
