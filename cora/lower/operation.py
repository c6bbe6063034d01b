"""From a scheduled operator to an `Operation`: its body over loop variables, with every guard decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cora.errors import ScheduleError
from cora.ir import dtypes
from cora.ir.expr import (
    TRUE,
    Access,
    Const,
    Dim,
    Expr,
    Reduce,
    Select,
    binary,
    conjunction,
    constant,
    select,
    unary,
)
from cora.ir.simplify import Simplifier
from cora.ir.tensor import Tensor
from cora.ir.visit import children, free_vars, rebuild
from cora.lower.access import conjuncts, from_data
from cora.lower.flatten import Place
from cora.lower.guards import Guards
from cora.prove import Context, Range
from cora.schedule.nest import LoopNest, root_extent
from cora.storage.extents import shortfall
from cora.storage.layout import Layout


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator ready to become loops.

    indices: the value of each dim of the tensor, over leaf variables; body: the element, accesses guarded,
    over leaf variables (a Reduce in it stands for the loops of the reduction leaves).
    conditions: what an iteration must satisfy to run at all.
    """

    tensor: Tensor
    nest: LoopNest
    indices: tuple[Expr, ...]
    body: Expr
    conditions: tuple[Expr, ...]


def context_of(nest: LoopNest, conditions: tuple[Expr, ...] = ()) -> Context:
    """The iterations of a nest: the ranges of the loops around its body, and `conditions`."""
    return Context(tuple(Range(leaf.var, leaf.extent) for leaf in nest.scope), (*nest.facts, *conditions))


def context_for(goal: Expr, nest: LoopNest, conditions: tuple[Expr, ...]) -> Context:
    """Where `goal` must hold: in the reduction loops if it uses their variables, else around the store too."""
    reduced = {leaf.var for leaf in nest.leaves if leaf.reduction}
    return context_of(nest, conditions) if free_vars(goal) & reduced else stored_context(nest, conditions)


def stored_context(nest: LoopNest, conditions: tuple[Expr, ...] = ()) -> Context:
    """Where the element of a nest is stored: after its reduction loops, which may not have run even once."""
    own = [leaf for leaf in nest.leaves if not leaf.reduction]
    reduced = {leaf.var for leaf in nest.leaves if leaf.reduction}
    ranges = tuple(Range(leaf.var, leaf.extent) for leaf in (*nest.around, *own))
    holds = (*nest.facts, *conditions)
    return Context(ranges, tuple(c for c in holds if not free_vars(c) & reduced))


def simplifier_of(nest: LoopNest) -> Simplifier:
    """Simplification under the ranges of the loops around the body."""
    return Simplifier({leaf.var: leaf.extent for leaf in nest.scope})


def make_operation(
    nest: LoopNest,
    places: Mapping[str, Place],
    inside: frozenset[Access],
    guards: Guards,
    outside: tuple[Expr, ...] = (),
) -> Operation:
    """The operation of a nest; `inside` are the accesses proved inside their tensors on valid iterations.

    outside: the conditions that hold around an attached operator.

    Raises ScheduleError if a loop is padded more than the storage that it writes.
    """
    tensor = nest.tensor
    home = places[tensor.name]
    if not nest.scratch:
        check_padding(nest, home.layout)
    simplifier = simplifier_of(nest)
    conditions = _existing(nest, guards, simplifier, outside)
    context = stored_context(nest, (*outside, *conditions))
    indices = tuple(simplifier(nest.values[d]) for d in tensor.dims)
    for place, dim in enumerate(tensor.dims):
        index = indices[place]
        low, high = binary("le", home.begin(place), index), binary("lt", index, home.end(place, indices))
        for goal in (high,) if simplifier(low) == TRUE else (low, high):
            where = f"store {tensor.name}.{dim.name}"
            kept = guards.needed(goal, context, simplifier, tensor.name, where)
            conditions += (kept,) if kept is not None else ()
    all_valid = True
    for dim, value in nest.values.items():
        goal = value < root_extent(dim, nest.values)
        if dim not in tensor.dims:
            where = f"reduction over {dim.name}"
            here = context_for(goal, nest, (*outside, *conditions))
            kept = guards.needed(goal, here, simplifier, tensor.name, where)
            conditions += (kept,) if kept is not None else ()
        elif all_valid and not guards.keep_all:
            here = stored_context(nest, (*outside, *conditions))
            # what is fixed by the loops around an attached operator may lie before the first index too
            bounds = [simplifier(binary("le", 0, value)), simplifier(goal)]
            all_valid = all(guards.proof(bound, here).outcome.name == "PROVED" for bound in bounds)
    trusted = inside if all_valid and not guards.keep_all else frozenset()
    rewriter = _Guarding(nest, places, (*outside, *conditions), trusted, guards, simplifier)
    assert tensor.body is not None
    body = simplifier(rewriter.rewrite(tensor.body, stored_context(nest, (*outside, *conditions))))
    return Operation(tensor, nest, indices, body, conditions)


def check_padding(nest: LoopNest, layout: Layout) -> None:
    """For every length, the padded loop must stay inside the padded storage (48 under 64 does not: 49)."""
    for dim, multiple in nest.padding.items():
        if dim not in nest.tensor.dims:
            continue
        storage = layout.multiples(nest.tensor.dims.index(dim))
        length = int(dim.extent.value) if isinstance(dim.extent, Const) else None
        bad = shortfall(multiple, storage, length)
        if bad is not None:
            room = bad
            for m in storage:
                room = -(-room // m) * m
            raise ScheduleError(
                f"pad_loop: loop '{dim.name}' of '{nest.tensor.name}' is padded to a multiple of {multiple}, its "
                f"storage to a multiple of {', then of '.join(map(str, storage))}: a slice of length {bad} would run "
                f"to {-(-bad // multiple) * multiple} but has room for {room}; "
                f"pad the storage with pad_dim('{nest.tensor.name}', '{dim.name}', {multiple})"
            )


def _existing(
    nest: LoopNest, guards: Guards, simplifier: Simplifier, outside: tuple[Expr, ...]
) -> tuple[Expr, ...]:
    """The conditions of splits and bulk padding that do not always hold."""
    kept: list[Expr] = []
    for condition in nest.conditions:
        context = context_for(condition, nest, (*outside, *kept))
        needed = guards.needed(condition, context, simplifier, nest.tensor.name, "loop")
        if needed is not None:
            kept.append(needed)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class _Guarding:
    """Rewrites a body over dims into one over leaf variables, with a guard around each access that needs one."""

    nest: LoopNest
    places: Mapping[str, Place]
    conditions: tuple[Expr, ...]
    trusted: frozenset[Access]
    guards: Guards
    simplifier: Simplifier

    def rewrite(self, e: Expr, here: Context) -> Expr:
        """`e` over leaf variables, evaluated where `here` holds."""
        match e:
            case Dim():
                return self.nest.values.get(e, e)
            case Select(cond=c, then=a, other=b):
                condition = self.rewrite(c, here)
                then = self.rewrite(a, _where(here, *conjuncts(condition)))
                other = self.rewrite(b, _where(here, unary("not", condition)))
                return select(condition, then, other)
            case Access():
                return self._access(e, here)
            case Reduce(op=op, body=body, over=over):
                # its loops run before a condition around it chooses
                return Reduce(op, self.rewrite(body, context_of(self.nest, self.conditions)), over)
            case _:
                return rebuild(e, tuple(self.rewrite(c, here) for c in children(e)))

    def _access(self, access: Access, context: Context) -> Expr:
        indices = tuple(self.rewrite(i, context) for i in access.indices)
        here = Access(access.tensor, indices)
        if access in self.trusted:
            return here
        home = self.places[access.tensor.name]
        kept: list[Expr] = []
        for place, (dim, index) in enumerate(zip(access.tensor.dims, indices, strict=True)):
            low = self.simplifier(binary("le", home.begin(place), index))
            for goal in (low, binary("lt", index, home.end(place, indices))):
                where = f"load {access.tensor.name}.{dim.name}"
                if from_data(goal):
                    kept.append(goal)
                    continue
                needed = self.guards.needed(goal, context, self.simplifier, self.nest.tensor.name, where)
                if needed is not None:
                    kept.append(needed)
        return select(conjunction(kept), here, constant(0, here.dtype)) if kept else here


def _where(context: Context, *conditions: Expr) -> Context:
    return Context(context.ranges, (*context.assumptions, *conditions))


def reduction_identity(op: str, dtype: str) -> Const:
    """The value that an accumulator of `op` starts from."""
    match op:
        case "sum":
            return constant(0, dtype)
        case "prod":
            return constant(1, dtype)
        case "max" | "argmax":
            return constant(dtypes.lowest(dtype), dtype)
        case _:
            return constant(dtypes.highest(dtype), dtype)
