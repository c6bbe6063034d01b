"""Sizes of the blocks that products are cut into."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Blocking:
    """Sizes of blocks, in elements.

    Attributes:
        rows: of a tile; 6 is what a processor with AVX-512 has registers for.
        columns: of a panel: four vectors with AVX-512.
        row_block: rows of what a worker takes at a time: the panels are copied once for so many.
        column_block: columns of what a worker takes at a time; a multiple of `columns`.
        depth_block: of a reduction that is cut; a multiple of `rows`, so that a triangle's tiles are not.
    """

    rows: int = 6
    columns: int = 64
    row_block: int = 1536
    column_block: int = 512
    depth_block: int = 1020


BLOCKING = Blocking()
#: Smaller blocks: operands are copied more often, but more workers get equal shares.
FINE = Blocking(row_block=192, column_block=128)
#: Of a triangle: rows are not cut, since those with long sums come last.
TRIANGLE = Blocking(row_block=1 << 20, column_block=256)
#: Of a triangle for one worker.
WIDE = Blocking(row_block=1 << 20, column_block=2048)
