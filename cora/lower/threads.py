"""What the threads of a GPU's block do together: reductions over them, barriers, values kept in registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from cora.errors import ScheduleError
from cora.ir.bounds import bounds
from cora.ir.expr import ONE, ZERO, Const, Expr, Read, ReduceOp
from cora.ir.stmt import (
    PIPELINES,
    THREAD_AXES,
    Alloc,
    Barrier,
    Block,
    Buffer,
    LoopKind,
    Stmt,
    Store,
    ThreadReduce,
    WarpProduct,
    block,
    expressions,
    map_stmt,
    statements,
)
from cora.ir.visit import transform, walk
from cora.schedule.loop_steps import split
from cora.schedule.nest import LoopNest, State
from cora.schedule.stage_steps import accesses_of, readers_elsewhere
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
            ahead = [leaf.name for leaf in nest.leaves if leaf.kind in PIPELINES.values()]
            if ahead:
                raise ScheduleError(
                    f"build: loop '{ahead[0]}' of '{nest.tensor.name}' is pipelined, which is for target 'cuda'; this "
                    "is a CPU"
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


def in_register(nest: LoopNest, state: State) -> bool:
    """Whether an attached operator's element is kept by each thread for itself."""
    return nest.name in state.attached and is_element(nest) and not nest.scratch


def check_read_later(nests: Sequence[LoopNest], state: State) -> None:
    """ScheduleError if an operator reads what is computed inside a loop of one that runs after it, or with it."""
    groups = [group.nests for group in state.together]

    def place(name: str) -> int:
        while name in state.attached:
            name = state.attached[name][0]
        members = next((g for g in groups if name in g), (name,))
        return max(number for number, nest in enumerate(nests) if nest.name in members)

    for nest in nests:
        for reader in readers_elsewhere(nest, state):
            if place(reader) <= place(nest.name):
                raise ScheduleError(
                    f"compute_at: '{reader}' reads '{nest.name}', which is computed inside "
                    f"'{state.attached[nest.name][0]}', and does not run after that"
                )


def _shared_by_threads(attached: LoopNest, consumer: LoopNest) -> bool:
    """Whether the threads of a block read what others of them have computed."""
    inside = consumer.scope[len(attached.around) :]
    return any(leaf.kind in THREAD_AXES for leaf in (*attached.leaves, *inside))


def on_chip(
    nests: Sequence[LoopNest], state: State, buffers: Mapping[str, Buffer], *, gpu: bool
) -> dict[str, Buffer]:
    """The memory of attached operators that is local, or on a GPU of a block if its threads share it.

    Raises ScheduleError where its size is not constant, and where it cannot be what the schedule asks for.
    """
    by_name = {nest.name: nest for nest in nests}
    found: dict[str, Buffer] = {}
    for nest in nests:
        where = f"set_scope of '{nest.name}'"
        if nest.chip == "shared" and not gpu:
            raise ScheduleError(f"{where}: 'shared' is for target 'cuda'; this is a CPU")
        if not nest.scratch or not (gpu or nest.chip):
            continue
        together = _shared_by_threads(nest, by_name[state.attached[nest.name][0]])
        if nest.chip == "register" and together:
            raise ScheduleError(
                f"{where}: threads of a block read what others of them compute; it must be shared"
            )
        if nest.chip == "shared" and not together:
            raise ScheduleError(f"{where}: no thread of a block reads what others compute; use 'register'")
        buffer = buffers[nest.tensor.name]
        if not isinstance(buffer.size, Const):
            raise ScheduleError(
                f"{where}: memory on the chip must have a constant size; that of "
                f"'{nest.name}' is {buffer.size}: split the loops that read it, so that an iteration reads a tile"
            )
        scope: Literal["shared", "local"] = "shared" if together else "local"
        found[nest.tensor.name] = Buffer(buffer.name, buffer.dtype, buffer.size, scope)
    return found


#: An attached operator and what it does.
Stage: TypeAlias = tuple[LoopNest, Stmt]


def with_barriers(stages: Sequence[Stage], consumer: LoopNest) -> Stmt:
    """What is attached to one loop, with barriers where the threads of a block share what is stored.

    One before keeps it from overwriting what slower threads still read, in the last iteration of a loop around; one
    after a stage that a later one reads; one after all.
    """
    done: list[Stmt] = []
    pending: set[str] = set()
    for nest, stmt in stages:
        shared = _is_shared(nest, consumer)
        if (
            shared
            and not done
            and any(leaf.kind in (LoopKind.SERIAL, *PIPELINES.values()) for leaf in nest.around)
        ):
            done.append(Barrier())
        if pending & {access.tensor.name for access in accesses_of(nest.tensor)}:
            done.append(Barrier())
            pending.clear()
        done.append(stmt)
        if shared:
            pending.add(nest.tensor.name)
    return block([*done, *([Barrier()] if pending else [])])


def starting(stages: Sequence[Stage], consumer: LoopNest) -> Stmt:
    """What is set before a loop, along which it runs, with barriers where the threads of a block share it."""
    stmts = [stmt for _, stmt in stages]
    if not any(_is_shared(nest, consumer) for nest, _ in stages):
        return block(stmts)
    again = any(leaf.kind is LoopKind.SERIAL for nest, _ in stages for leaf in nest.around[:-1])
    return block([*([Barrier()] if again else []), *stmts, Barrier()])


def _is_shared(nest: LoopNest, consumer: LoopNest) -> bool:
    """Whether threads of a block read from memory what others of them have stored of an attached operator."""
    return _shared_by_threads(nest, consumer) and (nest.scratch or not is_element(nest))


def reads_block_memory(body: Expr, ranges: Mapping[Expr, Expr]) -> bool:
    """Whether `body` reads nothing but shared and local memory, at offsets inside it in every iteration of the loops.

    Then it may be evaluated in iterations that do not exist: what comes out is not stored.
    """
    reads = [n for n in walk(body) if isinstance(n, Read)]
    if not reads or any(r.buffer.scope not in ("shared", "local") for r in reads):
        return False
    for read in reads:
        low, high = bounds(read.offset, ranges)
        size = read.buffer.size
        if low is None or high is None or low < 0 or not isinstance(size, Const) or high >= int(size.value):
            return False
    return True


def keep_on_chip(
    s: Stmt, elements: Sequence[Buffer], buffers: Sequence[Buffer], read_later: Sequence[Buffer]
) -> Stmt:
    """`s` with on-chip memory allocated where it is used.

    elements: buffers of which one element is in use at a time: it becomes a local of each thread, which computes it, or
    has it after the threads have combined their parts of it. read_later: those of them that are stored as well.
    """
    for buffer in elements:
        if _uses(s, buffer):
            s = _allocate(s, buffer, Buffer(buffer.name, buffer.dtype, ONE, "local"), buffer in read_later)
    for buffer in buffers:
        if buffer.scope in ("shared", "local") and _uses(s, buffer):
            s = _allocate(s, buffer, buffer)
    return s


def _allocate(s: Stmt, buffer: Buffer, local: Buffer, stored: bool = False) -> Stmt:
    """The innermost block that holds every use of `buffer`, with `local` in its place; `stored`: in both places."""
    users: list[Stmt] = []

    def visit(inner: Stmt) -> Stmt:
        if _uses(inner, buffer):
            users.append(inner)
        return inner

    map_stmt(s, visit, lambda e: e)
    if len(users) == 1 and not isinstance(s, (Block, Store)) and not _mentions(s, buffer):
        return map_stmt(s, lambda inner: _allocate(inner, buffer, local, stored), lambda e: e)
    return Alloc(local, s if local == buffer else _replaced(s, buffer, local, stored))


def _replaced(s: Stmt, buffer: Buffer, local: Buffer, stored: bool) -> Stmt:
    def rule(e: Expr) -> Expr | None:
        return Read(local, ZERO) if isinstance(e, Read) and e.buffer == buffer else None

    mapped = map_stmt(s, lambda inner: _replaced(inner, buffer, local, stored), lambda e: transform(e, rule))
    if isinstance(mapped, Store) and mapped.buffer == buffer:
        own = replace(mapped, buffer=local, offset=ZERO)
        return block([own, replace(mapped, value=Read(local, ZERO))]) if stored else own
    return mapped


def _mentions(s: Stmt, buffer: Buffer) -> bool:
    """Whether `s` itself, its sub-statements aside, names `buffer`."""
    match s:
        case Store(buffer=stored) if stored == buffer:
            return True
        case WarpProduct(out=out, a=a, b=b) if buffer in (out, a.buffer, b.buffer):
            return True
    return any(isinstance(n, Read) and n.buffer == buffer for e in expressions(s) for n in walk(e))


def _uses(s: Stmt, buffer: Buffer) -> bool:
    return any(_mentions(part, buffer) for part in statements(s))
