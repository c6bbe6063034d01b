"""What each step does to the loops and layouts."""

from __future__ import annotations

from dataclasses import replace

from cora.schedule.bind_steps import bind, pipeline
from cora.schedule.factor_steps import outline, rfactor
from cora.schedule.loop_steps import fuse, peel, reorder, split, split_parts
from cora.schedule.mark_steps import parallel, remap, unroll, vectorize
from cora.schedule.nest import State
from cora.schedule.online_step import Online
from cora.schedule.online_steps import online
from cora.schedule.padding_steps import bulk_pad, pad_loop
from cora.schedule.piece_steps import hfuse, split_op
from cora.schedule.reduction_steps import cache_write, given_routine, library_routine, tensorize
from cora.schedule.stage_steps import cache_read, compute_at, fill_at_use, inline, recompute, set_scope
from cora.schedule.steps import (
    Bind,
    BulkPad,
    CacheRead,
    CacheWrite,
    ComputeAt,
    FillAtUse,
    Fuse,
    FuseDims,
    HFuse,
    HoistLoads,
    Inline,
    Offload,
    Outline,
    PadDim,
    PadLoop,
    Parallel,
    Peel,
    Pipeline,
    Recompute,
    Remap,
    Reorder,
    ReorderDims,
    RFactor,
    SetScope,
    Split,
    SplitDim,
    SplitOp,
    SplitParts,
    Step,
    TensorCore,
    Tensorize,
    TensorizeBy,
    Unroll,
    Vectorize,
)
from cora.schedule.storage_steps import fuse_dims, pad_dim, reorder_dims, split_dim
from cora.schedule.tensor_core_steps import tensor_core


def apply(step: Step, state: State) -> State:
    """The state after `step`; ScheduleError, with the reason, if it is illegal."""
    match step:
        case Split():
            return state.with_nest(split(step, state.nest(step.op, "split")))
        case SplitParts():
            return state.with_nest(split_parts(step, state.nest(step.op, "split")))
        case Fuse():
            return state.with_nest(fuse(step, state.nest(step.op, "fuse")))
        case Reorder():
            return state.with_nest(reorder(step, state.nest(step.op, "reorder")))
        case Peel():
            return state.with_nest(peel(step, state.nest(step.op, "peel")))
        case PadLoop():
            return state.with_nest(pad_loop(step, state.nest(step.op, "pad_loop")))
        case BulkPad():
            return state.with_nest(bulk_pad(step, state.nest(step.op, "bulk_pad")))
        case PadDim():
            return pad_dim(step, state)
        case Parallel():
            return parallel(step, state)
        case Remap():
            return remap(step, state)
        case Vectorize():
            return state.with_nest(vectorize(step, state.nest(step.op, "vectorize")))
        case Unroll():
            return state.with_nest(unroll(step, state.nest(step.op, "unroll")))
        case CacheWrite():
            return state.with_nest(cache_write(step, state.nest(step.op, "cache_write")))
        case Tensorize():
            return state.with_nest(tensorize(step, state.nest(step.op, "tensorize")))
        case TensorizeBy():
            return state.with_nest(tensorize(step, state.nest(step.op, "tensorize"), given_routine(step)))
        case Offload():
            return state.with_nest(tensorize(step, state.nest(step.op, "tensorize"), library_routine(step)))
        case Bind():
            return state.with_nest(bind(step, state.nest(step.op, "bind")))
        case TensorCore():
            return state.with_nest(tensor_core(step, state.nest(step.op, "tensor_core")))
        case Pipeline():
            return pipeline(step, state)
        case RFactor():
            return rfactor(step, state)
        case Outline():
            return outline(step, state)
        case Online():
            return online(step, state)
        case SplitOp():
            return split_op(step, state)
        case HFuse():
            return hfuse(step, state)
        case ReorderDims():
            return reorder_dims(step, state)
        case SplitDim():
            return split_dim(step, state)
        case FuseDims():
            return fuse_dims(step, state)
        case HoistLoads():
            return replace(state, hoist=step.on)
        case Inline():
            return inline(step, state)
        case ComputeAt():
            return compute_at(step, state)
        case SetScope():
            return set_scope(step, state)
        case CacheRead():
            return cache_read(step, state)
        case Recompute():
            return recompute(step, state)
        case FillAtUse():
            return fill_at_use(step, state)
