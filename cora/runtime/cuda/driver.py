"""The CUDA driver, by ctypes: what launching kernels takes, and no more.

It works in the primary context of the device, which CUDA's run time, and so PyTorch and others, work in too: memory
and streams of theirs may be used here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cora.errors import InternalError, UnsupportedError

_LIBRARY: Final = "libcuda.so.1"
_COMPUTE_MAJOR: Final = 75
_COMPUTE_MINOR: Final = 76
_MAX_SHARED_OPTIN: Final = 97
#: The attribute of a function that allows it more dynamic shared memory than 48 KiB.
_DYNAMIC_SHARED: Final = 8

_HELP: Final = (
    "a CUDA device is needed to run kernels of target 'cuda' (building them and looking at them needs none): an NVIDIA "
    "GPU with a driver for CUDA 13 (R580 or newer)"
)

Array = npt.NDArray[Any]


class Driver:
    """One device. Methods raise InternalError with the driver's words where it refuses."""

    def __init__(self, library: ctypes.CDLL, device: int) -> None:
        """Take device number `device`; UnsupportedError if there is none."""
        self._library = library
        if library.cuInit(0) != 0:
            raise UnsupportedError(f"cuda: the driver does not start: {_HELP}")
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        if not 0 <= device < count.value:
            raise UnsupportedError(f"cuda: device {device} of {count.value}: {_HELP}")
        number = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(number), ctypes.c_int(device))
        self.device = device
        self._number = number.value
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), number)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
            raise InternalError(f"cuda: {name} failed: {(text.value or b'unknown').decode()} ({code})")

    def enter(self) -> None:
        """Make the device current on this thread; every other method expects that."""
        self._call("cuCtxSetCurrent", self._context)

    def attribute(self, number: int) -> int:
        """An attribute of the device by its number in the driver's enumeration."""
        value = ctypes.c_int()
        self._call(
            "cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(number), ctypes.c_int(self._number)
        )
        return value.value

    @property
    def compute(self) -> tuple[int, int]:
        """The compute capability, e.g. (9, 0)."""
        return self.attribute(_COMPUTE_MAJOR), self.attribute(_COMPUTE_MINOR)

    def name(self) -> str:
        """What the device is called."""
        text = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", text, ctypes.c_int(len(text)), ctypes.c_int(self._number))
        return text.value.decode()

    def load(self, cubin: bytes) -> ctypes.c_void_p:
        """A module from machine code; it stays loaded as long as the process."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(cubin))
        return module

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        """A kernel of a module."""
        found = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(found), module, name.encode())
        return found

    def allocate(self, size_bytes: int) -> int:
        """The address of new device memory, aligned to 256 bytes."""
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size_bytes, 1)))
        return pointer.value

    def free(self, pointer: int) -> None:
        """Give memory back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def upload(self, pointer: int, array: Array, stream: int) -> None:
        """Copy a contiguous array to the device; the array may be reused at once."""
        if array.nbytes:
            source = ctypes.c_void_p(array.__array_interface__["data"][0])
            self._call(
                "cuMemcpyHtoDAsync_v2",
                ctypes.c_uint64(pointer),
                source,
                ctypes.c_size_t(array.nbytes),
                ctypes.c_void_p(stream),
            )

    def download(self, array: Array, pointer: int, stream: int) -> None:
        """Copy from the device to a contiguous array, once everything before on the stream is done."""
        if array.nbytes:
            target = ctypes.c_void_p(array.__array_interface__["data"][0])
            self._call(
                "cuMemcpyDtoHAsync_v2",
                target,
                ctypes.c_uint64(pointer),
                ctypes.c_size_t(array.nbytes),
                ctypes.c_void_p(stream),
            )
        self.synchronize(stream)

    def synchronize(self, stream: int) -> None:
        """Wait for everything on a stream; an error of a kernel on it is raised here."""
        self._call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def launch(
        self,
        function: ctypes.c_void_p,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Any,
        stream: int,
    ) -> None:
        """Run a kernel; `arguments` is an array of the addresses of its arguments."""
        self._call(
            "cuLaunchKernel",
            function,
            *(ctypes.c_uint(n) for n in (*grid, *block)),
            ctypes.c_uint(0),
            ctypes.c_void_p(stream),
            arguments,
            None,
        )


@cache
def open_device(device: int = 0) -> Driver:
    """A device of this machine, opened once; UnsupportedError where there is none."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise UnsupportedError(f"cuda: {error}: {_HELP}") from error
    return Driver(library, device)


def has_device() -> bool:
    """Whether kernels of target 'cuda' can run here."""
    try:
        open_device()
    except UnsupportedError:
        return False
    return True


def as_bytes(array: Array) -> npt.NDArray[np.uint8]:
    """The memory of a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)
