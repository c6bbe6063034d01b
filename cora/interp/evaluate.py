"""Evaluation of a definition at a list of points, on NumPy vectors.

The domain of a tensor is written out as a list of points; its body is evaluated at all of them at
once, operation by operation. A reduction follows every point by the indices it runs over, evaluates
its own body there, and combines the segments. `Select` evaluates each branch at the points that
take it, and nowhere else.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cora.errors import InternalError, UserError
from cora.interp import approx
from cora.interp.approx import Approx, Vector
from cora.interp.points import Domain, Indices, Points, enumerate_domain
from cora.interp.reference import Reference
from cora.ir import dtypes
from cora.ir.expr import (
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Reduce,
    Select,
    Size,
    Unary,
)
from cora.ir.tensor import Tensor
from cora.ir.ufun import Given, UFun
from cora.lang.check import reductions_of

# Points evaluated at once: bounds the memory, some hundred bytes a point.
_POINTS_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """The valid elements of a tensor or of a length function, in row-major order of the dims."""

    domain: Domain
    data: Approx


class Evaluator:
    """The meaning of expressions, given the run-time sizes and lengths (flat, row-major) by name.

    Tensors are defined one by one with `hold` or `compute`, each after those that it reads.
    """

    def __init__(self, sizes: Mapping[str, int], lengths: Mapping[str, Indices]) -> None:
        self._sizes = sizes
        self._lengths = lengths
        self._tables: dict[UFun, Held] = {}
        self._tensors: dict[Tensor, Held] = {}

    def hold(self, tensor: Tensor, dims: Sequence[Dim], elements: Vector) -> None:
        """Let the input `tensor` have the valid `elements`, row-major, of an array over `dims`."""
        domain, _ = enumerate_domain(tensor.dims, self._extent)
        given, _ = enumerate_domain(dims, self._extent)
        if not domain.same_shape(given):
            raise UserError(
                f"interpret: input '{tensor.name}' must have the shape of [{_shape(tensor.dims)}]; "
                f"got an array of shape [{_shape(dims)}]"
            )
        held = elements.astype(approx.numpy_type(tensor.dtype))
        self._tensors[tensor] = Held(domain, approx.exact(held))

    def compute(self, tensor: Tensor) -> None:
        """Evaluate the computed `tensor` on its whole domain."""
        body = tensor.body
        if body is None:
            raise InternalError(f"interpreter: '{tensor.name}' is an input")
        domain, points = enumerate_domain(tensor.dims, self._extent)
        pieces = [
            approx.store(self._value(body, piece), tensor.dtype, body.dtype)
            for piece in self._pieces(body, points)
        ]
        data = Approx(np.concatenate([p.value for p in pieces]), np.concatenate([p.error for p in pieces]))
        self._tensors[tensor] = Held(domain, data)

    def reference(self, tensor: Tensor) -> Reference:
        """The elements of a tensor that has been computed."""
        held = self._tensors[tensor]
        return Reference(tensor, held.domain, held.data.value, held.data.error)

    def _pieces(self, body: Expr, points: Points) -> list[Points]:
        """`points` cut so that no piece has many points, those of its reductions counted."""
        work = np.ones(points.count, np.int64)
        for reduction in reductions_of(body)[:1]:  # all reductions run over the same dims
            work += self._expand(points, reduction.over)[1]
        block = np.cumsum(work) // _POINTS_AT_ONCE
        cuts = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), points.count]
        return [points.take(slice(a, b)) for a, b in itertools.pairwise(cuts)]

    def _expand(self, points: Points, over: tuple[Dim, ...]) -> tuple[Points, Indices]:
        """Each point followed by the valid indices of `over`, and how many points came of each."""
        owner = np.arange(points.count)
        inner = points
        for dim in over:
            extents = self._extent(dim.extent, inner)
            owner = np.repeat(owner, extents)
            inner = inner.expand(dim, extents)
        return inner, np.bincount(owner, minlength=points.count)

    def _extent(self, extent: Expr, points: Points) -> Indices:
        """An extent at each point; a negative one counts as 0."""
        return np.maximum(self._value(extent, points).value, 0)

    def _value(self, e: Expr, points: Points) -> Approx:
        return self._shared(e, points, {})

    def _shared(self, e: Expr, points: Points, done: dict[Expr, Approx]) -> Approx:
        """The value of `e` at `points`; what `done` holds is not evaluated again."""
        known = done.get(e)
        if known is None:
            known = done[e] = self._evaluate(e, points, done)
        return known

    def _evaluate(self, e: Expr, points: Points, done: dict[Expr, Approx]) -> Approx:
        match e:
            case Const(value=v, type=t):
                return approx.literal(v, t, points.count)
            case Size(name=name):
                return approx.literal(self._size(name), dtypes.INDEX, points.count)
            case Dim():
                return approx.exact(points.index[e])
            case Binary(op=op, a=a, b=b):
                left, right = self._shared(a, points, done), self._shared(b, points, done)
                if op in ("floordiv", "mod"):
                    _check_divisor(e, right, points)
                return approx.binary(op, left, right, a.dtype)
            case Unary(op=op, a=a):
                return approx.unary(op, self._shared(a, points, done), a.dtype)
            case Cast(type=t, a=a):
                return approx.convert(self._shared(a, points, done), t)
            case Select():
                return self._select(e, points, done)
            case Call(fun=fun, args=args):
                indices = [self._shared(x, points, done).value for x in args]
                return self._call(fun, indices, points)
            case Access(tensor=tensor, indices=indices):
                where = [self._shared(x, points, done).value for x in indices]
                return self._access(tensor, where, points)
            case Reduce():
                return self._reduce(e, points)
            case _:
                raise InternalError(f"interpreter: {type(e).__name__} in a definition: {e}")

    def _size(self, name: str) -> int:
        if name not in self._sizes:
            raise UserError(f"interpret: size '{name}' is given neither by an input nor in sizes=")
        return self._sizes[name]

    def _select(self, e: Select, points: Points, done: dict[Expr, Approx]) -> Approx:
        holds = self._shared(e.cond, points, done).value
        value = np.empty(points.count, approx.numpy_type(e.dtype))
        error = np.empty(points.count)
        for branch, taken in ((e.then, holds), (e.other, ~holds)):
            which = np.flatnonzero(taken)
            part = self._value(branch, points.take(which))
            value[which], error[which] = part.value, part.error
        return Approx(value, error)

    def _access(self, tensor: Tensor, indices: list[Indices], points: Points) -> Approx:
        held = self._tensors[tensor]
        at = held.domain.locate(indices, points.count)
        outside = np.flatnonzero(at < 0)
        if outside.size:
            first = int(outside[0])
            fault = held.domain.fault([int(i[first]) for i in indices])
            assert fault is not None
            dim, index, extent = fault
            raise UserError(
                f"interpret: access to '{tensor.name}' outside its domain: the index of dim "
                f"'{dim.name}' must be in 0..{extent} (end excluded); got {index} "
                f"at point {points.describe(first)}"
            )
        return held.data.take(at)

    def _call(self, fun: UFun, args: list[Indices], points: Points) -> Approx:
        table = self._table(fun)
        at = table.domain.locate(args, points.count)
        # Outside its domain a function has the value 0: position -1 reads the appended one.
        return approx.exact(np.append(table.data.value, 0)[at])

    def _table(self, fun: UFun) -> Held:
        done = self._tables.get(fun)
        if done is not None:
            return done
        if not isinstance(fun.definition, Given):
            raise InternalError(f"interpreter: function '{fun.name}' in a definition is not a length")
        if fun.name not in self._lengths:
            raise UserError(f"interpret: lengths '{fun.name}' are given neither by an input nor in lengths=")
        values = self._lengths[fun.name]
        domain, _ = enumerate_domain(fun.domain, self._extent)
        if len(values) != domain.count:
            raise UserError(
                f"interpret: lengths '{fun.name}' must have {domain.count} entries; got {len(values)}"
            )
        table = self._tables[fun] = Held(domain, approx.exact(values))
        return table

    def _reduce(self, e: Reduce, points: Points) -> Approx:
        inner, counts = self._expand(points, e.over)
        body = self._value(e.body, inner)
        if e.op in ("argmax", "argmin"):
            index = inner.index[e.over[0]]
            return approx.exact(approx.reduce_position(e.op, body.value, index, counts))
        return approx.reduce(e.op, body, counts, e.dtype)


def _check_divisor(e: Binary, divisor: Approx, points: Points) -> None:
    zero = np.flatnonzero(divisor.value == 0)
    if zero.size:
        where = points.describe(int(zero[0]))
        raise UserError(f"interpret: integer division by zero in {e} at point {where}")


def _shape(dims: Sequence[Dim]) -> str:
    return ", ".join(f"{d.name}: {d.extent}" for d in dims)
