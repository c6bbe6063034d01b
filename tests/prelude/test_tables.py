"""Native tables against the reference `cora.ir.evaluate`, on hostile and on random lengths."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cora.errors import UserError
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Const, Dim, Expr, Size, binary, round_up, select
from cora.ir.ufun import (
    Given,
    UFun,
    cuts,
    descending,
    formal,
    fusion_maps,
    longest_first,
    maximum_over,
    permutation,
    scan,
)
from cora.prelude import Arena, NativePrelude, PreludeSpec, jit, specify
from cora.storage.offsets import table_offset, table_size

M = Size("M")
B = Dim("b", M)
LENS = UFun("lens", (formal(0, M),), Given())
#: A length for each entry of a ragged row: `inner[b, i]`, i < lens[b].
INNER = UFun("inner", (formal(0, M), formal(1, LENS(formal(0, M)))), Given())
I = Dim("i", LENS(B))  # noqa: E741
OFFSET = scan((), B, LENS(B))
FFO, FFI = fusion_maps(OFFSET)


def spec_of(*funs: UFun) -> PreludeSpec:
    return specify(funs, table_offset, table_size)


@dataclass(frozen=True)
class Case:
    """Functions of `lens`, and of `inner` where `nested`."""

    name: str
    funs: tuple[UFun, ...]
    nested: bool = False
    largest: int = 1000


def fused_twice() -> tuple[UFun, ...]:
    """fuse(fuse(b, i), j) where j < inner[b, i]: the outer loop of the second fusion is that of the first."""
    f = Dim("f", OFFSET(M))
    offset = scan((), f, INNER(FFO(f), FFI(f)), name="offset2")
    return (offset, *fusion_maps(offset))


def fused_inside() -> tuple[UFun, ...]:
    """fuse(i, j) inside a loop over b: the maps have an outer argument, and ragged tables."""
    offset = scan((B,), I, INNER(B, I))
    return (offset, *fusion_maps(offset))


def padded(multiple: int) -> tuple[UFun, ...]:
    offset = scan((), B, round_up(LENS(B), multiple))
    return (offset, *fusion_maps(offset))


def arithmetic() -> Expr:
    """Every operation, with operands of both signs."""
    n = LENS(B)
    d = n - 4
    return (
        binary("max", d // 3 + 2, 0)
        + d % 5
        + (d % -3 + 3)
        + abs(d // -2)
        + binary("min", n * n, 7)
        + select(n < 3, 17 // binary("max", n, 1), -d + 100)
        + select((n <= 5) & ~binary("eq", n, 2) | binary("ne", d, 1), 1, 2)
        + LENS(n)  # often outside the domain: 0 there
        + LENS(d)
        + binary("max", B - 1, 0)
    )


CASES = [
    Case("row starts", (OFFSET,)),
    Case("fusion", (OFFSET, FFO, FFI)),
    Case("padded to 4", padded(4)),
    Case("padded to 32", padded(32)),
    Case("arithmetic", (scan((), B, binary("max", arithmetic(), 0)),)),
    Case("longest", (maximum_over((B,), LENS(B)),)),
    Case("maximum of negative values", (maximum_over((B,), LENS(B) - 1000),)),
    Case("maximum over two dims", (maximum_over((B, I), INNER(B, I) - I),), nested=True),
    Case("over longest", (scan((), B, maximum_over((B,), LENS(B))()),)),
    Case("two dims", (scan((B,), I, INNER(B, I)),), nested=True),
    Case("triangle", (scan((B, I), Dim("j", I + 1), B + 1),), largest=20),
    Case("negative extents", (scan((B,), Dim("k", LENS(B) - 2), Const(3)),)),
    Case("negative number of rows", (scan((), Dim("k", M - 3), Const(3)),)),
    Case("nested fusion", fused_twice(), nested=True),
    Case("inner fusion", fused_inside(), nested=True),
    Case("two rows at once", (scan((), B, INNER(B, Const(0)) + INNER(M - 1 - B, Const(1))),), nested=True),
    Case("constant rows", (scan((), Dim("k", Const(5)), Const(0)),)),
    *[Case(f"cuts {p}", (cuts(OFFSET, Const(p)),)) for p in (0, 1, 2, 3, 5, 9)],
    Case("cuts by a size", (cuts(scan((), B, LENS(B) * LENS(B)), Size("workers")),)),
    Case("descending", (descending(OFFSET),)),
    Case(
        "descending, negative number of rows", (descending(scan((), Dim("k", M - 3), LENS(Dim("k", M - 3)))),)
    ),
    *[Case(f"longest first {p}", longest_first(OFFSET, Const(p))) for p in (0, 1, 2, 3, 64)],
    Case("longest first by a size", longest_first(scan((), B, LENS(B) * LENS(B)), Size("workers"))),
]

LENGTHS: Sequence[Sequence[int]] = (
    [],
    [0],
    [1],
    [0, 0],
    [0, 3, 0, 0],
    [15],
    [16],
    [17],
    [31, 32, 33],
    [1, 1, 700, 1, 2, 1],
    [1000, 0, 0, 1],
    [5] * 40,
    [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5],
)


@cache
def compiled(name: str) -> NativePrelude:
    return jit(spec_of(*next(case.funs for case in CASES if case.name == name)))


def run(case: Case, lens: Sequence[int], arena: Arena | None = None) -> dict[str, list[int]]:
    """Compute, compare with the reference, and give the tables by key."""
    native = compiled(case.name)
    sizes = {"M": len(lens), "workers": 4}
    lengths = {"lens": np.array(lens, np.int32)}
    if case.nested:
        lengths["inner"] = np.array([(7 * i + n) % 4 for n in lens for i in range(n)], np.int32)
    tables = native.compute(sizes, lengths, arena or Arena())
    reference = Evaluator(sizes, lengths)
    result = {}
    for table, array in zip(native.spec.tables, tables, strict=True):
        assert array.dtype == np.dtype(table.fun.dtype)
        assert array.tolist() == reference.table(table.fun), table.describe()
        result[table.key] = array.tolist()
    return result


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hostile_lengths(case: Case) -> None:
    arena = Arena(0)
    for lens in LENGTHS:
        run(case, [min(n, case.largest) for n in lens], arena)


@pytest.mark.parametrize("case", [c for c in CASES if "cuts" not in c.name], ids=lambda c: c.name)
@given(lens=st.lists(st.integers(0, 20), max_size=12))
@settings(deadline=None, max_examples=30)
def test_random_lengths(case: Case, lens: list[int]) -> None:
    run(case, [min(n, case.largest // 2) for n in lens])


@given(lens=st.lists(st.integers(0, 40), max_size=12), parts=st.integers(1, 9))
@settings(deadline=None)
def test_cuts_are_the_rows_nearest_to_their_share(lens: list[int], parts: int) -> None:
    native = compiled("cuts by a size")
    arrays = native.compute({"M": len(lens), "workers": parts}, {"lens": np.array(lens, np.int32)}, Arena())
    cost = [sum(n * n for n in lens[:r]) for r in range(len(lens) + 1)]
    reached = [next(r for r, c in enumerate(cost) if c * parts >= w * cost[-1]) for w in range(parts)]
    nearest = [
        min((r for r in (least - 1, least) if r >= 0), key=lambda r: abs(cost[r] * parts - w * cost[-1]))
        for w, least in enumerate(reached)
    ]
    assert arrays[-1].tolist() == [*nearest, len(lens)]


@given(lens=st.lists(st.integers(0, 40), max_size=30), parts=st.integers(1, 9))
@settings(deadline=None)
def test_longest_first_overloads_no_worker(lens: list[int], parts: int) -> None:
    """Graham's bound: a worker has at most the mean and one row more; every row is in one list."""
    native = compiled("longest first by a size")
    arrays = native.compute({"M": len(lens), "workers": parts}, {"lens": np.array(lens, np.int32)}, Arena())
    tables = {table.kind: array for table, array in zip(native.spec.tables, arrays, strict=True)}
    rows, starts = tables["lists"].tolist(), tables["starts"].tolist()
    assert sorted(rows) == list(range(len(lens)))
    cost = [n * n + 1 for n in lens]
    work = [sum(cost[r] for r in rows[a:b]) for a, b in itertools.pairwise(starts)]
    assert max(work) <= sum(cost) / parts + max(cost, default=0) * (1 - 1 / parts) + 1e-9


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 0, 1], "each of 0..2 once; 0 is there 2 times"),
        ([0, 1, 3], "2 is there 0 times"),
        ([0, -1, 1], "2 is there 0 times"),
        ([1, 0], "expected 3 values"),
    ],
)
def test_what_is_no_permutation_is_refused(values: list[int], message: str) -> None:
    native = jit(spec_of(permutation("order", M)))
    assert native.spec.tables[0].kind == "permutation"
    with pytest.raises(UserError, match=f"permutation 'order': .*{message}"):
        native.compute({"M": 3}, {"order": np.array(values, np.int32)}, Arena())
    native.compute({"M": 3}, {"order": np.array([2, 0, 1], np.int32)}, Arena())


def test_fusion_of_the_paper() -> None:
    tables = run(next(c for c in CASES if c.name == "fusion"), [2, 0, 3])
    by_kind = {key.split("_")[0]: values for key, values in tables.items()}
    assert by_kind["scan"] == [0, 2, 2, 5]
    assert by_kind["ffo"] == [0, 0, 2, 2, 2]
    assert by_kind["ffi"] == [0, 1, 0, 1, 2]


def test_iterations_beyond_the_last_row_get_zero() -> None:
    """A map over a bulk-padded loop: its domain is longer than the rows together."""
    f = formal(0, round_up(OFFSET(M), 64))
    longer = [UFun(fun.name, (f,), fun.definition) for fun in (FFO, FFI)]
    native = jit(spec_of(*longer))
    tables = native.compute({"M": 2}, {"lens": np.array([3, 4], np.int32)}, Arena())
    by_name = {t.fun.name: a.tolist() for t, a in zip(native.spec.tables, tables, strict=True)}
    assert by_name["ffo"] == [0] * 3 + [1] * 4 + [0] * 57
    assert by_name["ffi"] == [0, 1, 2, 0, 1, 2, 3] + [0] * 57


def test_nothing_is_written_past_a_table() -> None:
    """Vector stores run over the ends of rows, not over the end of the table."""
    native = compiled("fusion")
    for last in range(70):
        arena = Arena(1 << 14)
        arena.buffer[:] = 0xEE
        lens = np.array([5, last], np.int32)
        tables = native.compute({"M": 2}, {"lens": lens}, arena)
        used = np.zeros(arena.capacity_bytes, bool)
        for array in tables:
            start = array.ctypes.data - arena.address
            assert start % 64 == 0
            used[start : start + array.nbytes] = True
        assert (arena.buffer[~used] == 0xEE).all()


def test_costs_whose_products_exceed_64_bits() -> None:
    cost = scan((), B, LENS(B) * (1 << 31))
    native = jit(spec_of(cuts(cost, Size("workers"))))
    lens = np.array([2**30, 2**31 - 1, 5], np.int32)
    workers = 2**20
    *_, found = native.compute({"M": 3, "workers": workers}, {"lens": lens}, Arena())
    sums = [0, *np.cumsum(lens.astype(object) * 2**31)]
    for w in (1, 2**19, workers - 1):
        reached = next(r for r, c in enumerate(sums) if c * workers >= w * sums[-1])
        assert found[w] == min((reached - 1, reached), key=lambda r: abs(sums[r] * workers - w * sums[-1]))


def test_full_check_compares_with_the_reference() -> None:
    for case in CASES:
        if not case.nested:
            lengths: Mapping[str, np.ndarray] = {"lens": np.array([3, 0, 20], np.int32)}
            sizes = {"M": 3, "workers": 2}
            compiled(case.name).compute(sizes, lengths, Arena(), check="full")
