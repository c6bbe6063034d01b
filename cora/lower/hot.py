"""Which conditions are left in hot loops: the innermost ones, but for tails.

A loop that was cut is two loops over one variable, one after the other (or the second is a single iteration), and a
loop with a version of its own stands in both branches of a condition. Of such two the one with fewer conditions
counts: the other is the rest.
"""

from __future__ import annotations

from cora.ir.expr import Expr, Read, Select
from cora.ir.stmt import Block, For, If, Let, LoopKind, Stmt, map_stmt, statements
from cora.ir.visit import walk
from cora.lower.access import conjuncts


def hot_guards(s: Stmt) -> tuple[str, ...]:
    """The conditions in hot loops, as "loop: condition"; those on data are the program's own, and not counted."""
    match s:
        case For(var=var, body=body):
            return hot_guards(body) if _has_loop(body) else tuple(f"{var}: {c}" for c in _conditions(body))
        case If(then=then, other=other) if other is not None and _has_loop(then) and _has_loop(other):
            return min(hot_guards(then), hot_guards(other), key=len)
        case Block(stmts=stmts):
            found: list[tuple[str, ...]] = []
            before: Stmt | None = None
            for inner in stmts:
                guards = hot_guards(inner)
                if isinstance(inner, For | Let) and isinstance(before, For) and inner.var == before.var:
                    guards = min(found.pop(), guards, key=len)
                found.append(guards)
                before = inner
            return tuple(guard for guards in found for guard in guards)
    parts: list[str] = []

    def visit(inner: Stmt) -> Stmt:
        parts.extend(hot_guards(inner))
        return inner

    map_stmt(s, visit, lambda e: e)
    return tuple(parts)


def _has_loop(s: Stmt) -> bool:
    """Whether a loop stands in `s` that is neither lanes nor unrolled."""
    kinds = (LoopKind.SERIAL, LoopKind.PARALLEL)
    return any(isinstance(part, For) and part.kind in kinds for part in statements(s))


def _conditions(s: Stmt) -> list[Expr]:
    """The distinct conditions in `s` that are about indices."""
    found: dict[Expr, None] = {}

    def note(condition: Expr) -> None:
        for part in conjuncts(condition):
            reads = (n for n in walk(part) if isinstance(n, Read))
            if all(read.buffer.scope == "table" for read in reads):
                found.setdefault(part)

    def expr(e: Expr) -> Expr:
        for node in walk(e):
            if isinstance(node, Select):
                note(node.cond)
        return e

    def stmt(inner: Stmt) -> Stmt:
        if isinstance(inner, If):
            note(inner.cond)
        return map_stmt(inner, stmt, expr)

    stmt(s)
    return list(found)
