"""Which schedule of a batch of products suits its shapes: a rule of thumb, measured on one Zen 4 core."""

from __future__ import annotations

from collections.abc import Sequence

from cora.kernels.blocking import BLOCKING

#: A right operand of so many numbers stays in a core's own cache, and is not worth a copy.
_CACHED = 1 << 16
#: Nor is one that so few rows are multiplied with.
_FEW_ROWS = 96
#: Blocks that each worker should get, for shares that differ by a few per cent.
_BLOCKS = 8


def suited(m: Sequence[int], n: Sequence[int], k: Sequence[int], workers: int = 1) -> str:
    """The name of the variant of `vgemm` for matrices that are stored by rows; results are the same bits.

    Args:
        m, n, k: the lengths of the batch.
        workers: how many share it.
    """
    small = total = blocks = 0
    for rows, columns, depth in zip(m, n, k, strict=True):
        work = int(rows) * int(columns) * int(depth)
        total += work
        small += work if rows <= _FEW_ROWS or columns * depth <= _CACHED else 0
        blocks += -(-int(columns) // BLOCKING.column_block) * -(-int(rows) // BLOCKING.row_block)
    if 2 * small > total:
        return "uncopied"
    return "tiled" if workers == 1 or blocks >= _BLOCKS * workers else "tiled_fine"
