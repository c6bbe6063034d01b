"""Which schedule of a batch of products suits its shapes: rules of thumb, measured on a core of Zen 4 and of Zen 3."""

from __future__ import annotations

from collections.abc import Sequence

from cora.kernels.blocking import BLOCKING, SEVERAL_LINES

#: A right operand of so many numbers stays in a core's own cache, and is not worth a copy. Nor is one that so few rows
#: are multiplied with. By whether a row of a panel is several cache lines: one line of each row is read slowly.
_CACHED = {True: 1 << 16, False: 1 << 14}
_FEW_ROWS = {True: 96, False: BLOCKING.rows}
#: Blocks that each worker should get, for shares that differ by a few per cent.
_BLOCKS = 8


def suited(
    m: Sequence[int],
    n: Sequence[int],
    k: Sequence[int],
    workers: int = 1,
    *,
    panel: int = BLOCKING.columns,
) -> str:
    """The name of the variant of `vgemm` for matrices that are stored by rows; results are the same bits.

    Args:
        m, n, k: the lengths of the batch.
        workers: how many share it.
        panel: columns of a panel: by default those of this machine's micro-kernels.
    """
    several = panel >= SEVERAL_LINES
    small = total = blocks = 0
    for rows, columns, depth in zip(m, n, k, strict=True):
        work = int(rows) * int(columns) * int(depth)
        total += work
        small += work if rows <= _FEW_ROWS[several] or columns * depth <= _CACHED[several] else 0
        blocks += -(-int(columns) // BLOCKING.column_block) * -(-int(rows) // BLOCKING.row_block)
    if 2 * small > total:
        return "uncopied"
    return "tiled" if workers == 1 or blocks >= _BLOCKS * workers else "tiled_fine"
