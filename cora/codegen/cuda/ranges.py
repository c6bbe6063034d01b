"""Whether the index arithmetic of kernels fits 32 bits on one batch: interval arithmetic over its tables.

Conservative: values that depend on one another are taken as independent, so a batch near the limit may be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from cora.codegen.cuda.launches import AXIS_VARS, Launch
from cora.ir import dtypes
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Binary, Cast, Const, Expr, Read, Select, Size, Unary, Var
from cora.ir.stmt import BLOCK_AXES, THREAD_AXES, Buffer, For, Let, Stmt, map_stmt
from cora.ir.visit import children, transform

#: The smallest and largest value; None: a value of 64 bits that comes from data.
Interval: TypeAlias = tuple[int, int] | None
Extremes: TypeAlias = Callable[[Buffer], tuple[int, int]]

LIMIT: Final = 2**31


def host_value(e: Expr, sizes: Mapping[str, int], tables: Mapping[str, Any]) -> int:
    """The value of an expression over sizes and table reads, e.g. the number of blocks in a grid."""
    evaluator = Evaluator(sizes, {})

    def rule(node: Expr) -> Expr | None:
        match node:
            case Read(buffer=buffer, offset=offset):
                table = tables[buffer.name]
                place = int(evaluator.value(offset, {}))
                return Const(int(table[place]) if 0 <= place < len(table) else 0)
            case Cast(type="int64", a=Const() as a):
                return a
        return None

    return int(evaluator.value(transform(e, rule), {}))


def too_wide(
    launch: Launch, grid: Sequence[int], sizes: Mapping[str, int], extremes: Extremes
) -> tuple[Expr, tuple[int, int]] | None:
    """An index expression of the kernel that may leave 32 bits on this batch, and its range; None if none does."""
    ranges = _Ranges(sizes, extremes)
    for kind, count in zip((*BLOCK_AXES, *THREAD_AXES), (*grid, *launch.block), strict=True):
        ranges.variables[AXIS_VARS[kind]] = (0, max(count - 1, 0))
    ranges.stmt(launch.body)
    return ranges.found


class _Ranges:
    def __init__(self, sizes: Mapping[str, int], extremes: Extremes) -> None:
        self._sizes = sizes
        self._extremes = extremes
        self._memo: dict[Expr, Interval] = {}
        self.variables: dict[Var, Interval] = {}
        self.found: tuple[Expr, tuple[int, int]] | None = None

    def stmt(self, s: Stmt) -> None:
        """Look at every expression of `s`, outer statements first."""
        match s:
            case For(var=var, begin=begin, end=end):
                first, last = self.of(begin), self.of(end)
                self.variables[var] = (
                    None if first is None or last is None else (first[0], max(last[1] - 1, first[0]))
                )
            case Let(var=var, value=value) if value.dtype == dtypes.INDEX:
                self.variables[var] = self.of(value)

        def expr(e: Expr) -> Expr:
            self._look(e)
            return e

        def visit(inner: Stmt) -> Stmt:
            self.stmt(inner)
            return inner

        map_stmt(s, visit, expr)

    def _look(self, e: Expr) -> None:
        """Evaluate every index expression inside `e`."""
        if e.dtype == dtypes.INDEX:
            self.of(e)
        for child in children(e):
            self._look(child)

    def of(self, e: Expr) -> Interval:
        """The range of an index expression."""
        if e not in self._memo:
            interval = self._compute(e)
            self._memo[e] = interval
            if (
                interval is not None
                and self.found is None
                and not -LIMIT <= interval[0] <= interval[1] < LIMIT
            ):
                self.found = e, interval
        return self._memo[e]

    def _compute(self, e: Expr) -> Interval:
        match e:
            case Const(value=value):
                return (int(value), int(value)) if abs(int(value)) < LIMIT else None
            case Size(name=name):
                return self._sizes[name], self._sizes[name]
            case Var():
                return self.variables.get(e)
            case Read(buffer=buffer) | Cast(a=Read(buffer=buffer)):
                return self._extremes(buffer) if buffer.scope == "table" else None
            case Cast(a=a):
                return (0, 1) if a.dtype == "bool" else None
            case Select(then=then, other=other):
                low, high = self.of(then), self.of(other)
                return None if low is None or high is None else (min(low[0], high[0]), max(low[1], high[1]))
            case Unary(op=("neg" | "abs") as op, a=inner):
                of = self.of(inner)
                if of is None:
                    return None
                return (-of[1], -of[0]) if op == "neg" else (0, max(abs(of[0]), abs(of[1])))
            case Binary(op=operation, a=x, b=y):
                left, right = self.of(x), self.of(y)
                return None if left is None or right is None else _combined(operation, left, right)
        return None


def _combined(op: str, a: tuple[int, int], b: tuple[int, int]) -> Interval:
    match op:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            products = [x * y for x in a for y in b]
            return min(products), max(products)
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "floordiv":
            if b[0] > 0:
                quotients = [x // y for x in a for y in b]
                return min(quotients), max(quotients)
            largest = max(abs(a[0]), abs(a[1]))
            return -largest, largest
        case "mod":
            largest = max(abs(b[0]), abs(b[1]))
            return (0, largest) if b[0] >= 0 else (-largest, largest)
    return None
