"""Loops around a body: bounds, conditions, what is attached, and work shared by the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cora.ir.bounds import bounds
from cora.ir.expr import ONE, ZERO, Expr, Var, binary, conjunction
from cora.ir.simplify import simplify
from cora.ir.stmt import For, If, LoopKind, Stmt, block
from cora.ir.visit import free_vars
from cora.lower.cases import assume, at, within
from cora.lower.guards import Guards
from cora.prove import Context, Range
from cora.prove.logic import negate
from cora.schedule.balance import WORKERS, work_share, worker_of
from cora.schedule.nest import Leaf, LoopNest
from cora.schedule.threads import is_bound


@dataclass(frozen=True, slots=True)
class Loops:
    """All leaves of a nest, what is attached to them, and which are blocks; `context` holds in all of them.

    blocks: reduction loops that continue in every iteration what is stored. They run at least once, so that the
    result is stored even where there is nothing to reduce.
    """

    leaves: tuple[Leaf, ...]
    attached: Mapping[str, Stmt]
    blocks: tuple[Leaf, ...]
    context: Context
    guards: Guards

    @staticmethod
    def of(nest: LoopNest, attached: Mapping[str, Stmt], guards: Guards) -> Loops:
        """The loops of a nest."""
        ranges = tuple(
            Range(leaf.var, at_least_once(leaf) if leaf in nest.blocks else leaf.extent)
            for leaf in nest.scope
        )
        return Loops(nest.leaves, attached, nest.blocks, Context(ranges, nest.facts), guards)

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
            return self._versions(leaf, ZERO, at_least_once(leaf), leaf.kind, body)
        if leaf.kind is not LoopKind.PARALLEL:
            return self._versions(leaf, ZERO, leaf.extent, leaf.kind, body)
        worker = worker_of(leaf)
        begin, end = work_share(self.leaves, self.leaves.index(leaf), worker)
        share = self._versions(leaf, begin, end, LoopKind.SERIAL, body)
        return For(worker, ZERO, WORKERS, LoopKind.PARALLEL, share)

    def _versions(self, leaf: Leaf, begin: Expr, end: Expr, kind: LoopKind, body: Stmt) -> Stmt:
        """The loop from `begin` to `end`, with code of its own where the leaf asks for that.

        Lanes run in lock step, and so do the threads of a GPU: they get the code for all cases.
        """
        if kind is LoopKind.VECTOR or is_bound(leaf):
            return For(leaf.var, begin, end, kind, body)
        if leaf.when:
            case = conjunction(list(leaf.when))
            own = self._assuming(leaf, case, body)
            if own == body:
                return self._cut(leaf, begin, end, kind, body)
            if leaf.var in free_vars(case):
                other = self._assuming(leaf, negate(case), body)
                return self._cut(leaf, begin, end, kind, If(case, own, other))
            return If(case, self._cut(leaf, begin, end, kind, own), self._cut(leaf, begin, end, kind, body))
        return self._cut(leaf, begin, end, kind, body)

    def _cut(self, leaf: Leaf, begin: Expr, end: Expr, kind: LoopKind, body: Stmt) -> Stmt:
        """The loop from `begin` to `end`; two loops where it is cut."""
        cut = leaf.cut
        if cut is None:
            return For(leaf.var, begin, end, kind, body)
        whole = begin == ZERO
        first = self._assuming(leaf, leaf.var < cut, body)
        last = self._assuming(leaf, binary("le", cut, leaf.var), body)
        full = For(leaf.var, begin, cut if whole else binary("min", end, cut), kind, first)
        if whole and simplify(end - cut) == ONE:
            return block([full, at(last, {leaf.var: cut})])
        return block([full, For(leaf.var, cut if whole else binary("max", begin, cut), end, kind, last)])

    def _assuming(self, leaf: Leaf, assumption: Expr, body: Stmt) -> Stmt:
        known = [r.var for r in self.context.ranges]
        outside = frozenset(v for v in known[: known.index(leaf.var) + 1] if isinstance(v, Var))
        return assume(body, assumption, within(self.context, outside), self.guards)


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
