"""Arrays of other libraries as NumPy arrays, without a copy (DLPack)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cora.errors import UserError
from cora.ir import dtypes


def is_foreign(value: object) -> bool:
    """Whether `value` is an array of another library that offers its memory by DLPack."""
    return not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__")


def from_dlpack(tensor: Any, dtype: str | None, where: str) -> npt.NDArray[Any]:
    """The memory of `tensor`, which must lie in the CPU's memory, as a NumPy array.

    dtype: the type that is wanted (None: any). NumPy's DLPack does not know bfloat16: where that is
    wanted, a 16-bit integer tensor is taken for its bits. Raises UserError, starting with `where`, for
    a tensor that NumPy cannot take.
    """
    try:
        values: npt.NDArray[Any] = np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{where}: expected a tensor in CPU memory of a type that NumPy knows "
            f"(bfloat16 as its int16 bits); {error}"
        ) from None
    if dtype == "bfloat16" and values.dtype in (np.int16, np.uint16):
        values = values.view(dtypes.to_numpy("bfloat16"))
    return values
