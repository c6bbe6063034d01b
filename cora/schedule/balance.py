"""Work of a loop's iterations, and how workers share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from cora.ir.bounds import shrinks
from cora.ir.expr import ONE, ZERO, Binary, Call, Const, Dim, Expr, Size, Var, binary
from cora.ir.facts import is_nonnegative
from cora.ir.simplify import common_factor, simplify
from cora.ir.ufun import Given, UFun, cuts, scan
from cora.ir.visit import free_vars, substitute, transform, walk
from cora.schedule.nest import Leaf, LoopNest

#: How the iterations of a parallel loop are shared: see `cora.schedule.steps.Parallel`.
Balance: TypeAlias = Literal["cost", "count", "longest_first"]
BALANCES: tuple[str, ...] = get_args(Balance)

WORKERS = Size("%workers")


def worker_of(leaf: Leaf) -> Var:
    """The loop variable that counts the workers that share a parallel leaf."""
    return Var(f"{leaf.name}_worker")


def work_share(leaves: tuple[Leaf, ...], place: int, worker: Expr) -> tuple[Expr, Expr]:
    """The iterations `begin..end` of the parallel leaf at `place` that `worker` runs.

    The list of a worker where there are lists; cut by cost where that varies with the index alone; otherwise in
    equal numbers.
    """
    leaf = leaves[place]
    if leaf.share is not None:
        return leaf.share(worker), leaf.share(worker + 1)
    cost = cost_scan(leaves, place) if leaf.balance == "cost" else None
    return shares(leaf, cost, worker)


def shares(leaf: Leaf, cost: UFun | None, worker: Expr) -> tuple[Expr, Expr]:
    """The iterations `begin..end` of `worker`: cut by the sums `cost` if there are any, else in equal numbers."""
    if cost is not None:
        cut = cuts(cost, WORKERS)
        return cut(worker), cut(worker + 1)
    return (
        binary("floordiv", leaf.extent * worker, WORKERS),
        binary("floordiv", leaf.extent * (worker + 1), WORKERS),
    )


def cost_scan(leaves: tuple[Leaf, ...], place: int) -> UFun | None:
    """The sums of the costs of the iterations of the leaf at `place`, but for a constant factor.

    None where all cost the same, or where cost or extent depend on loops outside.
    """
    return sums_of_cost(leaves[place], iteration_cost(leaves, place))


def sums_of_cost(leaf: Leaf, cost: Expr) -> UFun | None:
    """The sums of `cost`, a function of the leaf's variable; see `cost_scan`."""
    if free_vars(cost) != {leaf.var} or free_vars(leaf.extent):
        return None
    index = Dim(leaf.name, leaf.extent)
    _, varying = common_factor(substitute(cost, {leaf.var: index}), frozenset((index,)))
    return scan((), index, varying if is_nonnegative(varying) else binary("max", varying, 0))


def iteration_cost(leaves: tuple[Leaf, ...], place: int) -> Expr:
    """About how often the body runs in one iteration of the leaf at `place`, over variables outside and its own.

    Loops inside that depend on one another are taken at their largest; where that is not known, as one iteration.
    """
    cost: Expr = ONE
    inside = leaves[place + 1 :]
    largest: dict[Var, Expr] = {}
    for leaf in inside:
        largest[leaf.var] = _at_its_largest(_defined_everywhere(leaf.weight), largest)
        if all(leaf.part_of != other.var for other in inside):
            cost = cost * largest[leaf.var]
    return simplify(cost)


def _at_its_largest(weight: Expr, inner: Mapping[Var, Expr]) -> Expr:
    """`weight` where it is largest, over the variables `inner`, which go from 0 up to their values here; 1 where that
    is not known: a length that depends on them has no value at their ends.
    """
    for node in walk(weight):
        if isinstance(node, Call) and free_vars(node) & inner.keys():
            return ONE
    at: dict[Expr, Expr] = {}
    for var, end in inner.items():
        at[var] = ZERO if shrinks(weight, var) else end
    return substitute(weight, at)


def _defined_everywhere(weight: Expr) -> Expr:
    """`weight` with no divisor 0, as that of an even part is where there are no parts: then it does not count."""

    def rule(e: Expr) -> Expr | None:
        match e:
            case Binary(op="floordiv" | "mod", b=divisor) if not isinstance(divisor, Const):
                return binary(e.op, e.a, binary("max", divisor, ONE))
        return None

    return transform(weight, rule)


def permutations_of(nests: Sequence[LoopNest]) -> tuple[UFun, ...]:
    """The permutations, given at run time, that loops run by."""
    calls = (
        n for nest in nests for value in nest.values.values() for n in walk(value) if isinstance(n, Call)
    )
    return tuple(dict.fromkeys(c.fun for c in calls if c.fun.definition == Given(permutation=True)))
