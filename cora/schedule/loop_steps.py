"""Split, fuse, reorder."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import ScheduleError
from cora.ir.expr import ONE, Const, Dim, Expr, Var, binary, ceildiv
from cora.ir.simplify import Simplifier, simplify
from cora.ir.ufun import fusion_maps, maximum_over, scan
from cora.ir.visit import free_vars, substitute
from cora.schedule.legality import check_kinds, positive, serial_place
from cora.schedule.nest import Leaf, LoopNest
from cora.schedule.steps import TAILS, Fuse, Reorder, Split, SplitParts


def split(step: Split, nest: LoopNest) -> LoopNest:
    """Two loops for one; what happens at the end of the range is the step's `tail`."""
    place = serial_place(nest, step.loop, "split")
    factor = positive(step.factor, f"split of '{step.loop}': factor")
    extent = nest.leaves[place].extent
    count = simplify(ceildiv(extent, factor))
    outer, inner = _two_names(nest, step.loop, step.outer, step.inner)
    match step.tail:
        case "guard":
            joined = outer * factor + inner
            result = _two_loops(nest, place, (outer, count), (inner, Const(factor)), joined)
            return result.under(joined < extent, outer, inner).check_order("split")
        case "anchored":
            joined = outer * factor + inner - (count * factor - extent)
            result = _two_loops(nest, place, (outer, count), (inner, Const(factor)), joined)
            return result.under(binary("le", 0, joined), outer, inner).check_order("split")
        case "balanced":
            return _even_parts(nest, place, outer, inner, count, factor)
    raise ScheduleError(f"split of '{step.loop}': tail must be one of {', '.join(TAILS)}; got {step.tail!r}")


def split_parts(step: SplitParts, nest: LoopNest) -> LoopNest:
    """A given number of parts whose sizes differ by one at most."""
    place = serial_place(nest, step.loop, "split")
    parts = positive(step.parts, f"split of '{step.loop}': parts")
    outer, inner = _two_names(nest, step.loop, step.outer, step.inner)
    return _even_parts(nest, place, outer, inner, Const(parts))


def _two_names(nest: LoopNest, loop: str, outer: str, inner: str) -> tuple[Var, Var]:
    if outer == inner:
        raise ScheduleError(f"split of '{loop}': the names of the two loops must differ")
    return Var(nest.fresh(outer, "split")), Var(nest.fresh(inner, "split"))


def _two_loops(
    nest: LoopNest, place: int, outer: tuple[Var, Expr], inner: tuple[Var, Expr], joined: Expr
) -> LoopNest:
    """The loop at `place` replaced by two (variable, extent); `joined` is its variable in terms of theirs."""
    leaf = nest.leaves[place]
    new = (
        Leaf(outer[0].name, outer[0], outer[1], leaf.reduction, cost=leaf.weight),
        Leaf(inner[0].name, inner[0], inner[1], leaf.reduction, cost=ONE),
    )
    return nest.rewrite(place, 1, new, {leaf.var: joined})


def _even_parts(
    nest: LoopNest, place: int, outer: Var, inner: Var, count: Expr, largest: int | None = None
) -> LoopNest:
    """Part p is `p*E // count .. (p + 1)*E // count`; it lies inside the range by construction.

    largest: what no part exceeds, if that is known.
    """
    extent = nest.leaves[place].extent
    # without parts any value will do; a reduction that is cut into blocks runs the loop once even then
    divisor = simplify(binary("max", count, ONE)) if nest.leaves[place].reduction else count
    divisor = ONE if divisor == Const(0) else divisor
    begin = binary("floordiv", extent * outer, divisor)
    size = binary("floordiv", extent * (outer + 1), divisor) - begin
    joined = begin + inner
    result = _two_loops(nest, place, (outer, count), (inner, size), joined)
    facts: tuple[Expr, ...] = (joined < extent, binary("le", 0, joined))
    if largest is not None:
        facts = (*facts, binary("le", size, largest))
    return replace(result, facts=(*result.facts, *map(simplify, facts))).check_order("split")


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
        if inner.extent == Const(0):  # nothing runs: any value will do
            values = {outer.var: f, inner.var: f}
        else:
            values = {
                outer.var: binary("floordiv", f, inner.extent),
                inner.var: binary("mod", f, inner.extent),
            }
    else:
        around = _dims_around(nest, place, outer.extent, inner.extent)
        as_dims: dict[Expr, Expr] = {}
        as_dims.update(around.items())
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
    """Another order; a vloop that now stands outside a loop it depends on runs to its largest extent, guarded."""
    places = [nest.position(name, "reorder") for name in step.order]
    if len(set(places)) != len(places):
        raise ScheduleError(f"reorder: a loop stands twice in {', '.join(step.order)}")
    leaves = list(nest.leaves)
    for place, source in zip(sorted(places), places, strict=True):
        leaves[place] = nest.leaves[source]
    nest = _to_the_maximum(nest, tuple(leaves))
    return check_kinds(nest.check_order("reorder"), "reorder")


def _longest(nest: LoopNest, leaf: Leaf) -> Expr:
    """The largest extent of a loop in the batch."""
    around = _dims_around(nest, nest.leaves.index(leaf), leaf.extent)
    extent = substitute(leaf.extent, around)
    if free_vars(extent):
        raise ScheduleError(
            f"reorder: the extent {leaf.extent} of loop '{leaf.name}' depends on loops of another operator"
        )
    return maximum_over(tuple(around.values()), extent)()


def _to_the_maximum(nest: LoopNest, leaves: tuple[Leaf, ...]) -> LoopNest:
    """The nest with `leaves` in this order, an extent over variables that are not bound yet made a maximum.

    Not where the extent is the same for all their values: that of the row which a tile of a fused loop lies in.
    """
    simplifier = Simplifier({leaf.var: leaf.extent for leaf in nest.scope})
    bound = {leaf.var for leaf in nest.around}
    result = nest
    ordered: list[Leaf] = []
    for leaf in leaves:
        if not free_vars(leaf.extent) <= bound:
            simpler = simplifier(leaf.extent)
            if free_vars(simpler) <= bound:
                leaf = replace(leaf, extent=simpler)
        if not free_vars(leaf.extent) <= bound:
            result = result.under(leaf.var < leaf.extent, leaf.var)
            leaf = replace(leaf, extent=_longest(nest, leaf), root=None)
        bound.add(leaf.var)
        ordered.append(leaf)
    return replace(result, leaves=tuple(ordered))
