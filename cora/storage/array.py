"""RaggedArray: values, a layout and the lengths of one batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from cora.errors import UnsupportedError, UserError
from cora.ir import dtypes
from cora.ir.expr import Call, Dim, Size
from cora.ir.tensor import Tensor
from cora.ir.ufun import Given, UFun
from cora.ir.visit import free_dims
from cora.storage.boxes import Batch, Box, Values, boxes, gather, leading_dims, scatter, stored_size
from cora.storage.dlpack import from_dlpack
from cora.storage.extents import clamp
from cora.storage.layout import Layout
from cora.storage.lengths import Lengths, bind
from cora.storage.nested import checked_parts, read_rows

ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RaggedArray:
    """A ragged tensor in memory.

    values: a flat, C-contiguous NumPy array of `layout.size()` elements of `dtype`, padding included.
    lengths: a flat, read-only int32 array for each length function, by name. sizes: the run-time
    sizes, by name. The constructor trusts its arguments: the static methods validate
    theirs.
    """

    values: Values
    layout: Layout
    lengths: Mapping[str, Lengths]
    sizes: Mapping[str, int]
    name: str
    dtype: str

    @staticmethod
    def empty(
        like: Tensor | Layout,
        lengths: Mapping[str, npt.ArrayLike] | None = None,
        sizes: Mapping[str, int] | None = None,
        *,
        fill: float = 0,
        dtype: str | None = None,
        name: str | None = None,
    ) -> RaggedArray:
        """A new array, filled with `fill`, padding included.

        Raises UserError for lengths and sizes that are missing or wrong (see `bind`), and for a
        fill that the dtype cannot hold, such as NaN in an integer array.
        """
        layout, name, dtype = _of(like, name, dtype)
        bound, arrays = bind(layout.dims, sizes, lengths, f"array '{name}'")
        values = allocate(stored_size(layout, Batch(bound, arrays)), dtype)
        values.fill(_fill(fill, dtype, f"array '{name}'"))
        return RaggedArray(values, layout, arrays, bound, name, dtype)

    @staticmethod
    def from_rows(
        rows: Any,
        like: Tensor | Layout,
        lengths: Mapping[str, npt.ArrayLike] | None = None,
        sizes: Mapping[str, int] | None = None,
        *,
        dtype: str | None = None,
        name: str | None = None,
    ) -> RaggedArray:
        """A new array with the elements of `rows`: nested lists, or arrays, one per index of dim 0.

        Sizes and lengths that are not given are read off the rows; see `read_rows`, also for the
        errors. Padding is 0.
        """
        layout, name, dtype = _of(like, name, dtype)
        where = f"array '{name}'"
        parts, batch = read_rows(rows, layout.dims, sizes, lengths, dtype, where)
        return _store_parts(parts, layout, batch, name, dtype)

    @staticmethod
    def from_padded(
        array: npt.ArrayLike,
        like: Tensor | Layout,
        lengths: Mapping[str, npt.ArrayLike] | None = None,
        sizes: Mapping[str, int] | None = None,
        *,
        dtype: str | None = None,
        name: str | None = None,
    ) -> RaggedArray:
        """A new array with the valid elements of a dense one; what lies outside is not read.

        array: one axis per dim, each at least as long as the longest slice. Sizes that are not
        given are read off its shape where they are the extent of a dim. Raises UserError for a
        wrong number of axes, and for an axis that is too short.
        """
        layout, name, dtype = _of(like, name, dtype)
        where = f"from_padded of '{name}'"
        padded = np.asarray(array)
        if padded.ndim != layout.ndim:
            raise UserError(
                f"{where}: expected {layout.ndim} axes [{', '.join(d.name for d in layout.dims)}]; "
                f"got the shape {padded.shape}"
            )
        bound = dict(sizes or {})
        for dim, n in zip(layout.dims, padded.shape, strict=True):
            if isinstance(dim.extent, Size):
                bound.setdefault(dim.extent.name, n)
        batch = Batch(*bind(layout.dims, bound, lengths, where))
        canonical = Layout.packed(layout.dims)
        parts = list(boxes(canonical, batch))
        needed = padded_shape(canonical, batch, parts)
        for dim, n, have in zip(layout.dims, needed, padded.shape, strict=True):
            if n > have:
                raise UserError(
                    f"{where}: the longest slice of dim '{dim.name}' has {n} entries; got an axis of {have}"
                )
        elements = checked_parts([_part(padded, box) for box in parts], dtype, where)
        return _store_parts(elements, layout, batch, name, dtype)

    @staticmethod
    def from_values(
        values: Values,
        like: Tensor | Layout,
        lengths: Mapping[str, npt.ArrayLike] | None = None,
        sizes: Mapping[str, int] | None = None,
        *,
        writable: bool = False,
        dtype: str | None = None,
        name: str | None = None,
    ) -> RaggedArray:
        """An array around existing values, without a copy.

        values: a C-contiguous, naturally aligned NumPy array of the layout's dtype (by default its
        own) and any shape, with at least as many elements as the layout stores. Raises UserError
        where it is not, and where `writable` is asked for and it is read-only.
        """
        where = f"from_values of '{name or getattr(like, 'name', 'array')}'"
        if not isinstance(values, np.ndarray):
            raise UserError(f"{where}: expected a NumPy array; got {type(values).__name__}")
        own = like.dtype if isinstance(like, Tensor) else values.dtype.name
        layout, name, dtype = _of(like, name, dtype or own)
        if values.dtype != dtypes.to_numpy(dtype):
            raise UserError(f"{where}: expected values of type {dtype}; got {values.dtype}")
        if not values.flags.c_contiguous:
            raise UserError(f"{where}: the values must be C-contiguous; got strides {values.strides}")
        if not values.flags.aligned:
            raise UserError(f"{where}: the values must be aligned to {values.itemsize} bytes")
        if writable and not values.flags.writeable:
            raise UserError(f"{where}: the values are read-only")
        bound, arrays = bind(layout.dims, sizes, lengths, where)
        needed = stored_size(layout, Batch(bound, arrays))
        if values.size < needed:
            raise UserError(
                f"{where}: the layout {layout.describe()} stores {needed} elements; got {values.size}"
            )
        return RaggedArray(values.reshape(-1)[:needed], layout, arrays, bound, name, dtype)

    @staticmethod
    def from_dlpack(
        tensor: Any,
        like: Tensor | Layout,
        lengths: Mapping[str, npt.ArrayLike] | None = None,
        sizes: Mapping[str, int] | None = None,
        *,
        writable: bool = False,
        dtype: str | None = None,
        name: str | None = None,
    ) -> RaggedArray:
        """`from_values` of another framework's tensor on the CPU (PyTorch's, say), without a copy.

        A 16-bit integer tensor is taken for the bits of bfloat16, which NumPy's DLPack does not
        know, where the dtype is bfloat16. Raises UserError for a tensor that NumPy cannot take.
        """
        wanted = dtype or (like.dtype if isinstance(like, Tensor) else None)
        values = from_dlpack(tensor, wanted, "from_dlpack")
        return RaggedArray.from_values(
            values, like, lengths, sizes, writable=writable, dtype=dtype, name=name
        )

    @staticmethod
    def from_offsets(
        values: Values,
        offsets: npt.ArrayLike,
        like: Tensor | Layout,
        sizes: Mapping[str, int] | None = None,
        *,
        dtype: str | None = None,
        name: str | None = None,
    ) -> RaggedArray:
        """An array from values and row starts, as jagged tensors elsewhere have them.

        values: `[offsets[-1], inner dims...]`, or the same elements flat. offsets: batch + 1 row
        starts. The layout's dims are a batch, a dim of extent `lens[batch]`, and dims that depend
        on no other. Values are wrapped without a copy where the layout is packed, in the order of
        the dims. Raises UserError for another layout, and for offsets that are no integers, do not
        start at 0, decrease, or run past the values, naming the first bad entry.
        """
        layout, name, dtype = _of(like, name, dtype)
        where = f"from_offsets of '{name}'"
        fun = _row_lengths(layout, where)
        starts = _row_starts(offsets, where)
        flat = np.asarray(values)
        inner = layout.dims[2:]
        bound = dict(sizes or {})
        if flat.ndim == len(inner) + 1:
            for dim, n in zip(inner, flat.shape[1:], strict=True):
                if isinstance(dim.extent, Size):
                    bound.setdefault(dim.extent.name, n)
        elif flat.ndim != 1:
            raise UserError(f"{where}: expected values of 1 or {len(inner) + 1} axes; got {flat.ndim}")
        lengths = {fun.name: np.diff(starts)}
        batch = Batch(*bind(layout.dims, bound, lengths, where))
        evaluator = batch.evaluator()
        shape = tuple(int(evaluator.value(clamp(d.extent))) for d in inner)
        if flat.ndim > 1 and flat.shape[1:] != shape:
            raise UserError(f"{where}: expected rows of shape {shape}; got {flat.shape[1:]}")
        width = prod(shape)
        rows = len(flat) if flat.ndim > 1 or width == 0 else len(flat) // width
        if len(starts) and starts[-1] > rows:
            bad = int(np.argmax(starts > rows))
            raise UserError(f"{where}: entry {bad} of the offsets is {starts[bad]}, past the {rows} rows")
        if layout.is_packed and layout.is_row_major:
            return RaggedArray.from_values(flat, layout, batch.lengths, batch.sizes, dtype=dtype, name=name)
        elements = checked_parts([flat.reshape(-1)[: int(starts[-1]) * width]], dtype, where)
        return _store_parts(elements, layout, batch, name, dtype)

    @property
    def batch(self) -> Batch:
        """The sizes and lengths."""
        return Batch(self.sizes, self.lengths)

    def numpy(self) -> Values:
        """The flat values, padding included, without a copy."""
        return self.values

    def packed(self) -> Values:
        """The valid elements, flat, in row-major order; a view of the values where they are packed."""
        return gather(self.layout, self.batch, self.values)

    def to_layout(self, layout: Layout, fill: float = 0) -> RaggedArray:
        """The same elements in another layout of the same dims, its padding set to `fill`.

        Raises UserError if the dims differ.
        """
        if layout.dims != self.layout.dims:
            raise UserError(
                f"to_layout of '{self.name}': expected a layout of the dims "
                f"[{', '.join(d.name for d in self.layout.dims)}] with the same extents; "
                f"got {layout.describe()}"
            )
        return store(self.packed(), layout, self.batch, self.name, self.dtype, fill)

    def to_padded(self, fill: float = 0) -> Values:
        """A dense array, each dim as long as its longest slice, `fill` outside the valid elements."""
        canonical = Layout.packed(self.layout.dims)
        parts = list(boxes(canonical, self.batch))
        shape = padded_shape(canonical, self.batch, parts)
        out = np.full(shape, _fill(fill, self.dtype, "to_padded"), dtypes.to_numpy(self.dtype))
        elements = self.packed()
        done = 0
        for box in parts:
            target = _part(out, box)
            target[...] = elements[done : done + target.size].reshape(target.shape)
            done += target.size
        return out

    def to_rows(self) -> list[Values]:
        """One dense array for each index of the first dim: a view of the values where they lie so, else a
        copy, which is read-only: what is written to it would be lost.

        Raises UserError for a scalar, and where a row is itself ragged (use `to_list`).
        """
        if self.layout.ndim == 0:
            raise UserError(f"to_rows of '{self.name}': a scalar has no rows")
        canonical = Layout.packed(self.layout.dims)
        leading = leading_dims(canonical) or 0
        if leading > 1:
            raise UserError(
                f"to_rows of '{self.name}': a row of {canonical.describe()} is itself ragged; "
                "use to_list() or to_padded()"
            )
        return list(self._rows(canonical, leading))

    def row(self, index: int) -> Values:
        """Row `index` of the first dim, as in `to_rows`. Raises UserError if there is no such row."""
        rows = self.to_rows()
        if not 0 <= index < len(rows):
            raise UserError(f"row of '{self.name}': expected an index in 0..{len(rows) - 1}; got {index}")
        return rows[index]

    def to_list(self) -> Any:
        """The valid elements as nested lists of Python numbers; a number for a scalar."""
        elements: Iterator[Any] = iter(self.packed().tolist())
        evaluator, layout = self.batch.evaluator(), Layout.packed(self.layout.dims)

        def nested(k: int, env: dict[Any, int]) -> Any:
            if k == layout.ndim:
                return next(elements)
            dim = layout.dims[k]
            count = evaluator.value(layout.valid_extent(k, layout.dims), env)
            if k == layout.ndim - 1:
                return [next(elements) for _ in range(count)]
            return [nested(k + 1, {**env, dim: i}) for i in range(count)]

        return nested(0, {})

    def __dlpack__(self, **kwargs: Any) -> Any:
        """The flat values for another framework, without a copy."""
        try:
            return self.values.__dlpack__(**kwargs)
        except BufferError as error:
            raise UnsupportedError(
                f"DLPack of '{self.name}': NumPy does not export {self.dtype}: {error}; "
                "pass values.view('int16') and reinterpret it"
            ) from None

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device of the values: the CPU."""
        kind, index = self.values.__dlpack_device__()
        return int(kind), int(index)

    def __repr__(self) -> str:
        bound = ", ".join(f"{k}={v}" for k, v in self.sizes.items())
        return (
            f"RaggedArray {self.name}{self.layout.describe()}: {self.dtype}, "
            f"{len(self.values)} elements{', ' if bound else ''}{bound}"
        )

    def _rows(self, canonical: Layout, leading: int) -> Iterator[Values]:
        layout, batch = self.layout.plain, self.batch
        own = None if layout.relations else leading_dims(layout)
        elements: Values
        if own == 1 and layout.order[0] == 0:
            inside = layout.order[1:]
            axes = tuple(inside.index(k) for k in range(1, layout.ndim))
            for box in boxes(layout, batch):
                yield box.of(self.values).transpose(axes)
        elif own == 0:
            (box,) = boxes(layout, batch)
            whole = box.of(self.values).transpose(np.argsort(layout.order))
            yield from (whole[index, ...] for index in range(len(whole)))
        else:
            elements, done = self.packed(), 0
            elements.setflags(write=False)
            for box in boxes(canonical, batch):
                shapes = [box.valid] if leading else [box.valid[1:]] * box.valid[0]
                for shape in shapes:
                    count = int(np.prod(shape, dtype=np.int64))
                    yield elements[done : done + count].reshape(shape)
                    done += count


def ragged(
    rows: Any,
    like: Tensor | Layout,
    lengths: Mapping[str, npt.ArrayLike] | None = None,
    sizes: Mapping[str, int] | None = None,
    *,
    dtype: str | None = None,
    name: str | None = None,
) -> RaggedArray:
    """A ragged array of nested lists or arrays, in the packed layout of a tensor, or in a layout.

    `cora.ragged([[1, 2, 3], [4], []], A)`; see `RaggedArray.from_rows`.
    """
    return RaggedArray.from_rows(rows, like, lengths, sizes, dtype=dtype, name=name)


def _row_lengths(layout: Layout, where: str) -> UFun:
    """The length function of a layout [batch][lens[batch]][constant dims...]."""
    match layout.dims:
        case (batch, Dim(extent=Call(fun=fun, args=(arg,))), *inner):
            constant = not any(free_dims(d.extent) for d in (batch, *inner))
            if arg == batch and isinstance(fun.definition, Given) and constant:
                return fun
        case _:
            pass
    raise UserError(
        f"{where}: expected dims [batch][lens[batch]] and further ones that depend on no other; "
        f"got {layout.describe()}"
    )


def _row_starts(offsets: npt.ArrayLike, where: str) -> npt.NDArray[np.int64]:
    """The offsets, validated: integers from 0 upwards."""
    starts = np.asarray(offsets)
    if starts.dtype.kind not in "iu" or starts.ndim != 1:
        raise UserError(
            f"{where}: the offsets must be a flat array of integers; "
            f"got {starts.dtype} of shape {starts.shape}"
        )
    if len(starts) == 0 or starts[0] != 0:
        got = f"{starts[0]} at entry 0" if len(starts) else "no entry"
        raise UserError(f"{where}: the offsets must start at 0; got {got}")
    falling = starts[1:] < starts[:-1]
    if falling.any():
        bad = int(np.argmax(falling)) + 1
        raise UserError(
            f"{where}: the offsets must not decrease; entry {bad} is {starts[bad]} after {starts[bad - 1]}"
        )
    return starts.astype(np.int64, casting="unsafe")


def _part(padded: Values, box: Box) -> Values:
    """The elements of a box of the packed layout in a dense array."""
    index: tuple[Any, ...] = (*box.leading, *map(slice, box.valid), ...)
    view: Values = padded[index]
    return view


def allocate(count: int, dtype: str) -> Values:
    """`count` elements of `dtype`, uninitialized, aligned to 64 bytes; UserError if memory is short."""
    kind = dtypes.to_numpy(dtype)
    try:
        raw = np.empty(count * kind.itemsize + ALIGNMENT_BYTES, np.uint8)
    except (MemoryError, ValueError):
        raise UserError(f"cannot allocate {count:,} elements of {dtype}: not enough memory") from None
    start = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[start : start + count * kind.itemsize].view(kind)


def store(
    elements: Values, layout: Layout, batch: Batch, name: str, dtype: str, fill: float = 0
) -> RaggedArray:
    """A new array with `elements`, flat in row-major order of the indices, and `fill` as padding."""
    values = allocate(stored_size(layout, batch), dtype)
    if not layout.is_packed:
        values.fill(_fill(fill, dtype, f"array '{name}'"))
    scatter(layout, batch, elements, values)
    return RaggedArray(values, layout, batch.lengths, batch.sizes, name, dtype)


def _store_parts(parts: list[Values], layout: Layout, batch: Batch, name: str, dtype: str) -> RaggedArray:
    """`store` of the elements of all `parts`, one after the other; copied once where it is packed."""
    elements = allocate(sum(p.size for p in parts), dtype)
    if parts:
        np.concatenate(parts, out=elements, casting="same_kind")
    if layout.is_packed and layout.is_row_major:
        return RaggedArray(elements, layout, batch.lengths, batch.sizes, name, dtype)
    return store(elements, layout, batch, name, dtype)


def padded_shape(canonical: Layout, batch: Batch, parts: Sequence[Box]) -> tuple[int, ...]:
    """The longest valid extent of each dim; for a dim that depends on no other its extent.

    canonical: the packed layout of the dims; parts: its boxes.
    """
    evaluator = batch.evaluator()
    shape = [0] * canonical.ndim
    for k, dim in enumerate(canonical.dims):
        if not free_dims(dim.extent):
            shape[k] = int(evaluator.value(canonical.valid_extent(k, ())))
    for box in parts:
        outside = len(box.leading)
        for k, n in enumerate((*(i + 1 for i in box.leading), *box.valid)):
            # A dim inside one that is empty has no slice.
            if k <= outside or all(box.valid[: k - outside]):
                shape[k] = max(shape[k], n)
    return tuple(shape)


def _fill(value: float, dtype: str, where: str) -> Any:
    if dtypes.is_float(dtype):
        return value
    low, high = (0, 1) if dtype == "bool" else (dtypes.lowest(dtype), dtypes.highest(dtype))
    if not low <= value <= high or value != int(value):
        raise UserError(f"{where}: the fill {value} is not a value of type {dtype}")
    return int(value)


def _of(like: Tensor | Layout, name: str | None, dtype: str | None) -> tuple[Layout, str, str]:
    """Layout, name and dtype of a new array: those of the tensor, unless they are given."""
    if isinstance(like, Tensor):
        layout, own_name, own_dtype = Layout.packed(like.dims), like.name, like.dtype
    elif isinstance(like, Layout):
        layout, own_name, own_dtype = like, "array", "float32"
    else:
        raise UserError(f"expected a tensor or a Layout; got {type(like).__name__}: {like!r}")
    name = own_name if name is None else name
    return layout, name, dtypes.check_stored(dtype or own_dtype, f"array '{name}'")
