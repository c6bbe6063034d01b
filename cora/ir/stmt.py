"""Statements: lowered programs over flat buffers.

Grammar:

    stmt := For(var, begin, end, kind, body) | Let(var, value, body) | If(cond, then, other)
          | Block(stmts) | Alloc(buffer, body) | Store(buffer, offset, value)

Meaning: sequential, except that the iterations of a PARALLEL loop may run in any order and at once, and the
iterations of a VECTOR loop run in lock step, one per lane: each statement in it runs for all lanes before the next
(a vector loop begins at 0, has a constant end, and nothing but Let, If, Block and Store inside).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from cora.ir.expr import Expr, Node, Size, Var

Scope = Literal["input", "output", "table", "workspace", "local"]


class LoopKind(Enum):
    """How the iterations of a loop run."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTOR = "vectorize"
    UNROLL = "unroll"


@dataclass(frozen=True, slots=True, eq=False)
class Buffer(Node):
    """A flat array of `size` elements.

    input, output: a tensor's values; table: an auxiliary array of the prelude; workspace: an intermediate tensor
    owned by the plan; local: registers or stack of one iteration, of constant size.
    """

    name: str
    dtype: str
    size: Expr
    scope: Scope


@dataclass(frozen=True, slots=True, eq=False)
class For(Node):
    """`for var in begin..end` (end exclusive; no iteration where end <= begin)."""

    var: Var
    begin: Expr
    end: Expr
    kind: LoopKind
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Let(Node):
    """`var = value`, computed once, for `body`."""

    var: Var
    value: Expr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class If(Node):
    """`then` where `cond` holds, else `other` (None: nothing)."""

    cond: Expr
    then: Stmt
    other: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Block(Node):
    """Statements in order; an empty block does nothing."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Alloc(Node):
    """A local buffer that lives for `body`; its contents are undefined at first."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Store(Node):
    """`buffer[offset] = value`, converted to the buffer's type."""

    buffer: Buffer
    offset: Expr
    value: Expr


Stmt: TypeAlias = For | Let | If | Block | Alloc | Store

NOTHING = Block(())


@dataclass(frozen=True, slots=True, eq=False)
class Function(Node):
    """A lowered kernel: parameters are `buffers` in order, then the values of `sizes` in order (int64)."""

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[Size, ...]
    body: Stmt


def block(stmts: list[Stmt]) -> Stmt:
    """`stmts` in order, nested blocks flattened."""
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Block) else (stmt,))
    return flat[0] if len(flat) == 1 else Block(tuple(flat))


def map_stmt(s: Stmt, on_stmt: Callable[[Stmt], Stmt], on_expr: Callable[[Expr], Expr]) -> Stmt:
    """`s` with `on_stmt` applied to its direct sub-statements and `on_expr` to its direct expressions."""
    match s:
        case For(var=v, begin=b, end=e, kind=k, body=body):
            return For(v, on_expr(b), on_expr(e), k, on_stmt(body))
        case Let(var=v, value=value, body=body):
            return Let(v, on_expr(value), on_stmt(body))
        case If(cond=c, then=t, other=o):
            return If(on_expr(c), on_stmt(t), None if o is None else on_stmt(o))
        case Block(stmts=stmts):
            return block([on_stmt(x) for x in stmts])
        case Alloc(buffer=buffer, body=body):
            return Alloc(buffer, on_stmt(body))
        case Store(buffer=buffer, offset=offset, value=value):
            return Store(buffer, on_expr(offset), on_expr(value))
