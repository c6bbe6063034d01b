"""Programs and schedules that are refused, at the latest when they are built, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cora
from tests.runtime.programs import UNCACHED, A, M, T, batch, lens, n, pos, scaled

O = scaled(2)  # noqa: E741
s = cora.schedule(O)


def shifted(index: Any) -> Any:
    return cora.compute("O", [batch, pos], A[batch, index])


DEFINITIONS: list[tuple[str, Callable[[], object], str]] = [
    (
        "order",
        lambda: cora.placeholder("X", [pos, batch]),
        "so dim 'batch' must stand before it; got .pos, batch.",
    ),
    ("absent", lambda: cora.compute("X", [pos], 1.0), "so dim 'batch' must stand before it"),
    (
        "twice",
        lambda: cora.placeholder("X", [batch, cora.Dim("batch", 3)]),
        "the dim name 'batch' stands twice",
    ),
    ("negative", lambda: cora.Dim("x", -1), "the extent must not be negative; got -1"),
    ("float", lambda: cora.Dim("x", 1.5), "the extent must be an integer; got 1.5"),
    ("data", lambda: cora.Dim("x", T[n]), "the extent must be an integer"),
    ("unbound", lambda: cora.compute("X", [batch], A[batch, pos]), r"the body uses dim\(s\) pos"),
    ("rank", lambda: A[batch], "expected 2 indices"),
    ("lens rank", lambda: lens[batch, pos], "expected 1 indices"),
    ("name", lambda: cora.size("2x"), "the name must be an identifier"),
    ("dtype", lambda: cora.placeholder("X", [batch], "float8"), "dtype must be one of"),
    (
        "tensors",
        lambda: cora.schedule(O, cora.compute("P", [batch, pos], O[batch, pos] + scaled(3)[batch, pos])),
        "two different tensors are named 'O'",
    ),
    ("outputs", lambda: cora.schedule(O, O), "an output stands twice"),
    ("input", lambda: cora.build(A), "expected computed tensors; got A"),
    ("nothing", lambda: cora.build([]), "expected at least one computed tensor"),
    ("other", lambda: cora.build(3), "build: expected a schedule or computed tensors; got int: 3"),  # type: ignore[arg-type]
]

SCHEDULES: list[tuple[str, Callable[[], object], str]] = [
    ("loop", lambda: s.split(O, "x", 4), "split: operator 'O' has no loop 'x'; its loops are batch, pos"),
    ("operator", lambda: s.split("X", pos, 4), "no operator 'X'; the operators are O"),
    ("tensor", lambda: s.pad_dim("X", pos, 4), "no tensor 'X'; the tensors are A, O"),
    ("dim", lambda: s.pad_dim(O, "x", 4), "has no dim 'x'; it has batch, pos"),
    ("name", lambda: s.split(O, pos, 4, names=("batch", "i")), "has a loop 'batch' already"),
    ("reorder", lambda: s.reorder(O, pos, pos), "reorder: a loop stands twice in pos, pos"),
    (
        "padding",
        lambda: _build(s.pad_loop(O, pos, 48).pad_dim(O, pos, 64)),
        "padded to a multiple of 48, its storage to a multiple of 64: a slice of length 49 would run to 96 "
        "but has room for 64",
    ),
    (
        "no padding",
        lambda: _build(s.pad_loop(O, pos, 4)),
        "a slice of length 1 would run to 4 but has room for 1",
    ),
]

ACCESSES: list[tuple[str, Callable[[], object], str]] = [
    (
        "past",
        lambda: _build(shifted(pos + 1)),
        r"A\[batch, pos \+ 1\] can leave dim 'pos' of 'A': .* is false for",
    ),
    ("before", lambda: _build(shifted(pos - 1)), "can leave dim 'pos' of 'A': .* is false for"),
    ("row", lambda: _build(cora.compute("O", [batch, pos], A[batch + 1, pos])), "can leave dim 'batch'"),
    ("constant", lambda: _build(cora.compute("O", [batch, pos], A[batch, 3])), "can leave dim 'pos'"),
    ("size", lambda: _build(cora.compute("O", [batch], T[batch])), "can leave dim 'n' of 'T'"),
    (
        "condition",
        lambda: _build(
            cora.compute("O", [batch, pos], cora.where(pos + 1 <= lens[batch], A[batch, pos + 1], 0.0))
        ),
        "can leave dim 'pos'",
    ),
]


def _build(program: Any) -> cora.Kernel:
    return cora.build(program, settings=UNCACHED)


@pytest.mark.parametrize(("make", "match"), [c[1:] for c in DEFINITIONS], ids=[c[0] for c in DEFINITIONS])
def test_definition(make: Callable[[], object], match: str) -> None:
    with pytest.raises(cora.UserError, match=match):
        make()


@pytest.mark.parametrize(("make", "match"), [c[1:] for c in SCHEDULES], ids=[c[0] for c in SCHEDULES])
def test_schedule(make: Callable[[], object], match: str) -> None:
    with pytest.raises(cora.ScheduleError, match=match):
        make()


@pytest.mark.parametrize(("make", "match"), [c[1:] for c in ACCESSES], ids=[c[0] for c in ACCESSES])
def test_access(make: Callable[[], object], match: str) -> None:
    with pytest.raises(cora.UserError, match=match):
        make()


def test_guarded_accesses_are_accepted() -> None:
    body = cora.where(pos + 1 < lens[batch], A[batch, pos + 1], 0.0)
    k = _build(cora.compute("O", [batch, pos], body))
    assert k(cora.ragged([[1, 2, 3], [], [4]], A)).to_list() == [[2, 3, 0], [], [0]]


def test_padding_that_covers_is_accepted() -> None:
    k = _build(s.pad_loop(O, pos, 32).pad_dim(O, pos, 64))
    assert k(cora.ragged([[1.0] * 49, []], A)).to_list() == [[2.0] * 49, []]


@pytest.mark.parametrize(
    ("target", "kind", "match"),
    [
        ("vulkan", cora.UserError, "vulkan"),
        ({"kind": "opencl"}, cora.UnsupportedError, "target: kind 'opencl'; the CPU's kind is 'llvm'"),
        ({"kind": "cuda"}, cora.UserError, "kind 'cuda' needs an arch such as 'sm_80' or 'sm_90'; got ''"),
        ("metal", cora.UserError, r'target: expected "llvm"'),
        (None, cora.UserError, r'target: expected "llvm"'),
        (
            {"kind": "llvm", "mcpu": "no-such-processor"},
            cora.UserError,
            "LLVM knows no processor 'no-such-processor'",
        ),
        ({"kind": "llvm", "mattr": ["+magic"]}, cora.UnsupportedError, r"target: mattr '\+magic'"),
    ],
)
def test_target(target: Any, kind: type[cora.CoraError], match: str) -> None:
    with pytest.raises(kind, match=match):
        cora.build(O, target=target, settings=UNCACHED)


@pytest.mark.parametrize(
    ("choice", "match"),
    [
        ({"guards": "none"}, "guards must be 'prove' or 'keep'; got 'none'"),
        ({"solver": "cvc5"}, "solver must be 'z3' or 'off'; got 'cvc5'"),
        ({"solver_rlimit": 0}, "solver_rlimit must be a positive integer; got 0"),
        ({"solver_rlimit": 1.5}, "solver_rlimit must be a positive integer; got 1.5"),
        ({"check_indices": 1}, "check_indices must be a bool; got 1"),
        ({"cache": "yes"}, "cache must be a bool; got 'yes'"),
        ({"cache_dir": 3}, "cache_dir must be a path; got 3"),
        ({"dump": True}, "dump must be a path; got True"),
    ],
)
def test_bad_settings(choice: dict[str, Any], match: str) -> None:
    with pytest.raises(cora.UserError, match=f"Settings: {match}"):
        cora.Settings(**choice)


def test_settings_of_another_kind() -> None:
    with pytest.raises(cora.UserError, match=r"settings must be a cora\.Settings; got dict"):
        cora.build(O, settings={"cache": False})  # type: ignore[arg-type]


def test_sizes_are_expressions() -> None:
    with pytest.raises(cora.UserError, match=r"truth of .* is not known"):
        bool(M < 3)
