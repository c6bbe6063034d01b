"""Memory of one plan's tables: fixed addresses with room to spare."""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cora.errors import UserError

ALIGNMENT: Final = 64


class Slot(NamedTuple):
    """Where a table lies in its arena: `capacity` entries of `itemsize` bytes from entry number `first`."""

    first: int
    capacity: int
    itemsize: int


class Slots(NamedTuple):
    """The slots of several tables; one without a slot has 0 everywhere. Do not change the lists."""

    addresses: list[int]
    first: list[int]
    capacity: list[int]


class Arena:
    """One buffer that holds tables, each in a slot of its own that is known by the table's key.

    A slot stays where it is until its table needs more than its capacity; the buffer stays where it is
    until the slots need more than `capacity_bytes`. So the tables of batches of similar size lie at the
    same addresses (multiples of 64), and the used part, `buffer[:used_bytes]`, can be copied to a device in
    one piece. An arena belongs to one plan, and to one thread at a time; tables with one key share a slot.
    """

    def __init__(self, capacity_bytes: int = 1 << 20) -> None:
        self._slots: dict[str, Slot] = {}
        self._known: dict[tuple[str, ...], Slots] = {}
        self.used_bytes = 0
        self._allocate(_aligned(max(capacity_bytes, ALIGNMENT)))

    @property
    def capacity_bytes(self) -> int:
        """Size of the buffer."""
        return int(self.buffer.nbytes)

    def slots(self, keys: tuple[str, ...]) -> Slots:
        """The slots of the tables `keys`, in order."""
        known = self._known.get(keys)
        if known is None:
            none = Slot(0, 0, 0)
            slots = [self._slots.get(key, none) for key in keys]
            known = self._known[keys] = Slots(
                [self.address + slot.first * slot.itemsize for slot in slots],
                [slot.first for slot in slots],
                [slot.capacity for slot in slots],
            )
        return known

    def reserve(self, key: str, entries: int, dtype: np.dtype[Any]) -> int:
        """Make room for a table of `entries` under `key`; gives the number of its first entry in the
        buffer.

        A table that fits its slot stays there. Otherwise it gets a new one, and the buffer may move: what
        it held is copied, and arrays that lie in the old one stay valid. Raises UserError if there is no
        memory for it.
        """
        slot = self._slots.get(key)
        if slot is None or slot.capacity < entries:
            # a table that has outgrown its slot will do so again: it gets the larger reserve
            spare = entries // (4 if slot is None else 2)
            size_bytes = _aligned((entries + spare) * dtype.itemsize)
            start = self.used_bytes
            if start + size_bytes > self.capacity_bytes:
                old = self.buffer
                self._allocate(max(start + size_bytes, 2 * self.capacity_bytes))
                self.buffer[:start] = old[:start]
            self.used_bytes = start + size_bytes
            slot = Slot(start // dtype.itemsize, size_bytes // dtype.itemsize, dtype.itemsize)
            self._slots[key] = slot
            self._known.clear()
        return slot.first

    def _allocate(self, size_bytes: int) -> None:
        try:
            memory = np.empty(size_bytes + ALIGNMENT, np.uint8)
        except MemoryError:
            raise UserError(f"prelude: no memory for {size_bytes} bytes of tables") from None
        address = address_of(memory)
        skip = -address % ALIGNMENT
        self.buffer: NDArray[np.uint8] = memory[skip : skip + size_bytes]
        self.address = address + skip
        self.int32: NDArray[np.int32] = self.buffer.view(np.int32)
        self.int64: NDArray[np.int64] = self.buffer.view(np.int64)


def address_of(array: NDArray[Any]) -> int:
    """Where the first entry of `array` lies."""
    if array.size and array.flags.writeable and array.flags.c_contiguous:
        buffer: Any = array  # NumPy's stubs do not declare it for Python before 3.12
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))  # five times faster than below
    return int(array.__array_interface__["data"][0])


def _aligned(size_bytes: int) -> int:
    """The smallest multiple of the alignment that is not below `size_bytes`."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT
