"""How a loop runs: in which order, in parallel, in vector lanes, unrolled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cora.errors import ScheduleError
from cora.ir import dtypes
from cora.ir.expr import Const, Expr, Var
from cora.ir.simplify import simplify
from cora.ir.stmt import LoopKind
from cora.ir.ufun import UFun, descending, longest_first, permutation
from cora.ir.visit import free_vars, substitute
from cora.schedule.balance import BALANCES, WORKERS, cost_scan, iteration_cost
from cora.schedule.legality import check_kinds, serial_place
from cora.schedule.loop_steps import split
from cora.schedule.nest import Leaf, LoopNest, State
from cora.schedule.steps import Parallel, Remap, Split, Unroll, Vectorize

MAX_LANES = 64
MAX_UNROLL = 64
VECTOR_BYTES = 64


def parallel(step: Parallel, state: State) -> State:
    nest = state.nest(step.op, "parallel")
    place = serial_place(nest, step.loop, "parallel")
    leaf = nest.leaves[place]
    if leaf.reduction:
        raise ScheduleError(f"parallel: '{step.loop}' is a reduction loop; its iterations add to one element")
    if any(other.kind is LoopKind.PARALLEL for other in nest.leaves):
        raise ScheduleError(f"parallel: '{nest.tensor.name}' has a parallel loop already; fuse the two first")
    if leaf.overlaps:
        raise ScheduleError(
            f"parallel: several iterations of '{step.loop}' compute the same elements (tail 'shifted'), and two "
            "workers would write them at once"
        )
    if step.balance not in BALANCES:
        raise ScheduleError(f"parallel: balance must be one of {', '.join(BALANCES)}; got {step.balance!r}")
    marked = replace(leaf, kind=LoopKind.PARALLEL, balance=step.balance)
    if step.balance != "longest_first":
        return state.with_nest(check_kinds(nest.with_leaf(place, marked), "parallel"))
    cost = _cost(nest, place, "parallel: balance 'longest_first'")
    lists, starts = longest_first(cost, WORKERS)
    result = _in_order(state, nest, place, replace(marked, share=starts), lists)
    check_kinds(result.nests[nest.name], "parallel")
    return result


def remap(step: Remap, state: State) -> State:
    """The iterations of a loop in another order."""
    nest = state.nest(step.op, "remap")
    place = serial_place(nest, step.loop, "remap")
    leaf = nest.leaves[place]
    if leaf.reduction:
        raise ScheduleError(
            f"remap: '{step.loop}' is a reduction loop; the order of its iterations decides bits"
        )
    match step.policy:
        case "descending" if not step.table:
            return _in_order(state, nest, place, leaf, descending(_cost(nest, place, "remap")))
        case "reversed" if not step.table:
            return _in_order(state, nest, place, leaf, lambda nth: simplify(leaf.extent - 1 - nth))
        case "given" if step.table.isidentifier():
            if free_vars(leaf.extent):
                raise ScheduleError(
                    f"remap: the extent {leaf.extent} of '{step.loop}' depends on loops outside"
                )
            return _in_order(state, nest, place, leaf, permutation(step.table, leaf.extent))
        case _:
            raise ScheduleError(
                f"remap of '{step.loop}': expected policy 'descending' or 'reversed', or 'given' with the name of a "
                f"permutation; got {step.policy!r}, {step.table!r}"
            )


def _cost(nest: LoopNest, place: int, what: str) -> UFun:
    cost = cost_scan(nest.leaves, place)
    if cost is None:
        raise ScheduleError(
            f"{what}: the work of an iteration of '{nest.leaves[place].name}' must depend on that loop alone; "
            f"it is {iteration_cost(nest.leaves, place)}"
        )
    return cost


def _in_order(state: State, nest: LoopNest, place: int, leaf: Leaf, order: Callable[[Expr], Expr]) -> State:
    """The loop at `place`, marked as in `leaf`, over places in `order`; a part with code of its own is a condition."""
    old = nest.leaves[place]
    inside = (inner for other in state.nests.values() if old in other.around for inner in other.leaves)
    taken = {name for other in (*nest.scope, *inside) for name in (other.name, other.var.name)}
    name = f"{leaf.name}_nth"
    while name in taken:
        name += "_"
    var = Var(name)
    value = order(var)
    when = tuple(simplify(substitute(c, {leaf.var: value})) for c in leaf.own_code)
    cost = None if leaf.cost is None else substitute(leaf.cost, {leaf.var: value})
    ordered = replace(leaf, var=var, root=None, cut=None, when=when, masked=False, cost=cost)
    return state.renumbered(nest, place, ordered, value)


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
    taken = {name for other in nest.scope for name in (other.name, other.var.name)}
    outer, inner = (f"{n}_{nest.tensor.name}" if n in taken else n for n in names)
    nest = split(Split(step.op, step.loop, lanes, outer, inner), nest)
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
