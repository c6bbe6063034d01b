"""Axes: what the dims of a tensor become in storage when they are padded, split and fused.

A layout starts from one axis per dim. Each relation replaces axes by others:

    SplitAxis   d                becomes   d // factor, d % factor                 d rounded up to whole blocks
    FuseAxes    o, i             becomes   f = offset(o) + i                       as loops are fused (section 5.1)

Extents may depend on other axes, so those of the axes that stay are rewritten over the new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cora.errors import UserError
from cora.ir.expr import Const, Dim, Expr, binary, ceildiv, round_up
from cora.ir.node import Node
from cora.ir.simplify import simplify
from cora.ir.ufun import fusion_maps, maximum_over, scan
from cora.ir.visit import free_dims, substitute
from cora.lang.check import check_name
from cora.storage.extents import clamp


@dataclass(frozen=True, slots=True, eq=False)
class Pad(Node):
    """The storage padding of one dim: its extent rounded up to `multiple` (elements).

    to_max: first extended to the longest of the batch, so that the dim depends on no other dim.
    Raises UserError if `multiple` is not a positive integer.
    """

    multiple: int = 1
    to_max: bool = False

    def __post_init__(self) -> None:
        if type(self.multiple) is not int or self.multiple < 1:
            raise UserError(f"Pad: multiple must be a positive integer; got {self.multiple!r}")


@dataclass(frozen=True, slots=True, eq=False)
class SplitAxis(Node):
    """Axis `axis` stored as `outer` = axis // factor and `inner` = axis % factor.

    Its (padded) extent is rounded up to a multiple of the factor: the last block is a whole one. The pads are those
    of the new axes: a padded outer axis has more blocks, a padded inner one has room between them.
    Raises UserError if `factor` is not a positive integer, or a name is none.
    """

    axis: str
    factor: int
    outer: str
    inner: str
    outer_pad: Pad = Pad()
    inner_pad: Pad = Pad()

    def __post_init__(self) -> None:
        if type(self.factor) is not int or self.factor < 1:
            raise UserError(f"split of '{self.axis}': factor must be a positive integer; got {self.factor!r}")
        for name in (self.outer, self.inner):
            check_name(name, f"split of '{self.axis}'")
        if self.outer == self.inner:
            raise UserError(f"split of '{self.axis}': the names of the two parts must differ")

    @property
    def consumed(self) -> tuple[str, ...]:
        """The axes that it replaces."""
        return (self.axis,)

    @property
    def made(self) -> Mapping[str, Pad]:
        """The axes that it makes, and their padding."""
        return {self.outer: self.outer_pad, self.inner: self.inner_pad}

    def with_pad(self, name: str, pad: Pad) -> SplitAxis:
        """The relation with the padding of one of its new axes replaced."""
        pads = {**self.made, name: pad}
        return SplitAxis(self.axis, self.factor, self.outer, self.inner, pads[self.outer], pads[self.inner])

    def describe(self) -> Mapping[str, str]:
        """What the new axes are."""
        return {
            self.outer: f"{self.axis} // {self.factor}",
            self.inner: f"{self.axis} % {self.factor}",
        }


@dataclass(frozen=True, slots=True, eq=False)
class FuseAxes(Node):
    """Axes `outer` and `inner` stored as one, `name`: the inner ones of each outer index one after the other.

    `pad` is the padding of the new axis. Raises UserError if `name` is none.
    """

    outer: str
    inner: str
    name: str
    pad: Pad = Pad()

    def __post_init__(self) -> None:
        check_name(self.name, f"fuse of '{self.outer}' and '{self.inner}'")

    @property
    def consumed(self) -> tuple[str, ...]:
        """The axes that it replaces."""
        return self.outer, self.inner

    @property
    def made(self) -> Mapping[str, Pad]:
        """The axis that it makes, and its padding."""
        return {self.name: self.pad}

    def with_pad(self, name: str, pad: Pad) -> FuseAxes:
        """The relation with the padding of its new axis replaced."""
        return FuseAxes(self.outer, self.inner, name, pad)

    def describe(self) -> Mapping[str, str]:
        """What the new axis is."""
        return {self.name: f"({self.outer}, {self.inner})"}


Relation: TypeAlias = SplitAxis | FuseAxes


@dataclass(frozen=True, slots=True)
class Refined:
    """Axes after a relation: as dims, their padding, and the index of each over the axes before it."""

    dims: tuple[Dim, ...]
    pads: tuple[Pad, ...]
    indices: tuple[Expr, ...]


def padded(dims: Sequence[Dim], k: int, pad: Pad) -> Expr:
    """The extent of `dims[k]` with its padding, over the dims themselves.

    The clamp is decided here, where dims stand for valid indices, and not after substitution.
    """
    extent = clamp(dims[k].extent)
    if pad.to_max and free_dims(extent):
        extent = maximum_over(closure(dims, k), extent)()
    return rounded(extent, pad.multiple)


def rounded(extent: Expr, multiple: int) -> Expr:
    """`extent` rounded up; a literal stays one, and one that is a multiple already has no padding."""
    if isinstance(extent, Const):
        return Const(-(-int(extent.value) // multiple) * multiple)
    return round_up(extent, multiple)


def closure(dims: Sequence[Dim], k: int) -> tuple[Dim, ...]:
    """The dims before `dims[k]` that its extent depends on, directly or not, in order."""
    return closure_of(dims[:k], dims[k].extent)


def closure_of(dims: Sequence[Dim], e: Expr) -> tuple[Dim, ...]:
    """Those of `dims` that `e` depends on, directly or not, in order."""
    needed = set(free_dims(e))
    for dim in reversed(dims):
        if dim in needed:
            needed |= free_dims(dim.extent)
    return tuple(d for d in dims if d in needed)


def refine(dims: tuple[Dim, ...], pads: tuple[Pad, ...], relation: Relation) -> Refined:
    """The axes `dims` after a relation. Raises UserError for an axis that is not there."""
    names = [d.name for d in dims]
    for name in relation.consumed:
        if name not in names:
            raise UserError(f"no axis '{name}'; the axes are {', '.join(names)}")
    match relation:
        case SplitAxis():
            return _split(dims, pads, relation, names.index(relation.axis))
        case FuseAxes():
            return _fuse(dims, pads, relation, names.index(relation.outer), names.index(relation.inner))


def blocks(extent: Expr, pad: Pad, factor: int) -> Expr:
    """How many blocks of `factor` hold `extent`, which is padded by `pad.multiple` first."""
    multiple = 1 if factor % pad.multiple == 0 else pad.multiple
    return simplify(ceildiv(rounded(extent, multiple), factor))


def _split(dims: tuple[Dim, ...], pads: tuple[Pad, ...], relation: SplitAxis, k: int) -> Refined:
    count = blocks(padded(dims, k, Pad(1, pads[k].to_max)), pads[k], relation.factor)
    outer, inner = Dim(relation.outer, count), Dim(relation.inner, relation.factor)
    values: dict[Expr, Expr] = {dims[k]: outer * relation.factor + inner}
    after = _rewritten(dims[k + 1 :], values)
    quotient = binary("floordiv", dims[k], relation.factor)
    rest = binary("mod", dims[k], relation.factor)
    return Refined(
        (*dims[:k], outer, inner, *after),
        (*pads[:k], relation.outer_pad, relation.inner_pad, *pads[k + 1 :]),
        (*dims[:k], quotient, rest, *dims[k + 1 :]),
    )


def _fuse(dims: tuple[Dim, ...], pads: tuple[Pad, ...], relation: FuseAxes, o: int, i: int) -> Refined:
    outer, inner = padded(dims, o, pads[o]), padded(dims, i, pads[i])
    where = f"fuse of '{relation.outer}' and '{relation.inner}'"
    if dims[i] in free_dims(outer) or o == i:
        raise UserError(f"{where}: the outer one must not depend on the inner one")
    values: dict[Expr, Expr]
    if dims[o] not in free_dims(inner):
        fused = Dim(relation.name, simplify(outer * inner))
        index = dims[o] * inner + dims[i]
        divisor = binary(
            "max", inner, 1
        )  # padding of the fused axis has indices even where inner ones are none
        values = {dims[o]: binary("floordiv", fused, divisor), dims[i]: binary("mod", fused, divisor)}
    else:
        others = tuple(d for d in dims if d != dims[o])
        around = closure_of(others, outer + inner)
        formals = _padded_formals(dims, pads, around)
        row = Dim(dims[o].name, substitute(outer, formals))
        offset = scan(tuple(formals.values()), row, substitute(inner, {**formals, dims[o]: row}))
        ffo, ffi = fusion_maps(offset)
        fused = Dim(relation.name, simplify(offset(*around, outer)))
        index = offset(*around, dims[o]) + dims[i]
        values = {dims[o]: ffo(*around, fused), dims[i]: ffi(*around, fused)}
    order = _order(dims, (o, i), fused, where)
    return Refined(
        _rewritten([fused if k is None else dims[k] for k in order], values),
        tuple(relation.pad if k is None else pads[k] for k in order),
        tuple(index if k is None else dims[k] for k in order),
    )


def _padded_formals(dims: tuple[Dim, ...], pads: tuple[Pad, ...], around: tuple[Dim, ...]) -> dict[Expr, Dim]:
    """The dims `around` (closed under dependence) with their padded extents over one another."""
    formals: dict[Expr, Dim] = {}
    for dim in around:
        k = dims.index(dim)
        formals[dim] = Dim(dim.name, substitute(padded(dims, k, pads[k]), formals))
    return formals


def _order(dims: tuple[Dim, ...], pair: tuple[int, int], fused: Dim, where: str) -> list[int | None]:
    """The axes after the fusion of a pair (None: the fused one), each after those that it depends on."""
    waiting: list[int | None] = [*(k for k in range(len(dims)) if k not in pair), None]
    order: list[int | None] = []
    done: set[Dim] = set()
    while waiting:
        ready = [k for k in waiting if free_dims(fused.extent if k is None else dims[k].extent) <= done]
        if not ready:
            names = ", ".join(dims[k].name for k in waiting if k is not None)
            raise UserError(f"{where}: {names} would depend on the fused axis, and it on them")
        first = ready[0]
        waiting.remove(first)
        order.append(first)
        done |= {dims[k] for k in pair} if first is None else {dims[first]}
    return order


def _rewritten(dims: Sequence[Dim], values: dict[Expr, Expr]) -> tuple[Dim, ...]:
    """`dims` with `values` in their extents, and with one another as they become."""
    found = []
    for dim in dims:
        changed = Dim(dim.name, substitute(dim.extent, values))
        if changed != dim:
            values[dim] = changed
        found.append(changed)
    return tuple(found)
