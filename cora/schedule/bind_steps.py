"""Binding loops to the blocks and threads of a GPU."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import ScheduleError
from cora.schedule.legality import check_kinds, serial_place
from cora.schedule.nest import LoopNest
from cora.schedule.steps import Bind
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
