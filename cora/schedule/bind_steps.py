"""Binding loops to the blocks and threads of a GPU, and loops whose memory is staged ahead."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import ScheduleError
from cora.ir.stmt import PIPELINES
from cora.schedule.legality import check_kinds, serial_place
from cora.schedule.nest import LoopNest, State
from cora.schedule.steps import Bind, Pipeline
from cora.schedule.threads import LIMITS


def bind(step: Bind, nest: LoopNest) -> LoopNest:
    """Mark a loop; where it may stand is checked here and again whenever the nest changes."""
    place = serial_place(nest, step.loop, "bind")
    axes = {kind.value: kind for kind in LIMITS}
    if step.axis not in axes:
        raise ScheduleError(f"bind: axis must be one of {', '.join(axes)}; got {step.axis!r}")
    kind = axes[step.axis]
    taken = [leaf.name for leaf in nest.scope if leaf.kind is kind]
    if taken:
        raise ScheduleError(
            f"bind: loop '{taken[0]}' around or in '{nest.tensor.name}' is bound to {step.axis} already"
        )
    if nest.leaves[place].overlaps:
        raise ScheduleError(
            f"bind: several iterations of '{step.loop}' compute the same elements (tail 'shifted'), and two threads "
            "would write them at once"
        )
    return check_kinds(nest.with_leaf(place, replace(nest.leaves[place], kind=kind)), "bind")


def pipeline(step: Pipeline, state: State) -> State:
    """Mark a loop; whether its iterations can overlap is checked when it is lowered."""
    if step.stages not in PIPELINES:
        raise ScheduleError(f"pipeline: stages: expected 2, 3 or 4; got {step.stages}")
    nest = state.nest(step.op, "pipeline")
    place = serial_place(nest, step.loop, "pipeline")
    staged = [name for name, at in state.attached.items() if at == (nest.name, step.loop)]
    if not any(state.nests[name].scratch for name in staged):
        raise ScheduleError(
            f"pipeline: nothing is staged in scratch memory at loop '{step.loop}' of '{nest.tensor.name}'; cache_read "
            "first"
        )
    return state.with_nest(nest.with_leaf(place, replace(nest.leaves[place], kind=PIPELINES[step.stages])))
