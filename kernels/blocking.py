"""Sizes of the blocks that products are cut into, for the micro-kernels of this machine."""

from __future__ import annotations

from dataclasses import dataclass

import cora

_ROWS, _COLUMNS = cora.tile_shape()


def _panels(columns: int) -> int:
    """The largest multiple of a panel's width that is not above `columns`."""
    return columns // _COLUMNS * _COLUMNS


@dataclass(frozen=True, slots=True)
class Blocking:
    """Sizes of blocks, in elements.

    Attributes:
        rows: of a tile: as many as this machine's micro-kernels have (`cora.tile_shape`).
        columns: of a panel: likewise, so that a micro-kernel reads a panel from end to end.
        row_block: rows of what a worker takes at a time: the panels are copied once for so many.
        column_block: columns of what a worker takes at a time; a multiple of `columns`.
        depth_block: of a reduction that is cut; a multiple of `rows`, so that a triangle's tiles are not.
    """

    rows: int = _ROWS
    columns: int = _COLUMNS
    row_block: int = 1536
    column_block: int = _panels(512)
    depth_block: int = 1020 // _ROWS * _ROWS


#: With so many columns, as with AVX-512, a row of a panel is four cache lines, and is read well where it is in the
#: matrix; one line of each row is not, since rows lie in different pages: then more is worth a copy.
SEVERAL_LINES = 64

BLOCKING = Blocking()
#: Smaller blocks: operands are copied more often, but more workers get equal shares.
FINE = Blocking(row_block=192, column_block=_panels(128))
#: Of a triangle: rows are not cut, since those with long sums come last.
TRIANGLE = Blocking(row_block=1 << 20, column_block=_panels(256))
#: Of a triangle for one worker.
WIDE = Blocking(row_block=1 << 20, column_block=_panels(2048))
