"""Copies that the micro-kernel reading them fills: what it reads instead at its first use of each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cora.errors import ScheduleError
from cora.ir.expr import ZERO, Access, Binary, Const, Expr, Select, binary, conjunction
from cora.ir.simplify import Simplifier
from cora.ir.stmt import LoopKind
from cora.ir.tensor import Tensor
from cora.ir.visit import free_vars, substitute, transform
from cora.lower.access import check_accesses
from cora.lower.flatten import Flat, Place
from cora.lower.guards import Guards
from cora.lower.operation import Operation, context_of, make_operation
from cora.prove import Context, Outcome
from cora.schedule.nest import Leaf, LoopNest


@dataclass(frozen=True, slots=True)
class Filled:
    """A copy that its reader fills, and the reader with what was copied in its place."""

    copy: LoopNest
    direct: Operation
    flat: Flat | None = None


def filled_operation(
    copy: LoopNest,
    reader: LoopNest,
    places: Mapping[str, Place],
    guards: Guards,
    outside: tuple[Expr, ...],
) -> Filled:
    """The reader of `copy` as it would be without it."""
    if not reader.tile or reader.routine is not None:
        raise ScheduleError(
            f"fill_at_use of '{copy.name}': a generated micro-kernel must read it; tensorize '{reader.name}'"
        )
    source = copy.tensor.body
    assert isinstance(source, Access)

    def rule(e: Expr) -> Expr | None:
        match e:
            case Access(tensor=tensor, indices=indices) if tensor.name == copy.tensor.name:
                return Access(source.tensor, indices)
        return None

    tensor = reader.tensor
    assert tensor.body is not None
    bare = Tensor(tensor.name, tensor.dims, tensor.dtype, transform(tensor.body, rule))
    inside, _ = check_accesses(bare, guards.prover)
    return Filled(copy, make_operation(replace(reader, tensor=bare), places, inside, guards, outside))


@dataclass(frozen=True, slots=True)
class Use:
    """How a tile uses a copy: where it lies for it, and how large the tile is; row r has depth + step * r products."""

    rows: Expr
    columns: Expr
    depth: Expr
    step: int
    limit: Expr
    offsets: tuple[Expr, ...]
    outside: tuple[Expr, ...]


def first_use(copy: LoopNest, nest: LoopNest, use: Use, guards: Guards, simplifier: Simplifier) -> Expr:
    """The condition under which a tile is the first to use its part of the copy, if that one uses all of the part.

    Loops that do not move the part use it again; in the first iteration of them all, which precedes the others of the
    same part, it is filled. Raises ScheduleError if the loops do not have this form, or a proof is missing.
    """
    where = f"fill_at_use of '{copy.name}'"
    between = nest.scope[len(copy.around) : len(nest.scope) - nest.tile]
    moved = {var for e in (*use.offsets, use.columns) for var in free_vars(e)}
    again = tuple(leaf for leaf in between if leaf.var not in moved)
    part = tuple(leaf for leaf in between if leaf.var in moved)
    variables = {leaf.var for leaf in again}
    if not again:
        raise ScheduleError(f"{where}: every part of it is used once; no loop of '{nest.name}' uses it again")
    for leaf in again:
        if leaf.kind is not LoopKind.SERIAL:
            raise ScheduleError(f"{where}: loop '{leaf.name}' uses it again, so it must run in order")
    for leaf in part:
        if free_vars(leaf.extent) & variables:
            raise ScheduleError(
                f"{where}: which parts there are changes with {_names(again)}: '{leaf.name}' does"
            )
    for condition in use.outside:
        if free_vars(condition) & variables:
            raise ScheduleError(f"{where}: whether its first use exists depends on {condition}")
    start: dict[Expr, Expr] = {leaf.var: ZERO for leaf in again}

    def at_first(e: Expr) -> Expr:
        return simplifier(substitute(e, start))

    facts = tuple(at_first(fact) for fact in nest.facts)
    here = context_of(nest, facts)
    rows = binary("le", 1, at_first(use.rows))
    _prove(rows, here, guards, f"{where}: its first use may have no rows")
    limit, first_limit = _always(use.limit), at_first(_always(use.limit))
    later = Context(here.ranges, (*here.assumptions, _some_later(again)))
    _prove(
        binary("le", limit, first_limit), later, guards, f"{where}: later uses may be deeper than the first"
    )
    depth, first_depth = _always(use.depth), at_first(_always(use.depth))
    if use.step:
        depth = depth + use.rows - 1
    _prove(
        binary("le", simplifier(depth), first_depth),
        later,
        guards,
        f"{where}: later uses may be deeper than the first",
    )
    return conjunction([binary("eq", leaf.var, ZERO) for leaf in again])


def _some_later(again: Sequence[Leaf]) -> Expr:
    """One of the loops is not at its first iteration."""
    later: Expr = binary("le", 1, again[0].var)
    for leaf in again[1:]:
        later = binary("or", later, binary("le", 1, leaf.var))
    return later


def _always(e: Expr) -> Expr:
    """A number of products where there are any: the others are 0 in all uses alike."""
    match e:
        case Select(then=then, other=Const(value=0)):
            return _always(then)
        case Binary(op="max", a=a, b=Const(value=0)):
            return a
    return e


def _prove(goal: Expr, here: Context, guards: Guards, reason: str) -> None:
    proof = guards.proof(goal, here)
    if proof.outcome is not Outcome.PROVED:
        raise ScheduleError(f"{reason}: {goal} is not proved ({proof.reason})")


def _names(leaves: Sequence[Leaf]) -> str:
    return ", ".join(f"'{leaf.name}'" for leaf in leaves)
