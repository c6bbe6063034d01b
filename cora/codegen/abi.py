"""How a lowered function looks from outside: the types of its parameters.

The parameters are the buffers of the function in order, each a one-dimensional compact array of any
length, then the sizes in order, as int64 scalars.
"""

from __future__ import annotations

from typing import Final

_CARRIED: Final = {"bfloat16": "uint16", "bool": "int8"}


def param_dtype(dtype: str) -> str:
    """The element type with which an array of `dtype` must be passed.

    bfloat16 travels as uint16 words, bool as int8 bytes of value 0 or 1 (NumPy: `view`, no copy).
    """
    return _CARRIED.get(dtype, dtype)
