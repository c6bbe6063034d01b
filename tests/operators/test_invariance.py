"""What must not change a bit: kept guards, the number of workers, the neighbours of a sequence, a second build."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import cora
from cora.ir import dtypes
from cora.ir.evaluate import Evaluator
from tests.operators.cases import CASES
from tests.operators.harness import (
    Array,
    Batch,
    Case,
    draw,
    every,
    kernel_of,
    run,
    same_bits,
    tuples_of,
    work_of,
)

ROOT = Path(__file__).resolve().parents[2]
REPRODUCED = ("listing1", "mean_of_columns", "causal_with_a_prefix", "layer_norm", "gather", "simplex")
ROWS_APART = 3  # batches per case whose rows are run alone


@every(CASES)
def test_kept_guards_change_nothing(case: Case, schedule: str) -> None:
    proved, kept = kernel_of(case, schedule), kernel_of(case, schedule, "keep")
    for number in range(len(case.batches)):
        work = work_of(case, number)
        results = [run(case, k, work.batch, work.elements) for k in (proved, kept)]
        assert same_bits(*results), f"{case.name} under {schedule} on {work.batch}"


@every(CASES)
def test_workers_and_places_in_memory_change_nothing(case: Case, schedule: str) -> None:
    kernel = kernel_of(case, schedule)
    for number in range(len(case.batches)):
        work = work_of(case, number)
        first = run(case, kernel, work.batch, work.elements, threads=1)
        for threads in (3, 7):
            other = run(case, kernel, work.batch, work.elements, threads=threads, side="begin")
            assert same_bits(first, other), f"{case.name} under {schedule} on {work.batch}, {threads} workers"


@every([c for c in CASES if c.batch_dim])
def test_a_sequence_does_not_see_its_neighbours(case: Case, schedule: str) -> None:
    kernel = kernel_of(case, schedule)
    mixed = [n for n, b in enumerate(case.batches) if _entries(b) > 1 and _is_mixed(b)]
    for number in mixed[-ROWS_APART:]:
        work = work_of(case, number)
        together = run(case, kernel, work.batch, work.elements)
        others = _disturbed(case, work.batch)
        for entry in range(_entries(work.batch)):
            where = f"{case.name} under {schedule} on {work.batch}, entry {entry}"
            expected = [
                _rows_of(a, work.batch, t, entry) for a, t in zip(together, case.outputs, strict=True)
            ]
            mine = {
                t.name: np.where(_of_entry(t, work.batch, entry), work.elements[t.name], others[t.name])
                for t in case.inputs
            }
            changed = run(case, kernel, work.batch, mine)
            got = [_rows_of(a, work.batch, t, entry) for a, t in zip(changed, case.outputs, strict=True)]
            assert _bits(got) == _bits(expected), f"{where}: other neighbours"
            single = _alone(case, kernel, work.batch, entry)
            elements = {t.name: _own(t, work.batch, entry, work.elements[t.name]) for t in case.inputs}
            alone = run(case, kernel, single, elements)
            assert _bits([a.packed() for a in alone]) == _bits(expected), f"{where}: alone"


def test_two_builds_give_the_same_source() -> None:
    digests = [_digest_elsewhere(seed) for seed in ("1", "2")]
    assert digests[0] == digests[1]


def digest() -> str:
    """A hash of the source of several kernels, built now."""
    sources = []
    for case in CASES:
        if case.name in REPRODUCED:
            for schedule in ("default", *case.schedules):
                kernel = kernel_of(case, schedule)
                sources += [kernel.ir("lowered"), kernel.explain(), kernel.source("ll")]
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()


def _digest_elsewhere(seed: str) -> str:
    """`digest` in a process with another order of sets."""
    code = "from tests.operators.test_invariance import digest; print(digest())"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _entries(batch: Batch) -> int:
    return batch.sizes.get("M", 0)


def _is_mixed(batch: Batch) -> bool:
    return any(len(set(n)) > 1 for n in batch.lengths.values()) or not batch.lengths


def _of_entry(tensor: cora.Tensor, batch: Batch, entry: int) -> Array:
    """Which elements of a tensor belong to a batch entry, or to all of them."""
    at = tuples_of(tensor, batch)
    if not tensor.dims or tensor.dims[0].name != "batch":
        return np.ones(len(at), np.bool_)
    return at[:, 0] == entry


def _own(tensor: cora.Tensor, batch: Batch, entry: int, elements: Array) -> Array:
    return elements[_of_entry(tensor, batch, entry)]


def _rows_of(array: cora.RaggedArray, batch: Batch, tensor: cora.Tensor, entry: int) -> Array:
    return _own(tensor, batch, entry, array.packed())


def _bits(arrays: list[Array]) -> list[bytes]:
    return [a.tobytes() for a in arrays]


def _disturbed(case: Case, batch: Batch) -> dict[str, Array]:
    """Other elements: NaN where an input may be anything."""
    drawn = draw(case, batch, 12345)
    for tensor in case.inputs:
        if tensor.name not in case.fills and dtypes.is_float(tensor.dtype):
            drawn[tensor.name] = np.full_like(drawn[tensor.name], np.nan)
    return drawn


def _alone(case: Case, kernel: cora.Kernel, batch: Batch, entry: int) -> Batch:
    """The batch of one entry."""
    lengths = {}
    evaluator = Evaluator(batch.sizes, batch.lengths)
    for name, values in batch.lengths.items():
        domain = kernel.length_domains.get(name)
        if domain is None or len(domain) == 1:
            lengths[name] = (values[entry],)
        else:
            points = list(evaluator.points(domain))
            lengths[name] = tuple(v for v, p in zip(values, points, strict=True) if p[0] == entry)
    return Batch(lengths, {**batch.sizes, "M": 1})
