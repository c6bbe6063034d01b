"""Loops bound to the axes of a GPU: where they may stand. What the hardware can hold is in `LIMITS`."""

from __future__ import annotations

from typing import Final

from cora.errors import ScheduleError
from cora.ir.expr import Const
from cora.ir.stmt import BLOCK_AXES, THREAD_AXES, LoopKind
from cora.ir.visit import free_vars
from cora.schedule.nest import Leaf, LoopNest

#: Threads in a block, all axes together; and the largest extent of each axis.
MAX_THREADS: Final = 1024
LIMITS: Final = {
    LoopKind.BLOCK_X: 2**31 - 1,
    LoopKind.BLOCK_Y: 65_535,
    LoopKind.BLOCK_Z: 65_535,
    LoopKind.THREAD_X: 1024,
    LoopKind.THREAD_Y: 1024,
    LoopKind.THREAD_Z: 64,
}

WARP: Final = 32


def is_bound(leaf: Leaf) -> bool:
    """Whether a loop is bound to an axis of a GPU."""
    return leaf.kind in LIMITS


def bound_loops(nest: LoopNest) -> tuple[Leaf, ...]:
    """The loops of the nest, and of those around it, that are bound to an axis."""
    return tuple(leaf for leaf in nest.scope if is_bound(leaf))


def check_bound(nest: LoopNest, step: str) -> None:
    """ScheduleError if a bound loop stands where it may not."""
    threads = 1
    used: dict[LoopKind, str] = {}
    for place, leaf in enumerate(nest.scope):
        where = f"{step}: loop '{leaf.name}' of '{nest.tensor.name}', bound to {leaf.kind.value},"
        if is_bound(leaf):
            if leaf.kind in used:
                raise ScheduleError(f"{where} stands inside '{used[leaf.kind]}', bound to the same axis")
            used[leaf.kind] = leaf.name
        if leaf.kind in BLOCK_AXES:
            _check_block(nest, place, leaf, where)
        if leaf.kind in THREAD_AXES:
            threads *= thread_count(leaf, where)
            if threads > MAX_THREADS:
                raise ScheduleError(f"{where} makes blocks of {threads} threads; at most {MAX_THREADS} fit")
    if used and any(leaf.kind is LoopKind.PARALLEL for leaf in nest.scope):
        raise ScheduleError(
            f"{step}: '{nest.tensor.name}' has a parallel loop (for workers of a CPU) and one bound to "
            f"{next(iter(used)).value}; use one or the other"
        )
    if used and nest.tile:
        raise ScheduleError(
            f"{step}: '{nest.tensor.name}' is tensorized, which is for CPUs; its loops cannot be bound"
        )


def _check_block(nest: LoopNest, place: int, leaf: Leaf, where: str) -> None:
    if place < len(nest.around):
        return  # checked where it belongs
    if leaf.reduction:
        raise ScheduleError(f"{where} is a reduction loop; blocks cannot add to one element")
    if nest.around:
        raise ScheduleError(f"{where} runs inside another operator; bind that operator's loops to blocks")
    if free_vars(leaf.extent):
        raise ScheduleError(
            f"{where} runs to {leaf.extent}, which depends on loops outside; fuse it with them, so that only "
            "useful blocks are launched, or reorder it outside them"
        )
    serial = [other.name for other in nest.leaves[:place] if other.kind not in BLOCK_AXES]
    if serial:
        raise ScheduleError(f"{where} stands inside loop '{serial[0]}'; loops over blocks are the outermost")


def thread_count(leaf: Leaf, where: str) -> int:
    """The constant extent of a loop over threads; ScheduleError if it has none or too large a one."""
    if not isinstance(leaf.extent, Const):
        raise ScheduleError(
            f"{where} runs to {leaf.extent}; the extent of a loop over threads must be constant: split it first"
        )
    count = int(leaf.extent.value)
    if not 1 <= count <= LIMITS[leaf.kind]:
        raise ScheduleError(f"{where} has {count} iterations; expected 1 to {LIMITS[leaf.kind]}")
    if leaf.reduction:
        if leaf.kind is not LoopKind.THREAD_X:
            raise ScheduleError(f"{where} is a reduction loop; those may be bound to threadIdx.x only")
        if count & (count - 1):
            raise ScheduleError(
                f"{where} reduces over {count} threads; expected a power of two (they combine in pairs)"
            )
    return count
