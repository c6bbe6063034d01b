"""Copies to shared memory: conditions become predicates, and what addresses have in common is computed once."""

from __future__ import annotations

import re

import cora

M = cora.size("M")
batch = cora.Dim("batch", M)
pos = cora.Dim("pos", cora.lengths("lens", batch)[batch])
k = cora.Dim("k", 8)
X = cora.placeholder("X", [batch, pos])
Y = cora.compute("Y", [batch, pos], cora.sum(X[batch, pos] * cora.placeholder("w", [k])[k], over=k))


def scheduled(dtype_of: cora.Tensor = Y) -> cora.Schedule:
    """Rows of any length; 64 elements of each are copied four times 16 at once."""
    op = dtype_of
    s = cora.schedule(op).split(op, pos, 64, names=("po", "pi")).fuse(op, "batch", "po", name="tile")
    s = s.reorder(op, "tile", k, "pi").cache_read(op, "X", k, name="x_tile")
    s = s.split("x_tile", pos, 64, names=("part", "q"), tail="cover").split(
        "x_tile", "q", 16, names=("t", "x")
    )
    s = s.unroll("x_tile", "t").bind("x_tile", "x", "threadIdx.x").pipeline(op, k)
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
