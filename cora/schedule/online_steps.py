"""A maximum and sums that run together: legality, and the operators that keep them between blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cora.errors import ScheduleError
from cora.ir import dtypes
from cora.ir.expr import ONE, ZERO, Access, Binary, Const, Dim, Expr, Reduce, Var, binary
from cora.ir.simplify import simplify
from cora.ir.stmt import LoopKind
from cora.ir.tensor import Tensor
from cora.ir.visit import substitute, transform, walk
from cora.lang.check import check_name, reductions_of
from cora.schedule.nest import Leaf, LoopNest, Running, State, root_extent
from cora.schedule.online_form import Term, correction, read_form
from cora.schedule.online_step import Online
from cora.schedule.regions import Interval, attached_nest, interval
from cora.schedule.stage_steps import accesses_of, check_untouched, readers_of
from cora.storage.layout import Layout


def online(step: Online, state: State) -> State:
    """The maximum and the sums attached to the loop, with what they were before, and the factor of the correction."""
    where = f"online: '{step.maximum}' along loop '{step.loop}' of '{step.op}'"
    nest = state.nest(step.op, "online")
    names = (step.maximum, *step.sums)
    if len({step.op, *names}) != 1 + len(names):
        raise ScheduleError(f"{where}: an operator stands twice")
    tensors = [_kept(where, name, state) for name in names]
    block = _block(where, step, nest, state)
    bodies = {name: n.tensor.body for name, n in state.nests.items() if n.tensor.body is not None}
    term = read_form(where, nest.tensor, tensors[0], bodies)
    sums = [(tensor, read_form(where, tensor, tensors[0], bodies)) for tensor in tensors[1:]]
    inside = frozenset(name for t in (term, *(t for _, t in sums)) for name in t.between)
    indices = {step.maximum: term.top.indices}
    for tensor, own in sums:
        indices[tensor.name] = _row(where, nest.tensor, tensor, own, term)
    _check_results(where, nest.tensor, indices, inside)
    made = _made(tensors[0], sums, term)
    for tensor in (*made.before, made.factor):
        check_name(tensor.name, where)
        if tensor.name in {*state.nests, *state.layouts, *state.pieces}:
            raise ScheduleError(f"{where}: the name '{tensor.name}' is taken")
    around = (*nest.around, *nest.leaves[: nest.position(step.loop, "online") + 1])
    nests = dict(state.nests)
    for name, tensor in made.operators(names):
        reader = Tensor(step.op, nest.tensor.dims, tensor.dtype, Access(tensor, indices[name]))
        nests[tensor.name] = _stage(tensor, around, replace(nest, tensor=reader), block)
    order = made.order
    stages_of = [name for part in order for name in part]
    inside |= {step.op, *stages_of}
    for name in names:
        others = [r for r in readers_of(name, state) if r not in inside]
        if others and (
            step.op in state.attached or not _all_computed(nests[name].tensor, indices[name], nest)
        ):
            raise ScheduleError(
                f"{where}: '{others[0]}' also reads '{name}', outside that loop, where not all of it is computed"
            )
    new = (*made.before, made.factor)
    first = min((t.name for t, _ in sums), key=list(state.nests).index, default=step.op)
    stages = dict(state.stages)
    stages[step.maximum] = (*stages.get(step.maximum, ()), *made.before)
    stages[first] = (*stages.get(first, ()), made.factor)
    return replace(
        state,
        nests=nests,
        layouts={**state.layouts, **{tensor.name: Layout.packed(tensor.dims) for tensor in new}},
        stages=stages,
        attached={**state.attached, **dict.fromkeys(stages_of, (step.op, step.loop))},
        running={
            **state.running,
            step.op: Running(step.loop, Access(made.factor, term.top.indices), names, order, inside),
        },
    ).with_nest(nest)


@dataclass(frozen=True, slots=True)
class _Made:
    """The operators of one iteration: what was there before it, the maximum, the factor, the sums."""

    before: tuple[Tensor, ...]
    top: Tensor
    factor: Tensor
    sums: tuple[Tensor, ...]

    @property
    def order(self) -> tuple[tuple[str, ...], ...]:
        """Their names, as they must run."""
        parts = (self.before, (self.top,), (self.factor,), self.sums)
        return tuple(tuple(tensor.name for tensor in part) for part in parts)

    def operators(self, names: tuple[str, ...]) -> list[tuple[str, Tensor]]:
        """Each with the name of the operator of which it has the elements."""
        return [
            *zip(names, self.before, strict=True),
            (names[0], self.top),
            (names[0], self.factor),
            *zip(names[1:], self.sums, strict=True),
        ]


def _made(top: Tensor, sums: list[tuple[Tensor, Term]], term: Term) -> _Made:
    def before(tensor: Tensor) -> Tensor:
        return Tensor(f"{tensor.name}_before", tensor.dims, tensor.dtype, Access(tensor, tensor.dims))

    assert top.body is not None
    earlier = before(top)
    at = Access(earlier, top.dims)
    running = Tensor(top.name, top.dims, top.dtype, binary("max", top.body, at))
    changed = correction(term.form, at, Access(top, top.dims))
    factor = Tensor(f"{top.name}_factor", top.dims, top.dtype, changed)
    old = [earlier]
    new: list[Tensor] = []
    for tensor, own in sums:
        assert tensor.body is not None
        old.append(before(tensor))
        kept = Access(old[-1], tensor.dims) * Access(factor, own.top.indices)
        new.append(Tensor(tensor.name, tensor.dims, tensor.dtype, kept + tensor.body))
    return _Made(tuple(old), running, factor, tuple(new))


def _kept(where: str, name: str, state: State) -> Tensor:
    """An operator that runs: nothing but a reduction, in the type in which it is stored."""
    nest = state.nest(name, "online")
    check_untouched("online", nest, state)
    tensor = nest.tensor
    if name in state.outputs:
        raise ScheduleError(f"{where}: '{name}' is an output; let an operator that reads it be one")
    if not isinstance(tensor.body, Reduce):
        raise ScheduleError(f"{where}: '{name}' must be a reduction and nothing else; it is {tensor.body}")
    if tensor.dtype != tensor.body.dtype or dtypes.compute_type(tensor.dtype) != tensor.dtype:
        raise ScheduleError(f"{where}: '{name}' is stored as {tensor.dtype}, which rounds what is continued")
    return tensor


@dataclass(frozen=True, slots=True)
class _Block:
    """What an iteration of the block loop reduces."""

    dim: Dim
    reduced: Interval


def _block(where: str, step: Online, nest: LoopNest, state: State) -> _Block:
    """The part of the reduction in one iteration; ScheduleError if parts overlap, or it is no block loop."""
    place = nest.position(step.loop, "online")
    leaf = nest.leaves[place]
    if nest.tile or nest.by_warp:
        raise ScheduleError(f"{where}: the accumulators of '{step.op}' are those of a micro-kernel")
    if nest.kept_in or nest.accumulates or step.op in state.running:
        raise ScheduleError(
            f"{where}: '{step.op}' continues what is stored, or has a maximum that runs already"
        )
    if not leaf.reduction or nest.inside != place or leaf.kind is not LoopKind.SERIAL:
        raise ScheduleError(f"{where}: expected the outermost reduction loop of '{step.op}', unmarked")
    assert nest.tensor.body is not None
    over = {d for r in reductions_of(nest.tensor.body) for d in r.over}
    if len(over) != 1:
        raise ScheduleError(f"{where}: '{step.op}' must reduce over one dim")
    (dim,) = over
    known = frozenset(outer.var for outer in (*nest.around, *nest.leaves[: place + 1]))
    found = interval(simplify(nest.values[dim]), known, nest)
    if found is None or not _disjoint(found, leaf.var):
        raise ScheduleError(
            f"{where}: its iterations must reduce one block after the other; '{dim.name}' is {nest.values[dim]}: split "
            "it, and take the outer loop"
        )
    return _Block(dim, found)


def _disjoint(found: Interval, var: Var) -> bool:
    """Whether the blocks begin at 0, and each where the one before ends, or later."""
    moved = simplify(substitute(found.begin, {var: var + 1}) - found.begin)
    short = isinstance(found.extent, Binary) and found.extent.op == "min"
    ends = [found.extent, *((found.extent.a, found.extent.b) if short else ())]  # type: ignore[attr-defined]
    return simplify(substitute(found.begin, {var: ZERO})) == ZERO and any(
        simplify(moved - end) == ZERO for end in ends
    )


def _stage(tensor: Tensor, around: tuple[Leaf, ...], reader: LoopNest, block: _Block) -> LoopNest:
    """The loops of an operator in one iteration; a reduction runs over the block."""
    nest = attached_nest(tensor, around, [reader])
    assert tensor.body is not None
    reductions = reductions_of(tensor.body)
    if not reductions:
        return nest
    ((dim,),) = (r.over for r in reductions)
    place = nest.position(dim.name, "online")
    leaf, found = nest.leaves[place], block.reduced
    end = binary("min", root_extent(dim, nest.values), found.begin + found.extent)
    count = simplify(binary("max", end - found.begin, ZERO))
    own = replace(leaf, extent=count, root=None, bound=found.largest, reach=found.extent)
    return replace(nest.with_leaf(place, own), values={**nest.values, dim: found.begin + leaf.var})


def _all_computed(tensor: Tensor, indices: tuple[Expr, ...], nest: LoopNest) -> bool:
    """Whether every element of `tensor` is read by some element of `nest`, at dims of its own."""
    values: dict[Expr, Expr] = {}
    for dim, index in zip(tensor.dims, indices, strict=True):
        own = isinstance(index, Dim) and index in nest.tensor.dims and index not in values.values()
        if not own or root_extent(index, {}) != simplify(substitute(root_extent(dim, {}), values)):  # type: ignore[arg-type]
            return False
        values[dim] = index
    others = (d.extent for d in nest.tensor.dims if d not in indices)
    return all(isinstance(e, Const) and int(e.value) > 0 for e in others)


def _row(where: str, op: Tensor, tensor: Tensor, own: Term, term: Term) -> tuple[Expr, ...]:
    """Where `op` reads a sum, which must belong to the same maximum as its terms."""
    if own.form != term.form:
        raise ScheduleError(
            f"{where}: '{tensor.name}' scales or shifts its exponents as '{op.name}' does not"
        )
    read = [a.indices for a in accesses_of(op) if a.tensor.name == tensor.name]
    if not read:
        raise ScheduleError(
            f"{where}: '{op.name}' does not read '{tensor.name}'; inline what stands between them"
        )
    values = dict(zip(tensor.dims, read[0], strict=True))
    if tuple(simplify(substitute(i, values)) for i in own.top.indices) != tuple(
        map(simplify, term.top.indices)
    ):
        raise ScheduleError(f"{where}: '{tensor.name}' belongs to another element of the maximum")
    return read[0]


def _check_results(
    where: str, op: Tensor, indices: dict[str, tuple[Expr, ...]], between: frozenset[str]
) -> None:
    """What is made of the sum may read final values, at one place, and nothing that is computed for a block."""
    assert op.body is not None
    for access in accesses_of(op):
        if access.indices != indices.get(access.tensor.name, access.indices):
            raise ScheduleError(f"{where}: '{op.name}' reads '{access.tensor.name}' at several places")
    rest = transform(op.body, lambda e: ONE if isinstance(e, Reduce) else None)
    for read in walk(rest):
        if isinstance(read, Access) and read.tensor.name in between:
            raise ScheduleError(f"{where}: '{op.name}' reads '{read.tensor.name}' behind its reduction too")


def readers_last(names: list[str], state: State) -> list[str]:
    """`names`, in which what reads the final value of a running maximum, or sum, comes after the loop."""
    for op, running in state.running.items():
        readers = {r for kept in running.kept for r in readers_of(kept, state)} - running.inside
        early = names[: names.index(op) + 1]
        late = [
            name
            for name in early
            if name in readers and not any(r in early for r in readers_of(name, state)) and name != op
        ]
        rest = [name for name in names if name not in late]
        place = rest.index(op) + 1
        names = [*rest[:place], *late, *rest[place:]]
    return names
