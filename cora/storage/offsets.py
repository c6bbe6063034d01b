"""Offsets of elements in O(1): Algorithm 1 of the paper's appendix, on the completed graph.

The number of elements in a dim d and in all dims that depend on it is a prefix sum A_d of the
lengths: a Call of a Scan function in a *normal form*, so that tensors and fused loops over the same
lengths share tables:

    A_d(p.., r) = scan(p.., r)

where p.. are the dims I_G(d) of the completed graph, in storage order. Where the extent of one of
them depends on a dim that is not among them, the table is rectangular there: it goes up to the
largest storage extent. Extents that depend on no dim (constants, sizes, dims padded to the longest)
are never summed: they are factors outside, and two tensors that differ in them share their scans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cora.errors import InternalError, UserError
from cora.ir.expr import ONE, ZERO, Dim, Expr
from cora.ir.ufun import UFun, maximum_over, scan
from cora.ir.visit import free_dims, substitute
from cora.storage.dgraph import dimension_graph
from cora.storage.extents import product
from cora.storage.layout import Layout, closure


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A_d: `fun(indices of the storage positions outer.., r)`."""

    fun: UFun
    outer: tuple[int, ...]

    def __call__(self, indices: Sequence[Expr], r: Expr) -> Expr:
        """A_d for index r of its dim, given the index of each storage position."""
        return self.fun(*(indices[p] for p in self.outer), r)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What offsets in one layout need: by storage position, S(d) - {d} and A_d (None: no edges)."""

    spans: tuple[tuple[int, ...], ...]
    aggregates: tuple[Aggregate | None, ...]


def offset(layout: Layout, indices: Sequence[Expr]) -> Expr:
    """The position in the flat buffer of the element at `indices`, one per dim of `layout.dims`.

    Where dims are split or fused it is that of the axes, at the indices that they have (`a // 64`, `offset(o) + i`).
    Without padding it is a bijection of the valid indices onto 0..size-1; with padding it is
    injective and in range. It has no meaning for indices outside the padded extents. Raises
    UserError for a wrong number of indices.
    """
    if len(indices) != layout.ndim:
        names = ", ".join(d.name for d in layout.dims)
        raise UserError(f"offset in layout [{names}]: expected {layout.ndim} indices; got {len(indices)}")
    if layout.relations:
        return offset(layout.inner, layout.inner_indices(indices))
    plan = _plan(layout)
    at = [indices[k] for k in layout.order]
    total: Expr = ZERO
    for i, index in enumerate(at):
        # D_i: the elements before index b_i while the outer indices are fixed. S(i) holds no dim
        # that depends on dim i or on one inside it: the paper's vector `relaxed` is not needed.
        total = total + product([_count(plan, i, at, index), *_inner(layout, plan, i, indices, at)])
    return total


def size(layout: Layout) -> Expr:
    """The number of elements of the flat buffer, padding included (1 for a scalar)."""
    if layout.ndim == 0:
        return ONE
    layout = layout.stored
    plan = _plan(layout)
    first = layout.extent(layout.order[0], ())
    return product([_count(plan, 0, (), first), *_inner(layout, plan, 0, (), ())])


def aggregates(layout: Layout) -> tuple[Aggregate | None, ...]:
    """A_d by storage position; None for axes without outgoing edges, which need no array."""
    return _plan(layout.stored).aggregates


def auxiliary_functions(layout: Layout) -> tuple[UFun, ...]:
    """The distinct arrays A_d of `layout`, from the outermost axis inwards."""
    return tuple(dict.fromkeys(a.fun for a in aggregates(layout) if a is not None))


def _count(plan: _Plan, d: int, at: Sequence[Expr], r: Expr) -> Expr:
    aggregate = plan.aggregates[d]
    return r if aggregate is None else aggregate(at, r)


def _inner(layout: Layout, plan: _Plan, i: int, indices: Sequence[Expr], at: Sequence[Expr]) -> list[Expr]:
    return [_count(plan, j, at, layout.extent(layout.order[j], indices)) for j in plan.spans[i]]


@lru_cache(maxsize=1024)
def _plan(layout: Layout) -> _Plan:
    """The plan of a layout without relations."""
    graph = dimension_graph(layout).completed()
    dims = storage_dims(layout)
    outputs, exclusive = graph.outputs, graph.exclusive
    found: list[Aggregate | None] = [None] * len(dims)
    for d in reversed(range(len(dims))):
        if outputs[d]:
            outer = tuple(sorted(graph.inputs[d]))
            found[d] = _aggregate(dims, d, outer, sorted(exclusive[d]), found)
    spans = tuple(tuple(sorted(span - {d})) for d, span in enumerate(graph.spans))
    return _Plan(spans, tuple(found))


def storage_dims(layout: Layout) -> tuple[Dim, ...]:
    """The axes in storage order with their padded extents, written over one another."""
    layout = layout.stored
    stored: dict[int, Dim] = {}
    for k in layout.order:
        known = [stored.get(j, layout.dims[j]) for j in range(layout.ndim)]
        stored[k] = Dim(layout.dims[k].name, layout.extent(k, known))
    return tuple(stored.values())


def _aggregate(
    dims: tuple[Dim, ...],
    d: int,
    outer: tuple[int, ...],
    factors: list[int],
    inner: list[Aggregate | None],
) -> Aggregate:
    """A_d(r): the sum over index i < r of the product over e in Oex(d) of A_e(extent of e)."""
    body = product([_whole(dims, e, inner[e]) for e in factors])
    formals = _formals(dims, (*outer, d))
    if not free_dims(body) <= formals.keys():
        raise InternalError(f"A of dim '{dims[d].name}' depends on more than {outer}: {body}")
    index = formals[dims[d]]
    fun = scan(tuple(formals[dims[p]] for p in outer), index, substitute(body, formals))
    return Aggregate(fun, outer)


def _whole(dims: tuple[Dim, ...], e: int, aggregate: Aggregate | None) -> Expr:
    extent = dims[e].extent
    return extent if aggregate is None else aggregate(dims, extent)


def _formals(dims: tuple[Dim, ...], positions: tuple[int, ...]) -> dict[Expr, Dim]:
    """The dims at `positions` with extents over one another, or else the largest extent."""
    formals: dict[Expr, Dim] = {}
    for p in positions:
        extent = dims[p].extent
        if not free_dims(extent) <= formals.keys():
            extent = maximum_over(closure(dims, p), extent)()
        formals[dims[p]] = Dim(dims[p].name, substitute(extent, formals))
    return formals


def table_layout(fun: UFun) -> Layout:
    """The layout of the table of `fun`: a packed ragged tensor over its domain."""
    return Layout.packed(fun.domain)


def table_offset(fun: UFun, args: Sequence[Expr]) -> Expr:
    """The position of `fun(*args)` in its table, for args inside the domain (Algorithm 1 again)."""
    return offset(table_layout(fun), args)


def table_size(fun: UFun) -> Expr:
    """The number of entries in the table of `fun` (1 for a constant function)."""
    return size(table_layout(fun))


@dataclass(frozen=True, slots=True)
class PaddingLoop:
    """`dim` runs over begin..end (end exclusive), expressions over the dims outside."""

    dim: Dim
    begin: Expr
    end: Expr


@dataclass(frozen=True, slots=True)
class PaddingBox:
    """The padding of dim number `dim` of `layout`: one loop per dim, outermost first.

    The dims outside run over valid indices, dim itself from its valid to its padded extent, and the
    dims inside over their whole padded extents. `offset(layout, layout.dims)` is to be filled.
    `layout` is that of the axes which are padded: the dims, or what they become after some of the relations.
    """

    layout: Layout
    dim: int
    loops: tuple[PaddingLoop, ...]


def padding_region(layout: Layout) -> tuple[PaddingBox, ...]:
    """The storage padding of `layout` as disjoint boxes; none if packed.

    Without relations there is a box per padded dim. An element is in the box of the outermost dim whose index is not
    valid, so rows of padding are counted once. Loops are in storage order, unless a dim padded to the longest is
    stored outside a dim that its valid extent depends on: then they are in the order of the dims.

    The padding of a dim that is split or fused lies inside the valid extents of the axes that it becomes: it has
    boxes of its own, in which the other dims are valid (their padding is outside these extents).
    """
    if layout.relations:
        return (*_consumed_padding(layout), *padding_region(layout.inner))
    order = layout.order
    seen: set[Dim] = set()
    for k in order:
        if not free_dims(layout.dims[k].extent) <= seen:
            order = tuple(range(layout.ndim))
            break
        seen.add(layout.dims[k])
    boxes = []
    for place, k in enumerate(order):
        if not layout.is_padded(k):
            continue
        loops = []
        for q, j in enumerate(order):
            valid, padded = layout.valid_extent(j, layout.dims), layout.extent(j, layout.dims)
            if q < place:
                loops.append(PaddingLoop(layout.dims[j], ZERO, valid))
            else:
                loops.append(PaddingLoop(layout.dims[j], valid if q == place else ZERO, padded))
        boxes.append(PaddingBox(layout, k, tuple(loops)))
    return tuple(boxes)


def _consumed_padding(layout: Layout) -> Iterator[PaddingBox]:
    """The padding of the dims that the first relation replaces, as far as the new axes count it as valid."""
    relation = layout.relations[0]
    consumed = [layout.position(name) for name in relation.consumed]
    for place, k in enumerate(consumed):
        valid, end = layout.valid_extent(k, layout.dims), layout.consumed_extent(k)
        if valid == end:
            continue
        loops = []
        for j, dim in enumerate(layout.dims):
            if j == k:
                loops.append(PaddingLoop(dim, valid, end))
            elif j in consumed[place:]:
                loops.append(PaddingLoop(dim, ZERO, layout.consumed_extent(j)))
            else:
                loops.append(PaddingLoop(dim, ZERO, layout.valid_extent(j, layout.dims)))
        yield PaddingBox(layout, k, tuple(loops))
