"""Data types: which exist, how they combine, and their extreme values.

Arithmetic on 16-bit floats is carried out in float32, on int8 in int32: those types are for storage.
Index arithmetic (dims, sizes, lengths, offsets) is int64.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import ml_dtypes
import numpy as np

from cora.errors import UserError

INDEX: Final = "int64"
FLOATS: Final = ("float32", "float64", "float16", "bfloat16")
INTS: Final = ("int8", "int32", "int64")
STORED: Final = (*FLOATS, *INTS, "bool")

_COMPUTE: Final = {"float16": "float32", "bfloat16": "float32", "int8": "int32"}
_RANK: Final = {"bool": 0, "int32": 1, "int64": 2, "float32": 3, "float64": 4}


def check_stored(dtype: str, where: str) -> str:
    """Return `dtype` if tensors can hold it; UserError otherwise."""
    if not isinstance(dtype, str) or dtype not in STORED:
        raise UserError(f"{where}: dtype must be one of {', '.join(STORED)}; got {dtype!r}")
    return dtype


def compute_type(dtype: str) -> str:
    """The type in which values loaded from a tensor of `dtype` take part in arithmetic."""
    return _COMPUTE.get(dtype, dtype)


def promote(a: str, b: str) -> str:
    """The common type of two operands (compute types): float beats int, wider beats narrower."""
    return a if _RANK[a] >= _RANK[b] else b


def is_float(dtype: str) -> bool:
    """Whether `dtype` is a floating-point type."""
    return dtype in FLOATS


def is_int(dtype: str) -> bool:
    """Whether `dtype` is an integer type (bool is not)."""
    return dtype in INTS


def itemsize(dtype: str) -> int:
    """Bytes of one element in memory."""
    return int(to_numpy(dtype).itemsize)


def to_numpy(dtype: str) -> np.dtype:
    """The NumPy type that stores `dtype` (bfloat16 comes from ml_dtypes)."""
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def from_numpy(dtype: np.dtype) -> str:
    """The cora name of a NumPy type; UserError if tensors cannot hold it."""
    return check_stored(np.dtype(dtype).name, "array")


@cache
def lowest(dtype: str) -> float | int:
    """The identity of `max`: -inf for floats, the smallest value for integers."""
    return -float("inf") if is_float(dtype) else int(np.iinfo(to_numpy(dtype)).min)


@cache
def highest(dtype: str) -> float | int:
    """The identity of `min`: +inf for floats, the largest value for integers."""
    return float("inf") if is_float(dtype) else int(np.iinfo(to_numpy(dtype)).max)
