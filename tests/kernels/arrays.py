"""Arrays for the tests of kernels: matrices in the layout that a kernel expects, and results as matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import cora

Matrix = np.ndarray


def stored(
    kernel: cora.Kernel,
    name: str,
    parts: Sequence[Matrix],
    lengths: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None,
) -> cora.RaggedArray:
    """The input `name`, one dense part for each index of its first dim; storage padding holds NaN."""
    layout = kernel.layout(name)
    values = np.concatenate([np.zeros(0), *(np.asarray(p).reshape(-1) for p in parts)]).astype(np.float32)
    known = {f: v for f, v in lengths.items() if f in _functions(layout)}
    packed = cora.RaggedArray.from_values(values, cora.Layout.packed(layout.dims), known, sizes, name=name)
    return packed.to_layout(layout, fill=np.nan)


def unset(kernel: cora.Kernel, name: str, lengths: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """An array for the output `name`, full of NaN."""
    layout = kernel.layout(name)
    known = {f: v for f, v in lengths.items() if f in _functions(layout)}
    return cora.RaggedArray.empty(layout, known, sizes, fill=np.nan, name=name)


def _functions(layout: cora.Layout) -> set[str]:
    """The names of the length functions of a layout, as it is written."""
    text = str(layout)
    return {name for name in ("m", "n", "k", "lens") if f"{name}[" in text}


def assert_product(result: Matrix, expected: Matrix, magnitude: Matrix, terms: int) -> None:
    """`result` is `expected` but for the rounding of a sum of `terms` products.

    magnitude: the sum of the absolute terms of each element, which its error is relative to.
    """
    assert result.shape == expected.shape
    allowed = 2.0**-23 * (4 + np.sqrt(terms)) * (magnitude + 1e-30)
    wrong = ~(np.abs(result - expected) <= allowed)
    if wrong.any():
        first = tuple(int(x) for x in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{np.count_nonzero(wrong)} of {wrong.size} elements are wrong, the first at {first}: "
            f"expected {expected[first]}, got {result[first]}"
        )
