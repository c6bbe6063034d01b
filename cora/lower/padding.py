"""Zero filling of storage padding, so that a consumer of an output may rely on zeros there."""

from __future__ import annotations

from cora.ir import dtypes
from cora.ir.expr import ZERO, Expr, Var, binary, constant
from cora.ir.simplify import Simplifier
from cora.ir.stmt import Buffer, For, LoopKind, Stmt, Store
from cora.ir.visit import substitute
from cora.prove import Range
from cora.schedule.balance import WORKERS
from cora.storage.layout import Layout
from cora.storage.offsets import PaddingBox, offset, padding_region


def zero_fill(layout: Layout, buffer: Buffer) -> list[tuple[Stmt, tuple[Range, ...]]]:
    """Loops that store 0 in every padding element, once, each with the ranges of its variables."""
    return [_fill(buffer, box) for box in padding_region(layout)]


def _fill(buffer: Buffer, box: PaddingBox) -> tuple[Stmt, tuple[Range, ...]]:
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
        if place == 0 and begin == ZERO and len(box.loops) > 1:
            worker = Var("pad_worker")
            first = binary("floordiv", end * worker, WORKERS)
            last = binary("floordiv", end * (worker + 1), WORKERS)
            rows = For(var, first, last, LoopKind.SERIAL, body)
            body = For(worker, ZERO, WORKERS, LoopKind.PARALLEL, rows)
        else:
            body = For(var, begin, end, LoopKind.SERIAL, body)
    return body, tuple(ranges)
