"""RaggedArray: round trips, views without copies, and every refusal."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from cora.errors import CoraError, UnsupportedError, UserError
from cora.ir import dtypes
from cora.ir.expr import Dim
from cora.ir.tensor import Tensor
from cora.lang import define
from cora.lang.define import Lengths
from cora.storage.array import RaggedArray, ragged
from cora.storage.boxes import leading_dims
from cora.storage.layout import Layout
from cora.storage.lengths import bind, valid_indices, validate_lengths
from tests.storage.random_layouts import Case, random_case

M = define.size("M")
BATCH = Dim("batch", M)
LENS: Lengths = define.lengths("lens", BATCH)
POS = Dim("pos", LENS[BATCH])
WIDTH = Dim("width", define.size("W"))
A: Tensor = define.placeholder("A", [BATCH, POS])
ROWS = [[1, 2, 3], [4], []]


def filled(case: Case) -> RaggedArray:
    """1, 2, 3.. in the valid elements in the order of the indices, NaN in the padding."""
    array = RaggedArray.empty(case.layout, case.lengths, case.sizes, fill=np.nan)
    count = len(list(valid_indices(case.layout.dims, case.sizes, case.lengths)))
    packed = RaggedArray.from_values(
        np.arange(1, count + 1, dtype=np.float32),
        Layout.packed(case.layout.dims),
        case.lengths,
        case.sizes,
    )
    return packed.to_layout(array.layout, fill=np.nan)


def random_cases() -> list[Case]:
    rng = random.Random(11)
    return [random_case(rng, padded=i % 3 > 0, reordered=i % 2 > 0) for i in range(120)]


def test_the_first_example() -> None:
    a = ragged(ROWS, A)
    assert a.to_list() == [[1.0, 2.0, 3.0], [4.0], []]
    assert (a.name, a.dtype, a.sizes) == ("A", "float32", {"M": 3})
    assert a.lengths["lens"].tolist() == [3, 1, 0]
    assert a.lengths["lens"].dtype == np.int32
    assert a.numpy().tolist() == [1, 2, 3, 4]
    assert a.values.ctypes.data % 64 == 0
    assert repr(a) == "RaggedArray A[batch: M][pos: lens[batch]]: float32, 4 elements, M=3"


def test_random_layouts_keep_every_element() -> None:
    elements = 0
    for case in random_cases():
        array = filled(case)
        dims, batch = case.layout.dims, (case.sizes, case.lengths)
        indices = list(valid_indices(dims, *batch))
        elements += len(indices)
        assert array.packed().tolist() == list(range(1, len(indices) + 1))
        assert np.isnan(array.values).sum() == len(array.values) - len(indices)
        nested = array.to_list()
        for value, index in enumerate(indices, start=1):
            item = nested
            for i in index:
                item = item[i]
            assert item == value
        padded = array.to_padded(fill=-1)
        for value, index in enumerate(indices, start=1):
            assert padded[index] == value
        assert (padded == -1).sum() == padded.size - len(indices)
        again = RaggedArray.from_padded(padded, case.layout, case.lengths, case.sizes)
        assert again.packed().tolist() == array.packed().tolist()
        assert not np.isnan(again.values).any()
        back = ragged(nested, case.layout, case.lengths, case.sizes)
        assert back.packed().tolist() == array.packed().tolist()
    assert elements > 1000


def test_rows_of_random_layouts_are_those_of_the_list() -> None:
    compared = 0
    for case in random_cases():
        array = filled(case)
        if (leading_dims(Layout.packed(case.layout.dims)) or 0) > 1:
            with pytest.raises(UserError, match="itself ragged"):
                array.to_rows()
            continue
        rows = array.to_rows()
        nested = array.to_list()
        assert len(rows) == len(nested)
        for row, expected in zip(rows, nested, strict=True):
            assert np.array_equal(row.reshape(-1), np.array(flat(expected), np.float32))
            compared += 1
    assert compared > 100


def flat(nested: Any) -> list[Any]:
    if not isinstance(nested, list):
        return [nested]
    return [x for part in nested for x in flat(part)]


@pytest.mark.parametrize("lens", [[], [0], [0, 0], [0, 3, 0, 0], [1], [7, 1, 1, 1]])
@pytest.mark.parametrize("order", [("batch", "pos", "head"), ("batch", "head", "pos")])
@pytest.mark.parametrize("multiple", [1, 4])
def test_hostile_lengths(lens: list[int], order: tuple[str, ...], multiple: int) -> None:
    head = Dim("head", 2)
    layout = Layout.packed([BATCH, POS, head]).with_pad(POS, multiple).with_order(order)
    rows = [np.arange(2 * n, dtype=np.float32).reshape(n, 2) + 1 for n in lens]
    array = RaggedArray.from_rows(rows, layout)
    assert array.sizes == {"M": len(lens)}
    assert array.lengths["lens"].tolist() == lens
    assert [r.tolist() for r in array.to_rows()] == [r.tolist() for r in rows]
    assert array.to_list() == [r.tolist() for r in rows]
    assert array.to_padded().shape == (len(lens), max(lens, default=0), 2)
    assert array.values.sum() == sum(r.sum() for r in rows)
    for row in array.to_rows():
        assert row.size == 0 or np.shares_memory(row, array.values)


def test_rows_are_views_where_they_lie_so() -> None:
    array = ragged(ROWS, Layout.packed(A.dims).with_pad(POS, 4))
    array.row(0)[1] = 20
    assert array.to_list() == [[1, 20, 3], [4], []]
    dense = ragged(ROWS, Layout.packed(A.dims).with_pad(POS, to_max=True))
    dense.row(1)[0] = 40
    assert dense.to_list() == [[1, 2, 3], [40], []]
    vector = ragged([1, 2], define.placeholder("v", [BATCH]))
    vector.to_rows()[1][...] = 5
    assert vector.to_list() == [1, 5]


def test_numpy_and_packed_do_not_copy() -> None:
    values = np.arange(4, dtype=np.float32)
    array = RaggedArray.from_values(values, A, {"lens": [3, 1, 0]})
    assert np.shares_memory(array.numpy(), values)
    assert np.shares_memory(array.packed(), values)
    assert np.shares_memory(np.from_dlpack(array), values)
    assert array.__dlpack_device__() == (1, 0)
    again = RaggedArray.from_dlpack(values, A, {"lens": [3, 1, 0]})
    assert np.shares_memory(again.values, values)


def test_lengths_are_read_only_copies() -> None:
    lens = np.array([1, 2], np.int32)
    array = RaggedArray.empty(A, {"lens": lens})
    lens[0] = 9
    assert array.lengths["lens"].tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        array.lengths["lens"][0] = 5


@pytest.mark.parametrize("dtype", dtypes.STORED)
def test_every_dtype(dtype: str) -> None:
    rows = [[True, False], [True]] if dtype == "bool" else [[1, 2], [3]]
    layout = Layout.packed(A.dims).with_pad(POS, 4)
    array = ragged(rows, layout, dtype=dtype)
    assert array.dtype == dtype
    assert array.values.dtype == dtypes.to_numpy(dtype)
    assert array.to_list() == rows
    assert array.to_padded().dtype == array.values.dtype
    assert [r.tolist() for r in array.to_rows()] == rows
    assert RaggedArray.empty(layout, {"lens": [1]}, dtype=dtype, fill=1).values.tolist() == [1] * 4


def test_bfloat16_passes_as_bits() -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    array = RaggedArray.from_dlpack(bits, A, {"lens": [2]}, dtype="bfloat16")
    assert array.to_list() == [[1.0, 2.0]]
    assert np.shares_memory(array.values, bits)
    with pytest.raises(UnsupportedError, match="bfloat16"):
        np.from_dlpack(array)


def test_sizes_and_lengths_are_read_off_where_they_are_bare() -> None:
    x = define.placeholder("x", [BATCH, POS, WIDTH])
    array = ragged([[[1, 2]], [], [[3, 4], [5, 6]]], x)
    assert array.sizes == {"M": 3, "W": 2}
    assert array.lengths["lens"].tolist() == [1, 0, 2]
    # An array tells the sizes inside an empty dim, a list does not.
    assert ragged([np.zeros((0, 5))], x).sizes == {"M": 1, "W": 5}
    with pytest.raises(UserError, match="size 'W' is needed"):
        ragged([[]], x)
    assert ragged([[]], x, sizes={"W": 5}).sizes == {"M": 1, "W": 5}
    assert ragged([], A).to_list() == []


def test_lengths_of_two_dims_are_read_off() -> None:
    head = Dim("head", 2)
    per_head = define.lengths("n", BATCH, head)
    x = define.placeholder("x", [BATCH, head, Dim("k", per_head[BATCH, head])])
    rows = [[[1.0], [2.0, 3.0]], [[], [4.0]]]
    array = ragged(rows, x)
    assert array.lengths["n"].tolist() == [1, 2, 0, 1]
    assert array.to_list() == rows


def test_derived_extents_are_checked() -> None:
    row = Dim("row", define.size("N"))
    t = define.placeholder("t", [row, Dim("col", row + 1)])
    assert ragged([[1], [2, 3]], t).to_list() == [[1], [2, 3]]
    with pytest.raises(UserError, match=r"expected 2 entries of dim 'col'.*rows\[1\]; got 1"):
        ragged([[1], [2]], t)
    q, kv = define.lengths("q", BATCH), define.lengths("kv", BATCH)
    i = Dim("i", q[BATCH])
    j = Dim("j", kv[BATCH] - q[BATCH] + i + 1)
    x = define.placeholder("x", [BATCH, i, j])
    with pytest.raises(UserError, match="lengths 'kv' cannot be read off"):
        ragged([[[1]]], x)
    assert ragged([[[], [1]]], x, {"kv": [1]}).to_list() == [[[], [1]]]  # 1 - 2 + 0 + 1 = 0
    assert ragged([[[], []]], x, {"kv": [0]}).values.size == 0  # negative extents count as 0


def test_constructors_share_what_a_batch_needs() -> None:
    # One mapping serves all arrays of a batch: what an array does not need is ignored.
    sizes, lengths = bind(A.dims, {"M": 2, "other": 5}, {"lens": [1, 2], "q": [-1]}, "x")
    assert sizes == {"M": 2}
    assert list(lengths) == ["lens"]


def test_from_offsets() -> None:
    values = np.arange(6, dtype=np.float32)
    array = RaggedArray.from_offsets(values, [0, 2, 2, 5], A)
    assert array.to_list() == [[0, 1], [], [2, 3, 4]]
    assert np.shares_memory(array.values, values)
    assert RaggedArray.from_offsets(values, np.array([0]), A).to_list() == []
    x = define.placeholder("x", [BATCH, POS, WIDTH])
    wide = RaggedArray.from_offsets(values.reshape(3, 2), [0, 1, 3], x)
    assert wide.to_list() == [[[0, 1]], [[2, 3], [4, 5]]]
    assert np.shares_memory(wide.values, values)
    flat_rows = RaggedArray.from_offsets(values, [0, 1, 3], x, {"W": 2})
    assert flat_rows.to_list() == wide.to_list()
    padded = RaggedArray.from_offsets(values, [0, 2, 5], Layout.packed(A.dims).with_pad(POS, 4))
    assert padded.values.tolist() == [0, 1, 0, 0, 2, 3, 4, 0]


def test_from_offsets_of_rows_without_elements() -> None:
    x = define.placeholder("x", [BATCH, POS, Dim("none", 0)])
    array = RaggedArray.from_offsets(np.zeros((3, 0), np.float32), [0, 1, 3], x)
    assert array.to_list() == [[[]], [[], []]]


VALUES = np.arange(6, dtype=np.float32)
READ_ONLY = np.arange(6, dtype=np.float32)
READ_ONLY.setflags(write=False)
MISALIGNED = np.zeros(25, np.uint8)[1:].view(np.float32)
LAYOUT = Layout.packed(A.dims)
TWO_LENGTHS = Layout.packed([BATCH, POS, Dim("pos2", LENS[BATCH])])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ragged([[1], 2], A), r"rows\[1\]: expected 1 levels of nesting \[pos\]; got 0"),
        (lambda: ragged([[1, [2]]], A), r"rows\[0\]"),
        (lambda: ragged([["a"]], A), "expected numbers"),
        (lambda: ragged([[None]], A), "expected numbers"),
        (lambda: ragged(3, A), "expected 2 levels of nesting"),
        (lambda: ragged([[1]], A, {"lens": [2]}), r"expected 2 entries of dim 'pos'.*rows\[0\]"),
        (lambda: ragged([[1]], A, sizes={"M": 2}), "expected 2 entries of dim 'batch'"),
        (lambda: ragged([[1]], A, {"lens": [1, 1]}), "lengths 'lens': expected 1 entries; got 2"),
        (lambda: ragged([[1]], A, sizes={"M": 1.0}), "size 'M': expected an integer"),
        (lambda: ragged([[1]], A, sizes={"M": -1}), "expected an integer >= 0; got -1"),
        (lambda: ragged([[[1, 1]]], TWO_LENGTHS), r"expected 1 entries of dim 'pos2'"),
        (lambda: ragged([[1.5]], A, dtype="int32"), "type int32; got float64"),
        (lambda: ragged([[300]], A, dtype="int8"), "300 does not fit int8"),
        (lambda: ragged([[2]], A, dtype="bool"), "type bool; got int64"),
        (lambda: ragged([[1]], A, dtype="complex64"), "dtype must be one of"),
        (lambda: ragged([[1]], "A"), "expected a tensor or a Layout; got str"),
        (lambda: RaggedArray.empty(A), "lengths 'lens' are needed"),
        (lambda: RaggedArray.empty(A, {"lens": [1]}, {"M": 2}), "expected 2 entries; got 1"),
        (lambda: RaggedArray.empty(A, {"lens": [1]}, dtype="int8", fill=np.nan), "fill nan"),
        (lambda: RaggedArray.empty(A, {"lens": [1]}, dtype="int8", fill=200), "fill 200"),
        (lambda: RaggedArray.empty(A, {"lens": [1]}, dtype="int32", fill=0.5), "fill 0.5"),
        (lambda: RaggedArray.from_values([1.0], A, {"lens": [1]}), "expected a NumPy array"),
        (lambda: RaggedArray.from_values(VALUES, A, {"lens": [7]}), "stores 7 elements; got 6"),
        (
            lambda: RaggedArray.from_values(VALUES.astype(np.int32), A, {"lens": [1]}),
            "expected values of type float32; got int32",
        ),
        (lambda: RaggedArray.from_values(VALUES[::2], A, {"lens": [1]}), "C-contiguous"),
        (lambda: RaggedArray.from_values(MISALIGNED, A, {"lens": [1]}), "aligned to 4 bytes"),
        (
            lambda: RaggedArray.from_values(READ_ONLY, A, {"lens": [1]}, writable=True),
            "read-only",
        ),
        (lambda: RaggedArray.from_dlpack([1.0], A, {"lens": [1]}), "in CPU memory"),
        (lambda: RaggedArray.from_padded(VALUES, A, {"lens": [1]}), "expected 2 axes"),
        (
            lambda: RaggedArray.from_padded(VALUES.reshape(2, 3), A, {"lens": [1, 4]}),
            "dim 'pos' has 4 entries; got an axis of 3",
        ),
        (lambda: RaggedArray.from_offsets(VALUES, [1, 2], A), "start at 0; got 1 at entry 0"),
        (lambda: RaggedArray.from_offsets(VALUES, [], A), "flat array of integers"),
        (lambda: RaggedArray.from_offsets(VALUES, np.zeros(0, int), A), "got no entry"),
        (lambda: RaggedArray.from_offsets(VALUES, [0, 3, 2], A), "entry 2 is 2 after 3"),
        (lambda: RaggedArray.from_offsets(VALUES, [0, 2, 7, 9], A), "entry 2 .* is 7, past the 6"),
        (lambda: RaggedArray.from_offsets(VALUES, [0.0, 2.0], A), "flat array of integers"),
        (
            lambda: RaggedArray.from_offsets(VALUES, [0, 2], A, {"M": 2}),
            "lengths 'lens': expected 2 entries; got 1",
        ),
        (lambda: RaggedArray.from_offsets(VALUES, [0, 1], TWO_LENGTHS), r"expected dims \[batch\]"),
        (
            lambda: RaggedArray.from_offsets(np.zeros((2, 3, 1), np.float32), [0, 1], A),
            "values of 1 or 1 axes",
        ),
        (lambda: ragged(ROWS, A).row(3), r"expected an index in 0\.\.2; got 3"),
        (lambda: ragged(ROWS, A).row(-1), "got -1"),
        (lambda: ragged(1.0, define.placeholder("s", [])).to_rows(), "a scalar has no rows"),
        (lambda: ragged(ROWS, A).to_layout(TWO_LENGTHS), "expected a layout of the dims"),
    ],
)
def test_refusals(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CoraError, match=message):
        make()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 2.0], "expected integers; got an array of float64"),
        ([True, False], "expected integers; got an array of bool"),
        (np.array([1, -1, -2]), "got -1 at entry 1"),
        (np.array([1, 2, -3], np.int8), "got -3 at entry 2"),
        (np.array([2**31], np.int64), "got 2147483648 at entry 0"),
        (np.array([3, 2**63], np.uint64), "got 9223372036854775808 at entry 1"),
        (np.array([3, 2**31], np.uint32), "got 2147483648 at entry 1"),
        ([1, 2], "expected 3 entries; got 2"),
        ([[1, 2], [3]], "expected a flat array of integers"),
        ("123", "expected integers"),
    ],
)
def test_bad_lengths(values: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        validate_lengths("lens", values, 3 if message.startswith("expected 3") else None)


@pytest.mark.parametrize(
    "values",
    [[3, 0, 2], (3, 0, 2), *(np.array([3, 0, 2], t) for t in ("i1", "u2", "i4", "u4", "i8", "u8"))],
)
def test_good_lengths(values: Any) -> None:
    found = validate_lengths("lens", values, 3)
    assert found.dtype == np.int32
    assert found.flags.c_contiguous
    assert found.tolist() == [3, 0, 2]
    assert validate_lengths("lens", [], 0).tolist() == []


def test_lengths_that_are_strided_are_copied_and_others_are_not() -> None:
    lens = np.arange(6, dtype=np.int32)
    assert validate_lengths("lens", lens) is lens
    assert validate_lengths("lens", lens[::2]).tolist() == [0, 2, 4]
    assert validate_lengths("lens", np.array([2**31 - 1])).tolist() == [2**31 - 1]


def test_sizes_beyond_64_bits_are_refused_and_not_wrapped() -> None:
    huge = Dim("huge", 2**31)
    layout = Layout.packed([BATCH, huge, POS, Dim("more", 2**31)])
    with pytest.raises(UserError, match=f"stores {2**62 * 12} elements: too many"):
        RaggedArray.empty(layout, {"lens": [4, 8]})
    assert RaggedArray.empty(layout, {"lens": [0, 0]}).values.size == 0


def test_scalars() -> None:
    scalar = ragged(2.5, define.placeholder("s", []))
    assert scalar.to_list() == 2.5
    assert scalar.to_padded().shape == ()
    assert scalar.values.tolist() == [2.5]


def test_to_padded_keeps_the_extent_of_constant_dims() -> None:
    x: list[Dim] = [BATCH, POS, Dim("head", 3)]
    assert ragged([], Layout.packed(x)).to_padded().shape == (0, 0, 3)
