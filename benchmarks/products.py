"""What the experiments on matrix products share: problems, kernels ready to run, rows, and one pinned thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import exp, log
from typing import Any

import numpy as np
import numpy.typing as npt

import cora
from benchmarks.fma import FmaPeak
from benchmarks.options import TARGET
from benchmarks.peers.blas import Blas, Call, Gemm, Matrix
from benchmarks.results import Row
from benchmarks.timer import Timing, measure, ratio, settle_ms

UNCACHED = cora.Settings(cache=False)
#: Largest difference of an element from what a library computes, per term of its sum.
TOLERANCE = 2e-6
#: Random numbers are repeated after so many: drawing gigabytes takes longer than multiplying them.
_PERIOD = 1_000_003


def numbers(count: int, seed: int) -> npt.NDArray[np.float32]:
    """`count` float32 numbers between -1 and 1."""
    drawn = np.random.default_rng(seed).random(min(count, _PERIOD), np.float32) * 2 - 1
    return np.resize(drawn, count)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of products, packed one behind another; the libraries read the same memory as the kernels.

    shapes: m, n and k of each. left, right: the operands, flat.
    """

    shapes: tuple[tuple[int, int, int], ...]
    left: npt.NDArray[np.float32]
    right: npt.NDArray[np.float32]

    @staticmethod
    def random(shapes: tuple[tuple[int, int, int], ...]) -> Batch:
        """A batch of these shapes."""
        left, right = sum(m * k for m, _, k in shapes), sum(k * n for _, n, k in shapes)
        return Batch(shapes, numbers(left, 1), numbers(right, 2))

    @property
    def flops(self) -> int:
        """Useful floating-point operations."""
        return sum(2 * m * n * k for m, n, k in self.shapes)

    @property
    def lengths(self) -> dict[str, Any]:
        """The lengths of a `vgemm` by name."""
        return {name: [shape[axis] for shape in self.shapes] for axis, name in enumerate(("m", "n", "k"))}

    def problems(self, out: npt.NDArray[np.float32]) -> list[Gemm]:
        """The products as matrices in place; results go to the flat array `out`."""
        found: list[Gemm] = []
        at = [0, 0, 0]
        for m, n, k in self.shapes:
            sizes = ((self.left, m, k), (self.right, k, n), (out, m, n))
            parts = [flat[p : p + r * c].reshape(r, c) for (flat, r, c), p in zip(sizes, at, strict=True)]
            found.append(Gemm(*parts))
            at = [p + r * c for (_, r, c), p in zip(sizes, at, strict=True)]
        return found

    def empty(self) -> npt.NDArray[np.float32]:
        """A flat array for the results, full of NaN."""
        return np.full(sum(m * n for m, n, _ in self.shapes), np.nan, np.float32)


def library_call(library: Blas, problem: Sequence[Gemm], *, batched: bool, threads: int) -> Call:
    """The call of a BLAS library on `threads` threads, set each time: another library may have changed it."""
    call = library.gemm_batch(problem) if batched else library.gemm(problem)

    def run() -> None:
        library.set_threads(threads)
        call()

    return run


def kernel_call(
    kernel: cora.Kernel, plan: cora.Plan, inputs: Mapping[str, Any], out: Matrix | cora.RaggedArray
) -> Call:
    """A run of a kernel on a plan, with everything given."""
    (name,) = kernel.outputs
    return partial(kernel.run, plan, *(inputs[i] for i in kernel.inputs), outputs={name: out})


def wrong_elements(result: npt.NDArray[np.float32], expected: npt.NDArray[np.float32], terms: int) -> int:
    """How many elements differ from `expected` by more than rounding; a NaN does."""
    return int(np.count_nonzero(~(np.abs(result - expected) <= TOLERANCE * max(terms, 8))))


def slowest_over_mean(kernel: cora.Kernel, plan: cora.Plan, workers: int) -> float:
    """The largest share of `workers` workers in a kernel's parallel loops, over the mean: counted from the plan."""
    shares = [s.work for s in kernel.balance(plan, workers)]
    total = [sum(work) for work in zip(*shares, strict=True)]
    return max(total) * workers / sum(total) if sum(total) else 1.0


def geomean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return exp(sum(map(log, values)) / len(values)) if values else 1.0


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Keep the calling thread on one core while one thread is measured."""
    thread, cores = threading.get_native_id(), os.sched_getaffinity(0)
    if threads == 1:
        os.sched_setaffinity(thread, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(thread, cores)


@dataclass(slots=True)
class Recorder:
    """The rows of an experiment, as they are measured."""

    experiment: str
    rows: list[Row] = field(default_factory=list)

    def add(
        self, variant: str, dataset: str, batch: int, threads: int, metric: str, value: float, unit: str
    ) -> None:
        """Append a row."""
        self.rows.append(
            Row(self.experiment, variant, dataset, batch, TARGET, threads, metric, float(value), unit)
        )

    def value(self, variant: str, dataset: str, batch: int, threads: int, metric: str) -> float | None:
        """The value of a row; None if there is none."""
        key = (variant, dataset, batch, threads, metric)
        found = (
            r.value for r in self.rows if (r.variant, r.dataset, r.batch_size, r.threads, r.metric) == key
        )
        return next(found, None)

    def compare(
        self,
        dataset: str,
        batch: int,
        threads: int,
        calls: Mapping[str, Call],
        flops: int,
        *,
        own: str,
        best_of: Sequence[str],
        repeats: int,
        unit: str = "GFLOP/s",
    ) -> dict[str, Timing]:
        """Time calls against one another and the peak, and record times, rates and ratios.

        Args:
            flops: useful ones of each call; bytes moved where the unit is "GB/s".
            own: the variant that the others are compared with: `<other>_over_<own>` is its lead.
            best_of: the variants of which the fastest counts as the competition.
        """
        with pinned(threads), FmaPeak(threads) as peak:
            timings = measure(
                {**calls, "peak": peak}, repeats=repeats, warmup_ms=5.0, settle_ms=settle_ms(threads)
            )
            peak_flops = peak.flops
        rate = {v: (peak_flops if v == "peak" else flops) / (t.median_ms * 1e6) for v, t in timings.items()}
        for variant, timing in timings.items():
            self.add(
                variant,
                dataset,
                batch,
                threads,
                "rate",
                rate[variant],
                "GFLOP/s" if variant == "peak" else unit,
            )
            if variant == "peak":
                continue
            self.add(variant, dataset, batch, threads, "time", timing.median_ms, "ms")
            self.add(variant, dataset, batch, threads, "time_min", timing.min_ms, "ms")
            if unit == "GFLOP/s":
                of_peak = ratio(timings["peak"], timing) * flops / peak_flops
                self.add(variant, dataset, batch, threads, "of_peak", of_peak, "")
            if variant != own:
                over = ratio(timing, timings[own])
                self.add(own, dataset, batch, threads, f"{variant}_over_{own}", over, "")
        present = [v for v in best_of if v in timings]
        if present:
            best = min(present, key=lambda v: timings[v].median_ms)
            self.add(own, dataset, batch, threads, "lead", ratio(timings[best], timings[own]), "")
        return timings
