"""The reference meaning of index expressions: their value for one concrete batch, in plain Python.

It is the oracle of the native prelude, and what the refuter, ragged arrays and the interpreter
compute shapes with. Integers are unbounded; division rounds towards minus infinity.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapreplace
from typing import Any, TypeAlias

from cora.errors import InternalError, UnsupportedError, UserError
from cora.ir import dtypes
from cora.ir.expr import Binary, Call, Cast, Const, Dim, Expr, Select, Size, Unary
from cora.ir.ufun import (
    Cuts,
    Descending,
    FusedInner,
    FusedOuter,
    Given,
    Lists,
    Maximum,
    Owners,
    Scan,
    Starts,
    UFun,
)

Number: TypeAlias = int | float | bool
Env: TypeAlias = Mapping[Expr, Number]
_Code: TypeAlias = Callable[[Env], Any]

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
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
_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "abs": operator.abs,
    "not": operator.not_,
}


class Evaluator:
    """Values of expressions and functions for one batch.

    `sizes` gives every run-time size by name; `lengths` every given length function, as a flat
    sequence in row-major order over its domain, or nested by rows (lists or arrays). Do not change
    them afterwards. Values of functions are remembered: n lengths cost O(n), not O(n^2). `budget` is how
    many terms of sums and maxima may be evaluated (None: any number); after that, UserError.
    """

    def __init__(
        self, sizes: Mapping[str, int], lengths: Mapping[str, Any], budget: int | None = None
    ) -> None:
        self._budget = budget
        self._sizes = sizes
        self._lengths = lengths
        self._code: dict[Expr, _Code] = {}
        self._values: dict[tuple[UFun, tuple[int, ...]], int] = {}
        self._sums: dict[tuple[UFun, tuple[int, ...]], list[int]] = {}
        self._given: dict[UFun, tuple[list[int], dict[tuple[int, ...], int]]] = {}

    def value(self, expr: Expr, env: Env | None = None) -> Any:
        """The value of `expr` (int, float or bool) where `env` gives its dims and variables.

        A term that is not an index expression (an Access, a Read) is looked up in `env` as a whole.
        Raises UserError for a size, a length function or a variable without a value, for a length
        array that does not fit its domain, and for a division by zero; UnsupportedError for
        floating-point functions.
        """
        try:
            return self._compile(expr)(env if env is not None else {})
        except ZeroDivisionError:
            raise UserError(f"integer division by zero in {expr}") from None

    def call(self, fun: UFun, args: tuple[int, ...]) -> int:
        """`fun(args)` by its definition; 0 outside its domain."""
        key = fun, args
        known = self._values.get(key)
        if known is None:
            known = self._define(fun, args) if self._inside(fun, args) else 0
            self._values[key] = known
        return known

    def table(self, fun: UFun) -> list[int]:
        """All values of `fun` over its domain, row-major: the content of its auxiliary array."""
        return [self.call(fun, point) for point in self.points(fun.domain)]

    def points(
        self, dims: Sequence[Dim], env: Env | None = None, prefix: tuple[int, ...] = ()
    ) -> Iterator[tuple[int, ...]]:
        """All points of the ragged domain `dims`, row-major, given the values `env` around it."""
        if not dims:
            yield prefix
            return
        scope = dict(env or {})
        first, rest = dims[0], dims[1:]
        for index in range(int(self.value(first.extent, scope))):
            if rest:
                scope[first] = index
                yield from self.points(rest, scope, (*prefix, index))
            else:
                yield (*prefix, index)

    def _terms(self, over: tuple[Dim, ...], body: Expr) -> Iterator[int]:
        for point in self.points(over):
            self._spend()
            yield int(self.value(body, dict(zip(over, point, strict=True))))

    def _spend(self) -> None:
        if self._budget is not None:
            self._budget -= 1
            if self._budget < 0:
                raise UserError("the sums and maxima have more terms than may be evaluated")

    def _inside(self, fun: UFun, args: tuple[int, ...]) -> bool:
        if len(args) != len(fun.domain):
            raise InternalError(f"{fun.name}: expected {len(fun.domain)} arguments; got {len(args)}")
        scope: dict[Expr, Number] = {}
        for dim, arg in zip(fun.domain, args, strict=True):
            if not 0 <= arg < self.value(dim.extent, scope):
                return False
            scope[dim] = arg
        return True

    def _define(self, fun: UFun, args: tuple[int, ...]) -> int:
        """`fun(args)` inside its domain."""
        match fun.definition:
            case Given():
                flat, starts = self._lengths_of(fun)
                return flat[starts[args[:-1]] + args[-1]] if args else flat[0]
            case Scan():
                return self._prefix_sums(fun, args[:-1])[args[-1]]
            case FusedOuter(offset=offset):
                return bisect_right(self._prefix_sums(offset, args[:-1]), args[-1]) - 1
            case FusedInner(offset=offset):
                row = bisect_right(self._prefix_sums(offset, args[:-1]), args[-1]) - 1
                return args[-1] - self.call(offset, (*args[:-1], row))
            case Maximum(over=over, body=body):
                return max(self._terms(over, body), default=0)
            case Cuts(cost=cost, parts=parts):
                return self._cut(cost, int(self.value(parts)), args[0])
            case Descending() | Owners() | Lists() | Starts():
                return self._ordered(fun)[args[0]]

    def _prefix_sums(self, fun: UFun, outer: tuple[int, ...]) -> list[int]:
        """`[fun(outer, 0), fun(outer, 1), ...]` for a Scan."""
        key = fun, outer
        sums = self._sums.get(key)
        if sums is None:
            if not isinstance(fun.definition, Scan):
                raise InternalError(f"{fun.name}: expected a Scan; got {fun.definition}")
            index, body = fun.definition.index, fun.definition.body
            scope: dict[Expr, Number] = dict(zip(fun.domain[:-1], outer, strict=True))
            sums = [0]
            for r in range(int(self.value(index.extent, scope))):
                self._spend()
                sums.append(sums[-1] + int(self.value(body, {**scope, index: r})))
            self._sums[key] = sums
        return sums

    def _cut(self, cost: UFun, parts: int, w: int) -> int:
        sums = self._prefix_sums(cost, ())
        if w == 0:
            return 0
        if w == parts:
            return len(sums) - 1
        target = w * sums[-1]
        r = bisect_left(sums, target, key=lambda c: c * parts)
        before = r > 0 and target - sums[r - 1] * parts <= sums[r] * parts - target
        return r - 1 if before else r

    def _ordered(self, fun: UFun) -> list[int]:
        """All values of a function that orders rows, or gives them to workers."""
        values = self._sums.get((fun, ()))
        if values is None:
            match fun.definition:
                case Descending(cost=cost):
                    sums = self._prefix_sums(cost, ())
                    values = sorted(range(len(sums) - 1), key=lambda r: (sums[r] - sums[r + 1], r))
                case Owners(order=order, parts=parts):
                    values = self._owners(order, int(self.value(parts)))
                case Lists(owners=owners):
                    owner = self._ordered(owners)
                    values = sorted(range(len(owner)), key=lambda r: (owner[r], r))
                case Starts(owners=UFun(definition=Owners(parts=parts)) as owners):
                    owner = sorted(self._ordered(owners))
                    values = [bisect_left(owner, w) for w in range(int(self.value(parts)) + 1)]
                case other:
                    raise InternalError(f"{fun.name}: expected an order of rows; got {other}")
            self._sums[fun, ()] = values
        return values

    def _owners(self, order: UFun, parts: int) -> list[int]:
        """Each row to the worker with the least work so far."""
        assert isinstance(order.definition, Descending)
        sums = self._prefix_sums(order.definition.cost, ())
        work = [(0, worker) for worker in range(parts)]  # a heap
        values = [0] * (len(sums) - 1)
        for r in self._ordered(order) if work else []:
            load, values[r] = work[0]
            heapreplace(work, (load + sums[r + 1] - sums[r] + 1, values[r]))
        return values

    def _lengths_of(self, fun: UFun) -> tuple[list[int], dict[tuple[int, ...], int]]:
        """The flat values of a given length function, and where each of its rows starts in them."""
        found = self._given.get(fun)
        if found is None:
            if fun.name not in self._lengths:
                raise UserError(f"lengths '{fun.name}': no values were given")
            flat = _flatten(self._lengths[fun.name], fun.name)
            starts: dict[tuple[int, ...], int] = {}
            total = 0 if fun.domain else 1
            for row in self.points(fun.domain[:-1]):
                if fun.domain:
                    scope: dict[Expr, Number] = dict(zip(fun.domain[:-1], row, strict=True))
                    starts[row] = total
                    total += max(int(self.value(fun.domain[-1].extent, scope)), 0)
            if fun.definition == Given(permutation=True) and sorted(flat) != list(range(total)):
                raise UserError(
                    f"permutation '{fun.name}': expected each of 0..{total - 1} once; got {flat[:8]}"
                    + ("..." if len(flat) > 8 else "")
                )
            if len(flat) != total:
                raise UserError(
                    f"lengths '{fun.name}': expected {total} values, one for each index of "
                    f"[{', '.join(str(d.extent) for d in fun.domain)}]; got {len(flat)}"
                )
            found = self._given[fun] = flat, starts
        return found

    def _compile(self, expr: Expr) -> _Code:
        code = self._code.get(expr)
        if code is None:
            code = self._code[expr] = self._code_of(expr)
        return code

    def _code_of(self, expr: Expr) -> _Code:
        match expr:
            case Const(value=v):
                return lambda env: v
            case Size(name=name):
                if name not in self._sizes:
                    raise UserError(f"size '{name}': no value was given")
                n = int(self._sizes[name])
                return lambda env: n
            case Binary(op="and", a=a, b=b):
                x, y = self._compile(a), self._compile(b)
                return lambda env: x(env) and y(env)
            case Binary(op="or", a=a, b=b):
                x, y = self._compile(a), self._compile(b)
                return lambda env: x(env) or y(env)
            case Binary(op=op, a=a, b=b) if op in _BINARY:
                x, y, two = self._compile(a), self._compile(b), _BINARY[op]
                return lambda env: two(x(env), y(env))
            case Unary(op=op, a=a) if op in _UNARY:
                x, one = self._compile(a), _UNARY[op]
                return lambda env: one(x(env))
            case Cast(type=t, a=a):
                x = self._compile(a)
                to = bool if t == "bool" else float if dtypes.is_float(t) else int
                return lambda env: to(x(env))
            case Select(cond=c, then=a, other=b):
                return self._lazy(self._compile(c), a, b)
            case Call(fun=fun, args=args):
                codes = tuple(self._compile(a) for a in args)
                return lambda env: self.call(fun, tuple([code(env) for code in codes]))
            case Binary(op=op) | Unary(op=op):
                raise UnsupportedError(f"'{op}' is not an operation of index expressions: {expr}")
        return _lookup(expr)

    def _lazy(self, cond: _Code, then: Expr, other: Expr) -> _Code:
        # The branches are compiled when they are first taken: one may use a size that has no value.
        return lambda env: self._compile(then if cond(env) else other)(env)


def _lookup(expr: Expr) -> _Code:
    def code(env: Env) -> Number:
        try:
            return env[expr]
        except KeyError:
            raise UserError(f"{expr}: no value was given") from None

    return code


def _flatten(values: Any, name: str) -> list[int]:
    """A flat or nested sequence of non-negative integers as one list."""
    rows = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(rows, (list, tuple)) and all(type(v) is int for v in rows):
        flat = list(rows)
    elif isinstance(rows, (list, tuple)):
        flat = [v for row in rows for v in _flatten(row, name)]
    else:
        try:
            flat = [operator.index(rows)]
        except TypeError:
            raise UserError(
                f"lengths '{name}': expected integers; got {type(rows).__name__}: {rows!r}"
            ) from None
    for position, v in enumerate(flat):
        if v < 0:
            raise UserError(f"lengths '{name}': a length must be >= 0; got {v} at {position}")
    return flat
