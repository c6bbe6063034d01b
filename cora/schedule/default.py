"""The schedule that a program gets when its author gives none.

First the operators are brought together: an element-wise one that is read once per element is inlined, others are
computed inside the deepest loop of their consumer in which nothing is computed twice. Then each nest: one loop for
everything where all tensors are stored alike; otherwise the outermost loop in parallel, balanced by cost, and one
loop in vector lanes, chosen so that every access has stride 0 or 1 along it. What is computed inside a consumer's loop
is kept in scratch memory where it can be: in the cache, and not once for the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable

from cora.errors import ScheduleError
from cora.ir import dtypes
from cora.ir.expr import Access, Const, Dim, Expr, Reduce, Var
from cora.ir.poly import linear_in
from cora.ir.simplify import Simplifier, simplify
from cora.ir.stmt import LoopKind
from cora.ir.tensor import Tensor
from cora.ir.visit import children, free_dims, free_vars, substitute, walk
from cora.lang.check import reductions_of
from cora.schedule.nest import Leaf, LoopNest
from cora.schedule.schedule import Schedule
from cora.schedule.stage_steps import accesses_of, readers_elsewhere, readers_of
from cora.storage.offsets import offset

VECTOR_BYTES = 64


def default_schedule(untransformed: Schedule) -> Schedule:
    """The default steps added to a schedule of the untransformed program."""
    result = staged(untransformed)
    for tensor in result.operators:
        result = default_nest(result, tensor)
    return in_scratch(result)


def staged(untransformed: Schedule) -> Schedule:
    """Its first part: what is inlined, and what is computed inside its consumer."""
    return _attach(inlined(untransformed))


def in_scratch(s: Schedule) -> Schedule:
    """Its last part: what is computed inside its consumer is kept in scratch memory, where it can be."""
    for stage in s.state.attached:
        s = _legal(s.set_scope, stage, "scratch") or s
    return s


def lanes_of(tensor: Tensor) -> int:
    """One vector of the type that the operator computes in."""
    return min(16, VECTOR_BYTES // dtypes.itemsize(dtypes.compute_type(tensor.dtype)))


def inlined(s: Schedule) -> Schedule:
    """Inline what is read by one operator, once, at every element of its loops exactly once."""
    for tensor in s.operators:
        readers = readers_of(tensor.name, s.state)
        if len(readers) != 1 or tensor.body is None or reductions_of(tensor.body):
            continue
        nest = s.nest(readers[0])
        reads = [a for a in accesses_of(nest.tensor) if a.tensor.name == tensor.name]
        if len(reads) == 1 and set(reads[0].indices) == set(nest.values):
            s = _legal(s.inline, tensor) or s
    return s


def _attach(s: Schedule) -> Schedule:
    """Compute each operator inside the deepest loop of its consumer that does not compute anything twice."""
    for tensor in reversed(s.operators):
        if tensor.name in s.state.outputs:
            continue
        groups = {_root(s, reader) for reader in readers_of(tensor.name, s.state)}
        if len(groups) != 1:
            continue
        (consumer,) = groups
        for leaf in reversed(_places(s.nest(consumer))):
            attached = _legal(s.compute_at, tensor, consumer, leaf.name)
            if attached is None or readers_elsewhere(attached.nest(tensor), attached.state):
                continue
            if _computes_once(attached.nest(tensor), attached.nest(consumer)):
                s = attached
                break
    return s


def _legal(step: Callable[..., Schedule], *arguments: object) -> Schedule | None:
    """The schedule after a step; None if it is illegal."""
    try:
        return step(*arguments)
    except ScheduleError:
        return None


def _root(s: Schedule, op: str) -> str:
    """The operator in whose nest `op` is computed."""
    while op in s.state.attached:
        op = s.state.attached[op][0]
    return op


def _places(nest: LoopNest) -> tuple[Leaf, ...]:
    """The loops that others may be attached to: not reductions, and not the one that will run in lanes."""
    spatial = tuple(leaf for leaf in nest.leaves if not leaf.reduction)
    return spatial if len(spatial) < len(nest.leaves) else spatial[:-1]


def _computes_once(nest: LoopNest, consumer: LoopNest) -> bool:
    """Whether different iterations of the loops around compute different elements."""
    fixed = {nest.values[d] for d in nest.tensor.dims}
    around = {leaf.var for leaf in nest.around}
    return all(simplify(value) in fixed for value in consumer.values.values() if free_vars(value) & around)


def default_nest(s: Schedule, tensor: Tensor) -> Schedule:
    """Its second part, for the loops of one operator."""
    alone = tensor.name not in s.state.attached
    parent = tensor.name in {consumer for consumer, _ in s.state.attached.values()}
    nest = s.nest(tensor)
    if any(leaf.reduction for leaf in nest.leaves):
        s = _reduction(s, tensor)
    elif alone and not parent:
        flat = _flat(s, tensor)
        return flat if flat is not None else _elementwise(s, tensor)
    else:
        s = _lanes(s, tensor)
    return _parallel(s, tensor) if alone else s


def _parallel(s: Schedule, tensor: Tensor) -> Schedule:
    """The outermost loop on the workers, unless it is a reduction, or the only one and in lanes."""
    first = next(iter(s.nest(tensor).leaves), None)
    if first is None or first.reduction or first.kind is not LoopKind.SERIAL:
        return s
    return s.parallel(tensor, first.name)


def unused(s: Schedule, tensor: Tensor, name: str) -> str:
    """`name`, or one like it that no loop of the operator has."""
    taken = {leaf.name for leaf in s.nest(tensor).leaves}
    while name in taken:
        name += "_"
    return name


def _flat(s: Schedule, tensor: Tensor) -> Schedule | None:
    """All loops as one, if then every tensor is read and written at the loop variable itself."""
    name = unused(s, tensor, "flat")
    if not tensor.dims:
        return s
    if len(tensor.dims) == 1:
        name = tensor.dims[0].name
        fused = s
    else:
        legal = _legal(lambda: s.fuse(tensor, *tensor.dims, name=name))
        if legal is None:
            return None
        fused = legal
    nest = fused.nest(tensor)
    if _uses_dims(tensor) or any(stride != 1 for stride in strides_along(fused, tensor, nest.leaves[0].var)):
        return None
    return _parallel(fused.vectorize(tensor, name, lanes_of(tensor)), tensor)


def _uses_dims(tensor: Tensor) -> bool:
    """Whether the element depends on the indices themselves: in one loop they would come from tables."""

    def go(e: Expr) -> bool:
        return isinstance(e, Dim) or (not isinstance(e, Access) and any(go(c) for c in children(e)))

    return tensor.body is not None and go(tensor.body)


def _elementwise(s: Schedule, tensor: Tensor) -> Schedule:
    *outer, last = tensor.dims
    s = _lanes(s, tensor)
    if len(outer) > 1 and not free_dims(last.extent):
        s = s.fuse(tensor, *outer, name=unused(s, tensor, "rows"))
    return _parallel(s, tensor)


def _lanes(s: Schedule, tensor: Tensor) -> Schedule:
    """The last loop in lanes, if its accesses allow it."""
    leaves = s.nest(tensor).leaves
    if not leaves or leaves[-1].reduction or not _unit_stride(s, tensor, leaves[-1], 1):
        return s
    return s.vectorize(tensor, leaves[-1].name, lanes_of(tensor))


def _reduction(s: Schedule, tensor: Tensor) -> Schedule:
    nest = s.nest(tensor)
    spatial = [leaf for leaf in nest.leaves if not leaf.reduction]
    if spatial and _unit_stride(s, tensor, spatial[-1], 1):
        loads = strides_along(s, tensor, spatial[-1].var)[1:]
        if 1 in loads:
            return _legal(_columns, s, tensor, spatial[-1]) or s
    last = nest.leaves[-1]
    assert nest.tensor.body is not None
    if any(r.op in ("argmax", "argmin") for r in reductions_of(nest.tensor.body)):
        return s
    return s.vectorize(tensor, last.name, lanes_of(tensor)) if _unit_stride(s, tensor, last, 0) else s


def _columns(s: Schedule, tensor: Tensor, leaf: Leaf) -> Schedule:
    """A spatial loop in lanes, inside the reduction: accumulators four registers wide where there is room."""
    lanes = lanes_of(tensor)
    if not isinstance(leaf.extent, Const) or int(leaf.extent.value) > 2 * lanes:
        lanes *= 4
    over = [other.name for other in s.nest(tensor).leaves if other.reduction]
    outer, inner = (unused(s, tensor, f"{leaf.name}_{suffix}") for suffix in "oi")
    s = s.split(tensor, leaf.name, lanes, names=(outer, inner))
    return s.reorder(tensor, outer, *over, inner).vectorize(tensor, inner)


def _unit_stride(s: Schedule, tensor: Tensor, leaf: Leaf, store: int) -> bool:
    """Whether every load has stride 0 or 1 along a loop, and the store the given one."""
    own, *loads = strides_along(s, tensor, leaf.var)
    return own == store and all(stride in (0, 1) for stride in loads)


def strides_along(s: Schedule, tensor: Tensor, var: Var) -> list[int | None]:
    """How far the store and each load move in memory along a leaf variable; None if not evenly."""
    nest = s.nest(tensor)
    simplifier = Simplifier({leaf.var: leaf.extent for leaf in nest.scope})
    accesses = [Access(tensor, tuple(tensor.dims)), *accesses_of(nest.tensor)]
    return [_stride(s, access, nest, simplifier, var) for access in dict.fromkeys(accesses)]


def _stride(s: Schedule, access: Access, nest: LoopNest, simplifier: Simplifier, var: Var) -> int | None:
    indices: list[Expr] = [simplifier(substitute(i, nest.values)) for i in access.indices]
    at = simplifier(offset(s.layout(access.tensor), indices))
    if any(isinstance(n, (Access, Reduce, Dim)) for n in walk(at)):
        return None
    split = linear_in(at, var)
    return None if split is None else split[0]
