"""Operators in pieces, and pieces side by side: operation splitting and horizontal fusion."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import ScheduleError
from cora.ir import dtypes
from cora.ir.expr import Expr, Reduce, binary
from cora.ir.simplify import simplify
from cora.ir.tensor import Tensor
from cora.schedule.legality import positive, serial_place
from cora.schedule.nest import Group, Leaf, LoopNest, State
from cora.schedule.stage_steps import accesses_of
from cora.schedule.steps import HFuse, SplitOp


def split_op(step: SplitOp, state: State) -> State:
    """Two nests for one; the second starts where the first ends."""
    nest = state.nest(step.op, "split_op")
    where = f"split_op of '{step.op}'"
    place = serial_place(nest, step.loop, "split_op")
    leaf = nest.leaves[place]
    _check_names(where, step.names, state)
    if step.op in state.attached or step.op in {c for c, _ in state.attached.values()} or nest.tile:
        raise ScheduleError(
            f"{where}: an operator with attached stages or a tile cannot be split; split it first"
        )
    if any(step.op in group.nests for group in state.together):
        raise ScheduleError(f"{where}: it is fused horizontally already; split it first, and fuse the pieces")
    if leaf.reduction:
        _check_reduction(where, nest.tensor)
        if any(other.overlaps for other in nest.leaves):
            raise ScheduleError(
                f"{where}: its second piece would add twice where tail 'shifted' computes twice"
            )
    at = positive(step.at, f"{where}: at")
    match step.unit:
        case "multiple":
            point = simplify(leaf.extent // at * at)
        case "index":
            point = simplify(binary("min", leaf.extent, at))
        case _:
            raise ScheduleError(f"{where}: unit must be 'multiple' or 'index'; got {step.unit!r}")
    first = _piece(nest, place, step.names[0], point, leaf.var)
    second = _piece(nest, place, step.names[1], simplify(leaf.extent - point), point + leaf.var)
    second = replace(second, accumulates=leaf.reduction or nest.accumulates)
    operator = nest.tensor.name
    before = state.pieces.get(operator, (step.op,))
    at_piece = before.index(step.op)
    pieces = (*before[:at_piece], *step.names, *before[at_piece + 1 :])
    nests = {name: n for name, n in state.nests.items() if name != step.op}
    nests.update({first.name: first, second.name: second})
    return replace(state, nests=nests, pieces={**state.pieces, operator: pieces})


def _piece(nest: LoopNest, place: int, name: str, extent: Expr, value: Expr) -> LoopNest:
    leaf = nest.leaves[place]
    own = Leaf(leaf.name, leaf.var, extent, leaf.reduction, overlaps=leaf.overlaps)
    piece = nest.rewrite(place, 1, (own,), {leaf.var: value})
    return replace(piece, piece=name).check_order("split_op")


def _check_names(where: str, names: tuple[str, ...], state: State) -> None:
    taken = {*state.nests, *state.pieces, *state.layouts}
    if len(names) != 2 or names[0] == names[1] or not all(n.isidentifier() for n in names):
        raise ScheduleError(f"{where}: expected two different names; got {', '.join(names)}")
    for name in names:
        if name in taken:
            raise ScheduleError(f"{where}: the name '{name}' is taken")


def _check_reduction(where: str, tensor: Tensor) -> None:
    """The second piece combines two stored partial results, so the element must be the bare reduction."""
    match tensor.body:
        case Reduce(op="sum" | "prod" | "max" | "min") as body if body.dtype == tensor.dtype:
            return
    raise ScheduleError(
        f"{where}: the element of a split reduction must be a bare sum, prod, max or min, stored in the type it "
        f"accumulates in ({dtypes.compute_type(tensor.dtype)}); it is {tensor.body}"
    )


def hfuse(step: HFuse, state: State) -> State:
    """Note that nests run together; whether their loops allow it is checked when they are lowered."""
    where = f"hfuse of {', '.join(step.nests)}"
    if step.depth < 0:
        raise ScheduleError(f"{where}: depth: expected 0 or a number of loops; got {step.depth}")
    if len(step.nests) < 2 or len(set(step.nests)) != len(step.nests):
        raise ScheduleError(f"{where}: expected two or more different nests")
    nests = [state.nest(name, "hfuse") for name in step.nests]
    for group in state.together:
        for name in step.nests:
            if name in group.nests:
                raise ScheduleError(f"{where}: '{name}' is fused already")
    written = {nest.tensor.name for nest in nests}
    for nest in nests:
        if nest.name in state.attached:
            raise ScheduleError(f"{where}: '{nest.name}' runs inside another operator")
        if nest.accumulates and step.depth == 0:
            raise ScheduleError(
                f"{where}: '{nest.name}' adds to what another piece stores first, and workers do not wait for one "
                "another; share the loops themselves, with depth="
            )
        for access in accesses_of(nest.tensor):
            if access.tensor.name in written:
                raise ScheduleError(f"{where}: '{nest.name}' reads '{access.tensor.name}'")
    return replace(state, together=(*state.together, Group(step.nests, step.depth)))
