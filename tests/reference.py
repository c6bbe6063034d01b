"""Arrays for tests, and comparison of what a kernel computed with the interpreter's reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from cora.interp import Reference
from cora.ir import dtypes
from cora.ir.tensor import Tensor
from cora.storage.array import RaggedArray, store
from cora.storage.boxes import Batch
from cora.storage.layout import Layout


def array(tensor: Tensor, elements: Any, lengths: Any = None, **sizes: int) -> RaggedArray:
    """An array of `tensor`, packed, with these valid elements in row-major order."""
    held = {n: np.asarray(v, np.int32) for n, v in (lengths or {}).items()}
    values = np.asarray(elements, dtypes.to_numpy(tensor.dtype))
    layout = Layout.packed(tensor.dims)
    return store(values, layout, Batch(sizes, held), tensor.name, tensor.dtype)


def assert_matches(reference: Reference, array: RaggedArray, *, ulps: float = 4) -> None:
    """The valid elements of `array` are those of `reference`, up to `ulps * reference.error`.

    `reference.error` allows one rounding of each operation (in a sum, one of the sum of absolute
    terms times the root of their number); `ulps` is the factor for functions that are good to a few
    ulp and for long serial sums. Integers and bools must be equal. NaN is expected where the
    reference is NaN and nowhere else; infinities have the same sign, and are also accepted where the
    value may round to more than the type can hold. Where the error alone is more than that, a partial
    result may have overflowed, and infinity times 0 is NaN. The message names the first index that differs.
    """
    tensor = reference.tensor
    assert array.dtype == tensor.dtype, f"{tensor.name}: expected {tensor.dtype}; got {array.dtype}"
    elements = array.packed()
    expected = reference.values
    assert elements.shape == expected.shape, (
        f"{tensor.name}: expected {len(expected)} valid elements; got {len(elements)}"
    )
    if not dtypes.is_float(tensor.dtype):
        allowed = np.zeros(len(expected))
        wrong = elements != expected
    else:
        allowed = ulps * reference.error
        wrong = ~_close(elements.astype(np.float64), expected, allowed, tensor.dtype)
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        names = ", ".join(d.name for d in tensor.dims)
        raise AssertionError(
            f"{tensor.name}[{names}]: {np.count_nonzero(wrong)} of {len(expected)} elements are wrong; "
            f"the first at {reference.indices()[first].tolist()}: "
            f"expected {expected[first]!r} +- {allowed[first]:.3g}, got {elements[first]!r}"
        )


def assert_padding_zero(array: RaggedArray) -> None:
    """Every element of the storage that is no valid element is zero (of either sign)."""
    positions = RaggedArray(
        np.arange(len(array.values)), array.layout, array.lengths, array.sizes, array.name, "int64"
    )
    padding = np.ones(len(array.values), np.bool_)
    padding[positions.packed()] = False
    wrong = padding & (array.values != 0)
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise AssertionError(
            f"{array.name}: {np.count_nonzero(wrong)} of {np.count_nonzero(padding)} elements of the "
            f"padding are not zero; the first at offset {first}: {array.values[first]!r}"
        )


def _close(elements: np.ndarray, expected: np.ndarray, allowed: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(expected) & np.isfinite(elements)
        near = finite & (np.abs(elements - expected) <= allowed)
    same = (np.isnan(elements) & np.isnan(expected)) | (elements == expected)
    largest = float(ml_dtypes.finfo(dtypes.to_numpy(dtype)).max)
    overflow = np.isfinite(expected) & (np.abs(expected) + allowed > largest)
    overflowed = overflow & np.isinf(elements) & (np.sign(elements) == np.sign(expected))
    lost = np.isfinite(expected) & (allowed > largest) & np.isnan(elements)
    return near | same | overflowed | lost
