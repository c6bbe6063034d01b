"""Random tiles: products of every shape, stored and cut in many ways, by every micro-kernel, guards kept or not."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import cora
from cora.schedule.steps import TAILS
from tests.guard_pages import guarded
from tests.openblas import INSTALLED
from tests.reference import assert_matches
from tests.schedule.test_tensorize import KEEP, SETTINGS, A, At, B, R, batch, bias, i, j, r
from tests.tiles.given_kernels import any_tile, row_of_16

HOSTILE = ([], [0], [1], [0, 3, 0, 0], [5, 6, 7], [1, 70, 2], [16, 16, 16], [33, 0, 64, 65])


def program(choose: random.Random) -> cora.Tensor:
    """A product, perhaps with a bias, a residual, a factor or an activation."""
    left = A[batch, i, r] if choose.random() < 0.7 else At[batch, r, i]
    value: Any = cora.sum(left * B[batch, r, j], over=r)
    if choose.random() < 0.2:
        value = 0.5 * value
    if choose.random() < 0.4:
        value = value + bias[batch, j]
    if choose.random() < 0.2:
        value = cora.maximum(value, 0.0)
    if choose.random() < 0.3:
        value = value + R[batch, i, j]
    return cora.compute("C", [batch, i, j], value)


def scheduled(c: cora.Tensor, choose: random.Random) -> cora.Schedule:
    """Loops cut and ordered such that rows, columns and a reduction are innermost; operands stored in some way."""
    s = cora.schedule(c)
    for tensor in s.tensors:
        if choose.random() < 0.2:
            s = s.pad_dim(tensor, tensor.dims[-1], choose.choice([1, 3, 16]), contents="undefined")
    tails = [t for t in TAILS if t not in ("shifted", "cover")]
    s = s.split(c, i, choose.choice([1, 2, 5, 6, 8, 13, 40]), names=("io", "ii"), tail=choose.choice(tails))
    s = s.split(c, j, choose.choice([1, 16, 17, 48, 64, 100]), names=("jo", "ji"), tail=choose.choice(tails))
    outer, depth = ["io", "jo"], "r"
    if choose.random() < 0.5:
        s = s.split(c, r, choose.choice([1, 5, 8, 32]), names=("ro", "ri"), tail=choose.choice(tails))
        outer.append("ro")
        depth = "ri"
    choose.shuffle(outer)
    s = s.reorder(c, *outer, "ii", "ji", depth)
    if choose.random() < 0.3 and outer[0] != "ro":
        s = s.fuse(c, batch, outer[0], name="block")
        s = s.parallel(c, "block")
    elif choose.random() < 0.5:
        s = s.parallel(c, batch, balance=choose.choice(["cost", "count", "longest_first"]))
    kernels: list[Any] = [None, None, any_tile(), row_of_16(), *(["openblas"] if INSTALLED else [])]
    s = s.tensorize(c, "ii", choose.choice(kernels))
    at = next((leaf.name for leaf in s.nest(c).leaves if leaf.name in ("jo", "ro", "block")), None)
    if at is not None and choose.random() < 0.5:
        s = s.cache_read(c, B, at, "copied")
        again = [leaf.name for leaf in s.nest(c).leaves[s.nest(c).position(at, "") : -3] if leaf.name == "io"]
        if again and s.nest(c).routine is None:  # that the first rows exist is proved for these tails
            filled = s.fill_at_use("copied")
            if choose.random() < 0.3:
                filled = filled.remap(c, "io", "reversed")
            return filled
    return s


@pytest.mark.parametrize("seed", range(10))
def test_random_tile(seed: int) -> None:
    """Right on hostile lengths, and the same bits with every guard kept, with one worker and with three."""
    choose = random.Random(seed)
    c = program(choose)
    s = scheduled(c, choose)
    kernels = [cora.build(s, settings=settings) for settings in (SETTINGS, KEEP)]
    rng = np.random.default_rng(seed)
    for ms in choose.sample(HOSTILE, 4):
        lengths = {"m": ms} | {x: [choose.choice([0, 1, 3, 17, 64, 65]) for _ in ms] for x in "nk"}
        sizes = {"M": len(ms)}
        arrays = {}
        for name in kernels[0].inputs:
            tensor = next(t for t in s.tensors if t.name == name)
            packed = cora.RaggedArray.empty(tensor, lengths, sizes)
            packed.values[:] = rng.standard_normal(packed.values.size)
            laid = packed.to_layout(kernels[0].layout(name), fill=np.nan)
            used = {x: v for x, v in lengths.items() if x in str(laid.layout)}
            arrays[name] = cora.RaggedArray.from_values(
                guarded(laid.values), laid.layout, used, sizes, name=name
            )
        reference = cora.interpret(c, arrays, lengths=lengths, sizes=sizes)
        results = []
        for kernel in kernels:
            for threads in (1, 3):
                known = {x: v for x, v in lengths.items() if x in kernel.length_domains}
                plan = cora.plan(kernel, threads=threads, **known)
                results.append(kernel.run(plan, *(arrays[name] for name in kernel.inputs)))
        assert_matches(reference, results[0])
        for other in results[1:]:
            np.testing.assert_array_equal(results[0].packed(), other.packed(), err_msg=repr(s))
