"""Layouts: in which order the dims of a tensor are stored, and with how much padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cora.errors import UserError
from cora.ir.expr import Const, Dim, Expr, Node, round_up
from cora.ir.ufun import maximum_over
from cora.ir.visit import free_dims, substitute
from cora.lang.check import check_dims
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
class Layout(Node):
    """Where the elements of a tensor over `dims` lie in a flat buffer.

    dims: the tensor's dims (index order). pads: the padding of each. order: positions in `dims`,
    outermost in storage first. Elements are in row-major order of the *padded* index space in that
    order, without gaps. Positions named `k` below are positions in `dims`, whatever the order.

    Raises UserError for dims that are no dims, share a name or stand before a dim that they depend
    on, for a wrong number of pads, and for an order that is no permutation, or in which a dim
    stands before a dim that its padded extent depends on.
    """

    dims: tuple[Dim, ...]
    pads: tuple[Pad, ...]
    order: tuple[int, ...]

    def __post_init__(self) -> None:
        check_dims(self.dims, "layout")
        names = ", ".join(d.name for d in self.dims)
        if len(self.pads) != len(self.dims) or not all(isinstance(p, Pad) for p in self.pads):
            raise UserError(f"layout [{names}]: expected one Pad per dim ({len(self.dims)}); got {self.pads}")
        if sorted(self.order) != list(range(len(self.dims))):
            raise UserError(
                f"layout [{names}]: order must be a permutation of 0..{len(self.dims) - 1}; got {self.order}"
            )
        stored: set[Dim] = set()
        for k in self.order:
            missing = sorted(d.name for d in free_dims(self._extent(k)) - stored)
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
        """This layout with the padding of `dim` replaced. UserError if it has no such dim."""
        k = self.position(dim)
        pads = (*self.pads[:k], Pad(multiple, to_max), *self.pads[k + 1 :])
        return Layout(self.dims, pads, self.order)

    def with_order(self, order: Sequence[Dim | str]) -> Layout:
        """This layout with its dims stored in another order, outermost first."""
        return Layout(self.dims, self.pads, tuple(self.position(d) for d in order))

    def over(self, dims: Sequence[Dim]) -> Layout:
        """The same padding and order for other dims, one for each."""
        return Layout(tuple(dims), self.pads, self.order)

    def inside(self, dim: Dim) -> Layout:
        """This layout once for each index of `dim`, which becomes the first and outermost dim."""
        order = (0, *(k + 1 for k in self.order))
        return Layout((dim, *self.dims), (Pad(), *self.pads), order)

    def position(self, dim: Dim | str) -> int:
        """The position in `dims` of a Dim or a name. Raises UserError if it is not there."""
        for k, own in enumerate(self.dims):
            if dim in (own, own.name):
                return k
        names = ", ".join(d.name for d in self.dims)
        raise UserError(f"layout [{names}]: no dim {dim if isinstance(dim, str) else dim.name!r}")

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.dims)

    @property
    def is_packed(self) -> bool:
        """Whether no dim is padded; the order may be any."""
        return not any(self.is_padded(k) for k in range(self.ndim))

    @property
    def is_row_major(self) -> bool:
        """Whether the storage order is that of the dims."""
        return self.order == tuple(range(self.ndim))

    def is_padded(self, k: int) -> bool:
        """Whether the padded extent of dim `k` can differ from its valid extent."""
        return self._extent(k) != clamp(self.dims[k].extent)

    def valid_extent(self, k: int, indices: Sequence[Expr]) -> Expr:
        """The number of valid values of dim `k`, clamped at 0; `indices` as for `extent`."""
        return substitute(clamp(self.dims[k].extent), self._values(indices))

    def extent(self, k: int, indices: Sequence[Expr]) -> Expr:
        """The storage extent of dim `k`: the valid extent, padded.

        indices: the index of each dim, in the order of `dims`; those that dim `k` does not depend
        on do not matter, and trailing ones may be left out.
        """
        return substitute(self._extent(k), self._values(indices))

    def size(self) -> Expr:
        """The number of elements stored, padding included."""
        from cora.storage.offsets import size

        return size(self)

    def describe(self) -> str:
        """The layout as text, outermost first: `[batch: M][pos: lens[batch] padded to 64]`."""
        return "".join(f"[{self.dims[k].name}: {self._describe(k)}]" for k in self.order)

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

    def _extent(self, k: int) -> Expr:
        """The storage extent of dim `k` over the dims themselves.

        The clamp is decided here, where dims stand for valid indices, and not after substitution.
        """
        pad, extent = self.pads[k], clamp(self.dims[k].extent)
        if pad.to_max and free_dims(extent):
            extent = maximum_over(closure(self.dims, k), extent)()
        if isinstance(extent, Const):  # a literal that is a multiple already has no padding
            return Const(-(-int(extent.value) // pad.multiple) * pad.multiple)
        return round_up(extent, pad.multiple)


def closure(dims: Sequence[Dim], k: int) -> tuple[Dim, ...]:
    """The dims before `dims[k]` that its extent depends on, directly or not, in order."""
    needed = set(free_dims(dims[k].extent))
    for dim in reversed(dims[:k]):
        if dim in needed:
            needed |= free_dims(dim.extent)
    return tuple(d for d in dims[:k] if d in needed)
