"""How a lowered function looks from outside.

It takes one pointer, to a *frame* of 64-bit words: the address of each buffer of the function, in order,
then the value of each size, in order. Buffers are flat arrays, aligned to one element. In a shared library
the function `f` has the C entry point `__tvm_ffi_f` of TVM's calling convention.

One pointer instead of an argument for each buffer makes calls cheap, and compilation too: no generated code
checks the arguments. The run time does, before it fills the frame.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, Final

_IN_MEMORY: Final = {"bfloat16": "uint16", "bool": "int8"}


def memory_dtype(dtype: str) -> str:
    """The type of the words in memory: bfloat16 is carried as uint16, bool as bytes of value 0 or 1."""
    return _IN_MEMORY.get(dtype, dtype)


class Frame:
    """The argument of a lowered function: `words` may be written between calls, `pointer` is passed."""

    __slots__ = ("pointer", "words")

    def __init__(self, words: Iterable[int]) -> None:
        """A frame with these words: addresses, then sizes. It does not keep the arrays alive."""
        values = list(words)
        self.words: Any = (ctypes.c_int64 * max(len(values), 1))(*values)
        pointer: Any = ctypes.c_void_p(ctypes.addressof(self.words))
        # the words live as long as the pointer does; ctypes.cast, which sees to that, takes ten times longer
        pointer.words = self.words
        self.pointer = pointer
