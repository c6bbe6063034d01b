"""What a micro-kernel computes, and what it reads and writes: the contract between callers and tiles.

    int32 cora_tile(mr, nv, A, a_row, a_k, B, b_k, C, c_row, k, start, R, r_row, packed, flags, nrem)

computes, for 0 <= r < mr and 0 <= c < n with n = (nv - 1) * lanes + nrem,

    C[r, c] = s[r, c] + sum over 0 <= j < k of A[r, j] * B[j, c]  (+ R[r, c], with RESIDUAL)

where s is 0, or start[c] (START_ROW), or C[r, c] as it was (START_C). Every product is added with one rounding, in
the order of j, and the residual last: an element's bits depend on neither mr, nv nor nrem, nor on the flag PACK.
k = 0 is legal and gives s (+ R); then A and B are not read.

Where elements lie (numbers are int64; strides count elements and may be negative or zero):

    A[r, j]  at A + r * a_row + j * a_k         so a transposed A has a_row = 1
    B[j, c]  at B + j * b_k + c                 strided rows, or a packed panel: b_k = nv * lanes
    C[r, c]  at C + r * c_row + c
    R[r, c]  at R + r * r_row + c               only with RESIDUAL
    start[c] at start + c                       only with START_ROW
    packed   at packed + j * nv * lanes + c     only with PACK, which copies B into a panel as it is used

Reads: exactly the elements named above, not one more. Writes: C[r, c] for r < mr and c < n, and with PACK the whole
panel, k * nv * lanes elements, in which columns c >= n get unspecified values (reading the panel with the same nv
and nrem does not touch them). Pointers that a call does not use may be anything. Elements are aligned as their
type is, no more.

Aliasing: neither A nor B may overlap what is written, nor may `packed` overlap C, R or start. R and start may
overlap C (R = C adds to it): both are read completely before C is written. Distinct (r, c) must be distinct
elements of C.

The result is 0; or -1, with nothing written, if (mr, nv) is not a shape of the family, nrem is not in 1..lanes, k is
negative, or flags has both starts or an unknown bit.

With a packing factor p > 1 (`Dot.packing`), A and B hold words of p consecutive elements of the reduction dim; "element",
strides and k then count words, and the product is the dot product of two words.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag
from typing import Final

#: The name of the entry; hidden, so that each library has its own.
SYMBOL: Final = "cora_tile"

#: The arguments in order, with LLVM's types.
ARGUMENTS: Final[Mapping[str, str]] = {
    "mr": "i64",
    "nv": "i64",
    "A": "ptr",
    "a_row": "i64",
    "a_k": "i64",
    "B": "ptr",
    "b_k": "i64",
    "C": "ptr",
    "c_row": "i64",
    "k": "i64",
    "start": "ptr",
    "R": "ptr",
    "r_row": "i64",
    "packed": "ptr",
    "flags": "i64",
    "nrem": "i64",
}


class Flags(IntFlag):
    """What a call asks for beside the product. At most one of the two starts; without, the start is 0."""

    START_ROW = 1
    START_C = 2
    RESIDUAL = 4
    PACK = 8
