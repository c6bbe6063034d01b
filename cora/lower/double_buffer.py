"""Loops that stage shared memory, run so that the next iteration's is filled while one computes.

    for k: barrier; stage(k); barrier; use(k)
    =>  stage(first);  for k: await copies; barrier; stage(k + 1), into the other half; use(k)

With n > 2 stages, copies are begun n - 1 iterations ahead, each iteration's as a group, and all but the newest n - 2
groups are awaited: those of the iterations behind this one.

One barrier an iteration does both: it shows to all threads what has been copied for this iteration, and tells that all
have used what the next copies overwrite.

Ordering restriction: after hoist, so that what is hoisted to the loop is at hand for both parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cora.errors import ScheduleError
from cora.ir.expr import Const, Expr, Read, binary
from cora.ir.simplify import simplify
from cora.ir.stmt import (
    PIPELINES,
    Alloc,
    AwaitCopies,
    Barrier,
    Block,
    Buffer,
    CopyAsync,
    For,
    GroupCopies,
    If,
    Let,
    LoopKind,
    Operand,
    Stmt,
    Store,
    WarpProduct,
    block,
    expressions,
    map_stmt,
    statements,
)
from cora.ir.visit import free_vars, substitute, transform, walk

_STAGES: Mapping[LoopKind, int] = {kind: stages for stages, kind in PIPELINES.items()}


def double_buffer(s: Stmt) -> Stmt:
    """`s` with every pipelined loop overlapped. Raises ScheduleError for a loop whose stages wait for one another."""
    larger: dict[Buffer, Buffer] = {}
    for loop in statements(s):
        if isinstance(loop, For) and loop.kind in _STAGES:
            _, stage, _ = _parts(loop)
            larger.update((old, _times(old, _STAGES[loop.kind])) for old in _filled(stage))
    return _rewrite(s, larger, None) if larger else s


def _times(buffer: Buffer, stages: int) -> Buffer:
    """What takes the place of a shared buffer that a pipelined loop fills."""
    assert isinstance(buffer.size, Const)
    return Buffer(buffer.name, buffer.dtype, Const(stages * int(buffer.size.value)), "shared")


def _parts(loop: For) -> tuple[list[Let], Stmt, Stmt]:
    """What is bound in an iteration; what it stages; what it does with that."""
    lets: list[Let] = []
    body = loop.body
    while isinstance(body, Let):
        lets.append(body)
        body = body.body
    where = f"pipeline: loop '{loop.var}'"
    stmts: list[Stmt] = list(body.stmts) if isinstance(body, Block) else [body]
    if stmts and isinstance(stmts[0], Barrier):
        stmts = stmts[1:]
    at = next((n for n, stmt in enumerate(stmts) if isinstance(stmt, Barrier)), None)
    if not at:
        raise ScheduleError(f"{where}: nothing is staged there that the threads of a block share")
    stage, use = block(stmts[:at]), block(stmts[at + 1 :])
    if _waits(stage) or _waits(use):
        raise ScheduleError(
            f"{where}: a stage waits for another stage, or for other threads; stage them at other loops"
        )
    return lets, stage, use


def _waits(s: Stmt) -> bool:
    return any(isinstance(part, Barrier) for part in statements(s))


def _filled(s: Stmt) -> list[Buffer]:
    """The shared buffers that are written in `s`, each once."""
    stores = (part.buffer for part in statements(s) if isinstance(part, Store))
    return list(dict.fromkeys(buffer for buffer in stores if buffer.scope == "shared"))


def _rewrite(s: Stmt, larger: Mapping[Buffer, Buffer], part: Expr | None) -> Stmt:
    """`s` with larger buffers in place of the old ones; part: which part of them is meant (None: the first)."""

    def place(buffer: Buffer, offset: Expr) -> Expr:
        if part is None:
            return offset
        assert isinstance(buffer.size, Const)
        return simplify(offset + part * int(buffer.size.value))

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.buffer in larger:
            return Read(larger[e.buffer], place(e.buffer, transform(e.offset, rule)))
        return None

    def operand(o: Operand) -> Operand:
        if o.buffer not in larger:
            return o
        return replace(o, buffer=larger[o.buffer], offset=place(o.buffer, o.offset))

    if isinstance(s, For) and s.kind in _STAGES:
        return _overlapped(s, larger)
    mapped = map_stmt(s, lambda inner: _rewrite(inner, larger, part), lambda e: transform(e, rule))
    match mapped:
        case Alloc(buffer=buffer, body=body) if buffer in larger:
            return Alloc(larger[buffer], body)
        case Store(buffer=buffer, offset=offset, value=value) if buffer in larger:
            return Store(larger[buffer], place(buffer, offset), value)
        case WarpProduct(a=a, b=b):
            return replace(mapped, a=operand(a), b=operand(b))
    return mapped


def _overlapped(loop: For, larger: Mapping[Buffer, Buffer]) -> Stmt:
    lets, stage, use = _parts(loop)
    stages = _STAGES[loop.kind]
    part = binary("mod", loop.var, Const(stages))
    stage = _asynchronous(_rewrite(_inside(lets, stage), larger, part))
    use = _inside(lets, _rewrite(use, larger, part))
    group = [GroupCopies()] if stages > 2 else []

    def at(iteration: Expr) -> list[Stmt]:
        """What is staged for an iteration, if there is one; always a group where groups are counted."""
        iteration = simplify(iteration)
        exists = binary("lt", iteration, loop.end)
        return [If(exists, _substituted(stage, {loop.var: iteration})), *group]

    awaited = AwaitCopies(stages - 2 if stages > 2 else None)
    ahead = at(loop.var + (stages - 1))
    first = [stmt for early in range(stages - 1) for stmt in at(loop.begin + early)]
    body = block([awaited, Barrier(), *ahead, use])
    return block([Barrier(), *first, For(loop.var, loop.begin, loop.end, LoopKind.SERIAL, body)])


def _inside(lets: list[Let], s: Stmt) -> Stmt:
    """`s` inside those of the bindings that it needs."""
    for let in reversed(lets):
        if let.var in _variables(s):
            s = Let(let.var, let.value, s)
    return s


def _variables(s: Stmt) -> frozenset[Expr]:
    """What the expressions in `s` depend on."""
    return frozenset(v for part in statements(s) for e in expressions(part) for v in free_vars(e))


def _substituted(s: Stmt, values: Mapping[Expr, Expr]) -> Stmt:
    return map_stmt(s, lambda inner: _substituted(inner, values), lambda e: simplify(substitute(e, values)))


def _asynchronous(s: Stmt) -> Stmt:
    """`s` with every plain copy of an element to shared memory made asynchronous."""
    match s:
        case Store(buffer=buffer, offset=offset, value=Read(buffer=source) as value) if (
            buffer.scope == "shared"
            and source.scope not in ("shared", "local", "table")
            and source.dtype == buffer.dtype
            and not any(isinstance(n, Read) and n.buffer.scope != "table" for n in walk(value.offset))
        ):
            return CopyAsync(buffer, offset, value)
    return map_stmt(s, _asynchronous, lambda e: e)
