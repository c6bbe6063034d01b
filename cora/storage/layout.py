"""Layouts: how the dims of a tensor are stored: padded, split, fused, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from cora.errors import UserError
from cora.ir.expr import Dim, Expr
from cora.ir.node import Node
from cora.ir.ufun import maximum_over
from cora.ir.visit import free_dims, substitute
from cora.lang.check import check_dims
from cora.storage.axes import (
    FuseAxes,
    Pad,
    Refined,
    Relation,
    SplitAxis,
    blocks,
    closure,
    padded,
    refine,
    rounded,
)
from cora.storage.extents import clamp

__all__ = ["FuseAxes", "Layout", "Pad", "Relation", "SplitAxis", "closure"]


@dataclass(frozen=True, slots=True, eq=False)
class Layout(Node):
    """Where the elements of a tensor over `dims` lie in a flat buffer.

    dims: the tensor's dims (index order). pads: the padding of each. relations: what the dims become in storage, one
    after the other: split and fused, the padding of the new axes included. order: positions in `axes` (the dims,
    where there are no relations), outermost in storage first. Elements are in row-major order of the *padded* index
    space of the axes in that order, without gaps. Positions named `k` below are positions in `dims`, whatever the
    order.

    Raises UserError for dims that are no dims, share a name or stand before a dim that they depend on, for a wrong
    number of pads, for a relation of axes that are not there, and for an order that is no permutation, or in which
    an axis stands before one that its padded extent depends on.
    """

    dims: tuple[Dim, ...]
    pads: tuple[Pad, ...]
    order: tuple[int, ...]
    relations: tuple[Relation, ...] = ()

    def __post_init__(self) -> None:
        check_dims(self.dims, "layout")
        names = ", ".join(d.name for d in self.dims)
        if len(self.pads) != len(self.dims) or not all(isinstance(p, Pad) for p in self.pads):
            raise UserError(f"layout [{names}]: expected one Pad per dim ({len(self.dims)}); got {self.pads}")
        if self.relations:
            known = [d.name for d in self.dims]
            for relation in self.relations:
                for name in relation.made:
                    if name in known:
                        raise UserError(f"layout [{names}]: there is an axis '{name}' already")
                    known.append(name)
            _ = self.inner  # checks the rest
            return
        if sorted(self.order) != list(range(len(self.dims))):
            raise UserError(
                f"layout [{names}]: order must be a permutation of 0..{len(self.dims) - 1}; got {self.order}"
            )
        stored: set[Dim] = set()
        for k in self.order:
            missing = sorted(d.name for d in free_dims(padded(self.dims, k, self.pads[k])) - stored)
            if missing:
                raise UserError(
                    f"layout [{names}]: the padded extent of dim '{self.dims[k].name}' depends on "
                    f"dim(s) {', '.join(missing)}, which must be stored outside it; got the order "
                    f"[{', '.join(self.dims[p].name for p in self.order)}]"
                )
            stored.add(self.dims[k])

    @staticmethod
    def packed(dims: Sequence[Dim]) -> Layout:
        """The layout without padding, stored in the order of `dims`."""
        return Layout(tuple(dims), (Pad(),) * len(dims), tuple(range(len(dims))))

    def with_pad(self, dim: Dim | str, multiple: int = 1, to_max: bool = False) -> Layout:
        """This layout with the padding of a dim, or of an axis that a relation makes, replaced.

        A dim that is split or fused is padded before that. UserError if there is no such dim or axis.
        """
        pad = Pad(multiple, to_max)
        for place, relation in enumerate(self.relations):
            if dim in relation.made:
                changed = relation.with_pad(str(dim), pad)
                others = self.relations[:place], self.relations[place + 1 :]
                return self._reordered(self.pads, (*others[0], changed, *others[1]), self.stored_names)
        k = self.position(dim)
        return self._reordered((*self.pads[:k], pad, *self.pads[k + 1 :]), self.relations, self.stored_names)

    def with_order(self, order: Sequence[Dim | str]) -> Layout:
        """This layout with its axes stored in another order, outermost first."""
        if not self.relations:
            return replace(self, order=tuple(self.position(d) for d in order))
        names = [d.name if isinstance(d, Dim) else d for d in order]
        for name in names:
            self._stored_place(name)
        return self._reordered(self.pads, self.relations, names)

    def with_split(self, axis: Dim | str, factor: int, outer: str, inner: str) -> Layout:
        """This layout with an axis split in two, which take its place: `outer` = axis // factor, then `inner`.

        Raises UserError if there is no such axis, for a factor that is not positive, and for names in use.
        """
        name = axis.name if isinstance(axis, Dim) else axis
        place, names = self._stored_place(name), self.stored_names
        relation = SplitAxis(name, factor, outer, inner)
        order = (*names[:place], outer, inner, *names[place + 1 :])
        return self._reordered(self.pads, (*self.relations, relation), order)

    def with_fused(self, outer: Dim | str, inner: Dim | str, name: str) -> Layout:
        """This layout with two axes that lie one directly inside the other stored as one.

        Raises UserError if they are not there or do not lie so, and for a name in use.
        """
        first, second = (d.name if isinstance(d, Dim) else d for d in (outer, inner))
        place, names = self._stored_place(first), self.stored_names
        if self._stored_place(second) != place + 1:
            raise UserError(
                f"fuse of '{first}' and '{second}': '{second}' must be stored directly inside '{first}'; the axes "
                f"are stored as {', '.join(names)}"
            )
        order = (*names[:place], name, *names[place + 2 :])
        return self._reordered(self.pads, (*self.relations, FuseAxes(first, second, name)), order)

    def _reordered(
        self, pads: tuple[Pad, ...], relations: tuple[Relation, ...], names: Sequence[str]
    ) -> Layout:
        """The layout of the same dims with these pads and relations, its axes in the order of `names`."""
        return _laid_out(self.dims, pads, relations, self.order, names)

    def _stored_place(self, name: str) -> int:
        names = self.stored_names
        if name not in names:
            own = ", ".join(d.name for d in self.dims)
            raise UserError(f"layout [{own}]: no axis '{name}'; the axes are {', '.join(names)}")
        return names.index(name)

    def over(self, dims: Sequence[Dim]) -> Layout:
        """The same storage for other dims, one for each; with the same names, where they are split or fused."""
        return _laid_out(tuple(dims), self.pads, self.relations, self.order, self.stored_names)

    def inside(self, dim: Dim) -> Layout:
        """This layout once for each index of `dim`, which becomes the first and outermost dim."""
        order = (0, *(k + 1 for k in self.order))
        names = (dim.name, *self.stored_names)
        return _laid_out((dim, *self.dims), (Pad(), *self.pads), self.relations, order, names)

    def position(self, dim: Dim | str) -> int:
        """The position in `dims` of a Dim or a name. Raises UserError if it is not there."""
        for k, own in enumerate(self.dims):
            if dim in (own, own.name):
                return k
        names = ", ".join(d.name for d in self.dims)
        raise UserError(f"layout [{names}]: no dim {dim if isinstance(dim, str) else dim.name!r}")

    @property
    def inner(self) -> Layout:
        """The layout of the axes after the first relation; of the dims themselves where there is none."""
        return _inner(self)

    @property
    def stored(self) -> Layout:
        """The layout of the axes: without relations, with the same elements in the same places."""
        layout = self
        while layout.relations:
            layout = layout.inner
        return layout

    @property
    def plain(self) -> Layout:
        """A layout of the same dims that stores every element in the same place: without relations, if there is one.

        Blocks that lie one behind another are a padded dim, and dims that are fused alone are stored as without.
        """
        return _plain(self) or self

    @property
    def axes(self) -> tuple[Dim, ...]:
        """What the dims have become, as dims."""
        return self.stored.dims

    @property
    def stored_names(self) -> tuple[str, ...]:
        """The names of the axes, outermost in storage first."""
        axes = self.axes
        return tuple(axes[k].name for k in self.order)

    def inner_indices(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The index of each dim of `inner` for the index of each dim."""
        if not self.relations:
            return tuple(indices)
        values = self._values(indices)
        return tuple(substitute(index, values) for index in _refined(self).indices)

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.dims)

    @property
    def is_packed(self) -> bool:
        """Whether no dim and no axis is padded; the order may be any."""
        padded_here = any(self.is_padded(k) for k in range(self.ndim))
        return not padded_here and (not self.relations or self.inner.is_packed)

    @property
    def is_row_major(self) -> bool:
        """Whether elements are stored in the order of their indices: the axes in that of the dims behind them."""
        if not self.relations:
            return self.order == tuple(range(self.ndim))
        names = [d.name for d in self.dims]
        for relation in self.relations:
            place = names.index(relation.consumed[0])
            if tuple(names[place : place + len(relation.consumed)]) != relation.consumed:
                return False
            names[place : place + len(relation.consumed)] = relation.made
        return tuple(names) == self.stored_names

    def is_padded(self, k: int) -> bool:
        """Whether the padded extent of dim `k` can differ from its valid extent."""
        return _extent(self, k) != clamp(self.dims[k].extent)

    def valid_extent(self, k: int, indices: Sequence[Expr]) -> Expr:
        """The number of valid values of dim `k`, clamped at 0; `indices` as for `extent`."""
        return substitute(clamp(self.dims[k].extent), self._values(indices))

    def extent(self, k: int, indices: Sequence[Expr]) -> Expr:
        """The storage extent of dim `k`: how many of its indices have a place, padding and whole blocks included.

        indices: the index of each dim, in the order of `dims`; those that dim `k` does not depend
        on do not matter, and trailing ones may be left out.
        """
        return substitute(_extent(self, k), self._values(indices))

    def multiples(self, k: int) -> tuple[int, ...]:
        """What the extent of dim `k` is rounded up to multiples of, one after the other; never none."""
        name, pad, unit = self.dims[k].name, self.pads[k], 1
        found = [pad.multiple]
        for relation in self.relations:
            if isinstance(relation, SplitAxis) and relation.axis == name:
                name, pad = relation.outer, relation.outer_pad
                unit *= relation.factor
                found += [unit, unit * pad.multiple]
        return tuple(m for m in dict.fromkeys(found) if m > 1) or (1,)

    def consumed_extent(self, k: int) -> Expr:
        """How many indices of dim `k` the axes count that the first relation makes of it, over the dims.

        That is the padded extent, for a dim that is split in whole blocks.
        """
        extent = padded(self.dims, k, Pad(1, self.pads[k].to_max))
        match self.relations[:1]:
            case (SplitAxis(factor=factor),):
                return blocks(extent, self.pads[k], factor) * factor
            case _:
                return rounded(extent, self.pads[k].multiple)

    def size(self) -> Expr:
        """The number of elements stored, padding included."""
        from cora.storage.offsets import size

        return size(self)

    def describe(self) -> str:
        """The layout as text, outermost first: `[batch: M][pos: lens[batch] padded to 64]`.

        An axis says what it is: `[no = n // 64: (N + 63) // 64][k: K][ni = n % 64: 64]`.
        """
        stored, made = self.stored, {n: text for r in self.relations for n, text in r.describe().items()}
        parts = []
        for k in self.order:
            name = stored.dims[k].name
            label = f"{name} = {made[name]}" if name in made else name
            parts.append(f"[{label}: {stored._describe(k)}]")
        return "".join(parts)

    def __str__(self) -> str:
        return self.describe()

    def _describe(self, k: int) -> str:
        pad, extent = self.pads[k], str(clamp(self.dims[k].extent))
        if not self.is_padded(k):
            return extent
        parts = ["the longest"] if pad.to_max and free_dims(self.dims[k].extent) else []
        parts += [str(pad.multiple)] if pad.multiple > 1 else []
        return f"{extent} padded to {', then '.join(parts)}"

    def _values(self, indices: Sequence[Expr]) -> dict[Expr, Expr]:
        return dict(zip(self.dims, indices, strict=False))


def _laid_out(
    dims: tuple[Dim, ...],
    pads: tuple[Pad, ...],
    relations: tuple[Relation, ...],
    order: tuple[int, ...],
    names: Sequence[str],
) -> Layout:
    """The layout whose axes lie in the order of `names`; without relations the order is that of positions."""
    if not relations:
        return Layout(dims, pads, order)
    level, level_pads = dims, pads
    for relation in relations:
        refined = refine(level, level_pads, relation)
        level, level_pads = refined.dims, refined.pads
    place = {d.name: p for p, d in enumerate(level)}
    return Layout(dims, pads, tuple(place[name] for name in names), relations)


@lru_cache(maxsize=1024)
def _refined(layout: Layout) -> Refined:
    """The axes after the first relation."""
    return refine(layout.dims, layout.pads, layout.relations[0])


@lru_cache(maxsize=1024)
def _inner(layout: Layout) -> Layout:
    if not layout.relations:
        return layout
    refined = _refined(layout)
    return Layout(refined.dims, refined.pads, layout.order, layout.relations[1:])


@lru_cache(maxsize=1024)
def _plain(layout: Layout) -> Layout | None:
    """The layout without relations that stores the same, if there is one: they are undone, the last one first."""
    names = list(layout.stored_names)
    fused = any(isinstance(relation, FuseAxes) for relation in layout.relations)
    pads = {d.name: pad for d, pad in zip(layout.dims, layout.pads, strict=True)}
    for relation in layout.relations:
        pads |= relation.made
    if fused and any(pad.to_max for pad in pads.values()):
        return None  # the longest of fused rows is that of those with entries
    for relation in reversed(layout.relations):
        made = list(relation.made)
        place = names.index(made[0])
        if names[place : place + len(made)] != made:
            return None
        match relation:
            case SplitAxis(axis=axis, factor=factor, outer=outer, inner=inner):
                own, whole = pads[axis].multiple, factor * pads[outer].multiple
                if pads[outer].to_max or factor % pads[inner].multiple or (own % whole and whole % own):
                    return None
                pads[axis] = Pad(max(own, whole), pads[axis].to_max)
            case FuseAxes(name=name) if pads[name].multiple > 1:
                return None
        names[place : place + len(made)] = relation.consumed
    order = tuple(layout.position(name) for name in names)
    try:
        return Layout(layout.dims, tuple(pads[d.name] for d in layout.dims), order)
    except UserError:  # blocks that are the same in all rows may lie outside what the dim depends on
        return None


@lru_cache(maxsize=1024)
def _extent(layout: Layout, k: int) -> Expr:
    """The storage extent of dim `k` over the dims themselves.

    A dim that is split, and whose blocks are split in turn, has room for whole blocks of blocks. The largest of a
    batch is taken where the axis is finished: over fused axes, say. Elsewhere the extent stays one over the dims.
    """
    extent, unit, level = clamp(layout.dims[k].extent), 1, layout
    name, pad = layout.dims[k].name, layout.pads[k]
    while True:
        while level.relations and name not in level.relations[0].consumed:
            level = level.inner
        if pad.to_max:
            place = level.position(name)
            if free_dims(level.dims[place].extent):
                extent = maximum_over(closure(level.dims, place), clamp(level.dims[place].extent))()
        match level.relations[:1]:
            case (SplitAxis() as relation,):
                extent = blocks(extent, pad, relation.factor)
                unit *= relation.factor
                name, pad, level = relation.outer, relation.outer_pad, level.inner
            case _:
                return rounded(extent, pad.multiple) * unit
