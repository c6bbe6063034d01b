"""Index expressions on a whole grid of points at once, with NumPy."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cora.errors import UnsupportedError
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Binary, Call, Cast, Dim, Expr, Select
from cora.ir.ufun import UFun
from cora.ir.visit import free_dims

Column: TypeAlias = npt.NDArray[np.int64]

_TWO: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": np.minimum,
    "max": np.maximum,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": np.logical_and,
    "or": np.logical_or,
}


def grid(e: Expr, env: Mapping[Dim, Column], evaluator: Evaluator) -> Column:
    """The value of `e` where the dims have the values `env`: arrays that broadcast against one another.

    Terms stay as small as the dims that they use, so on a grid with one axis per dim an expression that is a sum over
    dims costs one addition per point. Raises UnsupportedError for what is no integer arithmetic.
    """
    memo: dict[Expr, Any] = {}

    def value(e: Expr) -> Any:
        if e not in memo:
            memo[e] = compute(e)
        return memo[e]

    def compute(e: Expr) -> Any:
        if not free_dims(e):
            return evaluator.value(e)
        match e:
            case Dim():
                return env[e]
            case Binary(op=op, a=a, b=b) if op in _TWO:
                return _TWO[op](value(a), value(b))
            case Select(cond=c, then=a, other=b):
                return np.where(value(c), value(a), value(b))
            case Cast(type="int64", a=a):
                return np.asarray(value(a), np.int64)
            case Call(fun=fun, args=args):
                return _table(fun, [np.asarray(value(a)) for a in args], evaluator)
        raise UnsupportedError(f"no integer arithmetic: {e}")

    shape = np.broadcast_shapes(*(column.shape for column in env.values()))
    return np.ascontiguousarray(np.broadcast_to(value(e), shape), np.int64).reshape(-1)


def _table(fun: UFun, args: list[Column], evaluator: Evaluator) -> Column:
    """A function at many points: looked up once for each that is different."""
    shape = np.broadcast_shapes(*(a.shape for a in args))
    if not prod(shape):
        return np.zeros(shape, np.int64)
    key: Any = 0
    for a in args:
        low = int(a.min())
        key = key * (int(a.max()) - low + 1) + (a - low)
    _, first, where = np.unique(
        np.broadcast_to(key, shape).reshape(-1), return_index=True, return_inverse=True
    )
    columns = [np.broadcast_to(a, shape).reshape(-1)[first].tolist() for a in args]
    found = [evaluator.call(fun, point) for point in zip(*columns, strict=True)]
    return np.array(found, np.int64)[where.reshape(-1)].reshape(shape)
