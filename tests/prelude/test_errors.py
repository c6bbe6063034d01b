"""Bad input, values that do not fit, and tables that violate what proofs rest on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from cora.errors import InternalError, UserError
from cora.ir.expr import Const, Dim, Size
from cora.ir.ufun import Given, UFun, cuts, formal, fusion_maps, maximum_over, scan
from cora.prelude import Arena, NativePrelude, jit, specify
from cora.storage.offsets import table_offset, table_size

M = Size("M")
N = Size("N")
B = Dim("b", M)
LENS = UFun("lens", (formal(0, M),), Given())
OFFSET = scan((), B, LENS(B))
FFO, FFI = fusion_maps(OFFSET)


@cache
def native(*funs: UFun) -> NativePrelude:
    return jit(specify(funs, table_offset, table_size))


def compute(*funs: UFun, lens: Any = (2, 0, 3), **sizes: int) -> list[np.ndarray]:
    array = lens if isinstance(lens, np.ndarray) else np.array(lens, np.int32)
    return native(*funs).compute({"M": len(array), **sizes}, {"lens": array}, Arena())


@pytest.mark.parametrize(
    ("lens", "message"),
    [
        (np.array([1, -2], np.int32), "lengths 'lens': a length must be >= 0; got -2 at 1"),
        (np.array([1, 2], np.int64), "lengths 'lens': expected .* type int32; .* type int64"),
        (np.array([[1, 2]], np.int32), r"lengths 'lens': .* one axis .* shape \(1, 2\)"),
        ([1, 2], "lengths 'lens': expected a NumPy array; got list"),
    ],
)
def test_bad_lengths(lens: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        native(FFO).compute({"M": 2}, {"lens": lens}, Arena())


def test_lengths_may_be_strided_and_read_only() -> None:
    lens = np.array([1, 9, 2, 9], np.int32)[::2]
    lens.flags.writeable = False
    assert compute(OFFSET, lens=lens)[-1].tolist() == [0, 1, 3]


def test_lengths_are_copied() -> None:
    lens = np.array([1, 2], np.int32)
    tables = compute(OFFSET, lens=lens)
    lens[:] = -1
    assert tables[0].tolist() == [1, 2]


@pytest.mark.parametrize("m", [1, 3])
def test_wrong_number_of_lengths(m: int) -> None:
    with pytest.raises(UserError, match=rf"'lens': expected {m} values, .* \[M\]; got 2"):
        native(FFO).compute({"M": m}, {"lens": np.array([1, 2], np.int32)}, Arena())


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({}, "size 'M': no value was given"),
        ({"M": -1}, "size 'M': expected a value from 0 .* got -1"),
        ({"M": 2**70}, "size 'M': expected a value from 0"),
        ({"M": 2.0}, "size 'M': expected an integer; got 2.0"),
    ],
)
def test_bad_sizes(sizes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        native(FFO).compute(sizes, {"lens": np.array([1, 2], np.int32)}, Arena())


def test_missing_lengths() -> None:
    with pytest.raises(UserError, match="lengths 'lens': no values were given"):
        native(FFO).compute({"M": 2}, {}, Arena())


def test_a_fused_loop_of_two_to_the_31_is_refused_before_it_is_allocated() -> None:
    lens = [2**31 - 1, 1]
    with pytest.raises(UserError, match=r"'ffo': expected at most 2147483647 entries; got 2147483648"):
        compute(FFO, lens=lens)
    assert compute(OFFSET, lens=lens)[-1].tolist() == [0, 2**31 - 1, 2**31]


def test_maxima_have_64_bits() -> None:
    squares = maximum_over((B,), LENS(B) * LENS(B))
    assert compute(squares, lens=[2**31 - 1])[-1].tolist() == [(2**31 - 1) ** 2]


@pytest.mark.parametrize("body", [LENS(B) * N, LENS(B) + N, -LENS(B) - N - 2, LENS(B) - (-N - 1) * 2])
def test_values_that_do_not_fit_64_bits(body: Any) -> None:
    with pytest.raises(UserError, match="expected values that fit in 64 bits"):
        compute(scan((), B, body), lens=[4], N=2**63 - 1)


def test_sums_that_do_not_fit_64_bits() -> None:
    squares = scan((), B, LENS(B) * LENS(B))
    big = 2**31 - 1
    assert compute(squares, lens=[big, big])[-1].tolist() == [0, big**2, 2 * big**2]
    with pytest.raises(UserError, match="expected values that fit in 64 bits"):
        compute(squares, lens=[big, big, big])


def test_a_size_that_does_not_fit_64_bits() -> None:
    with pytest.raises(UserError, match="expected values that fit in 64 bits"):
        compute(scan((), Dim("k", N), Const(1)), N=2**63 - 1)


def test_division_by_zero() -> None:
    mean = scan((), B, 12 // LENS(B) + 12 % LENS(B))
    assert compute(mean, lens=[5, 7])[-1].tolist() == [0, 4, 10]
    with pytest.raises(UserError, match="integer division by zero"):
        compute(mean, lens=[5, 0])
    with pytest.raises(UserError, match="integer division by zero"):
        compute(scan((), Dim("k", 8 // N), Const(1)), N=0)


def test_the_one_quotient_that_overflows() -> None:
    lowest = -N - 1
    quotient = maximum_over((B,), lowest // (LENS(B) - 2))
    with pytest.raises(UserError, match="expected values that fit in 64 bits"):
        compute(quotient, lens=[1], N=2**63 - 1)


def test_sums_that_decrease_are_refused() -> None:
    with pytest.raises(InternalError, match="'offset': entry 2 is 1, which violates a fact"):
        compute(scan((), B, LENS(B) - 3), lens=[5, 2, 4])


TAMPERED = [
    ("scan", 0, 1),
    ("scan", 2, 1),
    ("scan", 3, 1),
    ("ffo", 0, 1),
    ("ffo", 0, -1),
    ("ffo", 4, 1),
    ("ffo", 4, 3),
    ("ffi", 0, 1),
    ("ffi", 4, 5),
    ("ffi", 4, -1),
    ("cuts", 0, 1),
    ("cuts", 1, 4),
    ("cuts", 2, 2),
    ("given", 1, -1),
]


@pytest.mark.parametrize(("kind", "entry", "value"), TAMPERED)
def test_tampered_tables_are_caught(kind: str, entry: int, value: int) -> None:
    prelude = native(FFO, FFI, cuts(OFFSET, Const(2)))
    sizes, lengths = {"M": 3}, {"lens": np.array([2, 0, 3], np.int32)}
    tables = prelude.compute(sizes, lengths, Arena())
    prelude.validate(sizes, tables, check="full")
    position = next(t for t, table in enumerate(prelude.spec.tables) if table.kind == kind)
    assert tables[position][entry] != value
    tables[position][entry] = value
    with pytest.raises((UserError, InternalError)):
        prelude.validate(sizes, tables)


def test_the_full_check_sees_every_entry() -> None:
    prelude = native(FFO, FFI, maximum_over((B,), LENS(B)))
    sizes, lengths = {"M": 3}, {"lens": np.array([2, 0, 3], np.int32)}
    for position in range(1, len(prelude.spec.tables)):
        tables = prelude.compute(sizes, lengths, Arena())
        for entry in range(len(tables[position])):
            tables[position][entry] += 1
            with pytest.raises((InternalError, UserError)):
                prelude.validate(sizes, tables, check="full")
            tables[position][entry] -= 1


def test_a_table_of_another_batch_is_refused() -> None:
    prelude = native(FFO, FFI)
    tables = prelude.compute({"M": 2}, {"lens": np.array([2, 3], np.int32)}, Arena())
    with pytest.raises(UserError, match="'offset': expected 4 values"):
        prelude.compute(
            {"M": 3},
            {"lens": np.array([2, 3, 4], np.int32)},
            Arena(),
            filled={prelude.spec.tables[1].key: tables[1]},
        )
