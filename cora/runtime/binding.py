"""From the arguments of a call to the sizes and lengths of a batch: taken where they are known, compared elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cora.errors import UserError
from cora.ir.expr import Dim, Size
from cora.ir.visit import free_dims
from cora.runtime.artifact import Slot
from cora.storage.array import RaggedArray
from cora.storage.lengths import Lengths, frozen, validate_lengths, validate_size

Argument = RaggedArray | npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Batch:
    """The sizes and the lengths (flat int32 arrays) of one batch, by name."""

    sizes: Mapping[str, int]
    lengths: Mapping[str, Lengths]


class Binder:
    """Collects sizes and lengths from several sources; names the first entry in which two of them disagree."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.lengths: dict[str, Lengths] = {}
        self._source: dict[str, str] = {}

    def size(self, name: str, value: object, source: str) -> None:
        """Bind size `name`; UserError if it has another value already."""
        number = validate_size(name, value)
        known = self.sizes.setdefault(name, number)
        origin = self._source.setdefault(name, source)
        if known != number:
            raise UserError(f"size '{name}' is {known} by {origin}, but {number} by {source}")

    def length(self, name: str, values: npt.ArrayLike, source: str) -> None:
        """Bind lengths `name`; UserError if they are invalid or differ from those bound already."""
        array = frozen(validate_lengths(name, values))  # whoever gave them may write to them later
        known = self.lengths.setdefault(name, array)
        origin = self._source.setdefault(name, source)
        if known is array:
            return
        if len(known) != len(array):
            raise UserError(
                f"lengths '{name}': {len(known)} entries by {origin}, but {len(array)} by {source}"
            )
        if not np.array_equal(known, array):
            bad = int(np.argmax(known != array))
            raise UserError(
                f"lengths '{name}': entry {bad} is {known[bad]} by {origin}, but {array[bad]} by {source}"
            )

    def argument(self, slot: Slot, value: object) -> None:
        """Bind what one argument tells: a RaggedArray its batch, an array of a dense tensor its shape."""
        where = f"argument '{slot.tensor.name}'"
        match value:
            case RaggedArray():
                for name, size in value.sizes.items():
                    self.size(name, size, where)
                for name, lengths in value.lengths.items():
                    self.length(name, lengths, where)
            case np.ndarray() if value.ndim == slot.tensor.ndim and is_dense(slot):
                for dim, extent in zip(slot.tensor.dims, value.shape, strict=True):
                    if isinstance(dim.extent, Size):
                        self.size(dim.extent.name, extent, where)

    def batch(self, names: Sequence[str], given: Sequence[tuple[str, tuple[Dim, ...]]]) -> Batch:
        """The batch, complete: `names` are the sizes needed, `given` the length functions with their domains."""
        for name, domain in given:
            if name not in self.lengths:
                raise UserError(f"lengths '{name}' are not known: give them by name, {name}=[...]")
            match domain:
                case (Dim(extent=Size(name=size)),):
                    self.size(size, len(self.lengths[name]), f"lengths '{name}'")
        for size in names:
            if size not in self.sizes:
                raise UserError(f"size '{size}' is not known: give it by name, {size}=...")
        return Batch(self.sizes, self.lengths)


def is_dense(slot: Slot) -> bool:
    """Whether no extent of the tensor depends on a dim, so that an array of its shape can stand for it."""
    return not any(free_dims(d.extent) for d in slot.tensor.dims)
