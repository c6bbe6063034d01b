"""Dims that are split and fused in storage, by brute force on random layouts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cora.ir.expr import Const, Dim, Expr, Var
from cora.ir.simplify import simplify
from cora.lang import define
from cora.storage.array import RaggedArray, ragged
from cora.storage.axes import FuseAxes, SplitAxis, padded
from cora.storage.boxes import Batch, flat_offsets, stored_size
from cora.storage.csf import csf_storage
from cora.storage.layout import Layout
from cora.storage.lengths import valid_indices
from cora.storage.offsets import offset, padding_region, storage_dims
from tests.storage.random_layouts import Case, bound, random_case
from tests.storage.test_offsets import offsets_of, runs, valid_points

CASES = 100
M = define.size("M")
BATCH = Dim("batch", M)
LENS = define.lengths("lens", BATCH)
POS = Dim("pos", LENS[BATCH])


def random_cases(padded: bool, count: int = CASES) -> list[Case]:
    rng = random.Random(f"related {padded}")
    cases: list[Case] = []
    while len(cases) < count:
        case = random_case(rng, padded=padded, reordered=len(cases) % 2 > 0, related=True)
        if case.layout.relations:
            cases.append(case)
    return cases


def axis_index(case: Case, point: tuple[int, ...]) -> tuple[int, ...]:
    """The index of each axis in storage order, from what splitting and fusing mean (no table is used)."""
    level = case.layout
    evaluator = case.evaluator()
    at: dict[str, int] = dict(zip((d.name for d in level.dims), point, strict=True))
    while level.relations:
        relation = level.relations[0]
        match relation:
            case SplitAxis(axis=axis, factor=factor):
                at[relation.outer], at[relation.inner] = divmod(at.pop(axis), factor)
            case FuseAxes():
                o, i = (level.position(name) for name in relation.consumed)
                row, within = at.pop(relation.outer), at.pop(relation.inner)
                extent = padded(level.dims, i, level.pads[i])
                env: dict[Expr, int] = {d: at.get(d.name, 0) for d in level.dims}
                rows = (evaluator.value(extent, {**env, level.dims[o]: r}) for r in range(row))
                at[relation.name] = sum(rows) + within
        level = level.inner
    return tuple(at[name] for name in case.layout.stored_names)


@pytest.mark.parametrize("padded", [False, True])
def test_elements_lie_in_row_major_order_of_the_axes(padded: bool) -> None:
    kinds: dict[type, int] = {}
    for case in random_cases(padded):
        layout = case.layout
        stored = list(case.evaluator().points(storage_dims(layout)))
        place = {point: position for position, point in enumerate(stored)}
        points = valid_points(case)
        found = offsets_of(case, points)
        assert found == [place[axis_index(case, point)] for point in points], layout
        simpler = simplify(offset(layout, layout.dims))
        evaluator = case.evaluator()
        values = [evaluator.value(simpler, dict(zip(layout.dims, p, strict=True))) for p in points]
        assert values == found, layout
        assert case.evaluator().value(layout.size()) == len(stored)
        assert stored_size(layout, Batch(case.sizes, case.lengths)) == len(stored)
        assert flat_offsets(layout, case.sizes, case.lengths).tolist() == found
        assert not layout.is_packed or len(points) == len(stored)
        for relation in layout.relations:
            kinds[type(relation)] = kinds.get(type(relation), 0) + len(points)
    assert min(kinds.values()) > CASES
    assert len(kinds) == 2


@pytest.mark.parametrize("padded", [False, True])
def test_padding_and_valid_elements_partition_the_storage(padded: bool) -> None:
    padding = 0
    for case in random_cases(padded):
        valid = offsets_of(case, valid_points(case))
        evaluator, layout = case.evaluator(), case.layout
        boxed: list[int] = []
        for box in padding_region(layout):
            position = offset(box.layout, box.layout.dims)
            assert {loop.dim for loop in box.loops} == set(box.layout.dims)
            boxed += [evaluator.value(position, env) for env in runs(evaluator, box.loops, {})]
        assert sorted(valid + boxed) == list(range(evaluator.value(layout.size()))), layout
        assert not layout.is_packed or not boxed
        padding += len(boxed)
    assert padding > CASES


def stored_indices(case: Case) -> Iterator[dict[Expr, int]]:
    """Every index vector inside the storage extents of the dims."""
    layout, evaluator = case.layout, case.evaluator()

    def visit(k: int, env: dict[Expr, int], valid: bool) -> Iterator[dict[Expr, int]]:
        if k == layout.ndim:
            yield env
            return
        extent = evaluator.value(layout.extent(k, layout.dims), env)
        count = evaluator.value(layout.valid_extent(k, layout.dims), env)
        assert extent >= count or not valid, layout
        for index in range(extent):
            yield from visit(k + 1, {**env, layout.dims[k]: index}, valid and index < count)

    return visit(0, {}, True)


def test_indices_below_the_storage_extents_have_a_place() -> None:
    """What guards rely on: each index vector inside the storage extents has an offset of its own."""
    checked = 0
    for case in random_cases(True):
        evaluator, position = case.evaluator(), offset(case.layout, case.layout.dims)
        room = evaluator.value(case.layout.size())
        if room <= 1000:
            seen = [evaluator.value(position, env) for env in stored_indices(case)]
            assert all(0 <= at < room for at in seen), case.layout
            assert len(set(seen)) == len(seen), case.layout
            checked += len(seen)
    assert checked > 10 * CASES


def test_storage_extents_are_rounded_to_the_multiples() -> None:
    """A dim that is padded by 3 and stored in blocks of 2, two by two, is rounded up to 3, 2 and 4 in turn."""
    for case in random_cases(True):
        layout, evaluator = case.layout, case.evaluator()
        for k in range(layout.ndim):
            if any(pad.to_max for pad in layout.pads) or any(
                pad.to_max for r in layout.relations for pad in r.made.values()
            ):
                continue
            for point in evaluator.points(layout.dims[:k]):
                env: dict[Expr, int] = dict(zip(layout.dims, point, strict=False))
                expected = evaluator.value(layout.valid_extent(k, layout.dims), env)
                for multiple in layout.multiples(k):
                    expected = -(-expected // multiple) * multiple
                assert evaluator.value(layout.extent(k, layout.dims), env) == expected, layout


def test_the_longest_is_that_of_the_rows_that_are_stored() -> None:
    """Fused rows without entries do not count: a guard up to the longest of all would let stores leave the storage."""
    width = define.lengths("width", BATCH)
    column = Dim("column", width[BATCH])
    layout = Layout.packed([BATCH, POS, column]).with_fused(BATCH, POS, "f")
    for tiled in (layout, layout.with_split(column, 2, "co", "ci")):
        name = "co" if tiled is not layout else "column"
        case = bound(tiled.with_pad(name, to_max=True), lens=[0, 2], width=[9, 3])
        extent = case.evaluator().value(case.layout.extent(2, case.layout.dims), {BATCH: 1, POS: 0})
        assert extent == (4 if tiled is not layout else 3)
        seen = [
            case.evaluator().value(offset(case.layout, case.layout.dims), e) for e in stored_indices(case)
        ]
        assert sorted(seen) == list(range(case.evaluator().value(case.layout.size())))


def test_csf_offsets_are_ours() -> None:
    for case in random_cases(True, 60):
        tree = csf_storage(case.layout, case.sizes, case.lengths)
        stored = case.layout.stored
        names = [d.name for d in stored.dims]
        for point, expected in zip(valid_points(case), offsets_of(case, valid_points(case)), strict=True):
            at = dict(zip(case.layout.stored_names, axis_index(case, point), strict=True))
            assert tree.offset([at[name] for name in names]) == expected


def filled(case: Case) -> RaggedArray:
    """1, 2, 3.. in the valid elements in the order of the indices, NaN in the padding."""
    dims = case.layout.dims
    count = len(list(valid_indices(dims, case.sizes, case.lengths)))
    values = np.arange(1, count + 1, dtype=np.float32)
    packed = RaggedArray.from_values(values, Layout.packed(dims), case.lengths, case.sizes)
    return packed.to_layout(case.layout, fill=np.nan)


@pytest.mark.parametrize("padded", [False, True])
def test_arrays_keep_every_element(padded: bool) -> None:
    elements = 0
    for case in random_cases(padded, 40):
        array = filled(case)
        dims, batch = case.layout.dims, (case.sizes, case.lengths)
        indices = list(valid_indices(dims, *batch))
        elements += len(indices)
        assert array.packed().tolist() == list(range(1, len(indices) + 1))
        assert np.isnan(array.values).sum() == len(array.values) - len(indices)
        nested = array.to_list()
        dense = array.to_padded(fill=-1)
        for value, index in enumerate(indices, start=1):
            assert item_at(nested, index) == dense[index] == value
        for again in (
            RaggedArray.from_padded(dense, case.layout, case.lengths, case.sizes),
            ragged(nested, case.layout, case.lengths, case.sizes),
            array.to_layout(Layout.packed(dims)).to_layout(case.layout),
        ):
            assert again.layout == case.layout
            assert again.packed().tolist() == array.packed().tolist()
            assert not np.isnan(again.values).any()
    assert elements > 300


def item_at(nested: Any, index: tuple[int, ...]) -> Any:
    for i in index:
        nested = nested[i]
    return nested


def panels(n: int | Expr = 130, k: int = 3) -> tuple[Dim, Dim, Layout]:
    """W[k, n] as panels of 64 columns."""
    rows, columns = Dim("k", k), Dim("n", n)
    layout = Layout.packed([rows, columns]).with_split(columns, 64, "no", "ni")
    return rows, columns, layout.with_order(["no", "k", "ni"])


def test_panels_of_a_matrix() -> None:
    rows, columns, layout = panels()
    assert layout.describe() == "[no = n // 64: 3][k: 3][ni = n % 64: 64]"
    jo, ji, r = Var("jo"), Var("ji"), Var("r")
    assert "//" in str(simplify(offset(layout, [r, jo * 64 + ji])))  # ji may be anything here
    ranges: dict[Expr, Expr] = {jo: define.size("J"), ji: Const(64), r: Const(3)}
    assert str(simplify(offset(layout, [r, jo * 64 + ji]), ranges)) == "jo * 192 + r * 64 + ji"
    half = {**ranges, ji: Const(32)}
    assert str(simplify(offset(layout, [r, jo * 32 + ji]), half)) == (
        "jo // 2 * 192 + r * 64 + jo % 2 * 32 + ji"
    )
    w = np.arange(390, dtype=np.float32).reshape(3, 130)
    array = ragged(w, layout)
    whole = np.zeros((3, 192), np.float32)
    whole[:, :130] = w
    expected = whole.reshape(3, 3, 64).transpose(1, 0, 2)
    assert np.array_equal(array.values.reshape(3, 3, 64), expected)
    assert np.array_equal(array.to_padded(), w)
    row = array.row(1)
    assert np.array_equal(row, w[1])
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 5  # a copy: what is written to it would be lost
    assert layout.extent(1, []) == Const(192)
    assert columns in layout.dims
    assert rows in layout.dims


def test_large_arrays_are_converted_in_parts() -> None:
    """More elements than offsets are computed for at once, in one box and in many."""
    _, _, layout = panels(1000, 300)
    w = np.arange(300_000, dtype=np.float32).reshape(300, 1000)
    array = ragged(w, layout)
    assert np.array_equal(array.to_padded(), w)
    assert array.values[64 * 300 + 64] == w[1, 64]
    lens = [0, 700, 1, 400, *[50] * 20]
    wide = Dim("wide", 100)
    tokens = Layout.packed([BATCH, POS, wide]).with_fused(BATCH, POS, "f").with_split("f", 8, "fo", "fi")
    tokens = tokens.with_order(["fo", wide, "fi"])
    rows = [np.random.default_rng(k).standard_normal((n, 100)).astype(np.float32) for k, n in enumerate(lens)]
    again = ragged(rows, tokens)
    whole = np.zeros((-(-sum(lens) // 8) * 8, 100), np.float32)
    whole[: sum(lens)] = np.concatenate(rows)
    assert np.array_equal(again.values, whole.reshape(-1, 8, 100).transpose(0, 2, 1).reshape(-1))
    assert all(np.array_equal(a, b) for a, b in zip(again.to_rows(), rows, strict=True))


def test_a_layout_moved_to_other_dims_keeps_the_order_of_its_axes() -> None:
    """Where extents become constants, the axes are found in another order: their names hold, not their positions."""
    key = Dim("key", LENS[BATCH])
    layout = Layout.packed([BATCH, POS, key]).with_fused(BATCH, POS, "f").with_split("f", 2, "fo", "fi")
    constant = layout.over([Dim("batch", 3), Dim("pos", 4), Dim("key", 5)])
    assert layout.stored_names == constant.stored_names == ("fo", "fi", "key")
    assert constant.describe() == "[fo = f // 2: 6][fi = f % 2: 2][key: 5]"
    assert constant.inside(Dim("%worker", 2)).stored_names == ("%worker", "fo", "fi", "key")


def test_plain_layouts_store_the_same_in_the_same_places() -> None:
    found = 0
    for case in random_cases(True) + random_cases(False):
        plain = case.layout.plain
        if plain.relations:
            assert plain == case.layout
            continue
        found += 1
        points, other = valid_points(case), case.with_layout(plain)
        assert offsets_of(case, points) == offsets_of(other, points), case.layout
        assert case.evaluator().value(case.layout.size()) == case.evaluator().value(plain.size()), case.layout
    assert found > CASES // 5


def test_rows_of_blocks_that_lie_one_behind_another_are_views() -> None:
    wide = Dim("wide", 2)
    layout = Layout.packed([BATCH, POS, wide]).with_split(POS, 4, "po", "pi")
    assert layout.plain == Layout.packed([BATCH, POS, wide]).with_pad(POS, 4)
    assert layout.with_fused("po", "pi", "f").plain == layout.plain
    assert layout.with_order(["batch", "po", "wide", "pi"]).plain.relations
    assert layout.with_pad("pi", 6).plain.relations
    assert layout.with_fused(BATCH, "po", "f").with_pad("f", 2).plain.relations
    array = ragged([[[1, 2]], [], [[3, 4]] * 5], layout)
    assert array.values.size == 2 * (4 + 0 + 8)
    array.row(2)[4] = 7
    assert array.to_list()[2][4] == [7, 7]
