"""Dense boxes inside ragged storage: what lets NumPy copy whole rows instead of elements.

For fixed indices of the leading dims in storage, as many as it takes, the extents of the dims inside
are fixed, so the elements form a dense box. Boxes lie one after the other, so their positions are
running sums of their sizes: no offsets of Algorithm 1 are used, which can so be checked.

Where dims are split or fused in storage there are no such boxes. There the elements of a box of the
*indices* are looked up by their offsets, computed for the whole box at once (`cora.storage.grid`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from cora.errors import UserError
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Binary, Call, Const, Dim, Expr
from cora.ir.simplify import simplify
from cora.ir.ufun import Given
from cora.ir.visit import free_dims
from cora.storage.grid import grid
from cora.storage.layout import Layout
from cora.storage.lengths import Lengths
from cora.storage.offsets import offset

Values: TypeAlias = npt.NDArray[Any]
_Column: TypeAlias = npt.NDArray[np.int64]

TOO_MANY = 2**62
AT_ONCE = 2**17  # elements whose offsets are computed in one go: so many stay in a cache

_VECTOR: Mapping[str, Callable[[_Column, _Column], _Column]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": np.minimum,
    "max": np.maximum,
}


@dataclass(frozen=True, slots=True)
class Batch:
    """The sizes and lengths of one batch, by name."""

    sizes: Mapping[str, int]
    lengths: Mapping[str, Lengths]

    def evaluator(self) -> Evaluator:
        """A fresh evaluator of index expressions."""
        return Evaluator(self.sizes, self.lengths)


class Box(NamedTuple):
    """One dense box: it starts at `base`; `leading` are the indices of the leading storage dims.

    stored, valid: the padded and the valid extents of the dims inside, in storage order.
    """

    base: int
    leading: tuple[int, ...]
    stored: tuple[int, ...]
    valid: tuple[int, ...]

    def of(self, values: Values) -> Values:
        """The valid elements of the box as a view of the flat buffer, axes in storage order."""
        whole = values[self.base : self.base + prod(self.stored)].reshape(self.stored)
        return whole if self.stored == self.valid else whole[tuple(map(slice, self.valid))]

    def offsets(self) -> _Column:
        """The positions of the valid elements, axes in storage order."""
        whole = np.arange(self.base, self.base + prod(self.stored)).reshape(self.stored)
        return whole[tuple(map(slice, self.valid))]


def leading_dims(layout: Layout) -> int | None:
    """How many leading storage dims must be fixed; None where a dim stands outside one it needs.

    The latter is possible for dims padded to the longest: their valid extents still depend on others.
    """
    return _frame(layout).leading


@dataclass(frozen=True, slots=True)
class _Frame:
    """The dims of a layout in storage order, their (padded, valid) extents, and `leading_dims`."""

    dims: tuple[Dim, ...]
    extents: tuple[tuple[Expr, Expr], ...]
    leading: int | None


@lru_cache(maxsize=256)
def _frame(layout: Layout) -> _Frame:
    dims = tuple(layout.dims[k] for k in layout.order)
    extents = tuple(
        (layout.extent(k, layout.dims), layout.valid_extent(k, layout.dims)) for k in layout.order
    )
    place = {dim: p for p, dim in enumerate(dims)}
    needs = [max((place[d] + 1 for e in es for d in free_dims(e)), default=0) for es in extents]
    regular = all(need <= p for p, need in enumerate(needs))
    return _Frame(dims, extents, max(needs, default=0) if regular else None)


def boxes(layout: Layout, batch: Batch) -> Iterator[Box]:
    """The boxes of `layout` with valid leading indices, in storage order; some may be empty.

    The layout must have leading dims (`leading_dims`), and no relations.
    """
    return _Walk(layout, batch).boxes()


def stored_size(layout: Layout, batch: Batch) -> int:
    """The number of elements that `layout` stores, padding included. Raises UserError from 2^62 on."""
    layout = layout.stored
    if leading_dims(layout) is None:
        count = int(batch.evaluator().value(layout.size()))
    else:
        count = _Walk(layout, batch).count()
    if count >= TOO_MANY:
        raise UserError(f"the layout {layout.describe()} stores {count} elements: too many")
    return count


def flat_offsets(layout: Layout, sizes: Mapping[str, int], lengths: Mapping[str, Lengths]) -> _Column:
    """The position of every valid element, in row-major order of the indices."""
    batch, layout = Batch(sizes, lengths), layout.plain
    if layout.relations:
        return _join(list(_offset_grids(layout, batch)), np.int64)
    leading = leading_dims(layout)
    if leading is None:
        evaluator, position = batch.evaluator(), offset(layout, layout.dims)
        points = evaluator.points(layout.dims)
        found = [evaluator.value(position, dict(zip(layout.dims, point, strict=True))) for point in points]
        return np.array(found, np.int64)
    parts = list(boxes(layout, batch))
    if _rows_in_order(layout, leading):
        axes = _inner_axes(layout, leading)
        return _join([box.offsets().transpose(axes).reshape(-1) for box in parts], np.int64)
    keys: list[_Column] = []
    for box in parts:
        inside = np.indices(box.valid).reshape(len(box.valid), -1)
        outside = np.repeat(np.array(box.leading, np.int64)[:, None], inside.shape[1], axis=1)
        keys.append(np.concatenate([outside, inside]))
    positions = _join([box.offsets().reshape(-1) for box in parts], np.int64)
    if not positions.size:
        return positions
    index = np.concatenate(keys, axis=1)  # one row per storage dim
    by_dim = [index[layout.order.index(k)] for k in reversed(range(layout.ndim))]
    return positions[np.lexsort(by_dim)]


def gather(layout: Layout, batch: Batch, values: Values) -> Values:
    """The valid elements of a flat buffer in row-major order of the indices.

    A view of the buffer where it holds just that, a copy otherwise.
    """
    layout = layout.plain
    if layout.is_packed and layout.is_row_major:
        return values
    if layout.relations:
        return _join([values[at] for at in _offset_grids(layout, batch)], values.dtype)
    leading = leading_dims(layout)
    if leading is None or not _rows_in_order(layout, leading):
        return values[flat_offsets(layout, batch.sizes, batch.lengths)]
    axes = _inner_axes(layout, leading)
    parts = [box.of(values).transpose(axes).reshape(-1) for box in boxes(layout, batch)]
    return _join(parts, values.dtype)


def scatter(layout: Layout, batch: Batch, elements: Values, values: Values) -> None:
    """Store `elements`, in row-major order of the indices, into a flat buffer; padding is untouched."""
    layout = layout.plain
    if layout.is_packed and layout.is_row_major:
        values[:] = elements
        return
    if layout.relations:
        done = 0
        for at in _offset_grids(layout, batch):
            values[at] = elements[done : done + at.size]
            done += at.size
        return
    leading = leading_dims(layout)
    if leading is None or not _rows_in_order(layout, leading):
        values[flat_offsets(layout, batch.sizes, batch.lengths)] = elements
    else:
        axes = _inner_axes(layout, leading)
        done = 0
        for box in boxes(layout, batch):
            target = box.of(values).transpose(axes)
            target[...] = elements[done : done + target.size].reshape(target.shape)
            done += target.size


def _offset_grids(layout: Layout, batch: Batch) -> Iterator[_Column]:
    """The positions of the valid elements in row-major order of the indices, in parts of bounded size."""
    evaluator, position = batch.evaluator(), _position(layout)
    waiting: list[Box] = []
    count = 0
    for box in boxes(Layout.packed(layout.dims), batch):
        size = prod(box.valid)
        if waiting and count + size > AT_ONCE:
            yield grid(position, _many(layout.dims, waiting), evaluator)
            waiting, count = [], 0
        if size > AT_ONCE:
            rest = prod(box.valid[1:])
            step = max(AT_ONCE // rest, 1)
            for begin in range(0, box.valid[0], step):
                end = min(begin + step, box.valid[0])
                yield grid(position, _one(layout.dims, box, begin, end), evaluator)
        elif size:
            waiting.append(box)
            count += size
    if len(waiting) == 1 and waiting[0].valid:
        yield grid(position, _one(layout.dims, waiting[0], 0, waiting[0].valid[0]), evaluator)
    elif waiting:
        yield grid(position, _many(layout.dims, waiting), evaluator)


@lru_cache(maxsize=256)
def _position(layout: Layout) -> Expr:
    return simplify(offset(layout, layout.dims))


def _one(dims: Sequence[Dim], box: Box, begin: int, end: int) -> dict[Dim, _Column]:
    """The indices of a box, from `begin` to `end` along its first axis: an array per dim, one axis each."""
    inside = [np.arange(begin, end), *(np.arange(n) for n in box.valid[1:])]
    shapes = np.eye(len(inside), dtype=np.int64) * -2 + 1
    columns = [np.array([index]) for index in box.leading]
    columns += [values.reshape(shape) for values, shape in zip(inside, shapes, strict=True)]
    return dict(zip(dims, columns, strict=True))


def _many(dims: Sequence[Dim], parts: Sequence[Box]) -> dict[Dim, _Column]:
    """The indices of the elements of several boxes, one after the other: an array per dim."""
    sizes = np.array([prod(box.valid) for box in parts])
    rest = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    valid = np.array([box.valid for box in parts], np.int64)
    leading = np.array([box.leading for box in parts], np.int64)
    columns: list[_Column] = []
    for axis in reversed(range(valid.shape[1])):
        rest, index = np.divmod(rest, np.repeat(valid[:, axis], sizes))
        columns.append(index)
    columns += [np.repeat(leading[:, axis], sizes) for axis in reversed(range(leading.shape[1]))]
    return dict(zip(dims, reversed(columns), strict=True))


def _rows_in_order(layout: Layout, leading: int) -> bool:
    """Whether the leading storage dims are the leading dims: then boxes follow the indices' order."""
    return layout.order[:leading] == tuple(range(leading))


def _inner_axes(layout: Layout, leading: int) -> tuple[int, ...]:
    """The axes of a box (storage order) in the order of the dims."""
    inside = layout.order[leading:]
    return tuple(inside.index(k) for k in range(layout.ndim) if k in inside)


def _join(parts: Sequence[Values], dtype: npt.DTypeLike) -> Values:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _vectorizes(op: str, b: Expr) -> bool:
    # NumPy would carry on after a division by zero.
    return op in _VECTOR and (op not in ("floordiv", "mod") or isinstance(b, Const))


class _Walk:
    """One pass over the leading dims of a layout; the innermost of them is walked as vectors."""

    def __init__(self, layout: Layout, batch: Batch) -> None:
        frame = _frame(layout)
        self.dims, self.extents, self.leading = frame.dims, frame.extents, frame.leading or 0
        self.batch = batch
        self.evaluator = batch.evaluator()

    def boxes(self) -> Iterator[Box]:
        """The boxes with valid leading indices."""
        if self.leading:
            yield from self._walk((), {}, 0, True)
        else:
            stored, valid = ([self._value(es[i], {}) for es in self.extents] for i in (0, 1))
            yield Box(0, (), tuple(stored), tuple(valid))

    def count(self) -> int:
        """The number of elements stored."""
        if self.leading:
            return self._count(0, {})
        return prod(self._value(stored, {}) for stored, _ in self.extents)

    def _count(self, p: int, env: dict[Expr, int]) -> int:
        count = self._value(self.extents[p][0], env)
        if p == self.leading - 1:
            stored = [self._column(e, self.dims[p], count, env) for e, _ in self.extents[p + 1 :]]
            # Python integers where 64 bits might not do: the product of the largest is a bound.
            exact = prod((int(c.max(initial=0)) for c in stored), start=count) < TOO_MANY
            return int(reduce(operator.mul, stored if exact else [c.astype(object) for c in stored]).sum())
        return sum(self._count(p + 1, {**env, self.dims[p]: index}) for index in range(count))

    def _walk(
        self, prefix: tuple[int, ...], env: dict[Expr, int], base: int, inside: bool
    ) -> Generator[Box, None, int]:
        p = len(prefix)
        stored, valid = (self._value(e, env) for e in self.extents[p])
        if p == self.leading - 1:
            return (yield from self._rows(prefix, env, base, stored, valid if inside else 0))
        for index in range(stored):
            deeper = {**env, self.dims[p]: index}
            base = yield from self._walk((*prefix, index), deeper, base, inside and index < valid)
        return base

    def _rows(
        self, prefix: tuple[int, ...], env: dict[Expr, int], base: int, count: int, valid: int
    ) -> Generator[Box, None, int]:
        dim = self.dims[len(prefix)]
        inner = self.extents[self.leading :]
        stored = [self._column(e, dim, count, env) for e, _ in inner]
        size = reduce(operator.mul, stored)
        ends = np.cumsum(size)
        if valid:
            inside = [self._column(e, dim, count, env)[:valid].tolist() for _, e in inner]
            shapes = list(zip(*(c[:valid].tolist() for c in stored), strict=True))
            valids = list(zip(*inside, strict=True))
            bases = (base + ends - size)[:valid].tolist()
            for index in range(valid):
                yield Box(bases[index], (*prefix, index), shapes[index], valids[index])
        return base + (int(ends[-1]) if count else 0)

    def _value(self, e: Expr, env: Mapping[Expr, int]) -> int:
        return int(self.evaluator.value(e, env))

    def _column(self, e: Expr, dim: Dim, count: int, env: Mapping[Expr, int]) -> _Column:
        """The values of `e` for dim = 0 .. count - 1, the outer dims as in `env`."""
        match e:
            case Dim() if e == dim:
                return np.arange(count)
            case Const() | Dim():
                return np.full(count, self._value(e, env))
            case Call(fun=fun, args=(arg,)) if arg == dim and isinstance(fun.definition, Given):
                known = self.batch.lengths[fun.name][:count]
                outside = np.zeros(count - len(known), np.int64)  # padding of the outer dim
                return np.concatenate([known, outside])
            case Binary(op=op, a=a, b=b) if _vectorizes(op, b) and free_dims(e):
                two = _VECTOR[op]
                x = self._column(a, dim, count, env)
                return two(x, self._column(b, dim, count, env))
            case _ if dim not in free_dims(e):
                return np.full(count, self._value(e, env))
            case _:
                values = (self._value(e, {**env, dim: i}) for i in range(count))
                return np.fromiter(values, np.int64, count)
