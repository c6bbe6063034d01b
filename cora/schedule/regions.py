"""What an iteration of a consumer's loop needs of an operator that is computed inside it: bounds inference.

Each dim of the operator is read at one value that the loops outside fix, or at an interval, or anywhere (paper
section 5.3: ranges through named dims and through split and fused loops).
"""

from __future__ import annotations

from dataclasses import dataclass

from cora.ir.expr import ONE, ZERO, Access, Const, Dim, Expr, Var, binary
from cora.ir.poly import linear_in
from cora.ir.simplify import Simplifier, simplify
from cora.ir.tensor import Tensor
from cora.ir.visit import free_vars, substitute, walk
from cora.lang.check import reductions_of
from cora.schedule.nest import Leaf, LoopNest, Region, root_extent


@dataclass(frozen=True, slots=True)
class Interval:
    """The indices `begin .. begin + extent` of a dim.

    largest: a bound of the extent, if one is known. point: whether the loops outside determine the one index.
    """

    begin: Expr
    extent: Expr
    largest: int | None
    point: bool


def attached_nest(tensor: Tensor, around: tuple[Leaf, ...], readers: list[LoopNest]) -> LoopNest:
    """The nest of an operator inside the loops `around`: loops over what an iteration of them reads."""
    assert tensor.body is not None
    reductions = reductions_of(tensor.body)
    over = reductions[0].over if reductions else ()
    known = frozenset(leaf.var for leaf in around)
    simplifier = Simplifier({leaf.var: leaf.extent for leaf in around})
    values: dict[Dim, Expr] = {}
    regions: dict[Dim, Region] = {}
    leaves: list[Leaf] = []
    for dim in (*tensor.dims, *over):
        region = None if dim in over else _region(tensor, dim, known, readers)
        if region is not None and region.point:
            values[dim] = region.begin
            regions[dim] = Region(region.begin, 1)
            continue
        var = Var(f"{dim.name}_{tensor.name}")  # the consumer may have a loop of that name
        extent = root_extent(dim, values)
        if region is None or (region.begin, region.extent) == (ZERO, extent):
            leaves.append(Leaf(dim.name, var, extent, dim in over, root=dim))
            values[dim], regions[dim] = var, Region(ZERO, None)
            continue
        begin = simplifier(binary("max", region.begin, ZERO))
        end = binary("min", extent, region.begin + region.extent)
        count = simplifier(binary("max", end - begin, ZERO))
        leaves.append(Leaf(dim.name, var, count, False, bound=region.largest, reach=region.extent))
        values[dim], regions[dim] = begin + var, Region(begin, region.largest)
    return LoopNest(tensor, tuple(leaves), values, around=around, regions=regions)


def not_all_computed(nest: LoopNest, consumer: LoopNest, inner: bool) -> str:
    """Why the iterations around an attached operator together may not compute all of it; "" if they do.

    inner: whether the consumer itself is attached. Every dim must run in full, or go through all the values of one of
    the consumer's dims.
    """
    if inner:
        return f"'{consumer.tensor.name}' itself is computed inside another operator"
    if any(leaf.reduction for leaf in nest.around):
        return "it may be a reduction of nothing, which computes nothing of it"
    dims: dict[Expr, Expr] = {}
    for dim in nest.tensor.dims:
        value = nest.values[dim]
        if nest.regions[dim] == Region(ZERO, None):
            dims[dim] = dim
            continue
        same = [d for d in consumer.tensor.dims if consumer.values[d] == value and d not in dims.values()]
        if not same or root_extent(same[0], {}) != simplify(substitute(root_extent(dim, {}), dims)):
            return f"not all of its dim '{dim.name}' is computed there"
        dims[dim] = same[0]
    return ""


def _region(tensor: Tensor, dim: Dim, known: frozenset[Var], readers: list[LoopNest]) -> Interval | None:
    """Where the readers read `dim` in one iteration of the loops whose variables are `known`; None: anywhere."""
    place = tensor.dims.index(dim)
    result: Interval | None = None
    for reader in readers:
        simplifier = Simplifier({leaf.var: leaf.extent for leaf in reader.scope})
        assert reader.tensor.body is not None
        for access in walk(reader.tensor.body):
            if isinstance(access, Access) and access.tensor.name == tensor.name:
                index = simplifier(substitute(access.indices[place], reader.values))
                found = interval(index, known, reader)
                if found is None:
                    return None
                result = found if result is None else _hull(result, found)
                if result is None:
                    return None
    return result


def interval(index: Expr, known: frozenset[Var], reader: LoopNest) -> Interval | None:
    """The values of `index` in one iteration of the known loops, if it moves evenly with the loops inside."""
    if any(isinstance(e, (Access, Dim)) for e in walk(index)):
        return None
    leaves = {leaf.var: leaf for leaf in reader.scope}
    begin: Expr = index
    extent: Expr = ONE
    largest: int | None = 1
    for var in sorted(free_vars(index) - known, key=lambda v: v.name):
        split = linear_in(begin, var)
        leaf = leaves.get(var)
        if split is None or leaf is None:
            return None
        count = leaf.extent if leaf.reach is None else leaf.reach
        if not free_vars(count) <= known:
            if leaf.largest is None:
                return None
            count = Const(leaf.largest)
        step, begin = split
        last = simplify(count - 1)
        if step < 0:
            begin = begin + step * last
        extent = extent + abs(step) * last
        largest = (
            None if largest is None or leaf.largest is None else largest + abs(step) * (leaf.largest - 1)
        )
    return Interval(simplify(begin), simplify(extent), largest, free_vars(index) <= known)


def _hull(a: Interval, b: Interval) -> Interval | None:
    """The least interval that holds both, if they begin a known distance apart."""
    apart = simplify(b.begin - a.begin)
    if not isinstance(apart, Const):
        return None
    if apart.value < 0:
        return _hull(b, a)
    end = simplify(b.extent + apart)
    longer = simplify(end - a.extent)
    if isinstance(longer, Const):
        extent = end if longer.value > 0 else a.extent
    else:
        extent = simplify(binary("max", a.extent, end))
    known = a.largest is not None and b.largest is not None
    largest = max(a.largest or 0, (b.largest or 0) + int(apart.value)) if known else None
    return Interval(a.begin, extent, largest, a.point and b.point and a.begin == b.begin)
