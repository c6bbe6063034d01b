"""The storage of tensors: padding, splitting, fusing and reordering their dims."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import ScheduleError, UserError
from cora.schedule.legality import positive
from cora.schedule.nest import State
from cora.schedule.steps import FuseDims, PadDim, ReorderDims, SplitDim
from cora.storage.layout import Layout


def pad_dim(step: PadDim, state: State) -> State:
    """The layout of a tensor with a dim padded."""
    layout = _layout(state, step.tensor, "pad_dim")
    positive(step.multiple, f"pad_dim of '{step.dim}': multiple")
    if step.contents not in ("zero", "undefined"):
        raise ScheduleError(f"pad_dim: contents must be 'zero' or 'undefined'; got {step.contents!r}")
    names = [d.name for d in layout.dims] + [name for r in layout.relations for name in r.made]
    if step.dim not in names:
        raise ScheduleError(
            f"pad_dim: tensor '{step.tensor}' has no dim '{step.dim}'; it has {', '.join(names)}"
        )
    undefined = state.undefined_padding
    if step.contents == "undefined":
        undefined |= {step.tensor}
    try:
        changed = layout.with_pad(step.dim, step.multiple, step.to_max)
    except UserError as error:
        raise ScheduleError(f"pad_dim of '{step.tensor}': {error}") from error
    return replace(_with_layout(state, step.tensor, changed), undefined_padding=undefined)


def reorder_dims(step: ReorderDims, state: State) -> State:
    """The layout of a tensor with its dims in another storage order."""
    layout = _layout(state, step.tensor, "reorder_dims")
    names = layout.stored_names
    if sorted(step.order) != sorted(names):
        raise ScheduleError(
            f"reorder_dims of '{step.tensor}': expected all of its dims {', '.join(names)}; got {', '.join(step.order)}"
        )
    try:
        return _with_layout(state, step.tensor, layout.with_order(step.order))
    except UserError as error:
        raise ScheduleError(f"reorder_dims of '{step.tensor}': {error}") from error


def split_dim(step: SplitDim, state: State) -> State:
    """The layout of a tensor with a dim split."""
    layout = _layout(state, step.tensor, "split_dim")
    positive(step.factor, f"split_dim of '{step.dim}': factor")
    try:
        return _with_layout(
            state, step.tensor, layout.with_split(step.dim, step.factor, step.outer, step.inner)
        )
    except UserError as error:
        raise ScheduleError(f"split_dim of '{step.tensor}': {error}") from error


def fuse_dims(step: FuseDims, state: State) -> State:
    """The layout of a tensor with dims fused, two at a time as loops are."""
    layout = _layout(state, step.tensor, "fuse_dims")
    if len(step.dims) < 2:
        raise ScheduleError(
            f"fuse_dims of '{step.tensor}': expected at least two dims; got {', '.join(step.dims)}"
        )
    first, *rest = step.dims
    try:
        for place, dim in enumerate(rest):
            name = step.name if place == len(rest) - 1 else f"{step.name}_{place}"
            layout = layout.with_fused(first, dim, name)
            first = name
    except UserError as error:
        raise ScheduleError(f"fuse_dims of '{step.tensor}': {error}") from error
    return _with_layout(state, step.tensor, layout)


def _layout(state: State, tensor: str, step: str) -> Layout:
    if tensor not in state.layouts:
        raise ScheduleError(f"{step}: no tensor '{tensor}'; the tensors are {', '.join(state.layouts)}")
    return state.layouts[tensor]


def _with_layout(state: State, tensor: str, layout: Layout) -> State:
    return replace(state, layouts={**state.layouts, tensor: layout})
