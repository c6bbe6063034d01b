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
from tests.operators.families import reductions, types
from tests.operators.harness import (
    Array,
    Batch,
    Case,
    Kernels,
    draw,
    every,
    packed,
    run,
    same_bits,
    tuples_of,
    work_of,
)

ROOT = Path(__file__).resolve().parents[2]
REPRODUCED = ("causal_with_a_prefix", "simplex")
# Families whose cases differ in an operation or a type alone: guards are kept in some of them.
REPETITIVE = (*reductions.CASES, *types.CASES)
SOME = tuple(
    c for c in REPETITIVE if c.name.startswith(("sum", "max", "argmax", "nested", "numbers_f", "mixed"))
)
ROWS_APART = 3  # batches per case whose rows are run alone


@every([c for c in CASES if c not in REPETITIVE], SOME)
def test_kept_guards_change_nothing(kernels: Kernels, case: Case, schedule: str) -> None:
    kept = kernels.get(case, schedule, "keep")
    for number in range(len(case.batches)):
        work = work_of(case, number)
        results = packed(run(case, kept, work.batch, work.elements))
        assert same_bits(results, kernels.results(case, schedule, number)), f"on {work.batch}"


@every(CASES)
def test_workers_and_places_in_memory_change_nothing(kernels: Kernels, case: Case, schedule: str) -> None:
    kernel = kernels.get(case, schedule)
    for number in range(len(case.batches)):
        work = work_of(case, number)
        for threads in (1, 3, 7) if number in _mixed(case) else (3,):
            results = packed(run(case, kernel, work.batch, work.elements, threads=threads, side="begin"))
            assert same_bits(results, kernels.results(case, schedule, number)), f"{threads} on {work.batch}"


@every([c for c in CASES if c.batch_dim])
def test_a_sequence_does_not_see_its_neighbours(kernels: Kernels, case: Case, schedule: str) -> None:
    kernel = kernels.get(case, schedule)
    for number in _mixed(case):
        work = work_of(case, number)
        together = kernels.results(case, schedule, number)
        others = _disturbed(case, work.batch)
        for entry in range(_entries(work.batch)):
            where = f"entry {entry} of {work.batch}"
            mine = {t.name: _of_entry(t, work.batch, entry) for t in (*case.inputs, *case.outputs)}
            expected = [a[mine[t.name]] for a, t in zip(together, case.outputs, strict=True)]
            mixture = {
                t.name: np.where(mine[t.name], work.elements[t.name], others[t.name]) for t in case.inputs
            }
            changed = packed(run(case, kernel, work.batch, mixture))
            got = [a[mine[t.name]] for a, t in zip(changed, case.outputs, strict=True)]
            assert same_bits(got, expected), f"other neighbours, {where}"
            elements = {t.name: work.elements[t.name][mine[t.name]] for t in case.inputs}
            alone = packed(run(case, kernel, _alone(kernel, work.batch, entry), elements))
            assert same_bits(alone, expected), f"alone, {where}"


def test_two_builds_give_the_same_source(tmp_path: Path) -> None:
    digests = [_digest_elsewhere(seed, tmp_path / seed) for seed in ("1", "2")]
    assert digests[0] == digests[1]


def digest(folder: str) -> str:
    """A hash of the source of several kernels, built now, in a new folder."""
    kernels = Kernels(Path(folder))
    sources = []
    for case in CASES:
        if case.name in REPRODUCED:
            for schedule in ("default", *case.schedules):
                kernel = kernels.get(case, schedule)
                sources += [kernel.ir("lowered"), kernel.explain(), kernel.source("ll")]
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()


def _digest_elsewhere(seed: str, folder: Path) -> str:
    """`digest` in a process with another order of sets."""
    code = f"from tests.operators.test_invariance import digest; print(digest({str(folder)!r}))"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _entries(batch: Batch) -> int:
    return batch.sizes.get("M", 0)


def _mixed(case: Case) -> tuple[int, ...]:
    """The last batches with entries of different lengths."""
    several = [n for n, b in enumerate(case.batches) if any(len(set(v)) > 1 for v in b.lengths.values())]
    return tuple(several[-ROWS_APART:])


def _of_entry(tensor: cora.Tensor, batch: Batch, entry: int) -> Array:
    """Which elements of a tensor belong to a batch entry, or to all of them."""
    at = tuples_of(tensor, batch)
    names = [d.name for d in tensor.dims]
    return at[:, names.index("batch")] == entry if "batch" in names else np.ones(len(at), np.bool_)


def _disturbed(case: Case, batch: Batch) -> dict[str, Array]:
    """Other elements: NaN where an input may be anything."""
    drawn = draw(case, batch, 12345)
    for tensor in case.inputs:
        if tensor.name not in case.fills and dtypes.is_float(tensor.dtype):
            drawn[tensor.name] = np.full_like(drawn[tensor.name], np.nan)
    return drawn


def _alone(kernel: cora.Kernel, batch: Batch, entry: int) -> Batch:
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
