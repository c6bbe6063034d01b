"""Tails: an innermost loop whose condition holds but for its last iterations is cut into a full part and a tail.

before: for o in 0..n: for v in lanes: if c*o + v < B: body
after:  for o in 0..full: for v in lanes: body;   for o in full..n: for v in lanes: if c*o + v < B: body

so that the full part carries no condition, and the tail runs under a mask.
"""

from __future__ import annotations

from cora.ir.expr import ZERO, Binary, Const, Expr, Select, Var, binary, conjunction
from cora.ir.simplify import linear_in, simplify
from cora.ir.stmt import Alloc, Block, For, If, Let, LoopKind, Stmt, block, map_stmt
from cora.ir.visit import free_vars, transform, walk
from cora.lower.access import conjuncts


def cut_tails(s: Stmt) -> Stmt:
    """`s` with every innermost loop cut as above."""
    match s:
        case For(kind=kind) if kind is not LoopKind.PARALLEL:
            cut = _cut(s)
            if cut is not None:
                return cut
    return map_stmt(s, cut_tails, lambda e: e)


def _cut(loop: For) -> Stmt | None:
    """`loop` cut, if it is the innermost loop around a vector loop (or of scalars) and a condition allows it."""
    lanes, lets, core = _lanes_inside(loop)
    if core is None or loop.kind is not LoopKind.SERIAL:
        return None
    ends = [
        full
        for condition in _conditions(core)
        if (full := _holds_below(condition, loop.var, lanes)) is not None
        and not free_vars(full[1]) & lets  # the cut stands before the loop, where they are not defined
    ]
    if not ends:
        return None
    full_end = ends[0][1]
    settled = {condition for condition, end in ends if end == full_end}
    middle = Var(f"{loop.var.name}_full")
    value = binary("min", loop.end, binary("max", loop.begin, full_end))
    body = _assume(loop.body, settled)
    return Let(
        middle,
        simplify(value),
        block(
            [
                For(loop.var, loop.begin, middle, loop.kind, body),
                For(loop.var, middle, loop.end, loop.kind, loop.body),
            ]
        ),
    )


def _lanes_inside(loop: For) -> tuple[dict[Expr, int], set[Var], Stmt | None]:
    """The extents of the constant loops inside, the values bound between them, and the body.

    The body is None if there is a loop of another kind.
    """
    lanes: dict[Expr, int] = {}
    lets: set[Var] = set()
    body: Stmt = loop.body
    while True:
        match body:
            case For(var=v, begin=b, end=Const(value=n), body=inner) if b == ZERO:
                lanes[v] = int(n)
                body = inner
            case Let(var=v, body=inner):
                lets.add(v)
                body = inner
            case _:
                return lanes, lets, None if _has_loop(body) else body


def _has_loop(s: Stmt) -> bool:
    match s:
        case For():
            return True
        case Let(body=b) | Alloc(body=b):
            return _has_loop(b)
        case If(then=t, other=o):
            return _has_loop(t) or (o is not None and _has_loop(o))
        case Block(stmts=stmts):
            return any(_has_loop(x) for x in stmts)
        case _:
            return False


def _conditions(s: Stmt) -> list[Expr]:
    """The terms of the conditions in a loop-free statement, those of guarded reads included."""
    found: dict[Expr, None] = {}

    def expr(e: Expr) -> Expr:
        for node in walk(e):
            if isinstance(node, Select):
                found.update(dict.fromkeys(conjuncts(node.cond)))
        return e

    def stmt(inner: Stmt) -> Stmt:
        if isinstance(inner, If):
            found.update(dict.fromkeys(conjuncts(inner.cond)))
        return map_stmt(inner, stmt, expr)

    stmt(s)
    return list(found)


def _holds_below(condition: Expr, var: Var, lanes: dict[Expr, int]) -> tuple[Expr, Expr] | None:
    """`(condition, end)` such that the condition holds for all lanes of every iteration below `end`."""
    match condition:
        case Binary(op="lt", a=a, b=b) if a.dtype == "int64":
            room = simplify(b - a)  # the condition is room >= 1
        case _:
            return None
    split = linear_in(room, var)
    if split is None or split[0] >= 0 or not any(isinstance(v, Var) for v in free_vars(condition)):
        return None
    stride, rest = -split[0], split[1]
    for lane, count in lanes.items():
        part = linear_in(rest, lane)
        if part is None:
            return None
        rest = part[1] + (part[0] * (count - 1) if part[0] < 0 else 0)
    return condition, simplify(binary("floordiv", rest - 1 + stride, stride))


def _assume(s: Stmt, settled: set[Expr]) -> Stmt:
    """`s` with the settled conditions taken as true."""

    def strip(condition: Expr) -> Expr:
        return conjunction([t for t in conjuncts(condition) if t not in settled])

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Select):
            rest = strip(e.cond)
            return e.then if rest == Const(True, "bool") else Select(rest, e.then, e.other)
        return None

    def stmt(inner: Stmt) -> Stmt:
        mapped = map_stmt(inner, stmt, lambda e: transform(e, rule))
        if isinstance(mapped, If):
            rest = strip(mapped.cond)
            return mapped.then if rest == Const(True, "bool") else If(rest, mapped.then, mapped.other)
        return mapped

    return stmt(s)
