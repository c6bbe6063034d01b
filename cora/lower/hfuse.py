"""Horizontal fusion: the loops of several nests become one.

At depth 0 the workers are shared: each runs its share of one nest after the other. At depth n the n outermost loops
are shared: an iteration runs that of one nest after the other, so a nest may add to what the one before has stored
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cora.errors import ScheduleError
from cora.ir.expr import ZERO, Expr, Var, binary, conjunction
from cora.ir.simplify import simplify
from cora.ir.stmt import NOTHING, For, If, Let, LoopKind, Stmt, block, map_stmt
from cora.ir.visit import free_vars, substitute
from cora.schedule.balance import iteration_cost, shares, sums_of_cost, worker_of
from cora.schedule.nest import Leaf, LoopNest
from cora.schedule.stage_steps import accesses_of

Share = tuple[Expr, Expr]


def side_by_side(names: Sequence[str], loops: Sequence[Stmt]) -> Stmt:
    """One parallel loop for several. Raises ScheduleError if one of the nests does not begin with its parallel loop."""
    if all(isinstance(stmt, For) and stmt.kind is LoopKind.BLOCK_X for stmt in loops):
        return _one_grid([stmt for stmt in loops if isinstance(stmt, For)])
    parts: list[Stmt] = []
    first: For | None = None
    for name, stmt in zip(names, loops, strict=True):
        loop, share = _share(name, stmt)
        first = first or loop
        parts.append(_rename(share, {loop.var: first.var}))
    assert first is not None
    return For(first.var, first.begin, first.end, LoopKind.PARALLEL, block(parts))


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


@dataclass(frozen=True, slots=True)
class Merge:
    """Nests whose `depth` outermost loops become one; checked when it is made."""

    nests: tuple[LoopNest, ...]
    depth: int

    def __post_init__(self) -> None:
        self._check_loops()
        for place, nest in enumerate(self.nests):
            if nest.accumulates:
                for earlier in self.nests[:place]:
                    if earlier.tensor.name == nest.tensor.name:
                        self._check_order(earlier, nest)

    @property
    def where(self) -> str:
        return f"hfuse of {', '.join(nest.name for nest in self.nests)}, depth {self.depth}"

    @property
    def shared(self) -> tuple[Leaf, ...]:
        """The loops of the first nest, which stand for all."""
        return self.nests[0].leaves[: self.depth]

    def names(self, nest: LoopNest) -> dict[Expr, Expr]:
        """The shared variables by those of the nest; others of the nest that are called like one get a new name."""
        shared = {leaf.var for leaf in self.shared}
        names: dict[Expr, Expr] = {
            own.var: Var(f"{own.var.name}_{nest.name}") for own in nest.leaves if own.var in shared
        }
        for own, leaf in zip(nest.leaves, self.shared, strict=False):
            names[own.var] = leaf.var
            names[worker_of(own)] = worker_of(leaf)
        return {old: new for old, new in names.items() if old != new}

    def share(self) -> Share | None:
        """What a worker runs of a shared parallel loop: cut by the work of all nests. None without such a loop."""
        for place, leaf in enumerate(self.shared):
            if leaf.kind is LoopKind.PARALLEL:
                worker = worker_of(leaf)
                if leaf.share is not None:
                    return leaf.share(worker), leaf.share(worker + 1)
                costs = [substitute(iteration_cost(n.leaves, place), self.names(n)) for n in self.nests]
                total = costs[0]
                for cost in costs[1:]:
                    total = total + cost
                by_cost = sums_of_cost(leaf, simplify(total)) if leaf.balance == "cost" else None
                return shares(leaf, by_cost, worker)
        return None

    def loops(self, parts: Sequence[Stmt], share: Share | None) -> Stmt:
        """The nests as one. Raises ScheduleError where something stands between the loops of a nest."""
        bodies = []
        for nest, part in zip(self.nests, parts, strict=True):
            conditions: list[Expr] = []
            inner = part
            for leaf in nest.leaves[: self.depth]:
                inner = self._open(nest, leaf, inner, conditions)
            body = If(conjunction(conditions), inner) if conditions else inner
            bodies.append(_rename(body, self.names(nest)))
        result = block(bodies)
        headers = _headers(parts[0])
        for leaf in reversed(self.shared):
            header = headers[leaf.var]
            if leaf.kind is LoopKind.PARALLEL and share is not None:
                result = For(leaf.var, *share, LoopKind.SERIAL, result)
                header = headers[worker_of(leaf)]
            result = For(header.var, header.begin, header.end, header.kind, result)
        return result

    def _open(self, nest: LoopNest, leaf: Leaf, stmt: Stmt, conditions: list[Expr]) -> Stmt:
        """The body of the loop over `leaf`; `conditions` gets those around it."""
        match stmt:
            case If(cond=cond, then=then, other=None):
                conditions.append(cond)
                return self._open(nest, leaf, then, conditions)
            case For(var=var, body=body) if var == leaf.var:
                return body
            case For(kind=LoopKind.PARALLEL, body=body) if leaf.kind is LoopKind.PARALLEL:
                return self._open(nest, leaf, body, conditions)
        raise ScheduleError(
            f"{self.where}: loop '{leaf.name}' of '{nest.name}' is not one loop right inside those around it: it is "
            "peeled, or something is computed beside it"
        )

    def _check_loops(self) -> None:
        first, *others = self.nests
        for nest in self.nests:
            if len(nest.leaves) - nest.tile < self.depth:
                raise ScheduleError(f"{self.where}: '{nest.name}' has not as many loops of its own")
            for leaf in nest.leaves[: self.depth]:
                if leaf.reduction:
                    raise ScheduleError(
                        f"{self.where}: '{leaf.name}' of '{nest.name}' is a reduction loop: its accumulators are set "
                        "before it"
                    )
        for nest in others:
            names = self.names(nest)
            for own, leaf in zip(nest.leaves, self.shared, strict=False):
                extent = simplify(substitute(own.extent, names))
                if (
                    extent != simplify(leaf.extent)
                    or own.kind is not leaf.kind
                    or own.kind is LoopKind.VECTOR
                ):
                    raise ScheduleError(
                        f"{self.where}: loop '{own.name}' of '{nest.name}', {own.kind.value} to {extent}, is not like "
                        f"'{leaf.name}' of '{first.name}', {leaf.kind.value} to {leaf.extent}"
                    )

    def _check_order(self, earlier: LoopNest, later: LoopNest) -> None:
        """An iteration of the shared loops must store and continue the same elements, or the order would be lost.

        Where each shared variable is a dim in both nests, no element belongs to two iterations.
        """
        shared = {leaf.var for leaf in self.shared}
        values = {
            dim: tuple(simplify(substitute(nest.values[dim], self.names(nest))) for nest in (earlier, later))
            for dim in later.tensor.dims
        }
        if shared <= {one for one, other in values.values() if one == other}:
            return
        for dim, (one, other) in values.items():
            inside = not free_vars(one) & shared and not free_vars(other) & shared
            if not inside and not (one == other and free_vars(one) <= shared):
                raise ScheduleError(
                    f"{self.where}: '{later.name}' adds to what '{earlier.name}' stores, and the order would be lost: "
                    f"in one iteration of the shared loops '{dim.name}' is {one} in the one and {other} in the other"
                )


def _headers(stmt: Stmt) -> dict[Var, For]:
    """The loops around the innermost statement of a nest that starts with them, by variable."""
    found: dict[Var, For] = {}
    while True:
        match stmt:
            case If(then=then, other=None):
                stmt = then
            case For(var=var, body=body):
                found[var] = stmt
                stmt = body
            case _:
                return found


def _rename(s: Stmt, values: Mapping[Expr, Expr]) -> Stmt:
    """`s` with variables replaced; a loop over one of them gets the new one."""
    match s:
        case For(var=var) if isinstance(new := values.get(var), Var):
            s = For(new, s.begin, s.end, s.kind, s.body)
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
