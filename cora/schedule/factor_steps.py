"""Reductions as operators of their own: partial results of chunks and their combination, or a whole one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cora.errors import CoraError, ScheduleError
from cora.ir import dtypes
from cora.ir.expr import (
    Access,
    Const,
    Dim,
    Expr,
    Reduce,
    Select,
    binary,
    ceildiv,
    conjunction,
    constant,
    unary,
)
from cora.ir.simplify import simplify
from cora.ir.tensor import Tensor
from cora.ir.visit import children, free_dims, substitute, transform
from cora.lang.check import check_body, check_name, reductions_of
from cora.prove import Context, Prover, Range
from cora.schedule.legality import positive
from cora.schedule.nest import State, initial_nest
from cora.schedule.stage_steps import check_untouched
from cora.schedule.steps import Outline, RFactor
from cora.settings import Settings
from cora.storage.layout import Layout


def rfactor(step: RFactor, state: State) -> State:
    """A new operator for the partial results; the operator itself then reduces over them."""
    nest = state.nest(step.op, "rfactor")
    check_untouched("rfactor", nest, state)
    where = f"rfactor of '{step.op}' over '{step.loop}'"
    size = positive(step.size, f"{where}: {step.unit}")
    tensor = nest.tensor
    assert tensor.body is not None
    reductions = reductions_of(tensor.body)
    over = {d.name: d for r in reductions for d in r.over}
    if step.loop not in over:
        raise ScheduleError(f"{where}: expected a dim it reduces over: {', '.join(over) or '(none)'}")
    dim = over[step.loop]
    inner_dims = free_dims(dim.extent) & set(over.values())
    if inner_dims:
        names = ", ".join(sorted(d.name for d in inner_dims))
        raise ScheduleError(f"{where}: how far it runs depends on the reduction over {names}")
    chunk, inner, value = _chunks(step.unit, dim, size, where)
    stages: list[Tensor] = []
    values: dict[Expr, Expr] = {}
    for number, reduction in enumerate(reductions):
        if reduction.op not in ("sum", "prod", "max", "min"):
            raise ScheduleError(f"{where}: {reduction.op} has no partial results to combine")
        stage = _partial(f"{step.name}{number or ''}", tensor, reduction, dim, chunk, inner, value)
        stage = _protected(stage, tensor.body, reduction)
        _check_new(where, stage, state)
        stages.append(stage)
        partial = Access(stage, (*tensor.dims, chunk))
        values[reduction] = Reduce(reduction.op, partial, (chunk,))
    body = transform(tensor.body, values.get)
    try:
        check_body(tensor.name, tensor.dims, body)
    except CoraError as error:
        raise ScheduleError(f"{where}: {error}") from error
    return _with_stages(state, replace_body(tensor, body), stages)


def outline(step: Outline, state: State) -> State:
    """A new operator for the reduction; the operator itself then reads its result."""
    nest = state.nest(step.op, "outline")
    check_untouched("outline", nest, state)
    where = f"outline of '{step.op}'"
    tensor = nest.tensor
    assert tensor.body is not None
    reductions = reductions_of(tensor.body)
    if len(reductions) != 1:
        raise ScheduleError(f"{where}: expected an element with one reduction; it is {tensor.body}")
    (reduction,) = reductions
    if reduction.op not in ("sum", "prod", "max", "min"):
        raise ScheduleError(f"{where}: it is an {reduction.op}, not a sum, prod, max or min")
    stage = Tensor(step.name, tensor.dims, reduction.dtype, reduction)
    stage = _protected(stage, tensor.body, reduction)
    _check_new(where, stage, state)
    read: dict[Expr, Expr] = {reduction: Access(stage, tensor.dims)}
    return _with_stages(state, replace_body(tensor, transform(tensor.body, read.get)), [stage])


def _with_stages(state: State, tensor: Tensor, stages: Sequence[Tensor]) -> State:
    """The state with `tensor` computed from new operators, before it."""
    made = {stage.name: initial_nest(stage) for stage in stages}
    return replace(
        state,
        nests={**state.nests, **made, tensor.name: initial_nest(tensor)},
        layouts={**state.layouts, **{stage.name: Layout.packed(stage.dims) for stage in stages}},
        stages={**state.stages, tensor.name: (*state.stages.get(tensor.name, ()), *stages)},
    )


def replace_body(tensor: Tensor, body: Expr) -> Tensor:
    """`tensor`, computed in another way."""
    return Tensor(tensor.name, tensor.dims, tensor.dtype, body)


def _chunks(unit: str, dim: Dim, size: int, where: str) -> tuple[Dim, Dim, Expr]:
    """The dims over chunks and inside one, and the old index in terms of them; all by the extent of `dim` alone."""
    extent = simplify(binary("max", dim.extent, 0))
    match unit:
        case "factor":
            chunk = Dim(f"{dim.name}_o", simplify(ceildiv(extent, size)))
            begin: Expr = chunk * size
            inside = binary("min", size, extent - begin)
            if simplify(extent % size) == Const(0):
                inside = Const(size)
        case "parts":
            chunk = Dim(f"{dim.name}_o", Const(size))
            begin = binary("floordiv", extent * chunk, size)
            inside = binary("floordiv", extent * (chunk + 1), size) - begin
        case _:
            raise ScheduleError(f"{where}: unit must be 'factor' or 'parts'; got {unit!r}")
    inner = Dim(f"{dim.name}_i", inside)
    return chunk, inner, begin + inner


def _partial(
    name: str, tensor: Tensor, reduction: Reduce, dim: Dim, chunk: Dim, inner: Dim, value: Expr
) -> Tensor:
    """The operator that reduces one chunk; a dim whose extent depends on the factored one becomes another dim."""
    values: dict[Expr, Expr] = {dim: value}
    over: list[Dim] = []
    for old in reduction.over:
        new = inner if old == dim else Dim(old.name, substitute(old.extent, values))
        if old != dim:
            values[old] = new
        over.append(new)
    body = Reduce(reduction.op, substitute(reduction.body, values), tuple(over))
    return Tensor(name, (*tensor.dims, chunk), reduction.dtype, body)


def _protected(stage: Tensor, body: Expr, reduction: Reduce) -> Tensor:
    """The stage, computed only where `body` may use the reduction: the conditions there may protect accesses."""
    assert isinstance(stage.body, Reduce)
    extents = tuple(Range(d, d.extent) for d in (*stage.dims, *stage.body.over))
    prover = Prover(Settings(solver="off"))
    places: list[Expr] = []
    for path in _paths(body, reduction):
        usable = [c for c in path if not reductions_of(c)]
        needed = [c for c in usable if not prover.prove(simplify(c), Context(extents)).proved]
        if not needed:
            return stage
        places.append(conjunction(needed))
    anywhere = places[0]
    for place in places[1:]:
        anywhere = binary("or", anywhere, place)
    inner = stage.body
    guarded = Select(anywhere, inner.body, _identity(inner))
    return Tensor(stage.name, stage.dims, stage.dtype, Reduce(inner.op, guarded, inner.over))


def _paths(e: Expr, reduction: Reduce) -> list[tuple[Expr, ...]]:
    """For each place where `reduction` stands in `e`, the conditions under which its value is used."""
    if e == reduction:
        return [()]
    match e:
        case Select(cond=c, then=a, other=b):
            yes = [(c, *path) for path in _paths(a, reduction)]
            no = [(unary("not", c), *path) for path in _paths(b, reduction)]
            return [*_paths(c, reduction), *yes, *no]
    return [path for part in children(e) for path in _paths(part, reduction)]


def _identity(reduction: Reduce) -> Expr:
    dtype = reduction.body.dtype
    values = {"sum": 0, "prod": 1, "max": dtypes.lowest(dtype), "min": dtypes.highest(dtype)}
    return constant(values[reduction.op], dtype)


def _check_new(where: str, stage: Tensor, state: State) -> None:
    check_name(stage.name, where)
    if stage.name in state.layouts or stage.name in state.nests or stage.name in state.pieces:
        raise ScheduleError(f"{where}: the name '{stage.name}' is taken")
    assert stage.body is not None
    try:
        check_body(stage.name, stage.dims, stage.body)
    except CoraError as error:
        raise ScheduleError(f"{where}: {error}") from error
