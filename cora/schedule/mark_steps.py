"""How a loop runs: in parallel, in vector lanes, unrolled."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import ScheduleError
from cora.ir import dtypes
from cora.ir.expr import Const
from cora.ir.stmt import LoopKind
from cora.schedule.legality import check_kinds, serial_place
from cora.schedule.loop_steps import split
from cora.schedule.nest import LoopNest
from cora.schedule.steps import Parallel, Split, Unroll, Vectorize

MAX_LANES = 64
MAX_UNROLL = 64
VECTOR_BYTES = 64


def parallel(step: Parallel, nest: LoopNest) -> LoopNest:
    place = serial_place(nest, step.loop, "parallel")
    leaf = nest.leaves[place]
    if leaf.reduction:
        raise ScheduleError(f"parallel: '{step.loop}' is a reduction loop; its iterations add to one element")
    if any(other.kind is LoopKind.PARALLEL for other in nest.leaves):
        raise ScheduleError(f"parallel: '{nest.tensor.name}' has a parallel loop already; fuse the two first")
    if step.balance not in ("cost", "count"):
        raise ScheduleError(f"parallel: balance must be 'cost' or 'count'; got {step.balance!r}")
    marked = replace(leaf, kind=LoopKind.PARALLEL, balance=step.balance)
    return check_kinds(nest.with_leaf(place, marked), "parallel")


def vectorize(step: Vectorize, nest: LoopNest) -> LoopNest:
    place = serial_place(nest, step.loop, "vectorize")
    leaf = nest.leaves[place]
    if place != len(nest.leaves) - 1:
        raise ScheduleError(
            f"vectorize: '{step.loop}' must be the innermost loop of '{nest.tensor.name}'; reorder first"
        )
    if step.lanes == 0 and isinstance(leaf.extent, Const) and _is_lanes(int(leaf.extent.value)):
        return nest.with_leaf(place, replace(leaf, kind=LoopKind.VECTOR))
    lanes = step.lanes or VECTOR_BYTES // dtypes.itemsize(dtypes.compute_type(nest.tensor.dtype))
    if step.lanes and not _is_lanes(step.lanes):
        raise ScheduleError(
            f"vectorize: lanes must be a power of two from 2 to {MAX_LANES}; got {step.lanes}"
        )
    lanes = max(2, min(lanes, 16)) if not step.lanes else lanes
    if leaf.extent == Const(lanes):
        return nest.with_leaf(place, replace(leaf, kind=LoopKind.VECTOR))
    names = f"{step.loop}_o", f"{step.loop}_v"
    nest = split(Split(step.op, step.loop, lanes, *names), nest)
    return nest.with_leaf(place + 1, replace(nest.leaves[place + 1], kind=LoopKind.VECTOR))


def _is_lanes(n: int) -> bool:
    return 2 <= n <= MAX_LANES and n & (n - 1) == 0


def unroll(step: Unroll, nest: LoopNest) -> LoopNest:
    place = serial_place(nest, step.loop, "unroll")
    leaf = nest.leaves[place]
    if not isinstance(leaf.extent, Const) or int(leaf.extent.value) > MAX_UNROLL:
        raise ScheduleError(
            f"unroll: the extent of '{step.loop}' must be a constant up to {MAX_UNROLL}; it is {leaf.extent}"
        )
    return nest.with_leaf(place, replace(leaf, kind=LoopKind.UNROLL))
