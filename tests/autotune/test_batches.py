"""Batches, hostile ones, and length classes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cora
from cora.autotune.batches import Batch, batch_of, hostile, resampled
from cora.autotune.check import checks_of, fault_in
from cora.autotune.classes import class_of, distance, parse_class
from cora.autotune.inputs import draw_inputs
from cora.errors import UserError
from tests.autotune import programs

lengths = st.lists(st.integers(0, 300), max_size=12)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    lens = draw(lengths)
    other = draw(st.lists(st.integers(0, 9), min_size=len(lens), max_size=len(lens)))
    return Batch((("a", tuple(lens)), ("b", tuple(other))), (("N", draw(st.integers(0, 99))),))


def test_batches_from_what_users_write() -> None:
    O = programs.doubled()  # noqa: E741
    expected = Batch((("lens", (3, 0, 5)),))
    for given_ in ([3, 0, 5], {"lens": [3, 0, 5]}, np.array([3, 0, 5], np.int64), expected):
        assert batch_of([O], given_) == expected
    assert batch_of([O], {"lens": [3, 0], "M": 2}).sizes == (("M", 2),)


@pytest.mark.parametrize(
    ("program", "batch", "message"),
    [
        (programs.doubled, {"lens": [1, -2]}, "between 0 and"),
        (programs.doubled, {"lens": [1], "x": 3}, "no lengths or size 'x'"),
        (programs.doubled, {}, "must have 'lens'"),
        (programs.doubled, {"lens": [1, 2], "M": 3}, "expected 3 entries; got 2"),
        (programs.product, [1, 2], "expected a mapping"),
        (programs.triangle, {"N": 4}, "must have 'W'"),
        (programs.nested, {"lines": [1, 2], "words": [4, 0]}, "expected 3 entries; got 2"),
    ],
)
def test_batches_that_do_not_fit(program: Callable[[], cora.Tensor], batch: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        batch_of([program()], batch)


@pytest.mark.parametrize("program", [programs.doubled, programs.product, programs.triangle, programs.nested])
def test_hostile_batches_are_batches_and_hostile(program: Callable[[], cora.Tensor]) -> None:
    output = program()
    found = hostile([output])
    assert len(found) >= 6
    assert len(set(found)) == len(found)
    for batch in found:
        assert batch_of([output], batch.named).lengths == batch.lengths
    if program is not programs.triangle:
        name = found[0].lengths[0][0]
        values = [dict(b.lengths)[name] for b in found]
        assert () in values
        assert (0, 0) in values
        assert any(0 in v and max(v) > 2 for v in values)


@pytest.mark.parametrize(
    "program", [programs.doubled, programs.triangle, programs.softmax, programs.gathered, programs.nested]
)
def test_the_default_schedule_passes_all_checks(program: Callable[[], cora.Tensor]) -> None:
    output = program()
    checks = checks_of([output], hostile([output]))
    assert len(checks) >= 5
    assert fault_in(cora.build(output), checks, 2, frozenset()) is None


def test_a_kernel_of_another_program_fails_the_checks() -> None:
    output = programs.doubled()
    A = next(t for t in cora.schedule(output).tensors if t.body is None)
    batch, pos = output.dims
    other = cora.compute("O", [batch, pos], 2.0001 * A[batch, pos])
    fault = fault_in(cora.build(other), checks_of([output], hostile([output])), 1, frozenset())
    assert fault is not None
    assert "instead of" in fault


def test_indices_stay_inside_what_they_index() -> None:
    output = programs.gathered()
    batch = Batch((("lens", (50, 50)),), (("V", 7),))
    inputs = draw_inputs([output], batch)
    assert set(np.unique(inputs["idx"].values)) == set(range(7))


@given(batches(), st.integers(0, 5))
def test_resampled_batches_are_of_the_same_kind(batch: Batch, seed: int) -> None:
    again = resampled(batch, seed)
    assert again == resampled(batch, seed)
    assert again.sizes == batch.sizes
    for (name, old), (also, new) in zip(batch.lengths, again.lengths, strict=True):
        assert (name, len(old)) == (also, len(new))
        assert set(new) <= set(old)
    pairs = set(zip(*(v for _, v in batch.lengths), strict=True))
    assert set(zip(*(v for _, v in again.lengths), strict=True)) <= pairs


@given(batches())
def test_classes_are_text_and_back(batch: Batch) -> None:
    found = class_of(batch)
    assert parse_class(str(found)) == found
    assert distance(found, found) == 0


@given(batches(), batches(), batches())
def test_distance_is_one(a: Batch, b: Batch, c: Batch) -> None:
    x, y, z = map(class_of, (a, b, c))
    assert distance(x, y) == distance(y, x)
    assert distance(x, z) <= distance(x, y) + distance(y, z)
    assert (distance(x, y) == 0) == (x == y)


def test_classes_tell_apart_what_schedules_care_about() -> None:
    def of(*values: int) -> str:
        return str(class_of(Batch((("lens", values),))))

    assert of(64, 65, 66) == of(70, 71, 64)
    assert len({of(8, 8, 8, 8), of(29, 1, 1, 1), of(8, 8), of(128, 128, 128, 128)}) == 4
    assert of() == "lens:c0t0m0s3"


def test_what_is_no_class() -> None:
    with pytest.raises(UserError, match="length class"):
        parse_class("lens:c1t2")
    assert distance(parse_class("lens:c1t1m1s3"), parse_class("other:c1t1m1s3")) == float("inf")
