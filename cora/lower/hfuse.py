"""Horizontal fusion: the parallel loops of several nests become one, each worker running its share of every nest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cora.errors import ScheduleError
from cora.ir.expr import ZERO, Expr, Var, binary
from cora.ir.simplify import simplify
from cora.ir.stmt import NOTHING, For, If, Let, LoopKind, Stmt, block, map_stmt
from cora.ir.visit import substitute
from cora.schedule.nest import LoopNest
from cora.schedule.stage_steps import accesses_of


def side_by_side(names: Sequence[str], loops: Sequence[Stmt]) -> Stmt:
    """One parallel loop for several. Raises ScheduleError if one of the nests does not begin with its parallel loop."""
    if all(isinstance(stmt, For) and stmt.kind is LoopKind.BLOCK_X for stmt in loops):
        return _one_grid([stmt for stmt in loops if isinstance(stmt, For)])
    shares: list[Stmt] = []
    first: For | None = None
    for name, stmt in zip(names, loops, strict=True):
        loop, share = _share(name, stmt)
        first = first or loop
        shares.append(_rename(share, {loop.var: first.var}))
    assert first is not None
    return For(first.var, first.begin, first.end, LoopKind.PARALLEL, block(shares))


def _one_grid(loops: Sequence[For]) -> Stmt:
    """One grid on a GPU: its first blocks run the first nest, the next ones the second, and so on."""
    var = Var("_".join(loop.var.name for loop in loops))
    begin: Expr = ZERO
    starts = [begin]
    for loop in loops:
        begin = simplify(begin + loop.end)
        starts.append(begin)
    body: Stmt = NOTHING
    for loop, start, end in reversed(list(zip(loops, starts, starts[1:], strict=False))):
        own = Let(loop.var, simplify(var - start), loop.body)
        body = If(binary("lt", var, end), own, None if body == NOTHING else body)
    return For(var, ZERO, starts[-1], LoopKind.BLOCK_X, body)


def _share(name: str, stmt: Stmt) -> tuple[For, Stmt]:
    """The parallel loop of a nest, and what each worker runs: its body, under the conditions around the loop."""
    match stmt:
        case For(kind=LoopKind.PARALLEL, body=body):
            return stmt, body
        case If(cond=cond, then=then, other=None):
            loop, body = _share(name, then)
            return loop, If(cond, body)
    raise ScheduleError(f"hfuse: the outermost loop of '{name}' must be parallel")


def _rename(s: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    return map_stmt(s, lambda inner: _rename(inner, values), lambda e: substitute(e, values))


def check_group(group: Sequence[str], nests: Sequence[LoopNest]) -> None:
    """The group runs where its last nest stands: no nest before that, outside the group, may use what it stores."""
    names = [nest.name for nest in nests]
    last = max(names.index(name) for name in group)
    first = min(names.index(name) for name in group)
    written = {nest.tensor.name for nest in nests if nest.name in group}
    for nest in nests[first:last]:
        if nest.name in group:
            continue
        if nest.accumulates and nest.tensor.name in written:
            raise ScheduleError(
                f"hfuse of {', '.join(group)}: '{nest.name}' adds to '{nest.tensor.name}' before the group is done"
            )
        for access in accesses_of(nest.tensor):
            if access.tensor.name in written:
                raise ScheduleError(
                    f"hfuse of {', '.join(group)}: '{nest.name}' reads '{access.tensor.name}' before the group is done"
                )
