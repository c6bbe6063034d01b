"""Zero filling of storage padding, so that a consumer of an output may rely on zeros there."""

from __future__ import annotations

from cora.errors import ScheduleError
from cora.ir import dtypes
from cora.ir.expr import ZERO, Call, Const, Expr, Var, binary, constant
from cora.ir.simplify import Simplifier, simplify
from cora.ir.stmt import Buffer, For, If, Let, LoopKind, Stmt, Store
from cora.ir.ufun import FusedInner, FusedOuter
from cora.ir.visit import substitute, walk
from cora.prove import Range
from cora.schedule.balance import WORKERS
from cora.storage.layout import Layout
from cora.storage.offsets import PaddingBox, PaddingLoop, offset, padding_region

#: Threads of a block that fill a row of padding on a GPU.
FILL_THREADS = 128


def zero_fill(layout: Layout, buffer: Buffer, *, gpu: bool = False) -> list[tuple[Stmt, tuple[Range, ...]]]:
    """Loops that store 0 in every padding element, once, each with the ranges of its variables.

    They run on the workers, or on a GPU with a block for each outermost row. Raises ScheduleError where an extent would
    be asked for in the padding of a fused axis, which belongs to no row.
    """
    boxes = list(padding_region(layout))
    for box in boxes:
        _check_rows(buffer, box)
    return [_fill(buffer, box, gpu) for box in boxes]


def _check_rows(buffer: Buffer, box: PaddingBox) -> None:
    loops: dict[Expr, PaddingLoop] = {loop.dim: loop for loop in box.loops}
    for loop in box.loops:
        for node in (*walk(loop.begin), *walk(loop.end)):
            match node:
                case Call(fun=fun, args=(*around, f)) if isinstance(fun.definition, FusedOuter | FusedInner):
                    formals: dict[Expr, Expr] = dict(zip(fun.domain[:-1], around, strict=True))
                    own, whole = loops.get(f), simplify(substitute(fun.domain[-1].extent, formals))
                    if own is None or own.begin != ZERO or simplify(own.end) != whole:
                        raise ScheduleError(
                            f"padding of '{buffer.name}': the extent of '{loop.dim.name}' depends on the row in the "
                            f"fused axis {f}, whose padding has none; do not pad or split that axis, or declare the "
                            "padding undefined"
                        )


def _fill(buffer: Buffer, box: PaddingBox, gpu: bool) -> tuple[Stmt, tuple[Range, ...]]:
    variables: list[Var] = []
    values: dict[Expr, Expr] = {}
    ranges: list[Range] = []
    ends: dict[Expr, Expr] = {}
    for loop in box.loops:
        var = Var(f"{loop.dim.name}_pad")
        end = substitute(loop.end, values)
        variables.append(var)
        values[loop.dim] = var
        ranges.append(Range(var, end))
        ends[var] = end
    simplifier = Simplifier(ends)
    at = simplifier(offset(box.layout, [values[d] for d in box.layout.dims]))
    body: Stmt = Store(buffer, at, constant(0, dtypes.compute_type(buffer.dtype)))
    for place in reversed(range(len(box.loops))):
        loop, var = box.loops[place], variables[place]
        begin, end = simplifier(substitute(loop.begin, values)), simplifier(substitute(loop.end, values))
        if gpu:
            innermost = place == len(box.loops) - 1
            body = _spread(var, begin, end, body, outermost=place == 0, innermost=innermost)
        elif place == 0 and begin == ZERO and len(box.loops) > 1:
            worker = Var("pad_worker")
            first = binary("floordiv", end * worker, WORKERS)
            last = binary("floordiv", end * (worker + 1), WORKERS)
            rows = For(var, first, last, LoopKind.SERIAL, body)
            body = For(worker, ZERO, WORKERS, LoopKind.PARALLEL, rows)
        else:
            body = For(var, begin, end, LoopKind.SERIAL, body)
    return body, tuple(ranges)


def _spread(var: Var, begin: Expr, end: Expr, body: Stmt, *, outermost: bool, innermost: bool) -> Stmt:
    """A loop over the blocks of a GPU (the outermost one), over the threads of a block (the innermost), or serial."""
    if innermost:
        turn, thread = Var(f"{var.name}_turn"), Var(f"{var.name}_thread")
        step = Let(var, begin + turn * FILL_THREADS + thread, If(binary("lt", var, end), body))
        threads = For(thread, ZERO, Const(FILL_THREADS), LoopKind.THREAD_X, step)
        turns = binary("floordiv", end - begin + (FILL_THREADS - 1), FILL_THREADS)
        return For(turn, ZERO, simplify(turns), LoopKind.SERIAL, threads)
    if outermost and begin == ZERO:
        return For(var, ZERO, end, LoopKind.BLOCK_X, body)
    return For(var, begin, end, LoopKind.SERIAL, body)
