"""Arrays as parameters of compiled functions: alignment, emptiness, read-only memory, overlap."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from cora.codegen.abi import param_dtype
from cora.errors import UserError
from cora.ir import dtypes
from cora.storage.array import allocate as allocate

Array = npt.NDArray[Any]


def as_parameter(array: Array) -> Any:
    """A tensor that a compiled function takes, around the memory of a flat array, which it keeps alive."""
    import tvm_ffi

    return tvm_ffi.from_dlpack(carried(array))


def carried(array: Array) -> Array:
    """`array` in the element type that travels, writable as far as DLPack can tell, never of a null stride."""
    if array.size == 0:
        return np.zeros(1, param_dtype(dtypes.from_numpy(array.dtype)))[:0]
    if not array.flags.writeable:
        array = _same_memory(array)
    kind = array.dtype
    if kind.kind in "fiu":
        return array
    return array.view(param_dtype(dtypes.from_numpy(kind)))


def _same_memory(array: Array) -> Array:
    """The memory of a read-only array, for functions that only read it."""
    memory = (ctypes.c_char * array.nbytes).from_address(array.__array_interface__["data"][0])
    memory._owner = array  # type: ignore[attr-defined]
    return np.frombuffer(memory, array.dtype)


def span(array: Array) -> tuple[int, int]:
    """The addresses that a contiguous array occupies: begin and end (exclusive)."""
    begin = int(array.__array_interface__["data"][0])
    return begin, begin + array.nbytes


def refuse_overlap(inputs: list[tuple[str, Array]], outputs: list[tuple[str, Array]]) -> None:
    """UserError if an output shares memory with an input or another output."""
    taken = [(name, *span(a)) for name, a in inputs]
    for name, array in outputs:
        begin, end = span(array)
        for other, b, e in taken:
            if begin < e and b < end:
                raise UserError(f"output '{name}' overlaps '{other}' in memory")
        taken.append((name, begin, end))
