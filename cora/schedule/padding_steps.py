"""Padding of loops, and the storage of tensors: padding and order."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import ScheduleError, UserError
from cora.ir.expr import round_up
from cora.ir.simplify import simplify
from cora.schedule.legality import positive, serial_place
from cora.schedule.nest import LoopNest, State
from cora.schedule.steps import BulkPad, PadDim, PadLoop, ReorderDims


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


def pad_dim(step: PadDim, state: State) -> State:
    if step.tensor not in state.layouts:
        raise ScheduleError(f"pad_dim: no tensor '{step.tensor}'; the tensors are {', '.join(state.layouts)}")
    layout = state.layouts[step.tensor]
    positive(step.multiple, f"pad_dim of '{step.dim}': multiple")
    if step.contents not in ("zero", "undefined"):
        raise ScheduleError(f"pad_dim: contents must be 'zero' or 'undefined'; got {step.contents!r}")
    dims = {d.name: d for d in layout.dims}
    if step.dim not in dims:
        raise ScheduleError(
            f"pad_dim: tensor '{step.tensor}' has no dim '{step.dim}'; it has {', '.join(dims)}"
        )
    padded = layout.with_pad(dims[step.dim], step.multiple, step.to_max)
    undefined = state.undefined_padding
    if step.contents == "undefined":
        undefined |= {step.tensor}
    return replace(state, layouts={**state.layouts, step.tensor: padded}, undefined_padding=undefined)


def reorder_dims(step: ReorderDims, state: State) -> State:
    """The layout of a tensor with its dims in another storage order."""
    if step.tensor not in state.layouts:
        raise ScheduleError(
            f"reorder_dims: no tensor '{step.tensor}'; the tensors are {', '.join(state.layouts)}"
        )
    layout = state.layouts[step.tensor]
    names = [d.name for d in layout.dims]
    if sorted(step.order) != sorted(names):
        raise ScheduleError(
            f"reorder_dims of '{step.tensor}': expected all of its dims {', '.join(names)}; got {', '.join(step.order)}"
        )
    try:
        ordered = layout.with_order(step.order)
    except UserError as error:
        raise ScheduleError(f"reorder_dims of '{step.tensor}': {error}") from error
    return replace(state, layouts={**state.layouts, step.tensor: ordered})
