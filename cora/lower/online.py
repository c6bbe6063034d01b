"""A maximum that runs along a block loop: what is set before the loop, and the correction of what is summed already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from cora.errors import ScheduleError
from cora.ir.expr import Expr, Reduce
from cora.ir.stmt import PIPELINES, LoopKind, Stmt
from cora.ir.tensor import Tensor
from cora.ir.visit import free_vars
from cora.lang.check import reductions_of
from cora.lower.access import check_accesses
from cora.lower.flatten import Flat, Place
from cora.lower.guards import Guards
from cora.lower.operation import Operation, make_operation, reduction_identity
from cora.lower.threads import is_element
from cora.schedule.nest import LoopNest, Running, State
from cora.schedule.stage_steps import accesses_of, not_fixed
from cora.schedule.threads import is_bound


@dataclass(frozen=True, slots=True)
class Correction:
    """start: sets what runs, before the loop. factor: of the sums so far, in each iteration of `loop`."""

    loop: str
    start: Stmt
    factor: Operation
    flat: Flat | None = None


def check_running(nests: Sequence[LoopNest], state: State) -> None:
    """ScheduleError if something reads running values that should wait for final ones, or a later step has changed
    the loop along which they run."""
    at = {nest.name: number for number, nest in enumerate(nests)}
    for name, running in state.running.items():
        nest = state.nests[name]
        where = f"online: along loop '{running.loop}' of '{name}'"
        leaf = nest.leaves[nest.position(running.loop, "online")]
        outermost = nest.inside < len(nest.leaves) and nest.leaves[nest.inside] == leaf
        if not outermost or leaf.kind not in (LoopKind.SERIAL, LoopKind.UNROLL, *PIPELINES.values()):
            raise ScheduleError(f"{where}: its accumulators must live outside the loop, which runs in order")
        for first, then in pairwise(running.order):
            if then and max(at[each] for each in first) > min(at[each] for each in then):
                raise ScheduleError(f"{where}: {', '.join(first)} must run before {', '.join(then)}")
        for name_of in (each for part in running.order for each in part):
            _check_alone(where, state.nests[name_of], nest)
        for reader in nests:
            if all(outer.var != leaf.var for outer in reader.around) or reader.name in running.inside:
                continue
            for access in accesses_of(reader.tensor):
                if access.tensor.name in running.inside:
                    raise ScheduleError(
                        f"{where}: '{reader.name}' is computed there and reads '{access.tensor.name}', which is not "
                        "final yet"
                    )


def _check_alone(where: str, nest: LoopNest, consumer: LoopNest) -> None:
    """What runs is not continued by two blocks of a grid, or by two threads that have no part of their own in it."""
    if nest.scratch or is_element(nest):
        return
    for leaf in filter(is_bound, nest.around):
        dim = not_fixed(nest, leaf, consumer)
        if dim is not None:
            raise ScheduleError(
                f"{where}: '{nest.name}' is the same for several iterations of '{leaf.name}', bound to "
                f"{leaf.kind.value} (its dims do not fix '{dim.name}'): they would continue one another's values; "
                "set_scope 'scratch'"
            )


def start_nest(nest: LoopNest) -> LoopNest:
    """The loops that set a maximum, or a sum, to that of nothing, outside the loop along which it runs."""
    tensor = nest.tensor
    assert tensor.body is not None
    ((reduction,), reduced) = reductions_of(tensor.body), {leaf.var for leaf in nest.leaves if leaf.reduction}
    assert isinstance(reduction, Reduce)

    def kept(conditions: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(c for c in conditions if not free_vars(c) & reduced)

    empty = Tensor(tensor.name, tensor.dims, tensor.dtype, reduction_identity(reduction.op, tensor.dtype))
    return replace(
        nest,
        tensor=empty,
        leaves=tuple(leaf for leaf in nest.leaves if not leaf.reduction),
        values={dim: nest.values[dim] for dim in tensor.dims},
        conditions=kept(nest.conditions),
        assumed=kept(nest.assumed),
        around=nest.around[:-1],
        kept_in="",
    )


def factor_operation(
    nest: LoopNest,
    running: Running,
    places: Mapping[str, Place],
    guards: Guards,
    outside: tuple[Expr, ...],
) -> Operation:
    """The factor as the iterations of `nest` read it."""
    own = Tensor(nest.tensor.name, nest.tensor.dims, running.factor.dtype, running.factor)
    inside, _ = check_accesses(own, guards.prover)
    return make_operation(replace(nest, tensor=own), places, inside, guards, outside)
