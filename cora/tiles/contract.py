"""What a micro-kernel computes, reads and writes: the contract between tiles and those who call them.

    int32 cora_tile(mr, nv, A, a_row, a_bend, a_k, B, b_k, C, c_row, k, start, R, r_row, packed, p_row, flags, nrem)

computes, for 0 <= r < mr and 0 <= c < n with n = (nv - 1) * lanes + nrem,

    C[r, c] = s[r, c] + sum over 0 <= j < k of A[r, j] * B[j, c]   (+ R[r, c], with RESIDUAL)

where s is 0, or start[c] (START_ROW), or C[r, c] as it was (START_C). With TRIANGLE, row r sums over
0 <= j < k + r instead: the rows of a lower triangle, whose first has its diagonal at j = k - 1.
Products are added one after the other in the order of j, each with one rounding, and the residual last.
So the bits of an element depend neither on the shape, nrem, strides and PACK, nor on where a caller
cuts k into calls with START_C.
k = 0 is legal; without TRIANGLE it gives s (+ R), A and B are not read then, nor is the panel written.

Where elements lie (numbers are int64; strides count elements and may be zero or negative):

    A[r, j]   at A + r * a_row + j * a_k        a transposed A has a_row = 1;
              + r * (r - 1) / 2 * a_bend        rows of a packed triangle grow: a_bend = 1; else 0
    B[j, c]   at B + j * b_k + c
    C[r, c]   at C + r * c_row + c
    R[r, c]   at R + r * r_row + c              only with RESIDUAL
    start[c]  at start + c                      only with START_ROW
    panel     at packed + j * p_row + c         only with PACK: a copy of B, made while it is used

Reads: exactly the elements named above, not one more. Writes: C[r, c] for r < mr and c < n; with PACK
also the panel, for j < k and c < n. A pointer that a call does not use may be anything. Elements are
aligned as their type is; more is not needed. (C, what is beside it, and B are also prefetched, which neither
faults nor changes anything.)

Aliasing: A and B must not overlap what is written, and `packed` must not overlap C, R or start. R and
start may overlap C (R = C adds to it): both are read completely before C is written. C[r, c] must be
distinct elements.

The result is 0; or -1, with nothing read or written, if (mr, nv) is not a shape of the family, nrem is
not in 1..lanes, k is negative, or flags has both starts, PACK with TRIANGLE, or an unknown bit.

With a packing factor p > 1 (`Dot.packing`), the elements of A and B are words of p consecutive operands
of the reduction dim; strides and k count words, and A[r, j] * B[j, c] is the dot product of two words.
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
    "a_bend": "i64",
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
    "p_row": "i64",
    "flags": "i64",
    "nrem": "i64",
}


class Flags(IntFlag):
    """What a call asks for beside the product. At most one of the two starts; without, the start is 0."""

    NONE = 0
    START_ROW = 1
    START_C = 2
    RESIDUAL = 4
    PACK = 8
    TRIANGLE = 16
