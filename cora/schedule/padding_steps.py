"""Padding of loops."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import ScheduleError
from cora.ir.expr import round_up
from cora.ir.simplify import simplify
from cora.schedule.legality import positive, serial_place
from cora.schedule.nest import LoopNest
from cora.schedule.steps import BulkPad, PadLoop


def pad_loop(step: PadLoop, nest: LoopNest) -> LoopNest:
    place = serial_place(nest, step.loop, "pad_loop")
    multiple = positive(step.multiple, f"pad_loop of '{step.loop}': multiple")
    leaf = nest.leaves[place]
    if leaf.root is None:
        raise ScheduleError(
            f"pad_loop: '{step.loop}' is not an original loop of '{nest.tensor.name}'; pad before splitting "
            "or fusing (bulk_pad pads a fused loop)"
        )
    if leaf.root in nest.padding:
        raise ScheduleError(f"pad_loop: loop '{step.loop}' is padded to {nest.padding[leaf.root]} already")
    padded = replace(leaf, extent=simplify(round_up(leaf.extent, multiple)), cost=leaf.weight)
    return replace(nest.with_leaf(place, padded), padding={**nest.padding, leaf.root: multiple})


def bulk_pad(step: BulkPad, nest: LoopNest) -> LoopNest:
    place = serial_place(nest, step.loop, "bulk_pad")
    multiple = positive(step.multiple, f"bulk_pad of '{step.loop}': multiple")
    leaf = nest.leaves[place]
    if leaf.root is not None:
        raise ScheduleError(f"bulk_pad: '{step.loop}' is an original loop; use pad_loop")
    padded = replace(leaf, extent=simplify(round_up(leaf.extent, multiple)))
    return nest.with_leaf(place, padded).under(leaf.var < leaf.extent, leaf.var)
