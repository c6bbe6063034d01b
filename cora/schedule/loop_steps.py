"""Split, fuse, reorder."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import ScheduleError
from cora.ir.expr import Const, Dim, Expr, Var, binary, ceildiv
from cora.ir.simplify import simplify
from cora.ir.ufun import fusion_maps, scan
from cora.ir.visit import free_vars, substitute
from cora.schedule.legality import check_kinds, positive, serial_place
from cora.schedule.nest import Leaf, LoopNest
from cora.schedule.steps import Fuse, Reorder, Split


def split(step: Split, nest: LoopNest) -> LoopNest:
    place = serial_place(nest, step.loop, "split")
    factor = positive(step.factor, f"split of '{step.loop}': factor")
    leaf = nest.leaves[place]
    if step.outer == step.inner:
        raise ScheduleError(f"split of '{step.loop}': the names of the two loops must differ")
    outer = Var(nest.fresh(step.outer, "split"))
    inner = Var(nest.fresh(step.inner, "split"))
    joined = outer * factor + inner
    count = simplify(ceildiv(leaf.extent, factor))
    new = (
        Leaf(step.outer, outer, count, leaf.reduction),
        Leaf(step.inner, inner, Const(factor), leaf.reduction),
    )
    result = nest.rewrite(place, 1, new, {leaf.var: joined})
    return replace(result, conditions=(*result.conditions, joined < leaf.extent)).check_order("split")


def fuse(step: Fuse, nest: LoopNest) -> LoopNest:
    if len(step.loops) < 2:
        raise ScheduleError(f"fuse: expected at least two loops; got {', '.join(step.loops)}")
    first, *rest = step.loops
    for position, name in enumerate(rest):
        last = position == len(rest) - 1
        fused = step.name if last else f"{step.name}_{position}"
        nest = _fuse_pair(nest, first, name, fused)
        first = fused
    return nest


def _fuse_pair(nest: LoopNest, outer_name: str, inner_name: str, name: str) -> LoopNest:
    where = f"fuse of '{outer_name}' and '{inner_name}'"
    place = serial_place(nest, outer_name, "fuse")
    inner_place = serial_place(nest, inner_name, "fuse")
    outer, inner = nest.leaves[place], nest.leaves[inner_place]
    if inner_place != place + 1:
        raise ScheduleError(
            f"{where}: '{inner_name}' must stand directly inside '{outer_name}'; reorder first"
        )
    if outer.reduction != inner.reduction:
        raise ScheduleError(f"{where}: a reduction loop cannot be fused with one that is not")
    f = Var(nest.fresh(name, "fuse"))
    values: dict[Expr, Expr]
    if outer.var not in free_vars(inner.extent):
        extent = simplify(outer.extent * inner.extent)
        values = {
            outer.var: binary("floordiv", f, inner.extent) if inner.extent != Const(0) else Const(0),
            inner.var: binary("mod", f, inner.extent) if inner.extent != Const(0) else Const(0),
        }
    else:
        around = _dims_around(nest, place, outer.extent, inner.extent)
        as_dims: dict[Expr, Expr] = {var: dim for var, dim in around.items()}
        index = Dim(outer.name, substitute(outer.extent, as_dims))
        body = substitute(inner.extent, {**as_dims, outer.var: index})
        offset = scan(tuple(around.values()), index, body)
        ffo, ffi = fusion_maps(offset)
        variables = tuple(around)
        extent = simplify(offset(*variables, outer.extent))
        values = {outer.var: ffo(*variables, f), inner.var: ffi(*variables, f)}
    new = (Leaf(name, f, extent, outer.reduction),)
    return nest.rewrite(place, 2, new, values).check_order("fuse")


def _dims_around(nest: LoopNest, place: int, *extents: Expr) -> dict[Var, Dim]:
    """The loops outside `place` on which `extents` depend, directly or not, as formal dims; outermost first."""
    needed = frozenset[Var]().union(*(free_vars(e) for e in extents))
    for leaf in reversed(nest.leaves[:place]):
        if leaf.var in needed:
            needed |= free_vars(leaf.extent)
    dims: dict[Var, Dim] = {}
    for leaf in nest.leaves[:place]:
        if leaf.var in needed:
            dims[leaf.var] = Dim(leaf.name, substitute(leaf.extent, dims))
    return dims


def reorder(step: Reorder, nest: LoopNest) -> LoopNest:
    places = [nest.position(name, "reorder") for name in step.order]
    if len(set(places)) != len(places):
        raise ScheduleError(f"reorder: a loop stands twice in {', '.join(step.order)}")
    leaves = list(nest.leaves)
    for place, source in zip(sorted(places), places, strict=True):
        leaves[place] = nest.leaves[source]
    return check_kinds(replace(nest, leaves=tuple(leaves)).check_order("reorder"), "reorder")
