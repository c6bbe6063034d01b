"""Algorithm 1 by brute force: on every layout the offsets are those of a row-major enumeration."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Iterator
from math import prod

import pytest

from cora.errors import UserError
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Call, Const, Dim, Expr, Size, Var, round_up
from cora.ir.ufun import Scan, UFun, scan
from cora.ir.visit import walk
from cora.lang import define
from cora.storage.boxes import Batch, boxes, flat_offsets, leading_dims, stored_size
from cora.storage.csf import auxiliary_entries, csf_entries, csf_storage
from cora.storage.dgraph import DimensionGraph, dimension_graph
from cora.storage.layout import Layout, Pad
from cora.storage.offsets import (
    PaddingLoop,
    auxiliary_functions,
    offset,
    padding_region,
    storage_dims,
    table_offset,
    table_size,
)
from tests.storage.random_layouts import Case, bound, random_case

CASES = 150


def stored_points(case: Case) -> list[tuple[int, ...]]:
    """Every index of the padded storage, by dim, in storage order."""
    layout = case.layout
    points = case.evaluator().points(storage_dims(layout))
    return [tuple(p[layout.order.index(k)] for k in range(layout.ndim)) for p in points]


def offsets_of(case: Case, points: list[tuple[int, ...]]) -> list[int]:
    evaluator, expr = case.evaluator(), offset(case.layout, case.layout.dims)
    return [evaluator.value(expr, dict(zip(case.layout.dims, p, strict=True))) for p in points]


def valid_points(case: Case) -> list[tuple[int, ...]]:
    return list(case.evaluator().points(case.layout.dims))


def random_cases(padded: bool, reordered: bool) -> list[Case]:
    rng = random.Random(f"{padded}{reordered}")
    return [random_case(rng, padded=padded, reordered=reordered) for _ in range(CASES)]


@pytest.mark.parametrize("reordered", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_offsets_enumerate_the_storage_in_row_major_order(padded: bool, reordered: bool) -> None:
    elements = 0
    for case in random_cases(padded, reordered):
        points = stored_points(case)
        assert offsets_of(case, points) == list(range(len(points))), case.layout
        assert case.evaluator().value(case.layout.size()) == len(points), case.layout
        elements += len(points)
    assert elements > 10 * CASES


def runs(
    evaluator: Evaluator, loops: tuple[PaddingLoop, ...], env: dict[Expr, int]
) -> Iterator[dict[Expr, int]]:
    """The indices that a nest of loops takes."""
    if not loops:
        yield env
        return
    begin, end = (evaluator.value(e, env) for e in (loops[0].begin, loops[0].end))
    assert begin >= 0
    for index in range(begin, end):
        yield from runs(evaluator, loops[1:], {**env, loops[0].dim: index})


@pytest.mark.parametrize("reordered", [False, True])
def test_padding_and_valid_elements_partition_the_storage(reordered: bool) -> None:
    padding = 0
    for case in random_cases(True, reordered):
        valid = offsets_of(case, valid_points(case))
        evaluator, layout = case.evaluator(), case.layout
        position = offset(layout, layout.dims)
        boxed: list[int] = []
        for box in padding_region(layout):
            assert layout.is_padded(box.dim)
            assert {loop.dim for loop in box.loops} == set(layout.dims)
            boxed += [evaluator.value(position, env) for env in runs(evaluator, box.loops, {})]
        assert sorted(valid + boxed) == list(range(evaluator.value(layout.size()))), layout
        padding += len(boxed)
    assert padding > CASES


def test_packed_layouts_have_no_padding() -> None:
    for case in random_cases(False, True):
        assert case.layout.is_packed
        assert padding_region(case.layout) == ()


@pytest.mark.parametrize("padded", [False, True])
def test_boxes_agree_with_the_offsets(padded: bool) -> None:
    fallbacks = 0
    for case in random_cases(padded, True):
        expected = offsets_of(case, valid_points(case))
        assert flat_offsets(case.layout, case.sizes, case.lengths).tolist() == expected
        batch = Batch(case.sizes, case.lengths)
        assert stored_size(case.layout, batch) == case.evaluator().value(case.layout.size())
        if leading_dims(case.layout) is None:
            fallbacks += 1
        else:
            assert sum(prod(b.valid) for b in boxes(case.layout, batch)) == len(expected)
    assert bool(fallbacks) == padded


def tables_in(e: Expr) -> set[UFun]:
    """All Scans that a value needs, those in bodies and domains of others included."""
    found: set[UFun] = set()

    def visit(expr: Expr) -> None:
        for node in walk(expr):
            match node:
                case Call(fun=fun) if isinstance(fun.definition, Scan) and fun not in found:
                    found.add(fun)
                    visit(fun.definition.body)
                case _:
                    pass

    visit(e)
    return found


def test_exactly_the_arrays_of_dims_with_outgoing_edges_appear() -> None:
    for case in random_cases(True, True):
        graph = dimension_graph(case.layout).completed()
        outgoing = [d for d, out in enumerate(graph.outputs) if out]
        functions = auxiliary_functions(case.layout)
        assert len(functions) <= len(outgoing)
        assert bool(functions) == bool(outgoing)
        # A literal 0 among the extents removes what it is multiplied with.
        if all(dim.extent != Const(0) for dim in case.layout.dims):
            assert tables_in(offset(case.layout, case.layout.dims)) == set(functions)
        for fun in functions:
            assert len(fun.domain) - 1 in {len(graph.inputs[d]) for d in outgoing}


def test_table_offsets_enumerate_the_table() -> None:
    several = 0
    for case in random_cases(True, True):
        evaluator = case.evaluator()
        for fun in auxiliary_functions(case.layout):
            formals: tuple[Expr, ...] = tuple(Var(f"r{i}") for i in range(len(fun.domain)))
            position = table_offset(fun, formals)
            points = list(evaluator.points(fun.domain))
            found = [evaluator.value(position, dict(zip(formals, p, strict=True))) for p in points]
            assert found == list(range(len(points)))
            assert evaluator.value(table_size(fun)) == len(points)
            several += len(fun.domain) > 1
    assert several > CASES // 10


def test_completion_is_needed_and_adds_nothing_to_single_parent_graphs() -> None:
    rng = random.Random(5)
    changed = 0
    for _ in range(300):
        n = rng.randint(1, 5)
        single = DimensionGraph(
            tuple(frozenset(rng.sample(range(d), min(d, rng.randint(0, 1)))) for d in range(n))
        )
        several = DimensionGraph(
            tuple(frozenset(rng.sample(range(d), min(d, rng.randint(0, 3)))) for d in range(n))
        )
        assert single.completed() == single
        assert several.completed().completed() == several.completed()
        changed += several.completed() != several
    assert changed > 20


def test_graph_of_the_attention_tensor() -> None:
    b, i, h, j = attention()
    graph = dimension_graph(Layout.packed([b, i, h, j]))
    assert graph.inputs == ({*()}, {0}, {*()}, {0})
    assert graph.outputs == ({1, 3}, {*()}, {*()}, {*()})
    assert graph.exclusive[0] == {1, 3}
    assert graph.spans == ({0, 2}, {1, 2, 3}, {2, 3}, {3})
    padded = Layout.packed([b, i, h, j]).with_pad(j, to_max=True)
    assert dimension_graph(padded).inputs == ({*()}, {0}, {*()}, {*()})


def attention(heads: int | Size = 8) -> tuple[Dim, Dim, Dim, Dim]:
    b = Dim("b", define.size("M"))
    s24 = define.lengths("s24", b)
    return b, Dim("i", s24[b]), Dim("h", heads), Dim("j", s24[b])


def test_csf_needs_the_entries_of_the_appendix() -> None:
    case = bound(Layout.packed(attention(define.size("H"))), {"H": 3}, s24=[2, 0, 4, 1])
    evaluator = case.evaluator()
    assert evaluator.value(csf_entries(case.layout)) == 4 + 3 * (2 + 0 + 4 + 1)
    assert csf_storage(case.layout, case.sizes, case.lengths).entries == 4 + 3 * 7
    assert evaluator.value(auxiliary_entries(case.layout)) == 4 + 1


@pytest.mark.parametrize("padded", [False, True])
def test_csf_offsets_are_ours(padded: bool) -> None:
    for case in random_cases(padded, True):
        tree = csf_storage(case.layout, case.sizes, case.lengths)
        points = stored_points(case)
        assert [tree.offset(p) for p in points] == offsets_of(case, points)
        assert tree.entries == case.evaluator().value(csf_entries(case.layout))


def test_normal_form_shares_tables() -> None:
    M, H = define.size("M"), define.size("H")
    b = Dim("b", M)
    lens = define.lengths("lens", b)
    i, h, d = Dim("i", lens[b]), Dim("h", H), Dim("d", 64)
    starts = scan((), b, lens[b])
    for dims in ([b, i], [b, i, d], [b, i, h, d], [b, h, i, d]):
        assert auxiliary_functions(Layout.packed(dims)) == (starts,)
    wide = Dim("w", lens[b])
    longest = Layout.packed([b, i, wide]).with_pad(wide, 4, to_max=True)
    assert auxiliary_functions(longest) == (starts,)
    assert str(offset(Layout.packed([b, i, h, d]), [b, i, h, d])) == (
        "offset[b] * H * 64 + i * H * 64 + h * 64 + d"
    )
    padded = Layout.packed([b, i, d]).with_pad(i, 32)
    assert auxiliary_functions(padded) == (scan((), b, round_up(lens[b], 32)),)
    renamed = Dim("row", M)
    other = Dim("col", lens[renamed])
    assert auxiliary_functions(Layout.packed([renamed, other])) == (starts,)


def test_padding_to_the_longest_is_exact() -> None:
    b = Dim("b", define.size("M"))
    lens = define.lengths("lens", b)
    i = Dim("i", lens[b])
    t = Dim("t", i + 1)
    layout = Layout.packed([b, i, t])
    for pad, expected in [(Pad(1, True), 5), (Pad(4, True), 8), (Pad(5, True), 5)]:
        case = bound(layout.with_pad(t, pad.multiple, pad.to_max), lens=[2, 0, 5])
        assert case.evaluator().value(case.layout.size()) == 7 * expected
        both = case.with_layout(case.layout.with_pad(i, 3, to_max=True))
        assert case.evaluator().value(both.layout.size()) == 3 * 6 * expected


def test_a_scan_of_a_dim_below_the_batch_keeps_its_outer_dims() -> None:
    b = Dim("b", define.size("M"))
    lens = define.lengths("lens", b)
    i = Dim("i", lens[b])
    j = Dim("j", i + 1)
    assert auxiliary_functions(Layout.packed([b, i, j]))[1] == scan((b,), i, i + 1)
    # k's sum over j needs i alone, whose extent needs b: rectangular up to the longest.
    k = Dim("k", j + 1)
    inner = auxiliary_functions(Layout.packed([b, i, j, k]))[2]
    assert str(inner.domain[0].extent) == "longest[]"
    assert len(inner.domain) == 2


HOSTILE = [[], [0], [0, 0], [0, 3, 0, 0], [1], [5, 1, 1, 1]]


@pytest.mark.parametrize("lens", HOSTILE)
@pytest.mark.parametrize("pad", [Pad(), Pad(4), Pad(1, True), Pad(4, True)])
def test_hostile_lengths(lens: list[int], pad: Pad) -> None:
    b = Dim("b", define.size("M"))
    table = define.lengths("lens", b)
    i = Dim("i", table[b])
    t = Dim("t", i + 1)
    z = Dim("z", table[b] - 2)
    for dims in ([b, i], [b, i, t], [b, z], [b, i, z], [b, z, i, Dim("none", 0)]):
        pads = tuple(pad for _ in dims)
        case = bound(Layout(tuple(dims), pads, tuple(range(len(dims)))), lens=lens)
        points = stored_points(case)
        assert offsets_of(case, points) == list(range(len(points)))
        expected = valid_points(case)
        assert len(set(offsets_of(case, expected))) == len(expected)


def test_padding_of_an_outer_dim_covers_rows_beyond_the_batch() -> None:
    b = Dim("b", define.size("M"))
    table = define.lengths("lens", b)
    i = Dim("i", table[b] + 1)  # one element even in rows that do not exist
    case = bound(Layout.packed([b, i]).with_pad(b, 4), lens=[2, 0])
    assert case.evaluator().value(case.layout.size()) == 3 + 1 + 1 + 1
    assert [box.dim for box in padding_region(case.layout)] == [0]


def test_scalar_and_one_dim_layouts() -> None:
    scalar = Layout.packed([])
    assert offset(scalar, []) == Const(0)
    assert scalar.size() == Const(1)
    assert scalar.describe() == ""
    n = Dim("n", define.size("N"))
    assert offset(Layout.packed([n]), [Const(7)]) == Const(7)
    assert str(Layout.packed([n]).with_pad(n, 8).size()) == "(N + 7) // 8 * 8"


def test_extent_substitutes_indices_and_keeps_the_clamp_decision() -> None:
    row = Dim("row", define.size("N"))
    col = Dim("col", row + 1)
    band = Dim("band", row - 2)
    layout = Layout.packed([row, col, band]).with_pad(band, 4)
    v = Var("v")
    assert str(layout.extent(1, [v])) == "v + 1"
    assert str(layout.extent(2, [v])) == "(max(v - 2, 0) + 3) // 4 * 4"
    assert str(layout.valid_extent(2, [v])) == "max(v - 2, 0)"
    assert layout.is_padded(2)
    assert not layout.is_padded(1)


def test_layouts_are_values() -> None:
    b, i, h, j = attention()
    layout = Layout.packed([b, i, h, j]).with_pad(i, 64).with_pad("j", to_max=True)
    assert layout == pickle.loads(pickle.dumps(layout))
    assert hash(layout) == hash(pickle.loads(pickle.dumps(layout)))
    assert layout != Layout.packed([b, i, h, j])
    assert not layout.is_packed
    assert layout.is_row_major
    assert layout.describe() == ("[b: M][i: s24[b] padded to 64][h: 8][j: s24[b] padded to the longest]")
    assert not layout.with_order([b, h, i, j]).is_row_major
    # A literal that is a multiple already is not padded, nor a constant dim "to the longest".
    assert Layout.packed([h]).with_pad(h, 4).is_packed
    assert Layout.packed([b]).with_pad(b, to_max=True).is_packed


def test_every_order_that_respects_dependences_is_accepted_and_no_other() -> None:
    b, i, h, j = attention()
    layout = Layout.packed([b, i, h, j])
    for order in itertools.permutations(range(4)):
        legal = order.index(0) < order.index(1) and order.index(0) < order.index(3)
        if legal:
            assert layout.with_order([layout.dims[k] for k in order]).order == order
        else:
            with pytest.raises(UserError, match="must be stored outside"):
                Layout(layout.dims, layout.pads, order)
    dense = layout.with_pad(i, to_max=True).with_pad(j, to_max=True)
    assert dense.with_order([j, i, h, b]).order == (3, 1, 2, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b, i: Layout.packed([i, b]), "must stand before"),
        (lambda b, i: Layout.packed([b, b]), "stands twice"),
        (lambda b, i: Layout((b, i), (Pad(),), (0, 1)), r"one Pad per dim \(2\)"),
        (lambda b, i: Layout((b, i), (Pad(), Pad()), (0, 0)), "permutation of 0..1"),
        (lambda b, i: Layout((b, i), (Pad(), Pad()), (0,)), "permutation of 0..1"),
        (lambda b, i: Layout.packed([b, i]).with_pad("x", 2), "no dim 'x'"),
        (lambda b, i: Layout.packed([b, i]).with_pad(i, 0), "positive integer; got 0"),
        (lambda b, i: Layout.packed([b, i]).with_pad(i, True), "positive integer; got True"),
        (lambda b, i: offset(Layout.packed([b, i]), [b]), "expected 2 indices; got 1"),
    ],
)
def test_refusals(make, message: str) -> None:  # type: ignore[no-untyped-def]
    b, i, _, _ = attention()
    with pytest.raises(UserError, match=message):
        make(b, i)
