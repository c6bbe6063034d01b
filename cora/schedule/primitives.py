"""What each step does to the loops: legality first, then the rewriting."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import ScheduleError
from cora.ir import dtypes
from cora.ir.expr import Const, Dim, Expr, Var, binary, ceildiv, round_up
from cora.ir.simplify import simplify
from cora.ir.stmt import LoopKind
from cora.ir.ufun import fusion_maps, scan
from cora.ir.visit import free_vars, substitute
from cora.schedule.nest import Leaf, LoopNest, State
from cora.schedule.steps import (
    BulkPad,
    Fuse,
    PadDim,
    PadLoop,
    Parallel,
    Reorder,
    Split,
    Step,
    Unroll,
    Vectorize,
)

MAX_LANES = 64
MAX_UNROLL = 64
VECTOR_BYTES = 64


def apply(step: Step, state: State) -> State:
    """The state after `step`; ScheduleError, with the reason, if it is illegal."""
    match step:
        case Split():
            return state.with_nest(_split(step, state.nest(step.op, "split")))
        case Fuse():
            return state.with_nest(_fuse(step, state.nest(step.op, "fuse")))
        case Reorder():
            return state.with_nest(_reorder(step, state.nest(step.op, "reorder")))
        case PadLoop():
            return state.with_nest(_pad_loop(step, state.nest(step.op, "pad_loop")))
        case BulkPad():
            return state.with_nest(_bulk_pad(step, state.nest(step.op, "bulk_pad")))
        case PadDim():
            return _pad_dim(step, state)
        case Parallel():
            return state.with_nest(_parallel(step, state.nest(step.op, "parallel")))
        case Vectorize():
            return state.with_nest(_vectorize(step, state.nest(step.op, "vectorize")))
        case Unroll():
            return state.with_nest(_unroll(step, state.nest(step.op, "unroll")))


def _serial(nest: LoopNest, name: str, step: str) -> int:
    place = nest.position(name, step)
    if nest.leaves[place].kind is not LoopKind.SERIAL:
        kind = nest.leaves[place].kind.value
        raise ScheduleError(f"{step}: loop '{name}' of '{nest.tensor.name}' is {kind}d already")
    return place


def _positive(value: int, what: str) -> int:
    if value < 1:
        raise ScheduleError(f"{what}: expected a positive integer; got {value}")
    return value


def _split(step: Split, nest: LoopNest) -> LoopNest:
    place = _serial(nest, step.loop, "split")
    factor = _positive(step.factor, f"split of '{step.loop}': factor")
    leaf = nest.leaves[place]
    if step.outer == step.inner:
        raise ScheduleError(f"split of '{step.loop}': the names of the two loops must differ")
    outer = Var(nest.fresh(step.outer, "split"))
    inner = Var(nest.fresh(step.inner, "split"))
    joined = outer * factor + inner
    count = simplify(ceildiv(leaf.extent, factor))
    new = (
        Leaf(step.outer, outer, count, leaf.reduction),
        Leaf(step.inner, inner, Const(factor), leaf.reduction),
    )
    result = nest.rewrite(place, 1, new, {leaf.var: joined})
    return replace(result, conditions=(*result.conditions, joined < leaf.extent)).check_order("split")


def _fuse(step: Fuse, nest: LoopNest) -> LoopNest:
    if len(step.loops) < 2:
        raise ScheduleError(f"fuse: expected at least two loops; got {', '.join(step.loops)}")
    first, *rest = step.loops
    for position, name in enumerate(rest):
        last = position == len(rest) - 1
        fused = step.name if last else f"{step.name}_{position}"
        nest = _fuse_pair(nest, first, name, fused)
        first = fused
    return nest


def _fuse_pair(nest: LoopNest, outer_name: str, inner_name: str, name: str) -> LoopNest:
    where = f"fuse of '{outer_name}' and '{inner_name}'"
    place = _serial(nest, outer_name, "fuse")
    inner_place = _serial(nest, inner_name, "fuse")
    outer, inner = nest.leaves[place], nest.leaves[inner_place]
    if inner_place != place + 1:
        raise ScheduleError(
            f"{where}: '{inner_name}' must stand directly inside '{outer_name}'; reorder first"
        )
    if outer.reduction != inner.reduction:
        raise ScheduleError(f"{where}: a reduction loop cannot be fused with one that is not")
    f = Var(nest.fresh(name, "fuse"))
    values: dict[Expr, Expr]
    if outer.var not in free_vars(inner.extent):
        extent = simplify(outer.extent * inner.extent)
        values = {
            outer.var: binary("floordiv", f, inner.extent) if inner.extent != Const(0) else Const(0),
            inner.var: binary("mod", f, inner.extent) if inner.extent != Const(0) else Const(0),
        }
    else:
        around = _dims_around(nest, place, outer.extent, inner.extent)
        as_dims: dict[Expr, Expr] = {var: dim for var, dim in around.items()}
        index = Dim(outer.name, substitute(outer.extent, as_dims))
        body = substitute(inner.extent, {**as_dims, outer.var: index})
        offset = scan(tuple(around.values()), index, body)
        ffo, ffi = fusion_maps(offset)
        variables = tuple(around)
        extent = simplify(offset(*variables, outer.extent))
        values = {outer.var: ffo(*variables, f), inner.var: ffi(*variables, f)}
    new = (Leaf(name, f, extent, outer.reduction),)
    return nest.rewrite(place, 2, new, values).check_order("fuse")


def _dims_around(nest: LoopNest, place: int, *extents: Expr) -> dict[Var, Dim]:
    """The loops outside `place` on which `extents` depend, directly or not, as formal dims; outermost first."""
    needed = frozenset[Var]().union(*(free_vars(e) for e in extents))
    for leaf in reversed(nest.leaves[:place]):
        if leaf.var in needed:
            needed |= free_vars(leaf.extent)
    dims: dict[Var, Dim] = {}
    for leaf in nest.leaves[:place]:
        if leaf.var in needed:
            dims[leaf.var] = Dim(leaf.name, substitute(leaf.extent, dims))
    return dims


def _reorder(step: Reorder, nest: LoopNest) -> LoopNest:
    places = [nest.position(name, "reorder") for name in step.order]
    if len(set(places)) != len(places):
        raise ScheduleError(f"reorder: a loop stands twice in {', '.join(step.order)}")
    leaves = list(nest.leaves)
    for place, source in zip(sorted(places), places, strict=True):
        leaves[place] = nest.leaves[source]
    return _check_kinds(replace(nest, leaves=tuple(leaves)).check_order("reorder"), "reorder")


def _pad_loop(step: PadLoop, nest: LoopNest) -> LoopNest:
    place = _serial(nest, step.loop, "pad_loop")
    multiple = _positive(step.multiple, f"pad_loop of '{step.loop}': multiple")
    leaf = nest.leaves[place]
    if leaf.root is None:
        raise ScheduleError(
            f"pad_loop: '{step.loop}' is not an original loop of '{nest.tensor.name}'; pad before splitting "
            "or fusing (bulk_pad pads a fused loop)"
        )
    if leaf.root in nest.padding:
        raise ScheduleError(f"pad_loop: loop '{step.loop}' is padded to {nest.padding[leaf.root]} already")
    padded = replace(leaf, extent=simplify(round_up(leaf.extent, multiple)))
    return replace(nest.with_leaf(place, padded), padding={**nest.padding, leaf.root: multiple})


def _bulk_pad(step: BulkPad, nest: LoopNest) -> LoopNest:
    place = _serial(nest, step.loop, "bulk_pad")
    multiple = _positive(step.multiple, f"bulk_pad of '{step.loop}': multiple")
    leaf = nest.leaves[place]
    if leaf.root is not None:
        raise ScheduleError(f"bulk_pad: '{step.loop}' is an original loop; use pad_loop")
    padded = replace(leaf, extent=simplify(round_up(leaf.extent, multiple)))
    exists = leaf.var < leaf.extent
    return replace(nest.with_leaf(place, padded), conditions=(*nest.conditions, exists))


def _pad_dim(step: PadDim, state: State) -> State:
    if step.tensor not in state.layouts:
        raise ScheduleError(f"pad_dim: no tensor '{step.tensor}'; the tensors are {', '.join(state.layouts)}")
    layout = state.layouts[step.tensor]
    _positive(step.multiple, f"pad_dim of '{step.dim}': multiple")
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


def _parallel(step: Parallel, nest: LoopNest) -> LoopNest:
    place = _serial(nest, step.loop, "parallel")
    leaf = nest.leaves[place]
    if leaf.reduction:
        raise ScheduleError(f"parallel: '{step.loop}' is a reduction loop; its iterations add to one element")
    if any(other.kind is LoopKind.PARALLEL for other in nest.leaves):
        raise ScheduleError(f"parallel: '{nest.tensor.name}' has a parallel loop already; fuse the two first")
    if step.balance not in ("cost", "count"):
        raise ScheduleError(f"parallel: balance must be 'cost' or 'count'; got {step.balance!r}")
    marked = replace(leaf, kind=LoopKind.PARALLEL, balance=step.balance)
    return _check_kinds(nest.with_leaf(place, marked), "parallel")


def _vectorize(step: Vectorize, nest: LoopNest) -> LoopNest:
    place = _serial(nest, step.loop, "vectorize")
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
    nest = _split(Split(step.op, step.loop, lanes, *names), nest)
    return nest.with_leaf(place + 1, replace(nest.leaves[place + 1], kind=LoopKind.VECTOR))


def _is_lanes(n: int) -> bool:
    return 2 <= n <= MAX_LANES and n & (n - 1) == 0


def _unroll(step: Unroll, nest: LoopNest) -> LoopNest:
    place = _serial(nest, step.loop, "unroll")
    leaf = nest.leaves[place]
    if not isinstance(leaf.extent, Const) or int(leaf.extent.value) > MAX_UNROLL:
        raise ScheduleError(
            f"unroll: the extent of '{step.loop}' must be a constant up to {MAX_UNROLL}; it is {leaf.extent}"
        )
    return nest.with_leaf(place, replace(leaf, kind=LoopKind.UNROLL))


def _check_kinds(nest: LoopNest, step: str) -> LoopNest:
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
    return nest
