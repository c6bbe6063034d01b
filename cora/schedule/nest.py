"""Loop nests of operators while they are scheduled: leaf loops, and what the original dims are in terms of them.

As in TE, the original loops are *roots* and the loops after scheduling are *leaves*; instead of keeping the
relations between them, the nest keeps their composition: the value of each root dim over the leaf variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from cora.errors import ScheduleError
from cora.ir.expr import Access, Const, Dim, Expr, Var, binary, unary
from cora.ir.simplify import simplify
from cora.ir.stmt import LoopKind, Routine
from cora.ir.tensor import Tensor
from cora.ir.ufun import UFun
from cora.ir.visit import free_vars, substitute
from cora.lang.check import reductions_of
from cora.storage.layout import Layout


@dataclass(frozen=True, slots=True)
class Leaf:
    """A loop of the scheduled nest; its extent is over the variables of leaves outside it.

    cost: what the loop contributes to the cost of an iteration outside, where that is not its extent: of the two
    loops of a split the outer one stands for the whole range, and padding does not count, so that the lengths
    themselves are the costs and their prefix sums serve twice.
    part_of: the outer one of the two loops of a split: while it stands inside the iteration too, this loop
    contributes nothing.
    bound: what the extent never exceeds, where that is known and the extent is no literal.
    reach: the extent before it was cut off at the end of a dim; what is read of operators inside is cut off itself.
    cut: an iteration at which the loop is cut into two loops with code of their own (0 to the extent).
    when: conditions under which the loop gets code of its own, beside the code for all cases.
    overlaps: whether several iterations may compute one element (the last tile, moved back over its neighbour).
    balance, share: how the workers share a parallel loop, and where the list of each starts, if they have lists.
    masked: whether the loop stays one loop under its conditions, instead of a full part and a tail.
    """

    name: str
    var: Var
    extent: Expr
    reduction: bool
    kind: LoopKind = LoopKind.SERIAL
    balance: str = "cost"
    root: Dim | None = None
    cost: Expr | None = None
    cut: Expr | None = None
    when: tuple[Expr, ...] = ()
    overlaps: bool = False
    masked: bool = False
    share: UFun | None = None
    part_of: Var | None = None
    bound: int | None = None
    reach: Expr | None = None

    @property
    def largest(self) -> int | None:
        """The largest extent, if it is known."""
        return int(self.extent.value) if isinstance(self.extent, Const) else self.bound

    @property
    def weight(self) -> Expr:
        """The cost, or else the extent."""
        return self.extent if self.cost is None else self.cost

    def substituted(self, values: Mapping[Expr, Expr]) -> Leaf:
        """The loop with variables outside it replaced."""

        def new(e: Expr) -> Expr:
            return simplify(substitute(e, values))

        cost = None if self.cost is None else new(self.cost)
        cut = None if self.cut is None else new(self.cut)
        reach = None if self.reach is None else new(self.reach)
        when = tuple(map(new, self.when))
        return replace(self, extent=new(self.extent), cost=cost, cut=cut, reach=reach, when=when)

    @property
    def own_code(self) -> tuple[Expr, ...]:
        """Where code of its own runs, as conditions on an iteration: what a rewritten loop keeps of its cut."""
        return self.when if self.cut is None else (*self.when, self.var < self.cut)


@dataclass(frozen=True, slots=True)
class Region:
    """What an iteration around an attached operator computes of a dim: from `begin`; at most `largest` values.

    largest: None if no bound is known but the extent of the dim.
    """

    begin: Expr
    largest: int | None


@dataclass(frozen=True, slots=True)
class LoopNest:
    """The loops of one operator.

    values: each root dim (of the tensor, and reduced over) as an expression over leaf variables.
    conditions: what must hold for an iteration to exist (from splits that do not divide, and bulk padding).
    assumed: what holds in every iteration by construction; `facts` in normal form.
    padding: the multiple to which the loop over a root dim is padded.
    tile: how many of the innermost loops a micro-kernel runs (0: none). routine: which one, if it is none of ours.
    by_warp: whether the tensor cores run the five innermost loops: blocks of rows and columns of a warp, 16 steps of
    the reduction, and a thread's own 2 x 2 elements of a block. tf32: whether they round float32 operands.
    piece: the name of this piece of the operator, if the operator is split. accumulates: whether it combines its
    result with what an earlier piece stored.
    around: the loops of the consumer inside which an attached operator runs, outermost first.
    regions: of an attached operator, what the iteration around it computes of each dim.
    scratch: whether an attached operator is stored relative to its regions, for each worker anew.
    chip: whether that is in registers (on the stack) or in the shared memory of a GPU; "": as it suits the target.
    filled: whether the micro-kernel that reads the operator, a copy, writes it; then its loops do not run.
    kept_in: the loop inside which the accumulators of a reduction live ("": outside its first reduction loop).
    """

    tensor: Tensor
    leaves: tuple[Leaf, ...]
    values: Mapping[Dim, Expr]
    conditions: tuple[Expr, ...] = ()
    assumed: tuple[Expr, ...] = ()
    padding: Mapping[Dim, int] = field(default_factory=dict)
    around: tuple[Leaf, ...] = ()
    tile: int = 0
    by_warp: bool = False
    tf32: bool = False
    routine: Routine | None = None
    piece: str = ""
    accumulates: bool = False
    kept_in: str = ""
    regions: Mapping[Dim, Region] = field(default_factory=dict)
    scratch: bool = False
    chip: Literal["", "register", "shared"] = ""
    filled: bool = False

    @property
    def name(self) -> str:
        """How steps call the nest: the operator, or the piece of it."""
        return self.piece or self.tensor.name

    @property
    def scope(self) -> tuple[Leaf, ...]:
        """All loops around the body: the consumer's, then the operator's own."""
        return (*self.around, *self.leaves)

    @property
    def inside(self) -> int:
        """The place of the first leaf inside the accumulators of a reduction."""
        if self.tile:
            return len(self.leaves) - self.tile
        if self.kept_in:
            return 1 + next(n for n, leaf in enumerate(self.leaves) if leaf.name == self.kept_in)
        return next((n for n, leaf in enumerate(self.leaves) if leaf.reduction), len(self.leaves))

    @property
    def blocks(self) -> tuple[Leaf, ...]:
        """The reduction loops outside the accumulators: each iteration continues what the one before has stored."""
        return tuple(leaf for leaf in self.leaves[: self.inside] if leaf.reduction)

    @property
    def continues(self) -> bool:
        """Whether the result is ever combined with what is stored."""
        return self.accumulates or bool(self.blocks)

    @property
    def facts(self) -> tuple[Expr, ...]:
        """What holds in every iteration, simplified: only when it is asked for, since every step changes it."""
        return tuple(_normal_form(condition) for condition in self.assumed)

    @property
    def untouched(self) -> bool:
        """Whether no step has changed the loops."""
        return (
            all(leaf.root is not None and leaf.kind is LoopKind.SERIAL for leaf in self.leaves)
            and not self.padding
            and not self.kept_in
        )

    def position(self, name: str, step: str) -> int:
        """The place of the leaf `name`; ScheduleError if there is none."""
        if self.filled:
            raise ScheduleError(f"{step}: '{self.tensor.name}' is filled where it is used; it has no loops")
        for place, leaf in enumerate(self.leaves):
            if leaf.name == name:
                return place
        raise ScheduleError(
            f"{step}: operator '{self.tensor.name}' has no loop '{name}'; "
            f"its loops are {', '.join(leaf.name for leaf in self.leaves) or '(none)'}"
        )

    def with_leaf(self, place: int, leaf: Leaf) -> LoopNest:
        """The nest with the leaf at `place` replaced by one with the same variable."""
        return replace(self, leaves=(*self.leaves[:place], leaf, *self.leaves[place + 1 :]))

    def rewrite(self, place: int, count: int, new: tuple[Leaf, ...], values: Mapping[Expr, Expr]) -> LoopNest:
        """`count` leaves from `place` become `new`; their variables are replaced everywhere by `values`."""
        others = [leaf.substituted(values) for leaf in (*self.leaves[:place], *self.leaves[place + count :])]
        return replace(
            self,
            leaves=(*others[:place], *new, *others[place:]),
            values={d: substitute(v, values) for d, v in self.values.items()},
            conditions=tuple(substitute(c, values) for c in self.conditions),
            assumed=tuple(substitute(c, values) for c in self.assumed),
            regions={
                d: Region(simplify(substitute(r.begin, values)), r.largest) for d, r in self.regions.items()
            },
        )

    def under(self, condition: Expr, *extended: Var) -> LoopNest:
        """The nest with one more condition, because the loops `extended` now run further than they did.

        So what was a fact of their variables is one only where the condition holds.
        """
        assumed = tuple(
            binary("or", unary("not", condition), fact) if free_vars(fact) & set(extended) else fact
            for fact in self.assumed
        )
        return replace(self, conditions=(*self.conditions, condition), assumed=assumed)

    def fresh(self, name: str, step: str) -> str:
        """`name`, if neither a leaf nor a loop around the nest has it; ScheduleError otherwise."""
        if any(name in (leaf.name, leaf.var.name) for leaf in self.scope):
            raise ScheduleError(f"{step}: operator '{self.tensor.name}' has a loop '{name}' already")
        if not name.isidentifier():
            raise ScheduleError(f"{step}: a loop name must be an identifier; got {name!r}")
        return name

    def check_order(self, step: str) -> LoopNest:
        """The nest itself, if every extent uses only loops outside its own; ScheduleError otherwise."""
        outside: set[Var] = {leaf.var for leaf in self.around}
        for leaf in self.leaves:
            missing = free_vars(leaf.extent) - outside
            if missing:
                names = ", ".join(sorted(v.name for v in missing))
                raise ScheduleError(
                    f"{step}: loop '{leaf.name}' of '{self.tensor.name}' runs to {leaf.extent}, "
                    f"so it cannot stand outside loop(s) {names}"
                )
            outside.add(leaf.var)
        if self.kept_in and all(leaf.name != self.kept_in for leaf in self.leaves):
            raise ScheduleError(
                f"{step}: the accumulators of '{self.tensor.name}' live in loop '{self.kept_in}'; cache_write last"
            )
        return self


@lru_cache(maxsize=1 << 12)
def _normal_form(condition: Expr) -> Expr:
    return simplify(condition)


@dataclass(frozen=True, slots=True)
class Group:
    """Nests that are fused horizontally: they share their `depth` outermost loops, or (0) the workers alone."""

    nests: tuple[str, ...]
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Running:
    """What runs along a block loop of an operator, whose sum is corrected in each iteration (steps.Online).

    factor: of the correction, at dims of the operator. kept: the maximum and the sums, which start before the loop and
    have their final values behind it. order: what runs in an iteration: the values before it, the maximum, the factor,
    the sums, each after those before. inside: all operators that may read any of these inside the loop.
    """

    loop: str
    factor: Access
    kept: tuple[str, ...]
    order: tuple[tuple[str, ...], ...]
    inside: frozenset[str]


@dataclass(frozen=True, slots=True)
class State:
    """What the steps of a schedule have made: a nest per operator, a layout per tensor.

    pieces: the pieces of an operator that is split, in the order in which they run. together: nests that are fused
    horizontally. hoist: whether table reads leave loops. inlined: operators that are computed where they are read.
    stages: operators that steps have made, by the operator that reads them.
    attached: for an operator computed inside a loop of its consumer, the consumer and the loop.
    running: for an operator with a maximum that runs along one of its loops, what runs there.
    """

    outputs: frozenset[str]
    nests: Mapping[str, LoopNest]
    layouts: Mapping[str, Layout]
    undefined_padding: frozenset[str] = frozenset()
    pieces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    together: tuple[Group, ...] = ()
    hoist: bool = True
    inlined: frozenset[str] = frozenset()
    attached: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    stages: Mapping[str, tuple[Tensor, ...]] = field(default_factory=dict)
    running: Mapping[str, Running] = field(default_factory=dict)

    def nest(self, op: str, step: str) -> LoopNest:
        """The nest of operator `op`; ScheduleError if it is no operator of the program."""
        if op in self.pieces:
            raise ScheduleError(
                f"{step}: operator '{op}' is split; name a piece: {', '.join(self.pieces[op])}"
            )
        if op not in self.nests:
            raise ScheduleError(f"{step}: no operator '{op}'; the operators are {', '.join(self.nests)}")
        if op in self.inlined:
            raise ScheduleError(f"{step}: operator '{op}' is inlined; it has no loops of its own")
        return self.nests[op]

    def with_nest(self, nest: LoopNest) -> State:
        """The state with the nest of one operator replaced, also as the surroundings of what is attached to it.

        Raises ScheduleError if a loop around an attached operator is gone, or another, or runs in a way that leaves no
        room for the operator.
        """
        result = replace(self, nests={**self.nests, nest.name: nest})
        for name, (consumer, loop) in self.attached.items():
            if consumer != nest.name:
                continue
            attached = self.nests[name]
            where = f"'{name}' is computed at loop '{loop}' of '{consumer}'"
            scope = nest.scope[: len(attached.around)]
            if [leaf.var for leaf in scope] != [leaf.var for leaf in attached.around]:
                raise ScheduleError(f"{where}: its loops down to it cannot change")
            if len(scope) > len(nest.scope) - nest.tile:
                raise ScheduleError(f"{where}: a micro-kernel cannot run it")
            if any(leaf.kind is LoopKind.VECTOR for leaf in scope):
                reason = "is scratch, one for all lanes" if attached.scratch else "has loops of its own"
                if attached.scratch or attached.leaves:
                    raise ScheduleError(f"{where}: that cannot run in lanes, for '{name}' {reason}")
            result = result.with_nest(replace(attached, around=scope))
        return result

    def renumbered(self, nest: LoopNest, place: int, leaf: Leaf, value: Expr) -> State:
        """The state with the leaf at `place` of a nest running as `leaf`, whose iterations are `value` of the old one.

        Also around what is attached inside it.
        """
        old = nest.leaves[place]
        values: dict[Expr, Expr] = {old.var: value}
        nests = dict(self.nests)
        for name, other in self.nests.items():
            if self.runs_inside(name, nest.name) and old in other.around:
                around = tuple(leaf if o == old else o.substituted(values) for o in other.around)
                regions = {
                    d: replace(r, begin=simplify(substitute(r.begin, values)))
                    for d, r in other.regions.items()
                }
                nests[name] = replace(other.rewrite(0, 0, (), values), around=around, regions=regions)
        return replace(self, nests=nests).with_nest(nest.rewrite(place, 1, (leaf,), values))

    def runs_inside(self, name: str, owner: str) -> bool:
        """Whether operator `name` is computed inside a loop of `owner`, or of what is."""
        while name in self.attached:
            name = self.attached[name][0]
            if name == owner:
                return True
        return False


def initial_nest(tensor: Tensor) -> LoopNest:
    """The loops of the definition: the dims of the tensor, then the dims reduced over."""
    assert tensor.body is not None
    reductions = reductions_of(tensor.body)
    over = reductions[0].over if reductions else ()
    values: dict[Dim, Expr] = {}
    leaves: list[Leaf] = []
    for dim in (*tensor.dims, *over):
        var = Var(dim.name)
        leaves.append(Leaf(dim.name, var, root_extent(dim, values), dim in over, root=dim))
        values[dim] = var
    return LoopNest(tensor, tuple(leaves), values)


def root_extent(dim: Dim, values: Mapping[Dim, Expr]) -> Expr:
    """The number of valid indices of `dim`, over the values of the dims outside it; never negative."""
    clamped = simplify(binary("max", dim.extent, Const(0)))
    return simplify(substitute(clamped, values))
