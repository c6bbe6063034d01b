"""Pictures of what was measured."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from cora.autotune.records import Records
from cora.autotune.spaces.candidate import DEFAULT
from cora.autotune.statistics import geometric_mean, median, median_interval
from cora.errors import UserError
from cora.tune import Score, pareto_frontier, score_samples

__all__ = ["plot_costs"]

_GREY, _BLUE, _RED, _GREEN = "0.6", "#0072B2", "#D55E00", "#009E73"


def plot_costs(records: Records, task: str, path: str | os.PathLike[str]) -> Path:
    """Cost against candidates: sorted, with intervals; and against stored bytes, with the frontier and the winner.

    task: its key. Raises UserError if the records hold no usable sample of it.
    """
    samples = _samples(records, task)
    rows = {row.candidate.digest: row for row in records.candidates(task).values() if row.status == "ok"}
    scores = sorted(
        (
            score_samples(
                values, id=rows[digest].candidate.id, secondary=float(rows[digest].stored_bytes or 0)
            )
            for digest, values in samples.items()
            if digest in rows
        ),
        key=lambda s: (s.primary, s.id),
    )
    if not scores:
        raise UserError(f"plot: the records hold no measurements of task {task}")
    digest_of = {row.candidate.id: digest for digest, row in rows.items()}
    winner = next((w.candidate.id for w in records.winners() if w.task.key == task), "")
    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    for place, score in enumerate(scores):
        low, high = median_interval(samples[digest_of[score.id]])
        left.plot([place, place], [low, high], color=_GREY, linewidth=0.8, zorder=1)
    left.scatter(range(len(scores)), [s.primary for s in scores], s=8, color=_BLUE, zorder=2)
    _mark(left, scores, {s.id: (float(n), s.primary) for n, s in enumerate(scores)}, winner)
    left.set_xlabel("candidates, by cost")
    left.set_ylabel("time relative to the default schedule")
    left.set_yscale("log")
    megabytes = {s.id: s.secondary / 1e6 for s in scores}
    right.scatter([s.primary for s in scores], list(megabytes.values()), s=8, color=_BLUE)
    frontier = pareto_frontier(scores)
    right.plot(
        [s.primary for s in frontier],
        [megabytes[s.id] for s in frontier],
        color=_GREEN,
        marker="o",
        label="frontier",
    )
    _mark(right, scores, {s.id: (s.primary, megabytes[s.id]) for s in scores}, winner)
    right.set_xlabel("time relative to the default schedule")
    right.set_ylabel("stored, MB")
    right.set_xscale("log")
    left.legend(fontsize=8)
    right.legend(fontsize=8)
    target = Path(path)
    figure.savefig(target, dpi=150)
    return target


def _mark(axes: object, scores: Sequence[Score], at: Mapping[str, tuple[float, float]], winner: str) -> None:
    for id, label, colour, marker in ((DEFAULT, "default", "black", "s"), (winner, "winner", _RED, "*")):
        if id in at:
            x, y = at[id]
            axes.scatter([x], [y], s=90, color=colour, marker=marker, label=label, zorder=3)  # type: ignore[attr-defined]


def _samples(records: Records, task: str) -> dict[str, list[float]]:
    """Relative times of the search by steps: the geometric mean over batches of the i-th ones."""
    by_batch: dict[str, dict[str, list[float]]] = {}
    for m in records.measurements(task, "search"):
        ratio = m.ms / m.reference_ms if m.reference_ms > 0 else math.nan
        if math.isfinite(ratio):
            by_batch.setdefault(m.candidate, {}).setdefault(m.batch, []).append(ratio)
    most = max((len(batches) for batches in by_batch.values()), default=0)
    found = {
        digest: [geometric_mean(values) for values in zip(*batches.values(), strict=False)]
        for digest, batches in by_batch.items()
        if len(batches) == most
    }
    return {digest: values for digest, values in found.items() if math.isfinite(median(values))}
