"""How good the tuner's policy is: searches on fully measured grids, replayed with the noise that was measured.

For each kernel a grid of candidates is built, checked and measured, every one equally often: the median of its samples
is its true cost, and what the samples differ from it is its noise. A replay is a search as the tuner does it, whose
samples are true costs times noise drawn from that candidate's own. It may take a quarter of the samples of an
exhaustive search with 9 for each candidate, confirmation included. Compared with it: the least of one sample of each
(naive), the least median of 9 (exhaustive), and the least median of as many samples as the search may take, shared
among the candidates within a tenth of the best alone (informed: it is told what the search must find out, so what it
does not reach the noise forbids to any search that learns nothing from other candidates). All of it again with the
noise scaled to 2 %, as on a quiet machine: its logarithms are multiplied, so its tails keep their shape.

The truly best candidate is then measured against the default schedule on batches that selected nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Column, Table

import cora
from benchmarks.options import TARGET, Options
from benchmarks.plots import COLOURS
from benchmarks.results import Row, write_results
from cora import tune
from cora.autotune.batches import batch_of, hostile, resampled
from cora.autotune.catalogue import find
from cora.autotune.decide import Decision, decide
from cora.autotune.estimate import ranked
from cora.autotune.lab import Lab, Protocol, Spending
from cora.autotune.protocol import Setup, Shape
from cora.autotune.search import search
from cora.autotune.spaces import DEFAULT, Candidate, Space, space_of
from cora.autotune.statistics import median, median_interval, relative_uncertainty
from cora.autotune.worker import LocalWorker

EXPERIMENT = "tuning"
KERNELS = ("vgemm", "trmm", "attention")
#: Samples of each candidate in an exhaustive search, and the share of them that a search may take.
EXHAUSTIVE, SHARE = 9, 0.25
#: A winner within this of the best is right; differences up to the threshold are ties.
NEAR_PERCENT, THRESHOLD_PERCENT = 2.0, 0.5
TARGET_PERCENT = 95.0
BUDGET = tune.TuningBudget(
    candidates=10_000, samples=24, finalists=4, confirmation_samples=10, holdout_samples=20
)
MIN_SAMPLE_MS = 10.0
#: The informed choice knows who is within this of the best.
INFORMED_PERCENT = 10.0
#: Noise to which the measured one is scaled for the second series of replays, in percent.
QUIET_PERCENT = 2.0
#: Candidates this many times slower than the default at first sight are not part of a grid.
SLOW = 3.0


@dataclass(frozen=True, slots=True)
class Scale:
    """candidates: of a grid. samples: of each, from which true costs and noise come. replays: searches."""

    candidates: int
    samples: int
    replays: int


FULL = Scale(208, 27, 200)
QUICK = Scale(36, 9, 100)


@dataclass(frozen=True, eq=False)
class Grid:
    """A measured space: relative times of every candidate, by id, and who is next to whom."""

    candidates: tuple[Candidate, ...]
    samples: dict[str, list[float]]
    near: Callable[[str], tuple[Candidate, ...]]

    @property
    def costs(self) -> dict[str, float]:
        """The true costs."""
        return {id: median(values) for id, values in self.samples.items()}

    @property
    def noise_percent(self) -> float:
        """The median of the candidates' relative noise."""
        return 100 * median([relative_spread(values) for values in self.samples.values()])

    def scaled(self, percent: float) -> Grid:
        """The same true costs, with noise whose logarithm is scaled, to a `noise_percent` of about `percent`."""
        power = percent / max(self.noise_percent, 1e-6)
        costs = self.costs
        return replace(
            self,
            samples={
                id: [costs[id] * (v / costs[id]) ** power for v in vs] for id, vs in self.samples.items()
            },
        )

    def ordered(self, seed: int) -> Iterator[Candidate]:
        """See Space."""
        yield from sorted(tune.seeded_order(self.candidates, seed), key=lambda c: c.id != DEFAULT)

    def neighbors(self, id: str) -> tuple[Candidate, ...]:
        """See Space: the neighbours that were measured."""
        return self.near(id)


class Replay:
    """A laboratory whose samples are true costs with noise that was measured. See search.Laboratory."""

    def __init__(self, grid: Grid, limit: int, seed: int) -> None:
        self._costs = grid.costs
        self._noise = {id: [v / self._costs[id] for v in values] for id, values in grid.samples.items()}
        self._limit = limit
        self._rng = random.Random(seed)
        self.taken: dict[str, list[float]] = {}
        self.count = 0

    def prepare(self, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """All of them."""
        return tuple(candidates)

    def reason(self, id: str) -> str | None:
        """None: everything on a grid can be measured."""
        return None

    def drawn(self, id: str) -> float:
        """One sample."""
        self.count += 1
        return self._costs[id] * self._rng.choice(self._noise[id])

    def sample(self, candidates: Sequence[Candidate], count: int) -> None:
        """Draw until each has `count`, or the limit is reached."""
        for candidate in candidates:
            taken = self.taken.setdefault(candidate.id, [])
            while len(taken) < count and self.spent() < 1:
                taken.append(self.drawn(candidate.id))

    def again(self, candidates: Sequence[Candidate]) -> None:
        """One more of each, up to the limit."""
        for candidate in candidates:
            self.sample([candidate], len(self.taken.get(candidate.id, ())) + 1)

    def taken_of(self, id: str) -> Sequence[float]:
        """The samples so far."""
        return self.taken.get(id, ())

    def score(self, id: str) -> tune.Score:
        """By the samples so far."""
        return tune.score_samples(self.taken.get(id, ()), id=id)

    def spent(self) -> float:
        """The share of the limit."""
        return self.count / self._limit


@dataclass(frozen=True, slots=True)
class Quality:
    """Of one kernel: how far above the best the winners' true costs are, in percent, and how often runs agree.

    truth_percent: half the 95 % interval of the true costs of the ten best: how well the grid itself is known.
    quiet: the same grid with little noise. tied: sizes of the sets of ties, by replay.
    held_percent: how often the best is in it.
    holdout: the best candidate's relative time on each holdout batch, with an interval.
    """

    candidates: int
    noise_percent: float
    truth_percent: float
    ours: tuple[float, ...]
    naive: tuple[float, ...]
    exhaustive: tuple[float, ...]
    informed: tuple[float, ...]
    tied: tuple[int, ...]
    held_percent: float
    agree_percent: float
    samples_share: float
    best: str
    best_cost: float
    holdout: tuple[tuple[float, float, float], ...]
    quiet: Quality | None = None

    @property
    def tie_percent(self) -> float:
        """How often a tie is declared."""
        return 100 * float(np.mean([n > 1 for n in self.tied]))

    @property
    def tie_loss(self) -> float:
        """The 95th percentile of the loss where a tie is declared, in percent; NaN if none ever is."""
        lost = [loss for loss, n in zip(self.ours, self.tied, strict=True) if n > 1]
        return float(np.percentile(lost, 95)) if lost else float("nan")

    @property
    def slower(self) -> bool:
        """Whether the best candidate is slower than the default on a holdout batch, beyond noise."""
        return any(low > 1 + THRESHOLD_PERCENT / 100 for _, low, _ in self.holdout)


def run(options: Options, console: Console) -> bool:
    """Measure grids, replay searches; False if a tuned kernel is slower than the default on a holdout batch."""
    scale = QUICK if options.quick else FULL
    found: dict[str, Quality] = {}
    for kernel in KERNELS:
        console.print(f"{kernel}: measuring a grid of {scale.candidates} candidates")
        found[kernel] = _quality(kernel, scale, options.threads)
    series = {
        name: one
        for kernel, q in found.items()
        for name, one in ((kernel, q), (f"{kernel}, noise {QUIET_PERCENT:.0f} %", q.quiet))
        if one is not None
    }
    rows = [row for name, q in series.items() for row in _rows(name, q, options.threads)]
    csv_path = write_results(options.out, rows)[1]
    console.print(_table(series))
    console.print(
        f"Within {NEAR_PERCENT:.0f} % of the grid's best, and runs that agree or declare a tie: at least "
        f"{TARGET_PERCENT:.0f} % wanted.\n"
        "truth: how well the costs of the ten best are known. informed: as many samples, only for those within "
        f"{INFORMED_PERCENT:.0f} % of the best.\nties: replays that declare one, candidates in it, how often the best "
        "is among them, and the 95th percentile of the loss then.\n"
        f"best, holdout: time relative to the default schedule."
    )
    console.print(f"wrote {csv_path} and {_plot(series, csv_path.with_suffix('.png'))}")
    slower = [kernel for kernel, q in found.items() if q.slower]
    for kernel in slower:
        console.print(f"[red]{kernel}: the tuned kernel is slower than the default on a holdout batch[/red]")
    return not slower


def _quality(kernel: str, scale: Scale, threads: int) -> Quality:
    entry = find(kernel)
    batch = batch_of(entry.outputs, entry.batches[0])
    held = dict.fromkeys(resampled(batch, seed) for seed in (1, 2))
    if batch in held:  # no lengths to draw: another size
        held = {batch_of(entry.outputs, {n: v + v // 8 for n, v in batch.sizes}): None}
    shapes = (Shape("tuning", batch), *(Shape(f"holdout {n}", b) for n, b in enumerate(held, 1)))
    space = space_of(entry.outputs, entry.name, 4 * scale.candidates)
    default = next(space.ordered(0))
    setup = Setup(
        entry.outputs, default, hostile(entry.outputs), shapes, threads, TARGET, cora.Settings(), SLOW
    )
    worker = LocalWorker(threads)
    try:
        worker.start(setup)
        lab = _lab(worker, setup, shapes[:1])
        grid = _measured(lab, space, shapes[:1], scale)
        best = min(grid.costs.items(), key=lambda item: (item[1], item[0]))[0]
        candidate = lab.rows[best].candidate
        lab.fresh([candidate], [BUDGET.holdout_samples], "holdout", shapes[1:])
        holdout = [lab.samples(best, "holdout", [shape]) for shape in shapes[1:]]
    finally:
        worker.close()
    held_out = [(median(v), *median_interval(v)) for v in holdout]
    measured = _replayed(grid, scale, best, held_out)
    return replace(measured, quiet=_replayed(grid.scaled(QUIET_PERCENT), scale, best, held_out))


def _lab(worker: LocalWorker, setup: Setup, shapes: tuple[Shape, ...]) -> Lab:

    return Lab(
        [worker], replace(setup, shapes=shapes), Spending(BUDGET), Protocol(min_sample_ms=MIN_SAMPLE_MS)
    )


def _measured(lab: Lab, space: Space, shapes: Sequence[Shape], scale: Scale) -> Grid:
    """The first usable candidates of a space, measured in passes over all of them, so that no time favours any."""
    usable: list[Candidate] = []
    for candidate in space.ordered(0):
        usable += lab.prepare([candidate])
        if len(usable) == scale.candidates:
            break
    step = max(1, scale.samples // 3)
    for count in range(step, scale.samples + 1, step):
        lab.sample(usable, count)
    samples = {c.id: lab.samples(c.id, "search", shapes, scale.samples) for c in usable}
    measured = tuple(c for c in usable if len(samples[c.id]) >= scale.samples // 2)

    @cache
    def near(id: str) -> tuple[Candidate, ...]:
        ids = {c.id for c in measured}
        return tuple(c for c in space.neighbors(id) if c.id in ids)

    return Grid(measured, {c.id: samples[c.id] for c in measured}, near)


def _replayed(grid: Grid, scale: Scale, best: str, holdout: Sequence[tuple[float, float, float]]) -> Quality:
    costs = grid.costs
    lowest = min(costs.values())

    def above(id: str) -> float:
        return 100 * (costs[id] / lowest - 1)

    total = int(SHARE * EXHAUSTIVE * len(grid.candidates))
    decisions: list[Decision] = []
    shares: list[float] = []
    naive: list[float] = []
    exhaustive: list[float] = []
    informed: list[float] = []
    near = [id for id in costs if above(id) <= INFORMED_PERCENT]
    for seed in range(scale.replays):
        replay = Replay(grid, total - _reserve(total), seed)
        search("guided", grid, replay, BUDGET, seed)
        decisions.append(_confirmed(replay, total))
        shares.append(replay.count / (EXHAUSTIVE * len(grid.candidates)))
        other = Replay(grid, 10**9, seed)
        naive.append(above(min(costs, key=other.drawn)))
        exhaustive.append(above(min(costs, key=partial(_median_of, other, EXHAUSTIVE))))
        informed.append(above(min(near, key=partial(_median_of, other, total // len(near)))))
    agreeing = [a.chosen in b.ties or b.chosen in a.ties for a, b in pairwise(decisions)]
    ten = sorted(costs, key=lambda id: (costs[id], id))[:10]
    return Quality(
        candidates=len(grid.candidates),
        noise_percent=grid.noise_percent,
        truth_percent=100 * median([relative_uncertainty(grid.samples[id]) for id in ten]),
        ours=tuple(above(d.winner) for d in decisions),
        naive=tuple(naive),
        exhaustive=tuple(exhaustive),
        informed=tuple(informed),
        tied=tuple(len(d.ties) for d in decisions),
        held_percent=100 * float(np.mean([ten[0] in d.ties for d in decisions])),
        agree_percent=100 * float(np.mean(agreeing)),
        samples_share=max(shares),
        best=best,
        best_cost=lowest,
        holdout=tuple(holdout),
    )


def relative_spread(values: Sequence[float]) -> float:
    """Half the distance of the 16th and the 84th percentile, over the median: a standard deviation, were it normal."""
    low, high = np.percentile(values, (16, 84))
    return float((high - low) / 2 / median(values))


def _median_of(replay: Replay, count: int, id: str) -> float:
    return median([replay.drawn(id) for _ in range(count)])


def _reserve(total: int) -> int:
    """Samples kept for confirmation."""
    return min(total // 3, (BUDGET.finalists + 1) * BUDGET.confirmation_samples)


def _confirmed(replay: Replay, total: int) -> Decision:
    """Finalists and default measured anew, within what is left; the decision as the tuner makes it."""
    finalists = [id for id in ranked(replay.taken) if id != DEFAULT][: BUDGET.finalists]
    left = max(total - replay.count, len(finalists) + 1)
    base = max(1, min(BUDGET.confirmation_samples, left // (len(finalists) + 1)))
    confirmed: dict[str, list[float]] = {}
    for number, id in enumerate((DEFAULT, *finalists)):
        noise = relative_uncertainty(replay.taken.get(id, ()))
        others = len(finalists) - number  # those that come after have at least one each
        count = tune.confirmation_count(base, noise, max(1, left - others * base))
        confirmed[id] = [replay.drawn(id) for _ in range(count)]
        left -= count
    return decide(confirmed, {}, THRESHOLD_PERCENT, replay.taken)


def within(percents: Sequence[float]) -> float:
    """How many winners are near the best, in percent."""
    return 100 * float(np.mean([p <= NEAR_PERCENT for p in percents]))


def _rows(kernel: str, q: Quality, threads: int) -> list[Row]:
    values = [
        ("grid", "truth", q.truth_percent, "%"),
        ("informed", "within_2_percent", within(q.informed), "%"),
        ("tuner", "ties_declared", q.tie_percent, "%"),
        ("tuner", "ties_mean_size", float(np.mean(q.tied)), ""),
        ("tuner", "ties_hold_the_best", q.held_percent, "%"),
        ("tuner", "ties_p95_above_best", q.tie_loss, "%"),
        ("grid", "candidates", float(q.candidates), ""),
        ("grid", "noise", q.noise_percent, "%"),
        ("grid", "best_relative_time", q.best_cost, ""),
        ("tuner", "within_2_percent", within(q.ours), "%"),
        ("naive", "within_2_percent", within(q.naive), "%"),
        ("exhaustive", "within_2_percent", within(q.exhaustive), "%"),
        ("tuner", "runs_that_agree", q.agree_percent, "%"),
        ("tuner", "share_of_exhaustive_samples", 100 * q.samples_share, "%"),
        ("tuner", "p95_above_best", float(np.percentile(q.ours, 95)), "%"),
        ("naive", "p95_above_best", float(np.percentile(q.naive, 95)), "%"),
        ("exhaustive", "p95_above_best", float(np.percentile(q.exhaustive, 95)), "%"),
        *((f"holdout_{n}", "relative_time", middle, "") for n, (middle, _, _) in enumerate(q.holdout, 1)),
    ]
    return [
        Row(EXPERIMENT, variant, kernel, 0, TARGET, threads, metric, value, unit)
        for variant, metric, value, unit in values
        if not math.isnan(value)
    ]


def _table(found: dict[str, Quality]) -> Table:
    right = partial(Column, justify="right")
    table = Table(
        "kernel", right("candidates"), right("noise"), right("truth"), right("near best: tuner"), right("naive"),
        right("exhaustive"), right("informed"), right("runs agree"), right("ties"), right("samples"), right("best"),
        right("holdout"),
    )  # fmt: skip
    for kernel, q in found.items():
        table.add_row(
            kernel,
            str(q.candidates),
            f"{q.noise_percent:.1f} %",
            f"{q.truth_percent:.1f} %",
            f"{within(q.ours):.0f} %",
            f"{within(q.naive):.0f} %",
            f"{within(q.exhaustive):.0f} %",
            f"{within(q.informed):.0f} %",
            f"{q.agree_percent:.0f} %",
            f"{q.tie_percent:.0f} %, {np.mean(q.tied):.1f}, {q.held_percent:.0f} %, "
            + ("-" if math.isnan(q.tie_loss) else f"{q.tie_loss:.1f} %"),
            f"{100 * q.samples_share:.0f} %",
            f"{q.best_cost:.3f}",
            ", ".join(f"{middle:.3f}" for middle, _, _ in q.holdout),
        )
    return table


def _plot(found: dict[str, Quality], path: Path) -> Path:
    """Distribution of the winners' true cost above the best, for each kernel."""
    figure = Figure(figsize=(3.0 * len(found), 3.5), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
    for axes, (kernel, q) in zip(panels, found.items(), strict=True):
        for number, name in enumerate(("ours", "naive", "exhaustive", "informed")):
            values = np.sort(getattr(q, name))
            label = "tuner, 25 % of the samples" if name == "ours" else name
            axes.step(
                values, 100 * np.arange(1, len(values) + 1) / len(values), label=label, color=COLOURS[number]
            )
        axes.axvline(NEAR_PERCENT, color="black", linewidth=0.8)
        axes.set_title(kernel, fontsize=10)
        axes.set_xlabel("winner's true cost above the best, %")
        axes.set_xscale("symlog", linthresh=1.0)
    panels[0].set_ylabel("replays, %")
    panels[0].legend(fontsize=8)
    figure.savefig(path, dpi=150)
    return path
