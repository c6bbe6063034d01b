"""What the threads of a GPU's block do together: reductions over them, barriers, values kept in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cora.errors import ScheduleError
from cora.ir.expr import ONE, ZERO, Expr, Read, ReduceOp
from cora.ir.stmt import (
    THREAD_AXES,
    Alloc,
    Barrier,
    Block,
    Buffer,
    LoopKind,
    Stmt,
    Store,
    ThreadReduce,
    block,
    map_stmt,
)
from cora.ir.visit import transform, walk
from cora.schedule.loop_steps import split
from cora.schedule.nest import LoopNest
from cora.schedule.steps import Split
from cora.schedule.threads import bound_loops, check_bound, thread_count

#: Threads that check the indices read from data, before the kernel runs.
CHECK_THREADS = 256


def check_device(nests: Sequence[LoopNest], gpu: bool) -> None:
    """ScheduleError if a schedule is for another kind of device than the one it is built for."""
    for nest in nests:
        if not gpu:
            bound = bound_loops(nest)
            if bound:
                raise ScheduleError(
                    f"build: loop '{bound[0].name}' of '{nest.tensor.name}' is bound to {bound[0].kind.value}, which "
                    "is for target 'cuda'; this is a CPU"
                )
            continue
        for leaf in nest.leaves:
            if leaf.kind is LoopKind.PARALLEL:
                raise ScheduleError(
                    f"build: loop '{leaf.name}' of '{nest.tensor.name}' is parallel (for workers of a CPU); for target "
                    "'cuda' bind it to blockIdx.x"
                )
        if nest.tile:
            raise ScheduleError(
                f"build: '{nest.tensor.name}' is tensorized by a micro-kernel of CPUs; for target 'cuda' bind its loops"
            )
        check_bound(nest, "build")


def across_threads(
    nest: LoopNest, accumulators: Sequence[tuple[ReduceOp, Buffer, Buffer | None]]
) -> list[Stmt]:
    """What combines the threads' accumulators where a reduction loop is bound to threads; otherwise nothing."""
    for leaf in nest.blocks:
        if leaf.kind in THREAD_AXES:
            raise ScheduleError(
                f"cache_write: the reduction loop '{leaf.name}' of '{nest.tensor.name}' is bound to {leaf.kind.value}, "
                "so the accumulators must live outside it"
            )
    for leaf in nest.leaves:
        if leaf.reduction and leaf.kind is LoopKind.THREAD_X:
            threads = thread_count(leaf, f"loop '{leaf.name}' of '{nest.tensor.name}'")
            if threads > 1:
                return [
                    ThreadReduce(op, values, positions, threads) for op, values, positions in accumulators
                ]
    return []


def counted_by_threads(nest: LoopNest) -> LoopNest:
    """A nest that only reduces, its outermost loop shared by the threads of one block."""
    if not nest.leaves:
        return nest
    loop = nest.leaves[0].name
    step = Split(nest.tensor.name, loop, CHECK_THREADS, f"{loop}_turn", f"{loop}_thread")
    divided = split(step, nest)
    return divided.with_leaf(1, replace(divided.leaves[1], kind=LoopKind.THREAD_X))


def is_element(nest: LoopNest) -> bool:
    """Whether a nest computes one element where it stands: it has no loops but those that it reduces over."""
    return all(leaf.reduction for leaf in nest.leaves)


def with_barriers(stage: Stmt, attached: LoopNest, consumer: LoopNest) -> Stmt:
    """An attached operator, between barriers if the threads of the block share what it stores.

    The one before keeps it from overwriting what slower threads still read, in the last iteration of a loop around.
    """
    inside = consumer.scope[len(attached.around) :]
    shared = any(leaf.kind in THREAD_AXES for leaf in (*attached.leaves, *inside))
    if not shared or is_element(attached):
        return stage
    serial = any(leaf.kind is LoopKind.SERIAL for leaf in attached.around)
    return block([*([Barrier()] if serial else []), stage, Barrier()])


def keep_in_registers(s: Stmt, elements: Sequence[Buffer]) -> Stmt:
    """`s` with each of the buffers `elements`, of which one element is in use at a time, as a local of that size.

    Every thread computes the element, or has it after the threads have combined their parts of it.
    """
    for buffer in elements:
        if _uses(s, buffer):
            local = Buffer(buffer.name, buffer.dtype, ONE, "local")
            s = _allocate(s, buffer, local)
    return s


def _allocate(s: Stmt, buffer: Buffer, local: Buffer) -> Stmt:
    """The innermost block that holds every use of `buffer`, with `local` in its place."""
    users: list[Stmt] = []

    def visit(inner: Stmt) -> Stmt:
        if _uses(inner, buffer):
            users.append(inner)
        return inner

    map_stmt(s, visit, lambda e: e)
    if len(users) == 1 and not isinstance(s, (Block, Store)) and not _mentions(s, buffer):
        return map_stmt(s, lambda inner: _allocate(inner, buffer, local), lambda e: e)
    return Alloc(local, _replaced(s, buffer, local))


def _replaced(s: Stmt, buffer: Buffer, local: Buffer) -> Stmt:
    def rule(e: Expr) -> Expr | None:
        return Read(local, ZERO) if isinstance(e, Read) and e.buffer == buffer else None

    mapped = map_stmt(s, lambda inner: _replaced(inner, buffer, local), lambda e: transform(e, rule))
    if isinstance(mapped, Store) and mapped.buffer == buffer:
        return replace(mapped, buffer=local, offset=ZERO)
    return mapped


def _mentions(s: Stmt, buffer: Buffer) -> bool:
    """Whether `s` itself, its sub-statements aside, names `buffer`."""
    found = isinstance(s, Store) and s.buffer == buffer

    def expr(e: Expr) -> Expr:
        nonlocal found
        found = found or any(isinstance(n, Read) and n.buffer == buffer for n in walk(e))
        return e

    map_stmt(s, lambda inner: inner, expr)
    return found


def _uses(s: Stmt, buffer: Buffer) -> bool:
    found = _mentions(s, buffer)

    def visit(inner: Stmt) -> Stmt:
        nonlocal found
        found = found or _uses(inner, buffer)
        return inner

    map_stmt(s, visit, lambda e: e)
    return found
