"""The one timer: every published time comes from here.

The callables of one `measure` are compared, so they are run in turn, sample by
sample, in an order that reverses every time: what the machine does meanwhile
(frequency, neighbours) falls on all of them. The cache regime is stated:

- "warm": a sample repeats the call until `min_sample_ms` has passed, so that data
  which fits a cache is found there.
- "cold": a buffer larger than the last-level cache is rewritten before each sample,
  which is a single call. Private caches of other cores than the caller's may keep
  something of the data.

All times are in milliseconds of wall clock per call. A sample that is shorter than the clock can tell is NaN.

Each sample also says for which share of it the calling thread had a core. Kernels keep that thread busy, so a
share well below 1 means contention: others ran there.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cora.autotune.machine import last_level_cache_bytes
from cora.errors import UserError

CacheRegime = Literal["warm", "cold"]

#: Below this a difference of two readings of the clock says nothing (reading it takes about 50 ns).
RESOLUTION_NS = 100


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one callable, in milliseconds per call.

    `samples` are in the order they were taken: the i-th samples of callables that
    were measured together were taken one after the other. `busy` has the share of each
    sample in which the calling thread ran; empty if that is not known. What is too short
    for the clock is NaN, and not in the summary, which is NaN if nothing else is there.
    """

    median_ms: float
    min_ms: float
    p10_ms: float
    p90_ms: float
    samples: tuple[float, ...]
    busy: tuple[float, ...] = ()

    @staticmethod
    def of(samples: tuple[float, ...], busy: tuple[float, ...] = ()) -> Timing:
        """Summarise samples, in milliseconds per call; at least one."""
        usable = [sample for sample in samples if math.isfinite(sample)] or [math.nan]
        p10, median, p90 = (float(value) for value in np.percentile(usable, (10, 50, 90)))
        return Timing(median, min(usable), p10, p90, samples, busy)


def measure(
    callables: Mapping[str, Callable[[], object]],
    *,
    cache: CacheRegime = "warm",
    repeats: int = 20,
    warmup_ms: float = 50.0,
    min_sample_ms: float = 2.0,
    settle_ms: float = 0.0,
) -> dict[str, Timing]:
    """Time callables against each other.

    Args:
        callables: what to time, by name; each is called without arguments.
        cache: state of the caches before each sample; see the module's text.
        repeats: samples of each callable, at least 1.
        warmup_ms: each callable is first called for this long, and at least twice.
        min_sample_ms: shortest sample in the warm regime.
        settle_ms: a pause before each sample, and then calls for as long, at least one, that are not timed. The
            workers of several libraries need it: those of the one before go on spinning for a while, on the cores that
            the next one wants; and when its own wake up, it takes the system some milliseconds to spread them.

    Raises:
        UserError: nothing to time, no repeats, a negative time or an unknown regime.
            What a callable raises is passed on.
    """
    if not callables:
        raise UserError("measure: expected at least one callable")
    if repeats < 1:
        raise UserError(f"measure: repeats must be at least 1, got {repeats}")
    if min(warmup_ms, min_sample_ms, settle_ms) < 0:
        raise UserError(
            "measure: warmup_ms, min_sample_ms and settle_ms must be at least 0, "
            f"got {warmup_ms}, {min_sample_ms} and {settle_ms}"
        )
    if cache not in ("warm", "cold"):
        raise UserError(f"measure: cache must be 'warm' or 'cold', got {cache!r}")

    calls = {name: _warm_up(call, warmup_ms, min_sample_ms) for name, call in callables.items()}
    flush = _flusher() if cache == "cold" else None
    samples: dict[str, list[float]] = {name: [] for name in callables}
    busy: dict[str, list[float]] = {name: [] for name in callables}
    order = list(callables)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for repeat in range(repeats):
            for name in order if repeat % 2 == 0 else reversed(order):
                count = calls[name]
                if flush is not None:
                    flush()
                    count = 1
                if settle_ms > 0:
                    time.sleep(settle_ms / 1e3)
                    _call_for(callables[name], settle_ms)
                before_ns = time.thread_time_ns()
                taken = _per_call_ms(callables[name], count)
                ran_ms = (time.thread_time_ns() - before_ns) / 1e6
                samples[name].append(taken)
                busy[name].append(min(1.0, ran_ms / (taken * count)) if taken > 0 else math.nan)
    finally:
        if collecting:
            gc.enable()
    return {name: Timing.of(tuple(samples[name]), tuple(busy[name])) for name in callables}


def ratio(numerator: Timing, denominator: Timing) -> float:
    """Median of the ratios of paired samples of two callables measured together.

    Raises:
        UserError: the two do not have the same number of samples.
    """
    if len(numerator.samples) != len(denominator.samples):
        raise UserError(
            "ratio: the timings must come from one measurement, "
            f"got {len(numerator.samples)} and {len(denominator.samples)} samples"
        )
    return float(np.median(np.divide(numerator.samples, denominator.samples)))


def _call_for(call: Callable[[], object], duration_ms: float) -> None:
    """Call until so much time has passed, at least once."""
    end = time.perf_counter() + duration_ms / 1e3
    call()
    while time.perf_counter() < end:
        call()


def _warm_up(call: Callable[[], object], warmup_ms: float, min_sample_ms: float) -> int:
    """Call for `warmup_ms`; return how many calls make a sample of `min_sample_ms`."""
    call()
    spent_ms, fastest_ms = 0.0, math.inf
    while not math.isfinite(fastest_ms) or spent_ms < warmup_ms:
        taken_ms = _per_call_ms(call, 1)
        if math.isnan(taken_ms):  # too short to tell
            taken_ms = RESOLUTION_NS / 1e6
        spent_ms += taken_ms
        fastest_ms = min(fastest_ms, taken_ms)
    return max(1, math.ceil(min_sample_ms / max(fastest_ms, 1e-6)))


def _per_call_ms(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(calls):
        call()
    taken_ns = time.perf_counter_ns() - start
    return taken_ns / (calls * 1e6) if taken_ns >= RESOLUTION_NS else math.nan


def _flusher() -> Callable[[], None]:
    """A function that displaces the caches' contents by rewriting a larger buffer."""
    buffer = np.zeros(2 * last_level_cache_bytes() // 8, dtype=np.int64)

    def flush() -> None:
        np.add(buffer, 1, out=buffer)

    return flush
