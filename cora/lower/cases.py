"""Code of its own for a case: what an assumption decides in a statement is decided there.

Conditions that it implies are left out, and where it tells which side a minimum or a maximum takes, only that
side is left: so the full parts of a loop get constant bounds and no guards.
"""

from __future__ import annotations

from collections.abc import Mapping

from cora.ir.expr import (
    ONE,
    TRUE,
    ZERO,
    Binary,
    Call,
    Const,
    Expr,
    Read,
    Select,
    Size,
    Var,
    binary,
    conjunction,
)
from cora.ir.poly import is_index
from cora.ir.simplify import simplify
from cora.ir.stmt import For, If, LoopKind, Stmt, Tile, map_stmt
from cora.ir.visit import free_vars, substitute, transform, walk
from cora.lower.access import conjuncts
from cora.lower.guards import Guards
from cora.prove import Context, Outcome, Range


def assume(s: Stmt, assumption: Expr, context: Context, guards: Guards) -> Stmt:
    """`s` where `assumption` holds; `context` holds around it. `s` itself where every guard is kept."""
    if guards.keep_all:
        return s
    about = frozenset(n for n in walk(assumption) if isinstance(n, (Var, Size, Call)))
    return _Case(about, guards).stmt(s, Context(context.ranges, (*context.assumptions, assumption)))


class _Case:
    """Rewrites statements; only terms that share something with the assumption are looked at."""

    def __init__(self, about: frozenset[Expr], guards: Guards) -> None:
        self.about = about
        self.guards = guards

    def stmt(self, s: Stmt, here: Context) -> Stmt:
        match s:
            case For(var=v, begin=b, end=e, kind=kind, body=body):
                end = self.expr(e, here)
                if kind is LoopKind.SERIAL and b == ZERO and self.concerns(e) and self.is_short(end, here):
                    runs = binary("lt", ZERO, end)
                    once = self.stmt(at(body, {v: ZERO}), Context(here.ranges, (*here.assumptions, runs)))
                    return once if self.follows(runs, here) else If(runs, once)
                inside = Context((*here.ranges, Range(v, end)), here.assumptions)
                return For(v, self.expr(b, here), end, kind, self.stmt(body, inside))
            case If(cond=c, then=then, other=other):
                rest = self.condition(c, here)
                inside = Context(here.ranges, (*here.assumptions, rest))
                then = self.stmt(then, here if rest == TRUE else inside)
                if rest == TRUE:
                    return then
                return If(rest, then, None if other is None else self.stmt(other, here))
            case Tile():
                return map_stmt(s, lambda inner: inner, lambda e: self.expr(e, here))
        return map_stmt(s, lambda inner: self.stmt(inner, here), lambda e: self.expr(e, here))

    def expr(self, e: Expr, here: Context) -> Expr:
        def rule(node: Expr) -> Expr | None:
            match node:
                case Binary(op="min" | "max" as op, a=a, b=b) if is_index(node) and self.concerns(node):
                    return self.side(op, a, b, here)
                case Select(cond=c, then=then, other=other):
                    rest = self.condition(c, here)
                    return then if rest == TRUE else Select(rest, then, other)
            return None

        result = transform(e, rule)
        return result if result is e or not is_index(result) else simplify(result, ends(here))

    def is_short(self, end: Expr, here: Context) -> bool:
        """Whether a loop whose end is not known has one iteration at most."""
        return not isinstance(end, Const) and self.follows(binary("le", end, ONE), here)

    def side(self, op: str, a: Expr, b: Expr, here: Context) -> Expr | None:
        """The operand that a minimum or maximum is equal to here, if that is known."""
        for one, other in ((a, b), (b, a)):
            goal = binary("le", one, other) if op == "min" else binary("le", other, one)
            # most of what is asked here does not hold, and to find that out takes the solver longest
            if self.follows(goal, here):
                return one
        return None

    def condition(self, c: Expr, here: Context) -> Expr:
        """What is left to test of a condition."""
        left = []
        for before in conjuncts(c):
            part = self.expr(before, here)
            if part != TRUE and not (self.concerns(before) and self.holds(part, here)):
                left.append(part)
        return conjunction(left)

    def concerns(self, e: Expr) -> bool:
        """Whether the assumption may decide `e`: they share a term, and `e` is not about data."""
        nodes = list(walk(e))
        return not self.about.isdisjoint(nodes) and not any(isinstance(n, Read) for n in nodes)

    def holds(self, goal: Expr, here: Context) -> bool:
        """Whether `goal` is proved."""
        simpler = simplify(goal, ends(here))
        if isinstance(simpler, Const):
            return bool(simpler.value)
        return self.guards.proof(simpler, here).outcome is Outcome.PROVED

    def follows(self, goal: Expr, here: Context) -> bool:
        """Whether it follows from bounds alone."""
        simpler = simplify(goal, ends(here))
        if isinstance(simpler, Const):
            return bool(simpler.value)
        return self.guards.prover.follows(simpler, here)


def at(s: Stmt, values: Mapping[Expr, Expr]) -> Stmt:
    """`s` with variables replaced."""
    return map_stmt(s, lambda inner: at(inner, values), lambda e: simplify(substitute(e, values)))


def ends(here: Context) -> dict[Expr, Expr]:
    """The ends of the loop variables."""
    return {r.var: r.end for r in here.ranges}


def within(context: Context, variables: frozenset[Var]) -> Context:
    """The part of a context that speaks of these variables alone: the loops that are known to run."""
    ranges = tuple(r for r in context.ranges if r.var in variables)
    return Context(ranges, tuple(c for c in context.assumptions if free_vars(c) <= variables))
