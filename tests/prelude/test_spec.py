"""What the specification holds: order, deduplication, keys that agree between processes."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cora.errors import InternalError, UnsupportedError
from cora.ir.expr import Call, Const, Dim, Expr, Size, Var, cast, round_up
from cora.ir.ufun import Given, Scan, UFun, cuts, formal, fusion_maps, maximum_over, scan
from cora.prelude import PreludeSpec, specify
from cora.storage.offsets import table_offset, table_size

M = Size("M")
B = Dim("b", M)
LENS = UFun("lens", (formal(0, M),), Given())
OFFSET = scan((), B, LENS(B))
FFO, FFI = fusion_maps(OFFSET)
ROOT = Path(__file__).resolve().parent.parent.parent


def spec_of(*funs: UFun) -> PreludeSpec:
    return specify(funs, table_offset, table_size)


def key_of(fun: UFun) -> str:
    return spec_of(fun).tables[-1].key


def names(spec: PreludeSpec) -> list[str]:
    return [table.fun.name for table in spec.tables]


def test_a_table_stands_after_those_it_is_computed_from() -> None:
    assert names(spec_of(FFO, FFI)) == ["lens", "offset", "ffi", "ffo"]


def test_addressing_needs_tables_too() -> None:
    """The table of a function of b and i < lens[b] is ragged: its row starts are a table themselves."""
    spec = spec_of(scan((B,), Dim("i", LENS(B)), Const(1), name="rows"))
    assert names(spec) == ["lens", "offset", "rows"]
    inside = UFun("inner", (formal(0, M), formal(1, LENS(formal(0, M)))), Given())
    assert names(spec_of(inside)) == ["lens", "offset", "inner"]
    assert [fun.name for fun in spec_of(inside).lengths] == ["lens", "inner"]


def test_order_of_the_request_does_not_matter() -> None:
    funs = (FFO, FFI, maximum_over((B,), LENS(B)), cuts(OFFSET, Size("workers")), OFFSET)
    specs = {spec_of(*order) for order in itertools.permutations(funs)}
    assert len(specs) == 1
    assert specs.pop().sizes == ("M", "workers")


def test_equal_functions_have_one_table_whatever_they_are_called() -> None:
    row = Dim("row", M)
    again = scan((), row, LENS(row), name="starts")
    maps = fusion_maps(again)
    spec = spec_of(FFO, FFI, again, *maps)
    assert len(spec.tables) == 4
    assert spec.position(maps[0]) == spec.position(FFO)
    assert spec.position(again) == spec.position(OFFSET) == 1


def test_different_functions_have_different_keys() -> None:
    other = UFun("other", (formal(0, M),), Given())
    funs = [
        *(LENS, other, OFFSET, FFO, FFI),
        UFun("lens", (formal(0, Size("N")),), Given()),
        scan((), B, other(B)),
        scan((), B, LENS(B) + 1),
        scan((), B, LENS(B) - 1),
        scan((), B, LENS(B + 1)),
        scan((), Dim("b", M + 1), Const(1)),
        scan((), B, Const(1)),
        scan((), B, Const(11)),
        scan((), B, round_up(LENS(B), 2)),
        scan((B,), Dim("i", LENS(B)), B),
        scan((B,), Dim("i", LENS(B)), Dim("i", LENS(B))),
        maximum_over((B,), LENS(B)),
        cuts(OFFSET, Const(2)),
        cuts(OFFSET, Const(3)),
    ]
    assert len({key_of(fun) for fun in funs}) == len(funs)


def test_keys_are_the_same_in_every_process() -> None:
    program = "from tests.prelude.test_spec import FFO, OFFSET, key_of; print(key_of(FFO), key_of(OFFSET))"
    for seed in ("1", "2"):
        printed = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert printed.split() == [key_of(FFO), key_of(OFFSET)]


def test_describe_says_what_is_computed() -> None:
    lines = spec_of(FFO).describe().splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("offset[%0 < M + 1] int64 x M + 1: running sum of lens[%0]")


def test_a_function_without_a_table_is_refused() -> None:
    with pytest.raises(InternalError, match="not among the tables"):
        spec_of(OFFSET).position(FFO)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (cast("float32", LENS(B)), UnsupportedError),
        (cast("int32", LENS(B)), UnsupportedError),
        (Var("v") + 1, UnsupportedError),
        (Dim("c", M) + 1, InternalError),
    ],
)
def test_what_is_not_integer_arithmetic_of_lengths_is_refused(body: Expr, error: type[Exception]) -> None:
    index = formal(0, M)
    fun = UFun("bad", (formal(0, M + 1),), Scan(index, body))
    with pytest.raises(error, match="the definition of 'bad'"):
        spec_of(fun)


def test_a_table_that_is_addressed_through_itself_is_refused() -> None:
    with pytest.raises(InternalError, match="itself"):
        specify([OFFSET], lambda fun, args: Call(fun, tuple(args)), table_size)
