"""Operators on a GPU, or on its emulator, against the interpreter: hostile lengths, every order of the threads."""

from __future__ import annotations

import os
import re

import pytest

from benchmarks.cuda_programs import projection, recipe
from tests.cuda import programs
from tests.cuda.built import Built
from tests.operators.cases import CASES
from tests.operators.harness import Batch, Case, check, work_of

#: Operators that are checked each time; the others on a GPU, or where they are asked for: each takes a compilation.
USUAL = frozenset(
    {
        "listing1", "convolution", "sum_over_two_ragged", "argmax_over_ragged_odd_values", "upper_triangle",
        "attention", "gathered_sum", "extremes_int32", "mixed_types", "functions_float32", "positions_float16",
    }
)  # fmt: skip


SCHEDULED = [(c, s) for c in programs.CASES for s in c.schedules]


@pytest.mark.parametrize(("case", "schedule"), SCHEDULED, ids=[f"{c.name}-{s}" for c, s in SCHEDULED])
def test_scheduled_by_hand(case: Case, schedule: str, built: Built, order: int) -> None:
    kernel = built.get(case, schedule)
    if order and not re.search(r"__syncthreads\(\);|__shfl_xor_sync\(\(", kernel.source()):
        pytest.skip("its threads do not meet: their order does not matter")
    for number in range(len(case.batches)):
        check(case, kernel, work_of(case, number))


@pytest.mark.parametrize("case", programs.CASES, ids=lambda c: c.name)
def test_default_schedule(case: Case, built: Built) -> None:
    kernel = built.get(case, "default")
    for number in range(len(case.batches)):
        check(case, kernel, work_of(case, number))


def test_the_tiled_product(built: Built, order: int) -> None:
    product = projection(128)
    batches = tuple(
        Batch({"lens": n}, {"batch_size": len(n)}) for n in ((), (0, 130, 1), (128,), (127, 0, 5))
    )
    _check(Case("tiled_product", product.outputs, batches, {"tiles": lambda _: product.built_from}), built)


def test_products_of_all_sizes(built: Built, order: int) -> None:
    product = recipe("vgemm")
    sizes = (
        ((), (), ()),
        ((0, 3), (2, 0), (0, 5)),
        ((1, 129, 16), (130, 1, 15), (17, 16, 0)),
        ((128, 5), (128, 7), (16, 33)),
    )
    batches = tuple(Batch({"m": m, "n": n, "k": k}, {"batch_size": len(m)}) for m, n, k in sizes)
    _check(Case("vgemm", product.outputs, batches, {"tiles": lambda _: product.built_from}), built)


def _check(case: Case, built: Built) -> None:
    kernel = built.get(case, "tiles")
    for number in range(len(case.batches)):
        check(case, kernel, work_of(case, number))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_operator(case: Case, built: Built, device: str) -> None:
    if device == "emulator" and case.name not in USUAL and not os.environ.get("CORA_CUDA_ALL"):
        pytest.skip("set CORA_CUDA_ALL=1 to compile and run all operators on the emulator")
    kernel = built.get(case, "default")
    for number in range(len(case.batches)):
        check(case, kernel, work_of(case, number))
