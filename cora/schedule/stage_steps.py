"""Where an operator is computed: inlined into its readers, or inside a loop of its consumer."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from cora.errors import CoraError, ScheduleError
from cora.ir import dtypes
from cora.ir.expr import Access, Const, Dim, Expr, cast
from cora.ir.simplify import simplify
from cora.ir.stmt import LoopKind
from cora.ir.tensor import Tensor
from cora.ir.visit import free_vars, substitute, transform, walk
from cora.lang.check import check_body, reductions_of
from cora.schedule.fused_rows import FusedRows, copy_of, fused_rows
from cora.schedule.nest import Leaf, LoopNest, State, initial_nest
from cora.schedule.regions import attached_nest, not_all_computed
from cora.schedule.steps import CacheRead, ComputeAt, FillAtUse, Inline, Recompute, Scope, SetScope
from cora.storage.layout import Layout


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
                value = substitute(body, dict(zip(producer.dims, indices, strict=True)))
                return cast(producer.dtype, value)
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
    if place >= consumer.inside and not (consumer.leaves[place].reduction and not consumer.tile):
        reason = "a micro-kernel cannot run it" if consumer.tile else "the loop stands inside a reduction"
        raise ScheduleError(f"{where}: {reason}")
    if consumer.leaves[place].kind is LoopKind.VECTOR:
        raise ScheduleError(f"{where}: the loop runs in lanes")
    around = (*consumer.around, *consumer.leaves[: place + 1])
    readers = readers_of(step.op, state)
    inside = [r for r in readers if r == step.consumer or state.nests[r].around[: len(around)] == around]
    outside = [r for r in readers if r not in inside]
    if outside and not inside:
        raise ScheduleError(f"{where}: '{outside[0]}' also reads it, outside that loop")
    if not readers:
        raise ScheduleError(f"{where}: nothing reads it")
    whole = step.consumer not in state.attached and _reads_all(consumer.tensor, nest.tensor)
    if nest.tensor.name in state.outputs and not whole:
        raise ScheduleError(
            f"{where}: it is an output, so all of it is computed, and '{step.consumer}' may not read all of it"
        )
    attached = replace(state, attached={**state.attached, step.op: (step.consumer, step.loop)})
    nest = attached_nest(nest.tensor, around, [state.nests[r] for r in inside])
    if outside:
        missing = not_all_computed(nest, consumer, step.consumer in state.attached)
        if missing:
            raise ScheduleError(f"{where}: '{outside[0]}' also reads it, outside that loop; {missing}")
    return attached.with_nest(nest).with_nest(consumer)


def _reads_all(reader: Tensor, source: Tensor) -> bool:
    """Whether every element of `source` is read for some element of `reader`: at its own dims, beside constant ones."""
    others = (d.extent for d in reader.dims if d not in source.dims)
    if not all(isinstance(e, Const) and int(e.value) > 0 for e in others):
        return False
    return any(a.tensor.name == source.name and a.indices == source.dims for a in accesses_of(reader))


def set_scope(step: SetScope, state: State) -> State:
    """Scratch memory for an attached operator, or the tensor's own."""
    nest = state.nest(step.op, "set_scope")
    if step.scope not in get_args(Scope):
        scopes = ", ".join(map(repr, get_args(Scope)))
        raise ScheduleError(f"set_scope of '{step.op}': scope must be one of {scopes}; got {step.scope!r}")
    if step.scope == "memory":
        return state.with_nest(replace(nest, scratch=False, chip=""))
    if nest.tensor.name in state.outputs:
        raise ScheduleError(f"set_scope of '{step.op}': it is an output; scratch is lost")
    if step.op not in state.attached:
        raise ScheduleError(
            f"set_scope of '{step.op}': only what is computed inside a loop of its consumer can be scratch; "
            "compute_at first"
        )
    if any(leaf.kind is LoopKind.VECTOR for leaf in nest.around):
        raise ScheduleError(
            f"set_scope of '{step.op}': a loop around it runs in lanes, which would share the scratch"
        )
    others = readers_elsewhere(nest, state)
    if others:
        raise ScheduleError(
            f"set_scope of '{step.op}': '{others[0]}' also reads it, outside the loop where it is"
        )
    return state.with_nest(replace(nest, scratch=True, chip="" if step.scope == "scratch" else step.scope))


def readers_elsewhere(nest: LoopNest, state: State) -> list[str]:
    """The readers of an attached operator that do not run inside the loop where it is computed."""
    if nest.name not in state.attached:
        return []
    consumer, around = state.attached[nest.name][0], nest.around
    return [
        r
        for r in readers_of(nest.tensor.name, state)
        if r != consumer and state.nests[r].around[: len(around)] != around
    ]


def recompute(step: Recompute, state: State) -> State:
    """The copy as an operator of its own, and its reader reading it."""
    where = f"recompute of '{step.op}' for '{step.reader}'"
    nest, reader = state.nest(step.op, "recompute"), state.nest(step.reader, "recompute")
    for each in (nest, reader):
        check_untouched("recompute", each, state)
    if not step.name.isidentifier() or step.name in {*state.nests, *state.pieces, *state.layouts}:
        raise ScheduleError(f"{where}: the name {step.name!r} is taken, or no identifier")
    readers = readers_of(step.op, state)
    if step.reader not in readers:
        raise ScheduleError(f"{where}: '{step.reader}' does not read it")
    if len(readers) == 1 and step.op not in state.outputs:
        raise ScheduleError(f"{where}: nothing else reads it")
    source = nest.tensor
    copy = Tensor(step.name, source.dims, source.dtype, source.body)
    redirected = _redirected(reader.tensor, source, copy, None, in_reductions=False)
    stages = {**state.stages, redirected.name: (*state.stages.get(redirected.name, ()), copy)}
    return replace(
        state,
        nests={**state.nests, copy.name: initial_nest(copy), reader.name: initial_nest(redirected)},
        layouts={**state.layouts, copy.name: Layout.packed(copy.dims)},
        stages=stages,
    )


def cache_read(step: CacheRead, state: State) -> State:
    """The copy as an operator of its own, attached to the loop, and its reader reading it."""
    where = f"cache_read of '{step.tensor}' at loop '{step.loop}' of '{step.op}'"
    nest = state.nest(step.op, "cache_read")
    if not step.name.isidentifier() or step.name in {*state.nests, *state.pieces, *state.layouts}:
        raise ScheduleError(f"{where}: the name {step.name!r} is taken, or no identifier")
    reads = [a for a in accesses_of(nest.tensor) if a.tensor.name == step.tensor]
    if not reads:
        read = ", ".join(dict.fromkeys(a.tensor.name for a in accesses_of(nest.tensor)))
        raise ScheduleError(f"{where}: '{step.op}' reads {read or 'nothing'}")
    indices = (i for a in accesses_of(nest.tensor) for i in a.indices)
    if any(isinstance(n, Access) and n.tensor.name == step.tensor for i in indices for n in walk(i)):
        raise ScheduleError(f"{where}: its values are indices, which are checked before the launch")
    source = reads[0].tensor
    owner = _owner(step.op, step.loop, state)
    behind = owner == nest.name and _stands_in_reduction(nest, step.loop)
    assert nest.tensor.body is not None
    if behind and not any(_reads(r, source) for r in reductions_of(nest.tensor.body)):
        raise ScheduleError(
            f"{where}: '{step.op}' reads it after its reduction, which may have no iterations"
        )
    joined = fused_rows(nest, reads)
    copy = copy_of(source, step.name, joined)
    reader = replace(nest, tensor=_redirected(nest.tensor, source, copy, joined, in_reductions=behind))
    result = replace(
        state,
        nests={**state.nests, copy.name: initial_nest(copy), nest.name: reader},
        layouts={**state.layouts, copy.name: Layout.packed(copy.dims)},
        stages={**state.stages, reader.tensor.name: (*state.stages.get(reader.tensor.name, ()), copy)},
    )
    result = compute_at(ComputeAt(copy.name, owner, step.loop), result)
    made = state.nests[source.name].around if source.name in state.attached else ()
    if result.nests[copy.name].around[: len(made)] != made:
        raise ScheduleError(f"{where}: '{source.name}' is computed at a loop further inside")
    return set_scope(SetScope(copy.name, "scratch"), result)


def fill_at_use(step: FillAtUse, state: State) -> State:
    """Mark a copy; whether its first use fills it is decided when the nest of its reader is lowered."""
    where = f"fill_at_use of '{step.op}'"
    nest = state.nest(step.op, "fill_at_use")
    tensor = nest.tensor
    match tensor.body:
        case Access(indices=indices) if indices == tensor.dims and nest.scratch:
            pass
        case _:
            raise ScheduleError(f"{where}: expected a copy that cache_read has made")
    own = {dim.name for dim in tensor.dims}
    if any(leaf.kind is not LoopKind.SERIAL or leaf.name not in own for leaf in nest.leaves):
        raise ScheduleError(f"{where}: its loops are scheduled, but would not run")
    consumer, _ = state.attached[step.op]
    readers = readers_of(tensor.name, state)
    if readers != [consumer]:
        raise ScheduleError(
            f"{where}: '{consumer}' alone must read it, in its own loops; {', '.join(readers)} do"
        )
    return state.with_nest(replace(nest, filled=True))


def _stands_in_reduction(nest: LoopNest, loop: str) -> bool:
    """Whether a loop is a reduction loop or stands inside one: what is copied there is not there behind it."""
    place = nest.position(loop, "cache_read")
    return any(leaf.reduction for leaf in nest.leaves[: place + 1])


def _reads(e: Expr, source: Tensor) -> bool:
    return any(isinstance(n, Access) and n.tensor.name == source.name for n in walk(e))


def _owner(op: str, loop: str, state: State) -> str:
    """The operator among `op` and those that it is computed inside that has the loop; `op` if none has."""
    owner = op
    while owner in state.attached and all(leaf.name != loop for leaf in state.nests[owner].leaves):
        owner = state.attached[owner][0]
    return owner if any(leaf.name == loop for leaf in state.nests[owner].leaves) else op


def _redirected(
    reader: Tensor, source: Tensor, copy: Tensor, joined: FusedRows | None, *, in_reductions: bool
) -> Tensor:
    """`reader` with every access to `source`, or every one in its reductions, made one to `copy`."""

    def rule(e: Expr) -> Expr | None:
        match e:
            case Access(tensor=tensor, indices=indices) if tensor.name == source.name:
                return Access(copy, indices if joined is None else joined.indices(indices))
        return None

    body = reader.body
    assert body is not None
    if in_reductions:
        new = substitute(body, {r: transform(r, rule) for r in reductions_of(body)})
    else:
        new = transform(body, rule)
    return Tensor(reader.name, reader.dims, reader.dtype, new)


def not_fixed(nest: LoopNest, leaf: Leaf, consumer: LoopNest) -> Dim | None:
    """A dim that a loop around an attached operator determines in the consumer, and its own dims do not fix.

    None: different iterations of the loop compute different elements.
    """
    fixed = {nest.values[d] for d in nest.tensor.dims}
    if leaf.var in fixed:
        return None
    for dim, value in consumer.values.items():
        if leaf.var in free_vars(value) and simplify(value) not in fixed:
            return dim
    return None


def check_attached(nest: LoopNest, consumer: LoopNest) -> None:
    """Two iterations of a parallel loop around an attached operator must not compute the same elements.

    So a dim of the operator must be the parallel loop's variable; or every dim of the consumer that the loop determines
    must be fixed in the operator; unless it is scratch.
    Nor may the operator have a parallel loop of its own there.
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
        if nest.scratch:
            continue  # each worker has its own
        dim = not_fixed(nest, leaf, consumer)
        if dim is not None:
            raise ScheduleError(
                f"compute_at: '{nest.tensor.name}' is the same for several iterations of the parallel loop "
                f"'{leaf.name}' of '{consumer.tensor.name}' (its dims do not fix '{dim.name}')"
            )
