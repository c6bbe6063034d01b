"""Calls of uninterpreted functions become reads of the prelude's tables, guarded unless proved inside the domain."""

from __future__ import annotations

from cora.ir.bounds import multiple_of
from cora.ir.dtypes import INDEX
from cora.ir.expr import TRUE, ZERO, Call, Expr, Read, Var, binary, cast, conjunction, select
from cora.ir.simplify import Simplifier
from cora.ir.stmt import Buffer, For, Stmt, map_stmt
from cora.ir.ufun import Scan, UFun
from cora.ir.visit import children, free_vars, rebuild, substitute
from cora.lower.guards import Guards
from cora.prove import Context, Range
from cora.storage.offsets import table_offset, table_size


class Tables:
    """The tables that a kernel reads, in order of first use, with the buffers that hold them."""

    def __init__(self) -> None:
        self.buffers: dict[UFun, Buffer] = {}

    def buffer(self, fun: UFun) -> Buffer:
        """The buffer of `fun`; names are numbered where several functions share one."""
        if fun not in self.buffers:
            same = sum(1 for known in self.buffers if known.name == fun.name)
            name = f"{fun.name}{same or ''}"
            divisor = multiple_of(fun.definition.body) if isinstance(fun.definition, Scan) else 1
            self.buffers[fun] = Buffer(name, fun.dtype, table_size(fun), "table", max(divisor, 1))
        return self.buffers[fun]


class TableReader:
    """Rewrites the calls in one loop nest, whose variables have the given ranges.

    attached: the variables of nests inside it, each of which ranges over the loop that it is met in.

    A read relies on no condition, and on no loop but those of its own variables, so that it may be hoisted.
    """

    def __init__(
        self,
        tables: Tables,
        ranges: tuple[Range, ...],
        guards: Guards,
        operator: str,
        attached: frozenset[Var] = frozenset(),
    ) -> None:
        self.tables = tables
        self.attached = attached
        self.ranges = ranges
        self.simplifier = Simplifier({r.var: r.end for r in ranges})
        self.guards = guards
        self.operator = operator
        self._memo: dict[Expr, Expr] = {}

    def stmt(self, s: Stmt) -> Stmt:
        """`s` with every call replaced."""
        match s:
            case For(var=var, begin=begin, end=end, kind=kind, body=body) if var in self.attached:
                ranges = (*(r for r in self.ranges if r.var != var), Range(var, end))
                inside = TableReader(self.tables, ranges, self.guards, self.operator, self.attached)
                return For(var, self.expr(begin), self.expr(end), kind, inside.stmt(body))
        return map_stmt(s, self.stmt, self.expr)

    def expr(self, e: Expr) -> Expr:
        """`e` with every call replaced."""
        done = self._memo.get(e)
        if done is not None:
            return done
        old = children(e)
        new = tuple(self.expr(c) for c in old)
        result = e if all(a is b for a, b in zip(old, new, strict=True)) else rebuild(e, new)
        if isinstance(e, Call):
            result = self._read(e)
        self._memo[e] = result
        return result

    def _read(self, call: Call) -> Expr:
        kept: list[Expr] = []
        at: dict[Expr, Expr] = {}
        context = self._context(call)
        for dim, arg in zip(call.fun.domain, call.args, strict=True):
            extent = self.simplifier(substitute(dim.extent, at))
            for goal in (binary("le", 0, arg), binary("lt", arg, extent)):
                if self.simplifier(goal) == TRUE and not self.guards.keep_all:
                    continue  # nothing to prove, nothing to tell
                needed = self.guards.needed(
                    goal, context, self.simplifier, self.operator, f"table {call.fun.name}"
                )
                if needed is not None:
                    kept.append(self.expr(needed))
            at[dim] = arg
        offset = self.expr(self.simplifier(table_offset(call.fun, call.args)))
        read = cast(INDEX, Read(self.tables.buffer(call.fun), offset))
        return select(conjunction(kept), read, ZERO) if kept else read

    def _context(self, call: Call) -> Context:
        """The ranges of the variables in `call` and of those outside them: no other loop is known to run."""
        used = set(free_vars(call))
        ranges: list[Range] = []
        for loop in reversed(self.ranges):
            if loop.var in used:
                used |= free_vars(loop.end)
                ranges.append(loop)
        return Context(tuple(reversed(ranges)))
