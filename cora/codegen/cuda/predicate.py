"""Conditions on threads move inside, past the reductions that threads make together.

before: if c: loop; reduce over threads; store        after: if c: loop;  reduce over threads;  if c: store

The compiler cannot know that all threads of a warp take such a branch together: it would prepare for lanes that come
to the shuffles apart, with copies of the code and a stack.
"""

from __future__ import annotations

from cora.codegen.cuda.launches import AXIS_VARS
from cora.ir.expr import TRUE, Expr, Read, Var, conjunction
from cora.ir.stmt import (
    THREAD_AXES,
    Alloc,
    Block,
    If,
    Let,
    Stmt,
    Store,
    ThreadReduce,
    block,
    map_stmt,
    statements,
)
from cora.ir.visit import free_vars, walk

_THREADS = frozenset(AXIS_VARS[kind] for kind in THREAD_AXES)


def predicate(s: Stmt, depends: frozenset[Var] = _THREADS) -> Stmt:
    """`s` with no reduction over threads under a condition on `depends`, where that can be avoided."""
    match s:
        case Let(var=var, value=value, body=body):
            also = frozenset((var,)) if free_vars(value) & depends else frozenset[Var]()
            return Let(var, value, predicate(body, depends | also))
        case If(cond=cond, then=then, other=None) if free_vars(cond) & depends and _meets(then):
            pushed = _push(cond, then)
            return s if pushed is None else pushed
    return map_stmt(s, lambda inner: predicate(inner, depends), lambda e: e)


def _push(cond: Expr, s: Stmt) -> Stmt | None:
    """`if cond: s` with the condition on what needs it alone; None if a reduction over threads stays under it."""
    match s:
        case ThreadReduce():
            return s
        case Block(stmts=stmts):
            return _each(cond, stmts)
        case Let(var=var, value=value, body=body) if not _reads_data(value):
            inner = _push(cond, body)
            return None if inner is None else Let(var, value, inner)
        case Alloc(buffer=buffer, body=body):
            inner = _push(cond, body)
            return None if inner is None else Alloc(buffer, inner)
        case Store(buffer=buffer, offset=offset, value=value) if buffer.scope == "local":
            # an accumulator is set in any case: threads that do not count take part in the reduction
            return s if not (_reads_data(offset) or _reads_data(value)) else If(cond, s)
        case If(cond=other, then=then, other=None) if _meets(then):
            return _push(conjunction([cond, other]), then)
    return None if _meets(s) else If(cond, s)


def _each(cond: Expr, stmts: tuple[Stmt, ...]) -> Stmt | None:
    """The statements one after the other, those in a row that need the condition under one of it."""
    done: list[Stmt] = []
    for stmt in stmts:
        pushed = _push(cond, stmt)
        if pushed is None:
            return None
        last = done[-1] if done else None
        if (
            isinstance(pushed, If)
            and isinstance(last, If)
            and pushed.cond == last.cond == cond
            and cond != TRUE
        ):
            done[-1] = If(cond, block([last.then, pushed.then]))
        else:
            done.append(pushed)
    return block(done)


def _meets(s: Stmt) -> bool:
    """Whether threads reduce together somewhere in `s`."""
    return any(isinstance(part, ThreadReduce) for part in statements(s))


def _reads_data(e: Expr) -> bool:
    return any(isinstance(n, Read) and n.buffer.scope not in ("table", "local") for n in walk(e))
