"""Accesses of a definition: each stays inside its tensor on valid iterations, or the program is refused.

An index that is computed from data cannot be decided here: it becomes an index check, which runs before the
launch, and its guard stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cora.errors import UserError
from cora.ir.expr import (
    Access,
    Binary,
    Const,
    Dim,
    Expr,
    Reduce,
    Select,
    binary,
    conjunction,
    select,
    unary,
)
from cora.ir.simplify import simplify
from cora.ir.tensor import Tensor
from cora.ir.visit import children, free_dims, substitute, walk
from cora.lower.records import IndexCheck
from cora.prove import Context, Outcome, Prover, Range


@dataclass(frozen=True, slots=True)
class Use:
    """One access in a body, the conditions under which it is evaluated, and the dims around it.

    early: whether it stands in a reduction under a condition from outside: the reduction's loops run before the
    condition chooses, so the condition does not protect the access.
    """

    access: Access
    path: tuple[Expr, ...]
    dims: tuple[Dim, ...]
    early: bool


def uses_of(
    body: Expr, dims: tuple[Dim, ...], path: tuple[Expr, ...] = (), early: bool = False
) -> Iterator[Use]:
    """Every access in `body`, in order, with the loops `dims` and the conditions `path` around it."""
    match body:
        case Select(cond=c, then=a, other=b):
            yield from uses_of(c, dims, path, early)
            yield from uses_of(a, dims, (*path, *conjuncts(c)), early)
            yield from uses_of(b, dims, (*path, unary("not", c)), early)
        case Reduce(body=inner, over=over):
            yield from uses_of(inner, (*dims, *over), path, bool(path))
        case _:
            if isinstance(body, Access):
                yield Use(body, path, dims, early)
            for child in children(body):
                yield from uses_of(child, dims, path, early)


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """The terms of a conjunction."""
    match condition:
        case Binary(op="and", a=a, b=b):
            return (*conjuncts(a), *conjuncts(b))
        case _:
            return (condition,)


def axis_goals(access: Access) -> list[tuple[Dim, Expr, Expr]]:
    """For each dim of the tensor: the dim, `0 <= index`, and `index < extent` (extents over the other indices)."""
    goals = []
    at: dict[Expr, Expr] = {}
    for dim, index in zip(access.tensor.dims, access.indices, strict=True):
        extent = simplify(substitute(binary("max", dim.extent, 0), at))
        goals.append((dim, simplify(binary("le", 0, index)), binary("lt", index, extent)))
        at[dim] = index
    return goals


def from_data(e: Expr) -> bool:
    """Whether an index expression reads a tensor."""
    return any(isinstance(n, Access) for n in walk(e))


def domain(dims: tuple[Dim, ...], path: tuple[Expr, ...]) -> Context:
    """The valid values of `dims` where `path` holds."""
    return Context(tuple(Range(d, simplify(binary("max", d.extent, 0))) for d in dims), path)


def check_accesses(tensor: Tensor, prover: Prover) -> tuple[frozenset[Access], tuple[IndexCheck, ...]]:
    """The accesses of an operator that are proved inside their tensors, and the checks that data asks for.

    Raises UserError, with a counterexample, for an access that leaves its tensor on a valid iteration.
    """
    assert tensor.body is not None
    inside: dict[Access, bool] = {}
    checks: list[IndexCheck] = []
    for use in uses_of(tensor.body, tensor.dims):
        context = domain(use.dims, use.path)
        safe = not use.early
        for (dim, low, high), index in zip(axis_goals(use.access), use.access.indices, strict=True):
            if from_data(index) or from_data(high):
                checks.append(_index_check(tensor, use, dim, index, high))
                safe = False
                continue
            for goal in (low, high):
                safe &= _holds(tensor, use.access, dim, goal, context, prover)
        inside[use.access] = inside.get(use.access, True) and safe
    return frozenset(a for a, safe in inside.items() if safe), tuple(checks)


def _holds(tensor: Tensor, access: Access, dim: Dim, goal: Expr, context: Context, prover: Prover) -> bool:
    if goal == Const(True, "bool"):
        return True
    proof = prover.prove(goal, context)
    # what a reduction in a condition comes to is not free to choose, as a counterexample takes it to be
    refuted = proof.outcome is Outcome.REFUTED
    if refuted and not any(isinstance(n, Reduce) for a in context.assumptions for n in walk(a)):
        raise UserError(
            f"compute '{tensor.name}': the access {access} can leave dim '{dim.name}' of '{access.tensor.name}': "
            f"{goal} is {proof.reason}; put it in cora.where(condition, access, other) with a condition that "
            "excludes this"
        )
    return proof.outcome is Outcome.PROVED


def _index_check(tensor: Tensor, use: Use, dim: Dim, index: Expr, high: Expr) -> IndexCheck:
    assert isinstance(high, Binary)
    path = tuple(c for c in use.path if _known_before(c))
    used = free_dims(conjunction([*path, high])) | free_dims(index)
    for other in use.dims:
        if other not in _closed(use.dims, used):
            used |= free_dims(other.extent)
    dims = _closed(use.dims, used)
    # a loop that the index does not use may be empty: then nothing is read
    runs = tuple(simplify(binary("lt", 0, other.extent)) for other in use.dims if other not in dims)
    return IndexCheck(tensor.name, use.access.tensor.name, dim.name, index, high.b, (*runs, *path), dims)


def _known_before(condition: Expr) -> bool:
    """Whether a check before the launch can evaluate `condition`; where it cannot, the check is stricter.

    The check is a reduction itself, so the condition must not be one; and nothing has been computed yet.
    """
    return not any(
        isinstance(n, Reduce) or (isinstance(n, Access) and n.tensor.body is not None)
        for n in walk(condition)
    )


def _closed(dims: tuple[Dim, ...], used: frozenset[Dim]) -> tuple[Dim, ...]:
    """`used` and the dims their extents depend on, in the order of the loops `dims`."""
    needed = set(used)
    for dim in reversed(dims):
        if dim in needed:
            needed |= free_dims(dim.extent)
    return tuple(d for d in dims if d in needed)


def violations(check: IndexCheck, name: str) -> Tensor:
    """The operator that counts the violations of `check` (a scalar int64 tensor)."""
    bad = binary("or", binary("lt", check.index, 0), binary("le", check.extent, check.index))
    counted: Expr = select(bad, Const(1), Const(0))
    for condition in reversed(check.path):  # each may read what is there only where the ones before it hold
        counted = select(condition, counted, Const(0))
    return Tensor(name, (), "int64", Reduce("sum", counted, check.dims) if check.dims else counted)
