"""Checks that several steps share."""

from __future__ import annotations

from cora.errors import ScheduleError
from cora.ir.stmt import PIPELINES, LoopKind
from cora.schedule.nest import LoopNest
from cora.schedule.threads import check_bound


def serial_place(nest: LoopNest, name: str, step: str) -> int:
    """The place of a loop that no step has marked yet; ScheduleError otherwise."""
    place = nest.position(name, step)
    if place >= len(nest.leaves) - nest.tile and step != "tensorize":
        raise ScheduleError(
            f"{step}: a micro-kernel runs loop '{name}' of '{nest.tensor.name}'; tensorize last"
        )
    if nest.leaves[place].kind is not LoopKind.SERIAL:
        done = {LoopKind.PARALLEL: "parallel", LoopKind.VECTOR: "vectorized", LoopKind.UNROLL: "unrolled"}
        done.update(dict.fromkeys(PIPELINES.values(), "pipelined"))
        found = nest.leaves[place].kind
        kind = done.get(found, f"bound to {found.value}")
        raise ScheduleError(f"{step}: loop '{name}' of '{nest.tensor.name}' is {kind} already")
    return place


def positive(value: int, what: str) -> int:
    """`value`, if it is at least 1; ScheduleError otherwise."""
    if value < 1:
        raise ScheduleError(f"{what}: expected a positive integer; got {value}")
    return value


def check_kinds(nest: LoopNest, step: str) -> LoopNest:
    """The nest itself, if its parallel and vectorized loops stand where they may; ScheduleError otherwise."""
    for place, leaf in enumerate(nest.leaves):
        outer = nest.leaves[:place]
        if leaf.kind is LoopKind.PARALLEL:
            blockers = [o.name for o in outer if o.reduction]
            if blockers:
                raise ScheduleError(
                    f"{step}: parallel loop '{leaf.name}' stands inside the reduction loop '{blockers[0]}'"
                )
        if leaf.kind is LoopKind.VECTOR and place != len(nest.leaves) - 1:
            raise ScheduleError(f"{step}: the vectorized loop '{leaf.name}' must stay innermost")
    check_bound(nest, step)
    return nest
