"""How evenly parallel loops share their work: counted on a batch, for any number of workers, not measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cora.ir.evaluate import Evaluator
from cora.ir.expr import Const, Expr
from cora.ir.stmt import LoopKind
from cora.runtime.count import flops_per_iteration, iterations
from cora.schedule.balance import WORKERS, work_share
from cora.schedule.nest import Leaf, LoopNest


@dataclass(frozen=True, slots=True)
class Shares:
    """The work that each worker has in a parallel loop.

    loop: "operator.loop". work: for each worker, floating-point operations, or iterations where there are none;
    masked lanes and padding count. The loop may run several times: the work of all runs is added up, but `longest` is
    the sum of the largest share of each run, since workers wait for one another in between.
    """

    loop: str
    balance: str
    work: tuple[int, ...]
    longest: int

    @property
    def mean(self) -> float:
        """The work of each worker if all had the same."""
        return sum(self.work) / len(self.work)

    @property
    def ratio(self) -> float:
        """Largest over mean work: 1 is perfect, the number of workers the worst; 1 where there is no work."""
        return self.longest / self.mean if self.mean else 1.0

    def __str__(self) -> str:
        return f"{self.loop} ({self.balance}): {len(self.work)} workers, max/mean work {self.ratio:.3f}"


def shares_of(
    nests: Sequence[LoopNest], sizes: Mapping[str, int], lengths: Mapping[str, object], workers: int
) -> tuple[Shares, ...]:
    """The shares of `workers` workers in each parallel loop of `nests`, in order, on one batch."""
    evaluator = Evaluator({**sizes, WORKERS.name: workers}, lengths)
    return tuple(
        _shares(nest, place, nests, evaluator, workers)
        for nest in nests
        for place, leaf in enumerate(nest.leaves)
        if leaf.kind is LoopKind.PARALLEL
    )


def _shares(
    nest: LoopNest, place: int, nests: Sequence[LoopNest], evaluator: Evaluator, workers: int
) -> Shares:
    leaf = nest.leaves[place]
    inside = [other for other in nests if leaf in other.scope]
    total = [0] * workers
    longest = 0
    for env in _points(nest.scope[: nest.scope.index(leaf)], evaluator, {}):
        each = []
        for worker in range(workers):
            begin, end = (int(evaluator.value(e, env)) for e in work_share(nest.leaves, place, Const(worker)))
            each.append(sum(_work(inside, leaf, evaluator, {**env, leaf.var: i}) for i in range(begin, end)))
        total = [a + b for a, b in zip(total, each, strict=True)]
        longest += max(each)
    return Shares(f"{nest.name}.{leaf.name}", leaf.balance, tuple(total), longest)


def _work(nests: Sequence[LoopNest], leaf: Leaf, evaluator: Evaluator, env: Mapping[Expr, int]) -> int:
    """The work of one iteration of a loop, in all nests that run inside it."""
    work = 0
    for nest in nests:
        assert nest.tensor.body is not None
        loops = nest.scope[nest.scope.index(leaf) + 1 :]
        count = iterations([(inner.var, inner.extent) for inner in loops], evaluator, env)
        work += count * max(flops_per_iteration(nest.tensor.body), 1)
    return work


def _points(
    loops: Sequence[Leaf], evaluator: Evaluator, env: Mapping[Expr, int]
) -> Iterator[Mapping[Expr, int]]:
    """The values of all loop variables, in every iteration."""
    if not loops:
        yield env
        return
    first, *rest = loops
    for i in range(int(evaluator.value(first.extent, env))):
        yield from _points(rest, evaluator, {**env, first.var: i})
