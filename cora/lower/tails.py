"""Tails: a loop whose condition holds but for its last iterations is cut into a full part and a tail.

before: for o in 0..n: for v in lanes: if c*o + v < B: body
after:  for o in 0..full: for v in lanes: body;   for o in full..n: for v in lanes: if c*o + v < B: body

where the second loop is `o = full; if o < n` if there is at most one iteration left,

so that the full part carries no condition, and the tail runs under a mask. Cut is the innermost loop around vector
lanes or scalars; and, for conditions on lanes, also a loop further outside (columns in lanes inside a reduction).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cora.ir.expr import ZERO, Binary, Const, Expr, Read, Select, Var, binary, conjunction
from cora.ir.poly import linear_in
from cora.ir.simplify import simplify
from cora.ir.stmt import Block, For, If, Let, LoopKind, Stmt, block, map_stmt, statements
from cora.ir.visit import free_vars, transform, walk
from cora.lower.access import conjuncts


def cut_tails(s: Stmt, whole: frozenset[Var] = frozenset()) -> Stmt:
    """`s` with every loop cut that can be, but for those over the variables `whole`."""
    match s:
        case For(kind=LoopKind.SERIAL) if s.var not in whole:
            cut = _cut(s, whole)
            if cut is not None:
                return cut
    return map_stmt(s, lambda inner: cut_tails(inner, whole), lambda e: e)


def _cut(loop: For, whole: frozenset[Var]) -> Stmt | None:
    """`loop` cut, if a condition allows it."""
    inside = _survey(loop.body)
    ends = [
        full
        for condition in inside.conditions
        if (inside.chain or free_vars(condition) & inside.lanes)
        and (full := _holds_below(condition, loop.var, inside.constant)) is not None
        and _known_before(full[1], inside)
    ]
    if not ends:
        return None
    full_end = ends[0][1]
    settled = {condition for condition, end in ends if end == full_end}
    middle = Var(f"{loop.var.name}_full")
    value = simplify(binary("min", loop.end, binary("max", loop.begin, full_end)))
    plain = cut_tails(_assume(loop.body, settled), whole)
    if value == loop.end:
        return For(loop.var, loop.begin, loop.end, loop.kind, plain)
    if _at_most_one(full_end, loop.end):
        tail: Stmt = Let(loop.var, middle, If(binary("lt", loop.var, loop.end), loop.body))
    else:
        tail = For(loop.var, middle, loop.end, loop.kind, loop.body)
    return Let(middle, value, block([For(loop.var, loop.begin, middle, loop.kind, plain), tail]))


def _at_most_one(full: Expr, end: Expr) -> bool:
    """Whether no two iterations are from `full` to `end`: (x + d) // s - x // s is at most 1 for 0 <= d <= s."""
    match full, end:
        case (
            Binary(op="floordiv", a=x, b=Const(value=int(s))),
            Binary(op="floordiv", a=y, b=Const(value=int(t))),
        ) if s == t:
            match simplify(y - x):
                case Const(value=int(d)):
                    return 0 <= d <= s
    return False


@dataclass(slots=True)
class _Inside:
    """What a loop body holds: loops of constant extent, vector variables, values bound there, conditions.

    chain: whether its loops are all of constant extent, each inside the one before.
    """

    constant: dict[Expr, int] = field(default_factory=dict)
    lanes: set[Var] = field(default_factory=set)
    bound: set[Var] = field(default_factory=set)
    conditions: list[Expr] = field(default_factory=list)
    chain: bool = True


def _survey(body: Stmt) -> _Inside:
    found = _Inside()
    conditions: dict[Expr, None] = {}

    def expr(e: Expr) -> Expr:
        for node in walk(e):
            if isinstance(node, Select):
                conditions.update(dict.fromkeys(conjuncts(node.cond)))
        return e

    def stmt(s: Stmt) -> Stmt:
        match s:
            case For(var=v, begin=b, end=Const(value=n), kind=kind) if b == ZERO:
                found.constant[v] = max(int(n), found.constant.get(v, 0))
                if kind is LoopKind.VECTOR:
                    found.lanes.add(v)
            case For(var=v):
                found.bound.add(v)
                found.chain = False
            case Let(var=v):
                found.bound.add(v)
            case Block(stmts=stmts) if sum(map(_has_loop, stmts)) > 1:
                found.chain = False
            case If(cond=c):
                conditions.update(dict.fromkeys(conjuncts(c)))
        return map_stmt(s, stmt, expr)

    stmt(body)
    found.conditions = list(conditions)
    return found


def _has_loop(s: Stmt) -> bool:
    return any(isinstance(part, For) for part in statements(s))


def _known_before(end: Expr, inside: _Inside) -> bool:
    """Whether the end of the full part can be computed before the loop: nothing bound in it, no data."""
    reads = any(isinstance(n, Read) and n.buffer.scope != "table" for n in walk(end))
    return not reads and not free_vars(end) & (
        inside.bound | {v for v in inside.constant if isinstance(v, Var)}
    )


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
