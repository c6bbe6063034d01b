"""Split, fuse, reorder, peel."""

from __future__ import annotations

from dataclasses import replace

from cora.errors import ScheduleError
from cora.ir.bounds import bounds, grows, shrinks
from cora.ir.expr import ONE, TRUE, ZERO, Const, Dim, Expr, Var, binary, ceildiv
from cora.ir.simplify import Simplifier, simplify
from cora.ir.ufun import fusion_maps, maximum_over, scan
from cora.ir.visit import free_vars, substitute
from cora.schedule.legality import check_kinds, positive, serial_place
from cora.schedule.nest import Leaf, LoopNest
from cora.schedule.reduction_steps import check_stored
from cora.schedule.steps import TAILS, Fuse, Peel, Reorder, Split, SplitParts
from cora.storage.extents import clamp


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
            if simplify(count * factor - extent) != ZERO:  # all parts but the first are full
                first = simplify(binary("min", 1, count))
                result = result.with_leaf(place, replace(result.leaves[place], cut=first))
            return result.under(binary("le", 0, joined), outer, inner).check_order("split")
        case "mask":
            joined = outer * factor + inner
            result = _two_loops(nest, place, (outer, count), (inner, Const(factor)), joined)
            result = result.with_leaf(place, replace(result.leaves[place], masked=True))
            return result.under(joined < extent, outer, inner).check_order("split")
        case "balanced":
            return _even_parts(nest, place, outer, inner, count, factor)
        case "peel":
            return _peeled(nest, place, (outer, count), inner, factor)
        case "shifted":
            return _shifted(nest, place, (outer, count), inner, factor)
        case "cover":
            known = [n for n in (nest.leaves[place].largest, bounds(extent)[1]) if n is not None]
            if not known or min(known) > factor:
                raise ScheduleError(
                    f"split of '{step.loop}': tail 'cover' is one part of {factor} iterations; '{step.loop}' runs to "
                    f"{extent}, which may be more"
                )
            result = _two_loops(nest, place, (outer, ONE), (inner, Const(factor)), outer * factor + inner)
            return result.under(outer * factor + inner < extent, outer, inner).check_order("split")
    raise ScheduleError(f"split of '{step.loop}': tail must be one of {', '.join(TAILS)}; got {step.tail!r}")


def _peeled(nest: LoopNest, place: int, outer: tuple[Var, Expr], inner: Var, factor: int) -> LoopNest:
    """Parts of the exact size; the full ones, which come first, get code of their own."""
    var, count = outer
    extent = nest.leaves[place].extent
    full = simplify(extent // factor)
    size: Expr = Const(factor) if full == count else binary("min", factor, extent - var * factor)
    joined = var * factor + inner
    result = _two_loops(nest, place, (var, count), (inner, simplify(size)), joined, factor)
    if full != count:
        # not below 0: a loop outside may run further than its own range, where no iteration of these exists
        result = result.with_leaf(place, replace(result.leaves[place], cut=simplify(binary("max", full, 0))))
    return replace(result, assumed=(*result.assumed, joined < extent)).check_order("split")


def _shifted(nest: LoopNest, place: int, outer: tuple[Var, Expr], inner: Var, factor: int) -> LoopNest:
    """The last part begins so far back that it is full; where the range is shorter than that, it is guarded."""
    leaf = nest.leaves[place]
    where = f"split of '{leaf.name}': tail 'shifted' computes some iterations twice"
    if leaf.reduction:
        raise ScheduleError(f"{where}, and '{leaf.name}' is a reduction loop: it would add them twice")
    if nest.continues or nest.kept_in:
        raise ScheduleError(f"{where}, and '{nest.name}' continues what it, or another piece, has stored")
    var, count = outer
    joined = binary("min", var * factor, binary("max", leaf.extent - factor, 0)) + inner
    result = _two_loops(nest, place, (var, count), (inner, Const(factor)), joined)
    fits = simplify(binary("le", factor, leaf.extent))
    first, second = result.leaves[place], result.leaves[place + 1]
    when = first.when if fits == TRUE else (*first.when, fits)
    result = result.with_leaf(place, replace(first, overlaps=True, when=when))
    result = result.with_leaf(place + 1, replace(second, overlaps=True))
    return result.under(simplify(joined) < leaf.extent, var, inner).check_order("split")


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
    nest: LoopNest,
    place: int,
    outer: tuple[Var, Expr],
    inner: tuple[Var, Expr],
    joined: Expr,
    largest: int | None = None,
) -> LoopNest:
    """The loop at `place` replaced by two (variable, extent); `joined` is its variable in terms of theirs.

    largest: what the extent of the inner one does not exceed, if that is known.
    """
    leaf = nest.leaves[place]
    values: dict[Expr, Expr] = {leaf.var: joined}
    when = tuple(simplify(substitute(c, values)) for c in leaf.own_code)
    common = Leaf(outer[0].name, outer[0], outer[1], leaf.reduction, cost=leaf.weight, overlaps=leaf.overlaps)
    var, size = inner
    second = replace(common, name=var.name, var=var, extent=size, cost=None, when=when, bound=largest)
    new = (replace(common, part_of=leaf.part_of), replace(second, part_of=outer[0]))
    return _parts_now_of(nest.rewrite(place, 1, new, values), (leaf.var,), inner[0])


def _parts_now_of(nest: LoopNest, gone: tuple[Var, ...], var: Var) -> LoopNest:
    """The nest where what was a part of loops that are `gone` is a part of the loop over `var`."""
    leaves = (replace(leaf, part_of=var) if leaf.part_of in gone else leaf for leaf in nest.leaves)
    return replace(nest, leaves=tuple(leaves))


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
    result = _two_loops(nest, place, (outer, count), (inner, size), joined, largest)
    facts: tuple[Expr, ...] = (joined < extent, binary("le", 0, joined))
    if largest is not None:
        facts = (*facts, binary("le", size, largest))
        if not nest.leaves[place].reduction:  # whose blocks run once even where there is nothing
            facts = (*facts, binary("le", ONE, size))
    return replace(result, assumed=(*result.assumed, *facts)).check_order("split")


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
        # a loop that is padded runs where the one inside has no iterations, and sums must not decrease there
        body = clamp(substitute(inner.extent, {**as_dims, outer.var: index}))
        offset = scan(tuple(around.values()), index, body)
        ffo, ffi = fusion_maps(offset)
        variables = tuple(around)
        extent = simplify(offset(*variables, outer.extent))
        values = {outer.var: ffo(*variables, f), inner.var: ffi(*variables, f)}
    when = tuple(simplify(substitute(c, values)) for c in (*outer.own_code, *inner.own_code))
    overlaps = outer.overlaps or inner.overlaps
    new = (Leaf(name, f, extent, outer.reduction, when=when, overlaps=overlaps),)
    fused = _parts_now_of(nest.rewrite(place, 2, new, values), (outer.var, inner.var), f)
    return fused.check_order("fuse")


def peel(step: Peel, nest: LoopNest) -> LoopNest:
    """Note where a loop is cut; its two parts get code of their own when they are lowered."""
    place = serial_place(nest, step.loop, "peel")
    count = positive(step.count, f"peel of '{step.loop}': count")
    leaf = nest.leaves[place]
    if leaf.cut is not None:
        raise ScheduleError(f"peel: loop '{step.loop}' is cut at {leaf.cut} already")
    match step.end:
        case "first":
            cut = binary("max", binary("min", leaf.extent, count), 0)
        case "last":
            cut = binary("max", leaf.extent - count, 0)
        case _:
            raise ScheduleError(f"peel of '{step.loop}': end must be 'first' or 'last'; got {step.end!r}")
    return nest.with_leaf(place, replace(leaf, cut=simplify(cut)))


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
    return check_stored("reorder", check_kinds(nest.check_order("reorder"), "reorder"))


def _longest(nest: LoopNest, leaf: Leaf) -> Expr:
    """The largest extent of a loop in the batch."""
    around = _dims_around(nest, nest.leaves.index(leaf), leaf.extent)
    extent = substitute(leaf.extent, around)
    if free_vars(extent):
        raise ScheduleError(
            f"reorder: the extent {leaf.extent} of loop '{leaf.name}' depends on loops of another operator"
        )
    return maximum_over(tuple(around.values()), extent)()


def _at_its_longest(nest: LoopNest, extent: Expr, bound: set[Var]) -> Expr | None:
    """`extent` where the loops that it depends on, and that are not bound, make it longest; None if that is unknown.

    Those in which it grows are at their last, those in which it shrinks at their first.
    """
    for leaf in reversed(nest.leaves):
        if leaf.var in free_vars(extent) - bound:
            if grows(extent, leaf.var):
                extent = simplify(substitute(extent, {leaf.var: leaf.extent - 1}))
            elif shrinks(extent, leaf.var):
                extent = simplify(substitute(extent, {leaf.var: ZERO}))
            else:
                return None
    return extent if free_vars(extent) <= bound else None


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
            last = _at_its_longest(nest, leaf.extent, bound)
            longest = _longest(nest, leaf) if last is None else last
            leaf = replace(leaf, extent=longest, root=None, cut=None)
        if leaf.cut is not None and not free_vars(leaf.cut) <= bound:
            leaf = replace(leaf, cut=None)
        leaf = replace(leaf, when=tuple(c for c in leaf.when if free_vars(c) <= bound | {leaf.var}))
        bound.add(leaf.var)
        ordered.append(leaf)
    return replace(result, leaves=tuple(ordered))
