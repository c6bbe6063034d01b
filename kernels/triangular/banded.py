"""A banded matrix times a dense one: each row has numbers only near the diagonal."""

from __future__ import annotations

import cora


def banded_matmul() -> cora.Tensor:
    """The output C[i, j], n x width, of a banded n x n matrix times a dense one.

    Row r has numbers in columns max(0, r - below) to min(n - 1, r + above), stored one behind another and row
    after row: nothing outside the band, nor outside the matrix. Sizes: `n`, `width`, `below`, `above`.

    The inputs are, in the order of their use:
        band: float32 [row, offset]: the packed rows.
        B: float32 [n, width].
    """
    n, width, below, above = (cora.size(name) for name in ("n", "width", "below", "above"))
    i, j = cora.Dim("i", n), cora.Dim("j", width)

    def band_of(name: str, row: cora.Dim) -> cora.Dim:
        first = cora.maximum(row - below, 0)
        return cora.Dim(name, cora.minimum(row + above + 1, n) - first)

    row = cora.Dim("row", n)
    band = cora.placeholder("band", [row, band_of("offset", row)])
    B = cora.placeholder("B", [cora.Dim("x", n), j])
    p = band_of("p", i)
    value = cora.sum(band[i, p] * B[cora.maximum(i - below, 0) + p, j], over=p)
    return cora.compute("C", [i, j], value)
