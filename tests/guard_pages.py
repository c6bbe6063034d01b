"""Arrays that touch an inaccessible page: one access too far kills the process instead of passing unseen."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any, Literal

import numpy as np

_PROT_NONE = 0
_LIBC = ctypes.CDLL(None, use_errno=True)


def guarded(array: np.ndarray[Any, Any], side: Literal["end", "begin"] = "end") -> np.ndarray[Any, Any]:
    """A copy of `array` that ends exactly at ("end") or begins exactly after ("begin") an inaccessible page.

    The other side has a page like that too, but up to a page away.

    The result is compact, writable and aligned to its elements (not more, for "end"). It may be empty.
    """
    source = np.ascontiguousarray(array)
    page = mmap.PAGESIZE
    inner = max(1, -(-source.nbytes // page)) * page
    memory = mmap.mmap(-1, inner + 2 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for start in (base, base + page + inner):
        if _LIBC.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(page), _PROT_NONE) != 0:
            raise OSError(ctypes.get_errno(), "mprotect failed")
    offset = page + (inner - source.nbytes if side == "end" else 0)
    result: np.ndarray[Any, Any] = np.ndarray(source.shape, source.dtype, buffer=memory, offset=offset)
    result[...] = source
    return result
