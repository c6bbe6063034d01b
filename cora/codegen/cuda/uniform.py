"""Barriers and warp operations stand where all threads that must meet there do."""

from __future__ import annotations

from cora.codegen.cuda.launches import AXIS_VARS, Launch
from cora.errors import ScheduleError
from cora.ir.expr import Expr, Read, Var
from cora.ir.stmt import (
    THREAD_AXES,
    Barrier,
    For,
    If,
    Let,
    LoopKind,
    Stmt,
    Store,
    ThreadReduce,
    WarpProduct,
    map_stmt,
)
from cora.ir.visit import free_vars, walk
from cora.schedule.threads import WARP


def check_uniform(launch: Launch) -> None:
    """ScheduleError if a condition or the extent of a loop keeps some of a block's threads from a barrier.

    A reduction over a warp needs the threads of one warp alone; a condition that depends on threadIdx.y does not
    divide a warp whose 32 threads lie along threadIdx.x.
    """
    _Check(launch).stmt(launch.body, frozenset())


class _Check:
    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        # which thread axes a variable depends on
        self._depends: dict[Var, frozenset[LoopKind]] = {AXIS_VARS[k]: frozenset((k,)) for k in THREAD_AXES}

    def stmt(self, s: Stmt, around: frozenset[LoopKind]) -> None:
        """Check `s`, which runs under conditions that depend on the axes `around`."""
        match s:
            case Let(var=var, value=value):
                self._depends[var] = self._axes(value)
            case For(var=var, begin=begin, end=end):
                extent = self._axes(begin) | self._axes(end)
                self._depends[var] = extent
                around |= extent
            case If(cond=cond):
                around |= self._axes(cond)
            case Barrier():
                self._meet("a barrier", around, block=True)
            case WarpProduct():
                self._meet("a product by a warp", around, block=False)
            case ThreadReduce(threads=threads):
                self._meet(f"a reduction over {threads} threads", around, block=threads > WARP)

        def visit(inner: Stmt) -> Stmt:
            if not isinstance(inner, Store):
                self.stmt(inner, around)
            return inner

        map_stmt(s, visit, lambda e: e)

    def _axes(self, e: Expr) -> frozenset[LoopKind]:
        axes = frozenset[LoopKind]().union(*(self._depends.get(v, frozenset()) for v in free_vars(e)))
        if any(isinstance(n, Read) and n.buffer.scope != "table" for n in walk(e)):
            axes |= frozenset(THREAD_AXES)  # what threads hold or have stored may differ
        return frozenset(k for k in axes if self._launch.block[THREAD_AXES.index(k)] > 1)

    def _meet(self, what: str, around: frozenset[LoopKind], *, block: bool) -> None:
        whole_warps = self._launch.block[0] % WARP == 0 and LoopKind.THREAD_X not in around
        if not around or (whole_warps and not block):
            return
        axes = ", ".join(sorted(k.value for k in around))
        raise ScheduleError(
            f"{self._launch.name}: {what} stands under a condition or loop that depends on {axes}, so not all threads "
            "get there; bind the loops around it to blocks, or pad them to whole tiles"
            + ("" if block else ", or reduce over 32 threads")
        )
