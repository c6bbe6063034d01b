"""Load hoisting: a table read moves out of every loop whose variable it does not use (paper section 5, Fig. 23).

Ordering restriction: after `tables`, whose reads are safe anywhere their variables are bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cora.ir.expr import Cast, Expr, LaneReduce, Read, Select, Var
from cora.ir.stmt import Alloc, Block, For, If, Let, Stmt, Store, Tile, map_stmt
from cora.ir.visit import children, substitute, walk


def hoist(s: Stmt) -> Stmt:
    """`s` with each maximal invariant expression that reads a table bound once, as far outside as it can be."""
    return _Hoister().at_level(s, frozenset())


@dataclass(frozen=True, slots=True)
class _About:
    """Of an expression: whether it reads tables, and other buffers; its variables."""

    tables: bool
    others: bool
    variables: frozenset[Var]


class _Hoister:
    """Numbers the values; `at_level` handles the statements under one set of bound variables."""

    def __init__(self) -> None:
        self._count = 0
        self._memo: dict[Expr, _About] = {}

    def at_level(self, s: Stmt, bound: frozenset[Var]) -> Stmt:
        """Bind here what uses only `bound` variables and stands inside a loop or is used twice; then go inside."""
        found: dict[Expr, int] = {}
        for e, in_loop in _expressions(s, False):
            self._candidates(e, bound, found, 2 if in_loop else 1)
        lets: list[tuple[Var, Expr]] = []
        names: dict[Expr, Expr] = {}
        for e, uses in sorted(found.items(), key=lambda item: _weight(item[0])):
            if uses > 1:
                var = Var(f"{_hint(e)}_{self._count}")
                self._count += 1
                lets.append((var, substitute(e, names)))  # larger values use the smaller ones
                names[e] = var
        bound |= {var for var, _ in lets}
        body = self._inside(_replace(s, names), bound)
        for var, value in reversed(lets):
            body = Let(var, value, body)
        return body

    def _candidates(self, e: Expr, bound: frozenset[Var], found: dict[Expr, int], weight: int) -> None:
        """Count the index expressions in `e` that use only bound variables: table reads, and what is made of them."""
        about = self._about(e)
        if not about.tables:
            return
        if e.dtype == "int64" and not about.others and about.variables <= bound:
            found[e] = found.get(e, 0) + weight
            for part in _always(e):
                if part != e and _is_table_read(part):
                    found[part] = found.get(part, 0) + weight
            return
        parts = (e.cond,) if isinstance(e, Select) and _is_table_read(e) else children(e)
        for part in parts:
            self._candidates(part, bound, found, weight)

    def _about(self, e: Expr) -> _About:
        found = self._memo.get(e)
        if found is None:
            parts = [self._about(part) for part in children(e)]
            own = isinstance(e, (Read, LaneReduce))
            table = own and e.buffer.scope == "table"  # type: ignore[attr-defined]
            variables = frozenset((e,)) if isinstance(e, Var) else frozenset[Var]()
            found = self._memo[e] = _About(
                table or any(p.tables for p in parts),
                (own and not table) or any(p.others for p in parts),
                variables.union(*(p.variables for p in parts)),
            )
        return found

    def _inside(self, s: Stmt, bound: frozenset[Var]) -> Stmt:
        match s:
            case For(var=v, begin=b, end=e, kind=k, body=body):
                return For(v, b, e, k, self.at_level(body, bound | {v}))
            case Let(var=v, value=value, body=body):
                return Let(v, value, self.at_level(body, bound | {v}))
            case _:
                return map_stmt(s, lambda inner: self._inside(inner, bound), lambda e: e)


def _replace(s: Stmt, names: dict[Expr, Expr]) -> Stmt:
    if not names:
        return s
    return map_stmt(s, lambda inner: _replace(inner, names), lambda e: substitute(e, names))


def _expressions(s: Stmt, in_loop: bool) -> Iterator[tuple[Expr, bool]]:
    """Every expression of `s`, and whether it is evaluated inside a loop of `s`."""
    match s:
        case For(begin=b, end=e, body=body):
            yield b, in_loop
            yield e, in_loop
            yield from _expressions(body, True)
        case Let(value=value, body=body):
            yield value, in_loop
            yield from _expressions(body, in_loop)
        case If(cond=c, then=t, other=o):
            yield c, in_loop
            yield from _expressions(t, in_loop)
            if o is not None:
                yield from _expressions(o, in_loop)
        case Block(stmts=stmts):
            for inner in stmts:
                yield from _expressions(inner, in_loop)
        case Alloc(body=body):
            yield from _expressions(body, in_loop)
        case Store(offset=offset, value=value):
            yield offset, in_loop
            yield value, in_loop
        case Tile():
            for e in s.numbers():
                yield e, in_loop
            for operand in s.operands().values():
                for e in (operand.offset, operand.row, operand.column, operand.bend):
                    yield e, in_loop


def _always(e: Expr) -> Iterator[Expr]:
    """The sub-expressions that are evaluated whenever `e` is: a guarded read is none, its guard is."""
    yield e
    for part in (e.cond,) if isinstance(e, Select) else children(e):
        yield from _always(part)


def _is_table_read(e: Expr) -> bool:
    match e:
        case Select(then=Read(buffer=buffer) | Cast(a=Read(buffer=buffer))):
            return buffer.scope == "table"
        case Read(buffer=buffer) | Cast(a=Read(buffer=buffer)):
            return buffer.scope == "table" and e.dtype == "int64"
    return False


def _weight(e: Expr) -> int:
    return sum(1 for _ in walk(e))


def _hint(e: Expr) -> str:
    """A name that tells what the value comes from."""
    match e:
        case (
            Read(buffer=buffer)
            | Cast(a=Read(buffer=buffer))
            | Select(then=Read(buffer=buffer) | Cast(a=Read(buffer=buffer)))
        ):
            return buffer.name
        case _:
            return "base"
