"""Loops around a body: bounds, conditions, what is attached, and work shared by the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cora.ir.expr import ONE, ZERO, Binary, Call, Const, Dim, Expr, Size, Var, binary, conjunction
from cora.ir.simplify import bounds, common_factor, simplify
from cora.ir.stmt import For, If, LoopKind, Stmt, block
from cora.ir.ufun import cuts, scan
from cora.ir.visit import free_vars, substitute, walk
from cora.schedule.nest import Leaf

WORKERS = Size("%workers")


@dataclass(frozen=True, slots=True)
class Loops:
    """All leaves of a nest, what is attached to them, and which are blocks.

    blocks: reduction loops that continue in every iteration what is stored. They run at least once, so that the
    result is stored even where there is nothing to reduce.
    """

    leaves: tuple[Leaf, ...]
    attached: Mapping[str, Stmt]
    blocks: tuple[Leaf, ...] = ()

    def around(self, leaves: tuple[Leaf, ...], conditions: tuple[Expr, ...], body: Stmt) -> Stmt:
        """`body` inside some of the leaves, each condition as far outside as its variables allow."""
        place_of = {leaf.var: place for place, leaf in enumerate(leaves)}
        at: dict[int, list[Expr]] = {}
        for condition in conditions:
            depth = max((place_of[v] for v in free_vars(condition) if v in place_of), default=-1)
            at.setdefault(depth, []).append(condition)
        for place in reversed(range(len(leaves))):
            leaf = leaves[place]
            if leaf.name in self.attached:
                exists = existing(tuple(b for b in leaves[: place + 1] if b in self.blocks))
                stage = self.attached[leaf.name]
                body = block([If(conjunction(list(exists)), stage) if exists else stage, body])
            if place in at:
                body = If(conjunction(at[place]), body)
            body = self._loop(leaf, body)
        return If(conjunction(at[-1]), body) if -1 in at else body

    def _loop(self, leaf: Leaf, body: Stmt) -> Stmt:
        if leaf in self.blocks:
            return For(leaf.var, ZERO, at_least_once(leaf), leaf.kind, body)
        if leaf.kind is not LoopKind.PARALLEL:
            return For(leaf.var, ZERO, leaf.extent, leaf.kind, body)
        worker = worker_of(leaf)
        begin, end = work_share(self.leaves, self.leaves.index(leaf), worker)
        share = For(leaf.var, begin, end, LoopKind.SERIAL, body)
        return For(worker, ZERO, WORKERS, LoopKind.PARALLEL, share)


def at_least_once(leaf: Leaf) -> Expr:
    """How often the loop over a block runs."""
    return simplify(binary("max", leaf.extent, ONE))


def existing(blocks: tuple[Leaf, ...]) -> tuple[Expr, ...]:
    """What holds where the iterations of `blocks` are not just there to store an empty reduction."""
    return tuple(leaf.var < leaf.extent for leaf in blocks if (bounds(leaf.extent)[0] or 0) < 1)


def first_and_last(blocks: tuple[Leaf, ...]) -> tuple[Expr, Expr]:
    """The conditions that hold in the first and in the last iteration of all `blocks` together."""
    first = conjunction([binary("eq", leaf.var, ZERO) for leaf in blocks])
    last = conjunction([binary("eq", leaf.var, simplify(at_least_once(leaf) - 1)) for leaf in blocks])
    return first, last


def worker_of(leaf: Leaf) -> Var:
    """The loop variable that counts the workers that share a parallel leaf."""
    return Var(f"{leaf.name}_worker")


def work_share(leaves: tuple[Leaf, ...], place: int, worker: Var) -> tuple[Expr, Expr]:
    """The iterations `begin..end` of the parallel leaf at `place` that `worker` runs.

    Cut by cost, where the cost of an iteration is a function of its index alone: the product of the extents
    inside, those that depend on inner loops taken at their largest. Otherwise in equal numbers.
    """
    leaf = leaves[place]
    cost = iteration_cost(leaves, place)
    if leaf.balance == "cost" and free_vars(cost) == {leaf.var} and not free_vars(leaf.extent):
        index = Dim(leaf.name, leaf.extent)
        body = substitute(cost, {leaf.var: index})
        _, varying = common_factor(body, frozenset((index,)))
        cut = cuts(scan((), index, varying), WORKERS)
        return cut(worker), cut(worker + 1)
    return (
        binary("floordiv", leaf.extent * worker, WORKERS),
        binary("floordiv", leaf.extent * (worker + 1), WORKERS),
    )


def iteration_cost(leaves: tuple[Leaf, ...], place: int) -> Expr:
    """About how often the body runs in one iteration of the leaf at `place`, over variables outside and its own.

    Loops inside that depend on one another are taken at their largest; where that is not known, as one iteration.
    """
    cost: Expr = ONE
    largest: dict[Expr, Expr] = {}
    for leaf in leaves[place + 1 :]:
        known = _grows_with(leaf.weight, largest)
        largest[leaf.var] = substitute(leaf.weight, largest) if known else ONE
        cost = cost * largest[leaf.var]
    return simplify(cost)


def _grows_with(weight: Expr, inner: Mapping[Expr, Expr]) -> bool:
    """Whether `weight` may be evaluated anywhere, and where the variables `inner` are at their largest.

    A length that depends on them has no value there, and a divisor may be 0 where a loop is empty.
    """
    for node in walk(weight):
        match node:
            case Call() if free_vars(node) & inner.keys():
                return False
            case Binary(op="floordiv" | "mod", b=divisor) if not isinstance(divisor, Const):
                return False
    return True
