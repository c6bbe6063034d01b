"""Reductions in blocks without micro-kernels: start on the first, combine between, finish on the last."""

from __future__ import annotations

import numpy as np
import pytest

import cora
from cora.schedule.schedule import Schedule
from tests.reference import assert_matches

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])
col = cora.Dim("col", 7)
A = cora.placeholder("A", [batch, pos, col])
S = cora.placeholder("S", [batch])

LENGTHS = ([], [0, 0], [0, 3, 0, 0], [1], [3, 4, 5], [8, 1, 9, 16], [40, 0, 1])


def reduced(kind: str) -> cora.Tensor:
    """A reduction over `pos`, with an epilogue unless it is a bare one."""
    value = A[batch, pos, col]
    body = {
        "sum": cora.sum(value, over=pos),
        "mean": cora.mean(value, over=pos),
        "max": cora.max(value, over=pos),
        "min": cora.min(value, over=pos) + S[batch],
        "prod": cora.exp(cora.prod(value, over=pos)) * 0.5,
    }[kind]
    return cora.compute("O", [batch, col], body)


def check(s: Schedule) -> cora.Kernel:
    kernel = cora.build(s, settings=cora.Settings(cache=False))
    rng = np.random.default_rng(4)
    for lengths in LENGTHS:
        known, sizes = {"lens": lengths}, {"M": len(lengths)}
        arrays = {}
        for name in kernel.inputs:
            array = cora.RaggedArray.empty(A if name == "A" else S, known, sizes)
            array.values[:] = rng.standard_normal(array.values.size)
            arrays[name] = array.to_layout(kernel.layout(name))
        reference = cora.interpret(s.outputs[0], arrays, lengths=known, sizes=sizes)
        out = cora.RaggedArray.empty(s.outputs[0], known, sizes, fill=np.nan)
        plan = cora.plan(kernel, lens=lengths)
        assert_matches(reference, kernel.run(plan, *arrays.values(), outputs={"O": out}))
    return kernel


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("tail", ["guard", "balanced", "anchored"])
def test_blocks(kind: str, tail: str) -> None:
    o = reduced(kind)
    s = cora.schedule(o).split(o, pos, 4, names=("block", "step"), tail=tail)  # type: ignore[arg-type]
    check(s.cache_write(o, "block").parallel(o, batch))


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_blocks_outside_lanes(kind: str) -> None:
    """The columns in lanes inside the reduction; a block loop outside the whole tile of accumulators."""
    o = reduced(kind)
    s = cora.schedule(o).split(o, pos, 4, names=("block", "step")).split(o, col, 4, names=("co", "ci"))
    check(s.reorder(o, "block", "co", "step", "ci").cache_write(o, "co").vectorize(o, "ci"))


def test_lanes_of_the_reduction_itself() -> None:
    o = reduced("sum")
    s = cora.schedule(o).split(o, pos, 8, names=("block", "step"))
    check(s.cache_write(o, "block").vectorize(o, "step"))


def test_a_loop_that_reaches_further_than_its_row() -> None:
    """Reordered outside the batch, the blocks run to those of the longest row; the last of them still finishes."""
    o = reduced("mean")
    s = cora.schedule(o).split(o, pos, 4, names=("block", "step")).reorder(o, "block", batch, col)
    check(s.cache_write(o, col))


def test_padded_loops_have_no_block_of_nothing() -> None:
    o = reduced("mean")
    s = cora.schedule(o).pad_dim(A, pos, 4).pad_loop(o, pos, 4).split(o, pos, 4, names=("block", "step"))
    check(s.cache_write(o, "block"))


def test_refusals() -> None:
    o = reduced("sum")
    s = cora.schedule(o).split(o, pos, 4, names=("block", "step"))
    with pytest.raises(cora.ScheduleError, match="no reduction loop stands inside"):
        s.cache_write(o, "step")
    with pytest.raises(cora.ScheduleError, match="live in loop 'block' already"):
        s.cache_write(o, "block").cache_write(o, "block")
    with pytest.raises(cora.ScheduleError, match="live in loop 'block'; cache_write last"):
        s.cache_write(o, "block").split(o, "block", 2)
    at = cora.compute("at", [batch, col], cora.argmax(A[batch, pos, col], over=pos))
    with pytest.raises(cora.ScheduleError, match="must have one reduction, a sum, prod, max or min"):
        cora.schedule(at).split(at, pos, 4).cache_write(at, "pos_o")
    half = cora.compute("half", [batch, col], cora.sum(A[batch, pos, col], over=pos), dtype="float16")
    with pytest.raises(cora.ScheduleError, match="it is stored as float16"):
        cora.schedule(half).split(half, pos, 4).cache_write(half, "pos_o")
