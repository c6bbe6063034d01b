"""What the interpreter is given: arrays matched with tensors, sizes and lengths by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cora.errors import UserError
from cora.interp.points import Indices
from cora.ir.tensor import Tensor
from cora.storage.array import RaggedArray
from cora.storage.lengths import validate_lengths, validate_size


def by_tensor(
    tensors: Sequence[Tensor], given: Mapping[str, RaggedArray] | Sequence[RaggedArray]
) -> dict[Tensor, RaggedArray]:
    """The array of each input tensor; UserError if one is missing, unknown or of another type."""
    names = ", ".join(t.name for t in tensors)
    if isinstance(given, Mapping):
        unknown = sorted(given.keys() - {t.name for t in tensors})
        missing = [t.name for t in tensors if t.name not in given]
        if unknown or missing:
            raise UserError(f"interpret: expected inputs [{names}]; missing {missing}, unknown {unknown}")
        arrays = [given[t.name] for t in tensors]
    else:
        arrays = list(given)
        if len(arrays) != len(tensors):
            raise UserError(f"interpret: expected inputs [{names}]; got {len(arrays)} arrays")
    for tensor, array in zip(tensors, arrays, strict=True):
        if not isinstance(array, RaggedArray):
            kind = type(array).__name__
            raise UserError(f"interpret: input '{tensor.name}' must be a RaggedArray; got {kind}")
        if array.dtype != tensor.dtype:
            raise UserError(
                f"interpret: input '{tensor.name}' must have dtype {tensor.dtype}; got {array.dtype}"
            )
    return dict(zip(tensors, arrays, strict=True))


def bind_sizes(arrays: Mapping[Tensor, RaggedArray], given: Mapping[str, int]) -> dict[str, int]:
    """The run-time sizes by name; UserError if one is negative or two sources disagree."""
    found: dict[str, tuple[str, int]] = {}
    for source, sizes in _sources(arrays, "sizes", given):
        for name, value in sizes.items():
            size = validate_size(name, value)
            first, known = found.setdefault(name, (source, size))
            if known != size:
                raise UserError(f"interpret: size '{name}' is {known} by {first} and {size} by {source}")
    return {name: size for name, (_, size) in found.items()}


def bind_lengths(arrays: Mapping[Tensor, RaggedArray], given: Mapping[str, Any]) -> dict[str, Indices]:
    """The lengths by name, flat in row-major order; UserError if two sources disagree."""
    found: dict[str, tuple[str, Indices]] = {}
    for source, lengths in _sources(arrays, "lengths", given):
        for name, value in lengths.items():
            flat = validate_lengths(name, _entries(value)).astype(np.int64)
            first, known = found.setdefault(name, (source, flat))
            if len(known) != len(flat):
                raise UserError(
                    f"interpret: lengths '{name}' have {len(known)} entries by {first} "
                    f"and {len(flat)} by {source}"
                )
            differing = np.flatnonzero(known != flat)
            if differing.size:
                entry = int(differing[0])
                raise UserError(
                    f"interpret: entry {entry} of lengths '{name}' is {known[entry]} by {first} "
                    f"and {flat[entry]} by {source}"
                )
    return {name: flat for name, (_, flat) in found.items()}


def _sources(
    arrays: Mapping[Tensor, RaggedArray], what: str, given: Mapping[str, Any]
) -> list[tuple[str, Mapping[str, Any]]]:
    """Who says what: each input array, then the keyword argument."""
    by_array = [(f"input '{t.name}'", getattr(a, what)) for t, a in arrays.items()]
    return [*by_array, (f"{what}=", given)]


def _entries(value: Any) -> list[Any]:
    """Nested lists and arrays as one list, in row-major order."""
    if isinstance(value, np.ndarray):
        return list(value.ravel().tolist())
    if isinstance(value, (list, tuple)):
        return [entry for part in value for entry in _entries(part)]
    return [value]
