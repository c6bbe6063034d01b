"""Copies to shared memory: conditions become predicates, and what addresses have in common is computed once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cora
from tests.cuda.test_emulator import caught, mutant
from tests.cuda.test_tensor_core import BATCHES, kernels_changed, product, tiled
from tests.operators.harness import TF32_ULPS, Case

M = cora.size("M")
batch = cora.Dim("batch", M)
pos = cora.Dim("pos", cora.lengths("lens", batch)[batch])
k = cora.Dim("k", 8)
X = cora.placeholder("X", [batch, pos])
Y = cora.compute("Y", [batch, pos], cora.sum(X[batch, pos] * cora.placeholder("w", [k])[k], over=k))


def scheduled(op: cora.Tensor = Y, stages: int = 2) -> cora.Schedule:
    """Rows of any length; 64 elements of each are copied four times 16 at once."""
    s = cora.schedule(op).split(op, pos, 64, names=("po", "pi")).fuse(op, "batch", "po", name="tile")
    s = s.reorder(op, "tile", k, "pi").cache_read(op, "X", k, name="x_tile")
    s = s.split("x_tile", pos, 64, names=("part", "q"), tail="cover").split(
        "x_tile", "q", 16, names=("t", "x")
    )
    s = s.unroll("x_tile", "t").bind("x_tile", "x", "threadIdx.x").pipeline(op, k, stages)
    return s.split(op, "pi", 16, names=("t", "x")).bind(op, "x", "threadIdx.x").bind(op, "tile", "blockIdx.x")


def text_of(s: cora.Schedule) -> str:
    """The CUDA C++ of the kernel alone."""
    text = cora.build(s, "cuda", cora.Settings(cache=False)).source()
    return text[text.index('extern "C"') :]


def test_conditions_are_predicates() -> None:
    text = text_of(scheduled())
    calls = re.findall(r"cora_copy_async_4\(.*\);", text)
    assert len(calls) == 2  # ahead of the loop, and in it
    for call in calls:
        to, source, condition = call[len("cora_copy_async_4(") : -2].split(", ")
        assert re.fullmatch(r"\(copied_to\w* \+ [^x]*\(t_\d \* 16\)+ \* \(uint\)4\)+", to), to
        assert re.fullmatch(r"\(copied_from\w* \+ [^x]*\(t_\d \* 16\)+ \* \(int64_t\)4\)+", source), source
        assert re.search(r"\(\(part\w* \* 64\) \+ \(t\w* \* 16\)\) < left\w*\)", condition), condition
    for line in text.splitlines():  # no branch on what is left of a row but that of the store
        assert "if (" not in line or "left" not in line


def test_what_is_too_narrow_for_the_hardware_stays_under_its_branch() -> None:
    narrow = cora.placeholder("X", [batch, pos], dtype="float16")
    Z = cora.compute("Z", [batch, pos], cora.sum(narrow[batch, pos] * cora.placeholder("w", [k])[k], over=k))
    text = text_of(scheduled(Z))
    assert "cora_copy_" not in text
    assert re.search(r"if \(.*\) \{\n\s*x_tile\w*\[.*\] = X\w*\[", text)


def test_stages_are_groups_of_copies() -> None:
    text = cora.build(scheduled(stages=4), "cuda", cora.Settings(cache=False)).ir("lowered")
    ahead, loop = text.split("for k in 0..8:")
    assert ahead.count("group of copies") == ahead.count("= copy of") == 3
    assert "local x_tile[256]" in ahead
    assert loop.count("group of copies") == 1
    assert "await copies but 2 groups\n    barrier\n    if k + 3 < 8:" in loop
    with pytest.raises(cora.ScheduleError, match="pipeline: stages: expected 2, 3 or 4; got 5"):
        scheduled(stages=5)
    with pytest.raises(cora.ScheduleError, match="loop 'k' of 'Y' is pipelined already"):
        scheduled(stages=3).pipeline(Y, k)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"cora_await_copies_but<1>\(\);", "cora_await_copies_but<2>();"),
        (r"cora_group_copies\(\);", ""),
        (r"__syncthreads\(\);", ""),
    ],
    ids=["wait", "group", "barrier"],
)
def test_wrong_stages_are_caught(
    old: str, new: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device != "emulator":
        pytest.skip("this is about the emulator")
    C = product(32, 64, turned=False, dtype="float32")
    schedules = {"ahead": lambda _: tiled(C, 16, 16, 16, tf32=True).pipeline(C, "ko", stages=3)}
    case = Case("stages", (C,), BATCHES[3:], schedules, ulps=TF32_ULPS)
    kernel = mutant(case, "ahead", lambda text: kernels_changed(text, old, new), tmp_path)
    assert caught(case, kernel, monkeypatch)
