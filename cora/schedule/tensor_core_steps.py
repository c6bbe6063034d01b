"""Loops of a tile as the tensor cores of a GPU compute it: which thread of a warp holds which element."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import ScheduleError
from cora.ir.expr import Const
from cora.ir.stmt import LoopKind
from cora.schedule.legality import check_kinds, serial_place
from cora.schedule.loop_steps import fuse, reorder, split
from cora.schedule.nest import LoopNest
from cora.schedule.steps import Fuse, Reorder, Split, TensorCore

#: Rows, columns and steps of one product of the hardware.
ROWS, COLUMNS, DEPTH = 16, 8, 16


def tensor_core(step: TensorCore, nest: LoopNest) -> LoopNest:
    """The three loops cut into blocks of the hardware's size, and those into the elements of a thread."""
    where = f"tensor_core: loops '{step.row}', '{step.column}', '{step.over}' of '{nest.tensor.name}'"
    loops = (step.row, step.column, step.over)
    places = [serial_place(nest, loop, "tensor_core") for loop in loops]
    if places != list(range(len(nest.leaves) - 3, len(nest.leaves))):
        raise ScheduleError(f"{where}: expected the three innermost, in this order; reorder first")
    if [nest.leaves[p].reduction for p in places] != [False, False, True]:
        raise ScheduleError(f"{where}: expected two loops over elements, then a reduction loop")
    for loop, place, unit in zip(loops, places, (ROWS, COLUMNS, DEPTH), strict=True):
        extent = nest.leaves[place].extent
        if not isinstance(extent, Const) or not extent.value or int(extent.value) % unit:
            raise ScheduleError(
                f"{where}: the extent of '{loop}' must be a constant multiple of {unit}; it is {extent}"
            )
    op, (row, column, over) = step.op, loops
    pairs, quads, lane, steps = f"{row}_p", f"{row}_q", f"{row}_lane", f"{over}_s"
    for loop, factor, outer, inner in (
        (row, ROWS, f"{row}_b", f"{row}_r"),
        (f"{row}_r", 8, pairs, quads),
        (column, COLUMNS, f"{column}_b", f"{column}_c"),
        (f"{column}_c", 2, f"{column}_q", f"{column}_p"),
        (over, DEPTH, steps, f"{over}_k"),
    ):
        nest = split(Split(op, loop, factor, outer, inner), nest)
    order = (quads, f"{column}_q", steps, f"{row}_b", f"{column}_b", f"{over}_k", pairs, f"{column}_p")
    nest = reorder(Reorder(op, order), nest)
    nest = fuse(Fuse(op, (quads, f"{column}_q"), lane), nest)
    kinds = {lane: LoopKind.THREAD_X, f"{column}_p": LoopKind.VECTOR}
    leaves = tuple(replace(leaf, kind=kinds.get(leaf.name, leaf.kind)) for leaf in nest.leaves)
    return check_kinds(replace(nest, leaves=leaves, by_warp=True, tf32=step.tf32), "tensor_core")
