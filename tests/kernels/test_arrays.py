"""Packed tokens from RaggedArrays and NumPy, and back."""

from __future__ import annotations

import numpy as np
import pytest

import cora
from cora.kernels.arrays import tokens

batch = cora.Dim("batch", cora.size("M"))
i = cora.Dim("i", cora.lengths("own", batch)[batch])
A = cora.placeholder("A", [batch, i, cora.Dim("h", 2), cora.Dim("d", 3)])


def test_ragged_arrays_keep_their_memory_and_dims() -> None:
    array = cora.RaggedArray.from_values(np.arange(24, dtype=np.float32), A, {"own": [1, 0, 3]})
    found = tokens("x", array, inner=2)
    assert found.values.shape == (4, 2, 3)
    assert np.shares_memory(found.values, array.values)
    assert found.lengths.tolist() == [1, 0, 3]
    back = found.wrap(found.values * 2)
    assert back.layout == array.layout
    np.testing.assert_array_equal(back.values, array.values * 2)
    narrow = found.wrap(np.ones((4, 2, 5), np.float32))
    assert narrow.to_padded().shape == (3, 3, 2, 5)
    assert found.wrap(np.ones((4, 2), np.float32)).to_padded().shape == (3, 3, 2)


def test_padded_storage_is_packed() -> None:
    layout = cora.Layout.packed(A.dims).with_pad(i, 4)
    array = cora.RaggedArray.empty(layout, {"own": [1, 3]}, dtype="float32", fill=7)
    array.to_layout(layout)
    found = tokens("x", array, inner=2)
    assert found.values.shape == (4, 2, 3)


def test_starts_in_place_of_lengths() -> None:
    x = np.zeros((5, 2), np.float32)
    assert tokens("x", x, None, [0, 2, 2, 5], inner=1).lengths.tolist() == [2, 0, 3]
    assert tokens("x", x[:0], [], inner=1).lengths.tolist() == []


@pytest.mark.parametrize(
    ("lengths", "cu_seqlens", "message"),
    [
        (None, None, "either lengths or cu_seqlens"),
        ([5], [0, 5], "either lengths or cu_seqlens"),
        ([2, 2], None, "add up to 4"),
        ([6, -1], None, "got -1 at entry 1"),
        ([5.0], None, "expected integers"),
        ([[5]], None, "expected integers of one axis"),
        (None, [1, 5], "must start with 0"),
        (None, [0, 6, 5], "got -1 at entry 1"),
        (None, [], "must start with 0"),
    ],
)
def test_lengths_that_do_not_fit(lengths: object, cu_seqlens: object, message: str) -> None:
    with pytest.raises(cora.UserError, match=message):
        tokens("x", np.zeros((5, 2), np.float32), lengths, cu_seqlens, inner=1)


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(cora.UserError, match="expected 3 axes"):
        tokens("x", np.zeros((5, 2), np.float32), [5], inner=2)
    with pytest.raises(cora.UserError, match="float32; got float64"):
        tokens("x", np.zeros((5, 2)), [5], inner=1)
    with pytest.raises(cora.UserError, match="C-contiguous"):
        tokens("x", np.zeros((2, 5), np.float32).T, [5], inner=1)
    with pytest.raises(cora.UserError, match="got list"):
        tokens("x", [[1.0]], [1], inner=1)
    array = cora.RaggedArray.empty(A, {"own": [2]})
    with pytest.raises(cora.UserError, match="expected 3 dims"):
        tokens("x", array, inner=1)
    with pytest.raises(cora.UserError, match="not those of the array"):
        tokens("x", array, [1], inner=2)
