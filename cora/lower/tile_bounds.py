"""What bounds a dense tile: loops that begin late, and guards of loads, as bounds of the loops of the tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cora.ir.expr import ONE, TRUE, ZERO, Binary, Const, Expr, Read, Select, Var, binary
from cora.ir.poly import linear_in
from cora.ir.simplify import Simplifier
from cora.ir.visit import children, free_vars, rebuild, substitute, walk
from cora.lower.access import conjuncts
from cora.lower.flatten import Flat
from cora.schedule.nest import Leaf


@dataclass(frozen=True, slots=True)
class TileLoops:
    """The loops of a tile, outermost first, what it computes, and the conditions on its iterations.

    held: conditions that hold because of where the loops begin.
    """

    leaves: tuple[Leaf, ...]
    flat: Flat
    conditions: tuple[Expr, ...]
    held: tuple[Expr, ...] = ()


def from_zero(loops: TileLoops, simplifier: Simplifier) -> TileLoops:
    """The same, where the loops of the tile begin with their first iteration that exists: `0 <= var + c` is no
    condition any more, but a begin. One whose begin changes inside the tile stays."""
    for place in range(len(loops.leaves)):
        loops = _moved(loops, place, simplifier)
    return loops


def _moved(loops: TileLoops, place: int, simplifier: Simplifier) -> TileLoops:
    leaf = loops.leaves[place]
    inside = {other.var for other in loops.leaves}
    begins: dict[Expr, Expr] = {}
    for condition in loops.conditions:
        match condition:
            case Binary(op="le" | "lt" as op, a=a, b=b):
                split = linear_in(simplifier(b - a), leaf.var)
                if split is not None and split[0] == 1 and not free_vars(split[1]) & inside:
                    begins[condition] = simplifier((ZERO if op == "le" else ONE) - split[1])
    if not begins:
        return loops
    begin: Expr = ZERO
    for other in dict.fromkeys(begins.values()):
        begin = binary("max", begin, other)
    begin = simplifier(begin)
    values: dict[Expr, Expr] = {leaf.var: leaf.var + begin}
    moved = [replace(leaf, extent=simplifier(leaf.extent - begin))]
    moved += [replace(o, extent=simplifier(substitute(o.extent, values))) for o in loops.leaves[place + 1 :]]
    flat = loops.flat
    return TileLoops(
        (*loops.leaves[:place], *moved),
        replace(
            flat,
            offset=simplifier(substitute(flat.offset, values)),
            body=simplifier(substitute(flat.body, values)),
        ),
        tuple(substitute(c, values) for c in loops.conditions if c not in begins),
        tuple(substitute(c, values) for c in (*loops.held, *begins)),
    )


def guarded_read(e: Expr) -> tuple[Read, tuple[Expr, ...]] | None:
    """A read, and the conditions under which it is one: where one of them is false the value is 0."""
    match e:
        case Read():
            return e, ()
        case Select(cond=c, then=Read() as read, other=Const(value=0)):
            return read, tuple(conjuncts(c))
    return None


def guards_of_products(
    sides: Sequence[tuple[Read, tuple[Expr, ...]]],
    known: frozenset[Expr],
    fixed: frozenset[Var],
    simplifier: Simplifier,
    refuse: Callable[[str], Exception],
) -> list[Expr]:
    """The guards of two factors that decide which products there are, as conditions.

    known: what holds wherever the tile is; fixed: the loops over rows and columns, on which none may depend.
    A product whose factors are both 0 adds nothing; where one of them is not, it might be infinite.
    """
    own, other = ({simplifier(c): None for c in guards} for _, guards in sides)
    found: dict[Expr, None] = {}
    for (read, _), these, those in ((sides[0], own, other), (sides[1], other, own)):
        for condition in these:
            if condition == TRUE or condition in known:
                continue
            if free_vars(condition) & fixed or condition not in those:
                raise refuse(f"what is read of {read.buffer.name} depends on {condition}")
            found[condition] = None
    return list(found)


def without_guards(loops: TileLoops, simplifier: Simplifier) -> TileLoops:
    """The same where every guard is kept: those of loads become conditions on the iterations.

    A read that is evaluated in every valid iteration is inside its tensor there, so its guard is false in padded
    iterations alone, and what these compute nobody reads. A read that a `where` chooses keeps its guard.
    """
    seen = {simplifier(c) for c in loops.conditions}
    found: dict[Expr, None] = {}

    def open_(e: Expr) -> Expr:
        guarded = guarded_read(e)
        if guarded is not None and not any(isinstance(n, Read) for c in guarded[1] for n in walk(c)):
            found.update((c, None) for c in guarded[1] if simplifier(c) not in {TRUE, *seen})
            return guarded[0]
        if isinstance(e, Select):
            return e
        return rebuild(e, tuple(open_(c) for c in children(e)))

    body = open_(loops.flat.body)
    return replace(loops, flat=replace(loops.flat, body=body), conditions=(*loops.conditions, *found))
