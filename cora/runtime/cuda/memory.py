"""Memory of a GPU: owned by an object, freed with it; and arrays of others that lie there."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cora.errors import UserError
from cora.ir import dtypes
from cora.runtime.cuda.driver import Driver, open_device

Array = npt.NDArray[Any]
#: Of arrays on the device: the widest access of a kernel.
ALIGNMENT_BYTES = 16


class DeviceMemory:
    """Bytes on a device."""

    def __init__(self, driver: Driver, size_bytes: int) -> None:
        """Allocate; InternalError if the device has no room."""
        driver.enter()
        self.driver = driver
        self.size_bytes = size_bytes
        self.pointer = driver.allocate(size_bytes)
        weakref.finalize(self, _free, driver, self.pointer)


def _free(driver: Driver, pointer: int) -> None:
    driver.enter()
    driver.free(pointer)


class DeviceArray:
    """A flat array on a device: the values of a tensor. Other libraries take it by `__cuda_array_interface__`."""

    def __init__(self, count: int, dtype: str, driver: Driver | None = None) -> None:
        """`count` elements of `dtype`, uninitialised, on `driver`'s device (None: the first)."""
        device = open_device() if driver is None else driver
        self.count = count
        self.dtype = dtype
        self.memory = DeviceMemory(device, count * dtypes.itemsize(dtype))

    @staticmethod
    def of(values: npt.ArrayLike, driver: Driver | None = None) -> DeviceArray:
        """A copy of an array (flattened) on the device."""
        host = np.ascontiguousarray(values).reshape(-1)
        dtype = dtypes.check_stored(str(host.dtype), "DeviceArray.of")
        result = DeviceArray(host.size, dtype, driver)
        result.memory.driver.upload(result.pointer, host, 0)
        return result

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        return self.memory.pointer

    def numpy(self) -> Array:
        """A copy in the memory of the host, after all work on the default stream."""
        self.memory.driver.enter()
        host = np.empty(self.count, dtypes.to_numpy(self.dtype))
        self.memory.driver.download(host, self.pointer, 0)
        return host

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        """Version 3 of the interface; bfloat16 goes as its 16 bits."""
        kind = "<u2" if self.dtype == "bfloat16" else np.dtype(self.dtype).str
        return {
            "shape": (self.count,), "typestr": kind, "data": (self.pointer, False), "version": 3, "strides": None,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"DeviceArray({self.count} x {self.dtype})"


def on_device(value: object) -> bool:
    """Whether `value` is an array that lies in a GPU's memory."""
    return isinstance(getattr(value, "__cuda_array_interface__", None), Mapping)


def pointer_of(value: Any, dtype: str, count: int, where: str, *, writable: bool = False) -> int:
    """The address of an array on the device, checked; UserError, starting with `where`, if it does not fit."""
    interface: Mapping[str, Any] = value.__cuda_array_interface__
    pointer, read_only = interface["data"]
    kind = np.dtype(interface["typestr"])
    expected = dtypes.to_numpy(dtype)
    same_bits = dtype == "bfloat16" and kind in (np.uint16, np.int16)
    if kind != expected and not same_bits:
        raise UserError(f"{where}: expected values of type {dtype}; got {kind}")
    shape = tuple(interface["shape"])
    size = int(np.prod(shape, dtype=np.int64))
    if size != count:
        raise UserError(f"{where}: the layout stores {count} elements on this batch; got {size}")
    strides = interface.get("strides")
    if strides is not None and size and tuple(strides) != _contiguous(shape, kind.itemsize):
        raise UserError(f"{where}: the values must be C-contiguous; got strides {strides}")
    if size and pointer % ALIGNMENT_BYTES:
        raise UserError(
            f"{where}: the values must begin at a multiple of {ALIGNMENT_BYTES} bytes, got {pointer:#x}: copy the view"
        )
    if writable and read_only:
        raise UserError(f"{where}: the values of an output must be writable")
    return int(pointer)


def _contiguous(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides: list[int] = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def refuse_overlap(inputs: list[tuple[str, int, int]], outputs: list[tuple[str, int, int]]) -> None:
    """UserError if an output shares device memory with an input or another output; spans are (name, begin, bytes)."""
    taken = [span for span in inputs if span[2]]
    for name, begin, size in outputs:
        for other, first, extent in taken:
            if size and begin < first + extent and first < begin + size:
                raise UserError(f"output '{name}' overlaps '{other}' in memory")
        taken.append((name, begin, size))
