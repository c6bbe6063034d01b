"""Connectives: negation pushed inwards, and the preparation of goals and contexts for all methods."""

from __future__ import annotations

from itertools import combinations

from cora.ir import dtypes
from cora.ir.expr import (
    TRUE,
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    LaneReduce,
    Read,
    Reduce,
    Select,
    Unary,
    Var,
    binary,
    conjunction,
    unary,
)
from cora.ir.poly import polynomial
from cora.ir.visit import children, rebuild
from cora.prove.context import Context, Range


def negate(e: Expr) -> Expr:
    """The negation of a bool expression, pushed down to its comparisons (of integers)."""
    match e:
        case Unary(op="not", a=a):
            return a
        case Binary(op="and", a=a, b=b):
            return binary("or", negate(a), negate(b))
        case Binary(op="or", a=a, b=b):
            return binary("and", negate(a), negate(b))
        case Binary(op="lt", a=a, b=b) if dtypes.is_int(a.dtype):
            return binary("le", b, a)
        case Binary(op="le", a=a, b=b) if dtypes.is_int(a.dtype):
            return binary("lt", b, a)
        case Binary(op="eq", a=a, b=b):
            return binary("ne", a, b)
        case Binary(op="ne", a=a, b=b):
            return binary("eq", a, b)
    return unary("not", e)


def prepare(goal: Expr, context: Context) -> tuple[Expr, Context]:
    """The same question with arguments of calls in normal form and terms out of data as variables.

    An element of a tensor (and what 32-bit arithmetic, which may overflow, makes of it) is an integer about
    which only the assumptions speak; equal indices give equal elements.
    """
    opaque = _Opaque()
    ranges = tuple(Range(opaque(r.var), _end(opaque(r.end))) for r in context.ranges)
    assumptions = [opaque(a) for a in context.assumptions]
    new_goal = opaque(goal)
    return new_goal, Context(ranges, (*assumptions, *opaque.congruences()))


def _end(end: Expr) -> Expr:
    """Inside `0 <= v < max(e, 0)`, e is positive: the clamp can be left out."""
    match end:
        case Binary(op="max", a=a, b=Const(value=c)) if c <= 0:
            return _end(a)
        case Binary(op="max", a=Const(value=c), b=b) if c <= 0:
            return _end(b)
    return end


class _Opaque:
    def __init__(self) -> None:
        self._memo: dict[Expr, Expr] = {}
        self._names: dict[str, Expr] = {}
        self._elements: dict[Expr, tuple[object, tuple[Expr, ...]]] = {}

    def __call__(self, e: Expr) -> Expr:
        done = self._memo.get(e)
        if done is None:
            done = self._memo[e] = self._rewrite(e)
        return done

    def congruences(self) -> list[Expr]:
        """For each two elements of one tensor: equal indices, equal values."""
        found = []
        for (x, (source, i)), (y, (other, j)) in combinations(self._elements.items(), 2):
            if source == other:
                same = conjunction([binary("eq", a, b) for a, b in zip(i, j, strict=True)])
                found.append(binary("or", negate(same), binary("eq", x, y)))
        return found

    def _rewrite(self, e: Expr) -> Expr:
        match e:
            case Access(tensor=tensor, indices=indices):
                return self._element(e, tensor, indices)
            case Read(buffer=buffer, offset=offset):
                return self._element(e, buffer, (offset,))
            case Reduce() | LaneReduce():
                return self._variable(e)
            case Call(fun=fun, args=args):
                return Call(fun, tuple(polynomial(self(a)).expr() for a in args))
        parts = children(e)
        if parts and not _exact(e):
            return self._variable(e)
        new = tuple(self(p) for p in parts)
        return e if all(a is b for a, b in zip(parts, new, strict=True)) else rebuild(e, new)

    def _variable(self, e: Expr) -> Expr:
        name = str(e)
        while name in self._names:
            name += "'"
        self._names[name] = e
        return Var(name, e.dtype)

    def _element(self, e: Expr, source: object, indices: tuple[Expr, ...]) -> Expr:
        variable = self._variable(e)
        if dtypes.is_int(e.dtype):
            self._elements[variable] = source, tuple(self(i) for i in indices)
        return variable


def _exact(e: Expr) -> bool:
    """Whether the operation at the root of `e` is one on unbounded integers and truth values."""
    match e:
        case Binary(op="add" | "sub" | "mul" | "floordiv", a=a):
            return a.dtype == dtypes.INDEX
        case Unary(op="neg" | "abs", a=a):
            return a.dtype == dtypes.INDEX
        case Binary(a=a):
            return a.dtype == "bool" or (dtypes.is_int(a.dtype) and e.op != "div")
        case Unary(op=op):
            return op == "not"
        case Cast(type=t, a=a):
            return t == dtypes.INDEX and (dtypes.is_int(a.dtype) or a.dtype == "bool")
        case Select():
            return e.dtype == "bool" or dtypes.is_int(e.dtype)
    return True


def conjuncts(e: Expr) -> list[Expr]:
    """The parts of a conjunction; none for TRUE."""
    match e:
        case Binary(op="and", a=a, b=b):
            return [*conjuncts(a), *conjuncts(b)]
    return [] if e == TRUE else [e]
