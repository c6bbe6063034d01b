"""Where the accumulators of a reduction live: inside a loop, or in the registers of a micro-kernel."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import ScheduleError
from cora.ir import dtypes
from cora.ir.stmt import LoopKind, Routine
from cora.lang.check import reductions_of
from cora.schedule.legality import serial_place
from cora.schedule.nest import LoopNest
from cora.schedule.steps import LIBRARIES, CacheWrite, Offload, Tensorize, TensorizeBy
from cora.tiles.given import MicroKernel
from cora.tiles.openblas import SGEMM


def cache_write(step: CacheWrite, nest: LoopNest) -> LoopNest:
    """Accumulators inside a loop."""
    where = f"cache_write of '{step.op}' at loop '{step.loop}'"
    place = nest.position(step.loop, "cache_write")
    if nest.tile:
        raise ScheduleError(f"{where}: a micro-kernel keeps the accumulators of '{step.op}'")
    if nest.kept_in:
        raise ScheduleError(f"{where}: they live in loop '{nest.kept_in}' already")
    if not any(leaf.reduction for leaf in nest.leaves[place + 1 :]):
        raise ScheduleError(f"{where}: no reduction loop stands inside")
    if nest.leaves[place].kind is LoopKind.VECTOR:
        raise ScheduleError(f"{where}: the loop runs in lanes")
    _check_overlaps(where, nest)
    return check_stored(where, replace(nest, kept_in=step.loop))


def tensorize(
    step: Tensorize | TensorizeBy | Offload, nest: LoopNest, routine: Routine | None = None
) -> LoopNest:
    """Mark the loops of a tile; whether the body fits a micro-kernel is decided when the nest is lowered."""
    place = serial_place(nest, step.loop, "tensorize")
    tile = nest.leaves[place:]
    shape = [leaf.reduction for leaf in tile]
    unmarked = all(leaf.kind is LoopKind.SERIAL for leaf in tile)
    if shape not in ([False, False, True], [False, True]) or not unmarked:
        raise ScheduleError(
            f"tensorize: from '{step.loop}' inwards '{nest.tensor.name}' must have a row loop, a column loop and one "
            f"reduction loop, all unmarked; it has {', '.join(leaf.name for leaf in tile)}"
        )
    where = f"tensorize: the tile of '{nest.tensor.name}' at '{step.loop}'"
    return check_stored(where, replace(nest, tile=len(tile), kept_in="", routine=routine))


def given_routine(step: TensorizeBy) -> Routine:
    """The routine of a user's micro-kernel; UserError if its text breaks the contract."""
    kernel = MicroKernel(step.function, step.ir, step.rows, step.columns, step.edges)
    return Routine(kernel.name, kernel.symbol, "given", kernel.rows, kernel.columns, kernel.edges)


def library_routine(step: Offload) -> Routine:
    """The routine of a library; whether that is installed is seen when the schedule is built."""
    if step.library not in LIBRARIES:
        raise ScheduleError(f"tensorize: kernel must be one of {', '.join(LIBRARIES)}; got {step.library!r}")
    return Routine(step.library, SGEMM, "cblas")


def check_stored(where: str, nest: LoopNest) -> LoopNest:
    """The nest itself, if its partial results may stand where the result will; ScheduleError otherwise."""
    if not nest.blocks:
        return nest
    _check_overlaps(where, nest)
    tensor = nest.tensor
    assert tensor.body is not None
    reductions = reductions_of(tensor.body)
    names = ", ".join(leaf.name for leaf in nest.blocks)
    if len(reductions) != 1 or reductions[0].op not in ("sum", "prod", "max", "min"):
        raise ScheduleError(
            f"{where}: the reduction loop(s) {names} outside continue what is stored, so the element must have one "
            f"reduction, a sum, prod, max or min; it is {tensor.body}"
        )
    kept = reductions[0].dtype
    if kept != tensor.dtype or dtypes.compute_type(tensor.dtype) != tensor.dtype:
        raise ScheduleError(
            f"{where}: the reduction loop(s) {names} outside continue what is stored, so the operator must be stored "
            f"as it accumulates, {kept}; it is stored as {tensor.dtype}"
        )
    return nest


def _check_overlaps(where: str, nest: LoopNest) -> None:
    """What is continued must not be computed twice."""
    for leaf in nest.leaves:
        if leaf.overlaps:
            raise ScheduleError(
                f"{where}: several iterations of '{leaf.name}' compute the same elements (tail 'shifted'), and would "
                "continue them twice"
            )
