"""What the experiments with transformers share: batches, useful operations, rows and tables."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Column, Table

from benchmarks.fma import FmaPeak
from benchmarks.lengths import DATASETS
from benchmarks.options import TARGET, Options
from benchmarks.results import Row
from benchmarks.timer import Timing, measure, ratio, settle_ms
from cora.kernels import LayerConfig

#: The layer of the paper's section 7.2.
LAYER = LayerConfig(hidden=512, heads=8, inner=2048, activation="gelu")
BATCH_SIZES = (32, 64, 128)
OWN = "cora"
#: Ends the name of a way that computes a few sequences at a time; " of " and their number follow.
MICRO = "micro-batches"

Lengths = npt.NDArray[np.int32]
Array = npt.NDArray[np.float32]
Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Case:
    """A batch of an experiment."""

    dataset: str
    batch_size: int
    lengths: Lengths

    @property
    def tokens(self) -> int:
        """All tokens."""
        return int(self.lengths.sum(dtype=np.int64))

    @property
    def label(self) -> str:
        """For tables."""
        return f"{self.dataset} {self.batch_size}"


def cases(
    options: Options,
    *,
    quick: Sequence[str] = ("cola", "mnli", "squad"),
    datasets: Sequence[str] = DATASETS,
    batch_sizes: Sequence[int] = BATCH_SIZES,
) -> list[Case]:
    """The batches of an experiment: all datasets and batch sizes, or in a quick run some, the smallest batch."""
    names, sizes = (quick, batch_sizes[:1]) if options.quick else (datasets, batch_sizes)
    return [Case(name, size, options.batch(name, size)) for name in names for size in sizes]


def attention_flops(lengths: Lengths, config: LayerConfig, *, causal: bool = False) -> float:
    """Useful operations of scores and weighted sums: 4 * hidden for each pair of a query and a key that it sees."""
    n = lengths.astype(np.float64)
    pairs = n * (n + 1) / 2 if causal else n * n
    return float(4.0 * config.hidden * pairs.sum())


def projection_flops(tokens: int, config: LayerConfig) -> float:
    """Useful operations of the projections of attention: queries, keys, values and the output."""
    return 2.0 * tokens * config.hidden * 4 * config.hidden


def layer_flops(lengths: Lengths, config: LayerConfig) -> float:
    """Useful operations of the products of a layer; norms and activations are not counted."""
    tokens = int(lengths.sum(dtype=np.int64))
    feed_forward = 4.0 * tokens * config.hidden * config.inner
    return projection_flops(tokens, config) + feed_forward + attention_flops(lengths, config)


def random_tokens(case: Case, width: int, seed: int = 0) -> Array:
    """Packed tokens."""
    return np.random.default_rng(seed).standard_normal((case.tokens, width), np.float32)


def times(calls: Mapping[str, Call], options: Options, *, repeats: int = 7) -> dict[str, Timing]:
    """Times of the ways to do one thing, run in turn."""
    settle = settle_ms(options.threads)
    return measure(calls, repeats=3 if options.quick else repeats, warmup_ms=20.0, settle_ms=settle)


def best_sizes(timings: Mapping[str, Timing]) -> dict[str, tuple[int, Timing]]:
    """Of each way that was timed in "... micro-batches of" several sizes: the fastest size and its times."""
    found: dict[str, tuple[int, Timing]] = {}
    for name, timing in timings.items():
        way, of, size = name.rpartition(" of ")
        if not (of and way.endswith(MICRO)):
            continue
        if way not in found or timing.median_ms < found[way][1].median_ms:
            found[way] = (int(size), timing)
    return found


def best_micro_batches(timings: Mapping[str, Timing]) -> dict[str, Timing]:
    """The timings with only the fastest size of each way's micro-batches, under a name without the size."""
    best = best_sizes(timings)
    others = {n: t for n, t in timings.items() if n.rpartition(" of ")[0] not in best}
    return others | {way: timing for way, (_, timing) in best.items()}


def rows(
    experiment: str, case: Case, metric: str, timings: Mapping[str, Timing], options: Options
) -> list[Row]:
    """The median of each way, and how many times as long as ours it takes."""
    found = []
    for variant, timing in timings.items():
        found.append(row(experiment, variant, case, options, metric, timing.median_ms, "ms"))
        if variant != OWN and OWN in timings:
            over = ratio(timing, timings[OWN])
            found.append(row(experiment, variant, case, options, f"{metric}_over_cora", over, ""))
    return found


def row(
    experiment: str, variant: str, case: Case, options: Options, metric: str, value: float, unit: str
) -> Row:
    """One value of a batch."""
    return Row(
        experiment, variant, case.dataset, case.batch_size, TARGET, options.threads, metric, value, unit
    )


def check(name: str, result: Array, expected: Array, tolerance: float = 2e-4) -> bool:
    """Whether two ways agree, relative to the largest value."""
    largest = float(np.abs(expected).max(initial=0.0))
    return bool(np.abs(result - expected).max(initial=0.0) <= tolerance * max(largest, 1.0))


def measured(
    batches: Iterable[Case], measure_one: Callable[[Case], tuple[list[Row], list[str]]], console: Console
) -> tuple[list[Row], bool]:
    """The rows of all batches, and whether all results are right.

    measure_one: gives the rows of a batch, and the names of the ways whose results are wrong.
    """
    found: list[Row] = []
    right = True
    for case in batches:
        made, wrong = measure_one(case)
        for name in wrong:
            console.print(f"[red]{case.label}: {name} gives another result[/red]")
        console.print(f"{case.label}: done", style="dim")
        found += made
        right = right and not wrong
    return found, right


def peak_gflops(threads: int) -> float:
    """The peak of fused multiply-adds in float32, in 1e9 operations a second: the best of ten samples."""
    with FmaPeak(threads) as fma:
        return fma.flops / (measure({"fma": fma}, repeats=10)["fma"].min_ms * 1e6)


def geomean(values: Iterable[float]) -> float:
    """The geometric mean; NaN of nothing."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def table(title: str, *headings: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    first, *others = headings
    return Table(first, *(Column(h, justify="right") for h in others), title=title)


def paper(name: str) -> list[dict[str, str]]:
    """The rows of one of the paper's tables (data/paper)."""
    path = Path(__file__).parent / "data" / "paper" / f"{name}.csv"
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
