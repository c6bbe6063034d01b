"""Reading nested rows: the elements in order, and the sizes and lengths that their shape tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cora.errors import UserError
from cora.ir import dtypes
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Call, Dim, Expr, Size
from cora.ir.ufun import Given, UFun
from cora.storage.boxes import Batch, Values
from cora.storage.extents import clamp
from cora.storage.layout import closure
from cora.storage.lengths import Lengths, bind, inputs_of, validate_lengths, validate_size

Index = tuple[int, ...]


def read_rows(
    rows: Any,
    dims: Sequence[Dim],
    sizes: Mapping[str, int] | None,
    lengths: Mapping[str, npt.ArrayLike] | None,
    dtype: str,
    where: str,
) -> tuple[list[Values], Batch]:
    """The elements of `rows` (nested lists or arrays) in row-major order, in parts, and their batch.

    Sizes and lengths that are not given are read off the extents that are a bare size, or a bare
    length of dims (`lens[batch]`); the length of a row that does not occur is 0. All other extents
    are checked. Raises UserError, naming the entry, where the rows contradict them or one another,
    and where a size or a length can be told neither from the rows nor from what is given.
    """
    reader = _Reader(tuple(dims), where)
    for name in inputs_of([d.extent for d in dims])[0]:
        if sizes is not None and name in sizes:
            reader.sizes[name] = validate_size(name, sizes[name])
    reader.read(0, rows, {})
    batch = reader.batch(lengths)
    reader.check(batch)
    return checked_parts(reader.parts, dtype, where), batch


def checked_parts(parts: Sequence[Values], dtype: str, where: str) -> list[Values]:
    """The non-empty `parts`, each flat, once it is sure that their elements can become `dtype`.

    Raises UserError for floats given for integers, for numbers given for bools, and for integers
    that do not fit.
    """
    target = dtypes.to_numpy(dtype)
    filled = [p.reshape(-1) for p in parts if p.size]
    for part in filled:
        if part.dtype == target:
            continue
        if not np.can_cast(part.dtype, target, "same_kind"):
            raise UserError(f"{where}: expected elements of type {dtype}; got {part.dtype}")
        if dtypes.is_int(dtype) and part.dtype.kind in "iu":
            info = np.iinfo(target)
            for extreme in (part.min(), part.max()):
                if not info.min <= int(extreme) <= info.max:
                    raise UserError(f"{where}: the element {int(extreme)} does not fit {dtype}")
    return filled


class _Reader:
    """What has been seen of the rows so far."""

    def __init__(self, dims: tuple[Dim, ...], where: str) -> None:
        self.dims = dims
        self.where = where
        self.sizes: dict[str, int] = {}
        self.seen: dict[UFun, dict[Index, int]] = {}
        self.parts: list[Values] = []
        # (dim, entries found, outer indices) of every slice: checked when the batch is known.
        self.slices: list[tuple[int, int, Index]] = []

    def read(self, k: int, item: Any, outer: dict[Expr, int]) -> None:
        """Read `item`, the slice of dims k.. at the indices `outer`."""
        if k == len(self.dims):
            self.parts.append(self._array(item, outer, 0))
        elif not isinstance(item, (list, tuple)) or k == len(self.dims) - 1:
            array = self._array(item, outer, len(self.dims) - k)
            for j in range(k, len(self.dims)):
                self._box(k, j, array.shape, outer)
            self.parts.append(array)
        else:
            self._slice(k, len(item), outer)
            for index, part in enumerate(item):
                self.read(k + 1, part, {**outer, self.dims[k]: index})

    def batch(self, lengths: Mapping[str, npt.ArrayLike] | None) -> Batch:
        """The sizes and lengths: given ones first, then those seen."""
        given = dict(lengths or {})
        functions = inputs_of([d.extent for d in self.dims])[1]
        for fun in functions:  # what lengths tell about sizes, before lengths are made from sizes
            match fun.domain:
                case (Dim(extent=Size(name=name)),) if fun.name in given:
                    self.sizes.setdefault(name, len(validate_lengths(fun.name, given[fun.name])))
        for fun in functions:
            if fun.name not in given:
                given[fun.name] = self._lengths(fun, given)
        return Batch(*bind(self.dims, self.sizes, given, self.where))

    def check(self, batch: Batch) -> None:
        """Every slice has as many entries as its extent says."""
        evaluator = batch.evaluator()
        counts = [clamp(d.extent) for d in self.dims]
        for k, found, outer in self.slices:
            env: dict[Expr, int] = dict(zip(self.dims, outer, strict=False))
            expected = evaluator.value(counts[k], env)
            if found != expected:
                at = "".join(f"[{i}]" for i in outer)
                raise UserError(
                    f"{self.where}: expected {expected} entries of dim '{self.dims[k].name}' "
                    f"(extent {self.dims[k].extent}) in rows{at}; got {found}"
                )

    def _box(self, k: int, j: int, shape: Index, outer: dict[Expr, int]) -> None:
        """Dim j of a dense block of dims k..: one slice for all indices that its extent depends on."""
        inside = [d for d in closure(self.dims, j) if d not in outer]
        ranges = [shape[p - k] if self.dims[p] in inside else 1 for p in range(k, j)]
        for index in np.ndindex(*ranges):
            self._slice(j, shape[j - k], {**outer, **dict(zip(self.dims[k:j], index, strict=True))})

    def _slice(self, k: int, found: int, outer: dict[Expr, int]) -> None:
        self.slices.append((k, found, tuple(outer.values())))
        match self.dims[k].extent:
            case Size(name=name):
                self.sizes.setdefault(name, found)
            case Call(fun=fun, args=args) if isinstance(fun.definition, Given):
                if all(a in outer for a in args):
                    index = tuple(outer[a] for a in args)
                    self.seen.setdefault(fun, {}).setdefault(index, found)

    def _lengths(self, fun: UFun, known: Mapping[str, Any]) -> Lengths:
        """The lengths `fun` from the slices seen."""
        readable = any(
            isinstance(d.extent, Call)
            and d.extent.fun == fun
            and all(isinstance(a, Dim) for a in d.extent.args)
            for d in self.dims
        )
        if not readable:
            raise UserError(
                f"{self.where}: lengths '{fun.name}' cannot be read off the rows: pass "
                f"lengths={{'{fun.name}': ...}}"
            )
        for name in inputs_of([d.extent for d in fun.domain])[0]:
            if name not in self.sizes:
                raise UserError(
                    f"{self.where}: size '{name}' cannot be read off the rows: pass sizes={{'{name}': ...}}"
                )
        seen = self.seen.get(fun, {})
        points = Evaluator(self.sizes, known).points(fun.domain)
        return np.array([seen.get(point, 0) for point in points], np.int32)

    def _array(self, item: Any, outer: dict[Expr, int], ndim: int) -> Values:
        at = "rows" + "".join(f"[{i}]" for i in outer.values())
        try:
            array = np.asarray(item)
        except (ValueError, TypeError) as error:
            raise UserError(f"{self.where}: {at}: {error}") from None
        if array.ndim != ndim:
            names = ", ".join(d.name for d in self.dims[len(outer) :])
            raise UserError(
                f"{self.where}: {at}: expected {ndim} levels of nesting [{names}]; got {array.ndim}"
            )
        if array.dtype.kind not in "biuf" and array.dtype != dtypes.to_numpy("bfloat16"):
            raise UserError(f"{self.where}: {at}: expected numbers; got {array.dtype}")
        return array
