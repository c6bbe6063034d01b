"""Where an operator is computed: inlined into its readers, or inside a loop of its consumer."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import CoraError, ScheduleError
from cora.ir import dtypes
from cora.ir.expr import Access, Dim, Expr, Var
from cora.ir.simplify import simplify
from cora.ir.stmt import LoopKind
from cora.ir.tensor import Tensor
from cora.ir.visit import free_vars, substitute, transform, walk
from cora.lang.check import check_body, reductions_of
from cora.schedule.nest import Leaf, LoopNest, State, initial_nest, root_extent
from cora.schedule.steps import ComputeAt, Inline


def inline(step: Inline, state: State) -> State:
    """Replace every access to the operator by its body."""
    nest = state.nest(step.op, "inline")
    producer = nest.tensor
    if producer.name in state.outputs:
        raise ScheduleError(f"inline: '{producer.name}' is an output, so it must be stored")
    if dtypes.compute_type(producer.dtype) != producer.dtype:
        raise ScheduleError(
            f"inline: '{producer.name}' is stored as {producer.dtype}, which rounds; inlined it would not be"
        )
    check_untouched("inline", nest, state)
    result = replace(state, inlined=state.inlined | {producer.name})
    for name in readers_of(producer.name, state):
        reader = state.nests[name]
        check_untouched("inline", reader, state)
        inlined = _inlined(reader.tensor, producer)
        result = replace(result, nests={**result.nests, name: initial_nest(inlined)})
    return result


def readers_of(name: str, state: State) -> list[str]:
    """The operators, not inlined themselves, that read tensor `name`."""
    return [
        op
        for op, nest in state.nests.items()
        if op not in state.inlined and any(a.tensor.name == name for a in accesses_of(nest.tensor))
    ]


def accesses_of(tensor: Tensor) -> list[Access]:
    """The distinct accesses in the body of an operator."""
    assert tensor.body is not None
    return [e for e in walk(tensor.body) if isinstance(e, Access)]


def check_untouched(step: str, nest: LoopNest, state: State) -> None:
    """ScheduleError if a step has changed the loops of an operator, or what it is computed with."""
    name = nest.tensor.name
    staged = name in state.attached or name in {c for c, _ in state.attached.values()}
    fused = any(name in group.nests for group in state.together)
    if not nest.untouched or staged or fused:
        raise ScheduleError(f"{step}: '{name}' is scheduled already; {step} comes before its other steps")


def _inlined(reader: Tensor, producer: Tensor) -> Tensor:
    assert producer.body is not None
    assert reader.body is not None
    body = producer.body
    reduces = bool(reductions_of(body))
    for dim in (d for r in reductions_of(body) for d in r.over if d in reader.dims):
        raise ScheduleError(
            f"inline: '{producer.name}' reduces over '{dim.name}', and '{reader.name}' has a loop over it too, in "
            "each iteration of which the reduction would run again; use compute_at"
        )

    def rule(e: Expr) -> Expr | None:
        match e:
            case Access(tensor=tensor, indices=indices) if tensor.name == producer.name:
                if reduces and indices != producer.dims:
                    raise ScheduleError(
                        f"inline: '{producer.name}' reduces, so it must be read at its own dims "
                        f"[{', '.join(d.name for d in producer.dims)}]; '{reader.name}' reads {e}"
                    )
                return substitute(body, dict(zip(producer.dims, indices, strict=True)))
        return None

    combined = transform(reader.body, rule)
    try:
        check_body(reader.name, reader.dims, combined)
    except CoraError as error:
        raise ScheduleError(f"inline: '{producer.name}' into '{reader.name}': {error}") from error
    return Tensor(reader.name, reader.dims, reader.dtype, combined)


def compute_at(step: ComputeAt, state: State) -> State:
    """Attach the operator to a loop; its own loops are those over the dims that this loop does not fix."""
    nest = state.nest(step.op, "compute_at")
    consumer = state.nest(step.consumer, "compute_at")
    where = f"compute_at: '{step.op}' at loop '{step.loop}' of '{step.consumer}'"
    check_untouched("compute_at", nest, state)
    place = consumer.position(step.loop, "compute_at")
    first_reduction = next(
        (n for n, leaf in enumerate(consumer.leaves) if leaf.reduction), len(consumer.leaves)
    )
    if place >= first_reduction:
        raise ScheduleError(f"{where}: the loop stands inside a reduction")
    if consumer.leaves[place].kind is not LoopKind.SERIAL:
        raise ScheduleError(f"{where}: attach first, then mark the loop {consumer.leaves[place].kind.value}")
    around = (*consumer.around, *consumer.leaves[: place + 1])
    readers = readers_of(step.op, state)
    for reader in readers:
        inside = reader == step.consumer or state.nests[reader].around[: len(around)] == around
        if not inside:
            raise ScheduleError(f"{where}: '{reader}' also reads it, outside that loop")
    if not readers:
        raise ScheduleError(f"{where}: nothing reads it")
    if nest.tensor.name in state.outputs:
        raise ScheduleError(f"{where}: it is an output, so it is computed in full, not where it is read")
    fixed = _fixed(nest.tensor, around, [state.nests[r] for r in readers])
    attached = replace(state, attached={**state.attached, step.op: (step.consumer, step.loop)})
    return attached.with_nest(_attached_nest(nest.tensor, around, fixed)).with_nest(consumer)


def _fixed(tensor: Tensor, around: tuple[Leaf, ...], readers: list[LoopNest]) -> dict[Dim, Expr]:
    """The dims of `tensor` that every access reads at one value, which the loops `around` determine."""
    known = {leaf.var for leaf in around}
    points: dict[Dim, set[Expr]] = {}
    for reader in readers:
        for access in accesses_of(reader.tensor):
            if access.tensor.name == tensor.name:
                for dim, index in zip(tensor.dims, access.indices, strict=True):
                    points.setdefault(dim, set()).add(simplify(substitute(index, reader.values)))
    fixed: dict[Dim, Expr] = {}
    for dim, values in points.items():
        (first, *others) = values
        if (
            not others
            and free_vars(first) <= known
            and not any(isinstance(e, (Access, Dim)) for e in walk(first))
        ):
            fixed[dim] = first
    return fixed


def _attached_nest(tensor: Tensor, around: tuple[Leaf, ...], fixed: dict[Dim, Expr]) -> LoopNest:
    assert tensor.body is not None
    reductions = reductions_of(tensor.body)
    over = reductions[0].over if reductions else ()
    values: dict[Dim, Expr] = {}
    leaves: list[Leaf] = []
    for dim in (*tensor.dims, *over):
        if dim in fixed:
            values[dim] = fixed[dim]
            continue
        var = Var(f"{dim.name}_{tensor.name}")  # the consumer may have a loop of that name
        leaves.append(Leaf(dim.name, var, root_extent(dim, values), dim in over, root=dim))
        values[dim] = var
    return LoopNest(tensor, tuple(leaves), values, around=around)


def check_attached(nest: LoopNest, consumer: LoopNest) -> None:
    """Two iterations of a parallel loop around an attached operator must not compute the same elements.

    So every dim of the consumer that the parallel loop determines must be a fixed dim of the operator. Nor may
    the operator have a parallel loop of its own there.
    """
    for leaf in nest.around:
        if leaf.kind is not LoopKind.PARALLEL:
            continue
        for own in nest.leaves:
            if own.kind is LoopKind.PARALLEL:
                raise ScheduleError(
                    f"compute_at: loop '{own.name}' of '{nest.tensor.name}' is parallel inside the parallel loop "
                    f"'{leaf.name}' of '{consumer.tensor.name}'; mark one of them"
                )
        fixed = {nest.values[d] for d in nest.tensor.dims}
        for dim, value in consumer.values.items():
            if leaf.var in free_vars(value) and simplify(value) not in fixed:
                raise ScheduleError(
                    f"compute_at: '{nest.tensor.name}' is the same for several iterations of the parallel loop "
                    f"'{leaf.name}' of '{consumer.tensor.name}' (its dims do not fix '{dim.name}')"
                )
