"""The sizes and lengths of one batch: validation, what can be inferred, and the indices they span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cora.errors import UserError
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Call, Dim, Expr, Size
from cora.ir.ufun import (
    Cuts,
    Descending,
    FusedInner,
    FusedOuter,
    Given,
    Lists,
    Maximum,
    Owners,
    Scan,
    Starts,
    UFun,
)
from cora.ir.visit import walk
from cora.storage.dlpack import from_dlpack, is_foreign
from cora.storage.offsets import table_size

Lengths: TypeAlias = npt.NDArray[np.int32]

LARGEST = 2**31 - 1


def validate_lengths(name: str, values: npt.ArrayLike, count: int | None = None) -> Lengths:
    """The lengths `name` as a flat, contiguous int32 array: `values` itself where it is one.

    count: the number of entries expected (None: any). Raises UserError for values that are not
    integers (bool is not one), for another number of entries, and for a length below 0 or above
    2^31 - 1, naming the first. Takes a few microseconds for a NumPy array: it is on every plan's way.
    """
    array = values if isinstance(values, np.ndarray) else _as_array(name, values)
    kind = array.dtype.kind
    if kind not in "iu":
        raise UserError(f"lengths '{name}': expected integers; got an array of {array.dtype}")
    if array.ndim != 1:
        array = array.reshape(-1)
    n = len(array)
    if count is not None and n != count:
        raise UserError(f"lengths '{name}': expected {count} entries; got {n}")
    if n == 0:
        return np.zeros(0, np.int32)
    # As unsigned integers negative lengths are huge: one pass finds both kinds of bad entries.
    unsigned: npt.NDArray[Any] = array.view(f"u{array.itemsize}") if kind == "i" else array
    limit = min(LARGEST, 2 ** (8 * array.itemsize - 1) - 1) if kind == "i" else LARGEST
    if np.maximum.reduce(unsigned) > limit:
        bad = int(np.argmax(unsigned > limit))
        raise UserError(
            f"lengths '{name}': every entry must be between 0 and 2^31 - 1; "
            f"got {int(array[bad])} at entry {bad}"
        )
    return np.ascontiguousarray(array, dtype=np.int32)


def validate_size(name: str, value: object) -> int:
    """The size `name` as an int. Raises UserError if it is not an integer, or negative."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise UserError(f"size '{name}': expected an integer; got {type(value).__name__}: {value!r}")
    if value < 0:
        raise UserError(f"size '{name}': expected an integer >= 0; got {value}")
    return int(value)


def inputs_of(exprs: Sequence[Expr]) -> tuple[tuple[str, ...], tuple[UFun, ...]]:
    """The sizes and the given length functions that the values of `exprs` rest on.

    Those inside domains and definitions of functions are included; a function stands after the
    functions that its own domain needs.
    """
    sizes: dict[str, None] = {}
    functions: dict[UFun, None] = {}
    seen: set[UFun] = set()

    def visit(e: Expr) -> None:
        for node in walk(e):
            match node:
                case Size(name=name):
                    sizes.setdefault(name)
                case Call(fun=fun):
                    visit_function(fun)
                case _:
                    pass

    def visit_function(fun: UFun) -> None:
        if fun in seen:
            return
        seen.add(fun)
        for dim in fun.domain:
            visit(dim.extent)
        match fun.definition:
            case Given():
                functions.setdefault(fun)
            case Scan(index=index, body=body):
                visit(index.extent)
                visit(body)
            case Maximum(over=over, body=body):
                for dim in over:
                    visit(dim.extent)
                visit(body)
            case FusedOuter(offset=inner) | FusedInner(offset=inner) | Descending(cost=inner):
                visit_function(inner)
            case Starts(owners=inner) | Lists(owners=inner):
                visit_function(inner)
            case Cuts(cost=inner, parts=parts) | Owners(order=inner, parts=parts):
                visit_function(inner)
                visit(parts)

    for e in exprs:
        visit(e)
    return tuple(sizes), tuple(functions)


def bind(
    dims: Sequence[Dim],
    sizes: Mapping[str, int] | None,
    lengths: Mapping[str, npt.ArrayLike] | None,
    where: str,
) -> tuple[dict[str, int], dict[str, Lengths]]:
    """The sizes and lengths that the extents of `dims` need, validated.

    A size that is not given is inferred from a length array over a dim of that size. Further
    entries of `sizes` and `lengths` are ignored: one mapping can serve all arrays of a batch. The
    length arrays are read-only copies. Raises UserError for what is missing or wrong; `where`
    starts the message.
    """
    size_names, functions = inputs_of([d.extent for d in dims])
    given = {} if lengths is None else lengths
    bound = {n: validate_size(n, sizes[n]) for n in size_names if sizes is not None and n in sizes}
    arrays: dict[str, Lengths] = {}
    for fun in functions:
        if fun.name not in given:
            raise UserError(f"{where}: lengths '{fun.name}' are needed: pass lengths={{...}}")
        array = validate_lengths(fun.name, given[fun.name])
        match fun.domain:
            case (Dim(extent=Size(name=name)),):
                bound.setdefault(name, len(array))
        for name in inputs_of([d.extent for d in fun.domain])[0]:
            if name not in bound:
                raise UserError(f"{where}: size '{name}' is needed: pass sizes={{'{name}': ...}}")
        count = max(int(Evaluator(bound, arrays).value(table_size(fun))), 0)
        if len(array) != count:
            raise UserError(f"lengths '{fun.name}': expected {count} entries; got {len(array)}")
        arrays[fun.name] = frozen(array)
    for name in size_names:
        if name not in bound:
            raise UserError(f"{where}: size '{name}' is needed: pass sizes={{'{name}': ...}}")
    return bound, arrays


def frozen(array: Lengths) -> Lengths:
    """A read-only copy of `array`; itself where it is one that owns its data already."""
    if not array.flags.writeable and array.flags.owndata:
        return array
    copy = array.copy()
    copy.setflags(write=False)
    return copy


def valid_indices(
    dims: Sequence[Dim], sizes: Mapping[str, int], lengths: Mapping[str, npt.ArrayLike]
) -> Iterator[tuple[int, ...]]:
    """All index tuples of a tensor over `dims`, in row-major order; a negative extent counts as 0."""
    return Evaluator(sizes, lengths).points(dims)


def _as_array(name: str, values: npt.ArrayLike) -> npt.NDArray[np.generic]:
    if is_foreign(values):
        return from_dlpack(values, None, f"lengths '{name}'")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise UserError(f"lengths '{name}': expected a flat array of integers; {error}") from None
    if array.size == 0 and isinstance(values, (list, tuple)):
        return np.zeros(0, np.int32)  # NumPy takes an empty list for floats
    return array
