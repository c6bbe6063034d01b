"""Uninterpreted functions: what the compiler knows about the lengths of a batch that has not come yet.

One object serves the simplifier, the solver and the prelude (DESIGN: uninterpreted functions are first-class).
A function has a *domain* (formal dims with extents; the extent of a later one may use the earlier ones), a
*definition* that the prelude can compute, and from both follow the *facts* (`cora.ir.facts`) that a proof may use.
Its values are stored as a table, a ragged tensor over the domain in row-major order.
Outside its domain a function has the value 0. Values are never negative: who makes a Scan or a Maximum clamps its body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cora.ir.expr import Call, Dim, Expr, ExprLike, wrap
from cora.ir.node import Node


@dataclass(frozen=True, slots=True, eq=False)
class Given(Node):
    """A run-time array of non-negative integers, given by name (a length function).

    permutation: whether it is one of 0..n-1, n the extent of its domain, as is checked when it is given.
    """

    permutation: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Scan(Node):
    """`f(p.., r) = sum of body over index in 0..r-1`, r in 0..extent inclusive (the `A_d` of Algorithm 1).

    `index` is the summation dim; body is over the leading formals of the domain and `index`.
    """

    index: Dim
    body: Expr


@dataclass(frozen=True, slots=True, eq=False)
class FusedOuter(Node):
    """`ffo`: the outer index of iteration f of a fused loop whose row starts are `offset` (a Scan)."""

    offset: UFun


@dataclass(frozen=True, slots=True, eq=False)
class FusedInner(Node):
    """`ffi`: the inner index of iteration f of a fused loop: `f - offset(.., ffo(.., f))`."""

    offset: UFun


@dataclass(frozen=True, slots=True, eq=False)
class Maximum(Node):
    """The maximum of `body` over all values of the dims `over` (outer first); 0 where there are none."""

    over: tuple[Dim, ...]
    body: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Cuts(Node):
    """Balanced cuts of 0..n into `parts` by cost, to the nearest row: of the least r with
    `cost(r) * parts >= w * cost(n)` and the r before that, cut w is the one for which the two are closer, the first of
    the two if neither is.

    `cost` is a Scan of one argument; the domain is w in 0..parts inclusive; cut 0 is 0 and cut `parts` is n.
    """

    cost: UFun
    parts: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Descending(Node):
    """The row in place k when rows are ordered by descending cost, equal ones by index; `cost` is a Scan."""

    cost: UFun


@dataclass(frozen=True, slots=True, eq=False)
class Owners(Node):
    """The worker of row r, of `parts`: rows go to the worker with the least work, the costliest first (`order`).

    The work of a row is its cost and one; of equal workers the first is taken. No workers: 0.
    """

    order: UFun
    parts: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Starts(Node):
    """How many rows belong to workers before w, w in 0..parts inclusive: where the list of worker w starts."""

    owners: UFun


@dataclass(frozen=True, slots=True, eq=False)
class Lists(Node):
    """The row in place k when rows are ordered by owner, then by index: the lists of all workers in one."""

    owners: UFun


Definition: TypeAlias = (
    Given | Scan | FusedOuter | FusedInner | Maximum | Cuts | Descending | Owners | Starts | Lists
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UFun(Node):
    """An integer function of `domain`, known by its definition; `name` is for people, and for what is Given."""

    name: str
    domain: tuple[Dim, ...]
    definition: Definition

    @property
    def dtype(self) -> str:
        """How the table is stored: sums and sizes in 64 bits, lengths and positions in 32."""
        return "int64" if isinstance(self.definition, (Scan, Maximum)) else "int32"

    def __call__(self, *args: ExprLike) -> Call:
        return Call(self, tuple(wrap(a) for a in args))

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


def formal(position: int, extent: Expr) -> Dim:
    """The formal dim number `position` of a domain: canonical names make equal functions equal."""
    return Dim(f"%{position}", extent)


def scan(outer: tuple[Dim, ...], index: Dim, body: Expr, name: str = "offset") -> UFun:
    """The function `f(outer.., r) = sum of body over index < r`, with canonical formals.

    `outer` and `index` are the dims in which `body` and the extents are written.
    """
    from cora.ir.visit import substitute

    names: dict[Expr, Expr] = {}
    formals: list[Dim] = []
    for position, dim in enumerate((*outer, index)):
        renamed = formal(position, substitute(dim.extent, names))
        names[dim] = renamed
        formals.append(renamed)
    inner = formals[-1]
    domain = (*formals[:-1], formal(len(outer), inner.extent + 1))
    return UFun(name, domain, Scan(inner, substitute(body, names)))


def fusion_maps(offset: UFun) -> tuple[UFun, UFun]:
    """The maps `ffo`, `ffi` of the fused loop with row starts `offset` (paper section 5.1)."""
    outer = offset.domain[:-1]
    total = offset(*outer, _extent_of_scan(offset))
    domain = (*outer, formal(len(outer), total))
    return UFun("ffo", domain, FusedOuter(offset)), UFun("ffi", domain, FusedInner(offset))


def _extent_of_scan(offset: UFun) -> Expr:
    assert isinstance(offset.definition, Scan)
    return offset.definition.index.extent


def maximum_over(over: tuple[Dim, ...], body: Expr) -> UFun:
    """The constant function `max of body over the dims over`."""
    from cora.ir.visit import substitute

    names: dict[Expr, Expr] = {}
    formals: list[Dim] = []
    for position, dim in enumerate(over):
        renamed = formal(position, substitute(dim.extent, names))
        names[dim] = renamed
        formals.append(renamed)
    return UFun("longest", (), Maximum(tuple(formals), substitute(body, names)))


def cuts(cost: UFun, parts: Expr) -> UFun:
    """The balanced cuts of the range of `cost` (a Scan of one argument) into `parts`."""
    return UFun("cuts", (formal(0, parts + 1),), Cuts(cost, parts))


def permutation(name: str, extent: Expr) -> UFun:
    """The permutation of 0..extent-1 that is given at run time by `name`."""
    return UFun(name, (formal(0, extent),), Given(permutation=True))


def descending(cost: UFun) -> UFun:
    """The rows of `cost` (a Scan of one argument) by descending cost."""
    return UFun("order", (formal(0, _extent_of_scan(cost)),), Descending(cost))


def longest_first(cost: UFun, parts: Expr) -> tuple[UFun, UFun]:
    """The lists of rows of each worker, longest processing time first, and where each list starts."""
    rows = formal(0, _extent_of_scan(cost))
    owners = UFun("owners", (rows,), Owners(descending(cost), parts))
    return (
        UFun("lists", (rows,), Lists(owners)),
        UFun("starts", (formal(0, parts + 1),), Starts(owners)),
    )


def rows_of(fun: UFun) -> Expr:
    """How many rows an order, a list of owners or the lists themselves are about."""
    match fun.definition:
        case Starts(owners=owners):
            return owners.domain[0].extent
    return fun.domain[0].extent


def constant_function(name: str, value: Expr) -> UFun:
    """The function of no arguments whose value is `value` (over sizes and calls; 0 where that is negative)."""
    return UFun(name, (), Maximum((), value))
