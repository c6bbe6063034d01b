"""Figures, made from the CSV files that the experiments write, and from nothing else."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.results import Row
from cora.errors import UserError

#: Colours that stay apart for most readers with a colour vision deficiency (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a CSV file that `write_results` wrote.

    Raises:
        UserError: the file cannot be read, a column is missing, or a value is no number.
    """
    kinds = {field.name: {"int": int, "float": float}.get(str(field.type), str) for field in fields(Row)}
    try:
        with Path(path).open(newline="") as file:
            return [
                Row(**{name: kind(line[name]) for name, kind in kinds.items()})
                for line in csv.DictReader(file)
            ]
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"read_rows: {path} holds no results: {error!r}") from error


def grouped_bars(
    csv_path: str | Path,
    png_path: str | Path,
    *,
    metrics: Sequence[str],
    title: str,
    unit: str,
    logarithmic: bool = True,
) -> Path:
    """A group of bars for each metric, a bar for each variant that has it.

    The variants stand in the order in which they appear in the file. The picture replaces an earlier one.

    Raises:
        UserError: no row with these metrics and this unit.
    """
    rows = [r for r in read_rows(csv_path) if r.metric in metrics and r.unit == unit]
    if not rows:
        raise UserError(f"grouped_bars: {csv_path} has no row of {', '.join(metrics)} in {unit}")
    value = {(r.metric, r.variant): r.value for r in rows}
    variants = list(dict.fromkeys(r.variant for r in rows))
    width = 0.8 / len(variants)
    figure = Figure(figsize=(2.5 + 2.5 * len(metrics), 4.0), layout="constrained")
    axes = figure.add_subplot()
    for number, variant in enumerate(variants):
        own = [(x, value[m, variant]) for x, m in enumerate(metrics) if (m, variant) in value]
        bars = axes.bar(
            [x + (number - (len(variants) - 1) / 2) * width for x, _ in own],
            [height for _, height in own],
            width,
            label=variant,
            color=COLOURS[number % len(COLOURS)],
        )
        axes.bar_label(bars, fmt="{:.3g}", fontsize=8)
    axes.set_yscale("log" if logarithmic else "linear")
    axes.set_xticks(range(len(metrics)), [m.replace("_", " ") for m in metrics])
    axes.set_ylabel(unit)
    axes.set_title(title, fontsize=10)
    axes.margins(y=0.15)
    axes.legend(fontsize=8)
    return _save(figure, Path(png_path))


def share_of_targets(
    csv_path: str | Path, png_path: str | Path, *, targets: Sequence[tuple[str, str, float, bool]]
) -> Path:
    """A bar for each target, (variant, metric, limit, whether smaller is better): how far it is met.

    The length is limit / value where smaller is better, value / limit otherwise: 1 and more is met.

    Raises:
        UserError: a target has no row.
    """
    value = {(r.variant, r.metric): r.value for r in read_rows(csv_path)}
    missing = [f"{variant} {metric}" for variant, metric, _, _ in targets if (variant, metric) not in value]
    if missing:
        raise UserError(f"share_of_targets: {csv_path} has no row of {', '.join(missing)}")
    margins = [
        limit / value[variant, metric] if smaller else value[variant, metric] / limit
        for variant, metric, limit, smaller in targets
    ]
    figure = Figure(figsize=(8.0, 1.2 + 0.4 * len(targets)), layout="constrained")
    axes = figure.add_subplot()
    colours = [COLOURS[2] if margin >= 1 else COLOURS[1] for margin in margins]
    bars = axes.barh(range(len(targets)), margins, color=colours)
    axes.bar_label(bars, fmt="{:.2f}", fontsize=8, padding=3)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_yticks(range(len(targets)), [f"{v} {m}".replace("_", " ") for v, m, _, _ in targets])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("margin: 1 and more is met")
    return _save(figure, Path(png_path))


def by_batch_size(csv_path: str | Path, png_path: str | Path, *, metrics: Sequence[str], ylabel: str) -> Path:
    """A panel for each metric, a line for each variant, over the batch size on a logarithmic axis.

    Raises:
        UserError: a metric has no row.
    """
    rows = read_rows(csv_path)
    missing = [m for m in metrics if not any(r.metric == m for r in rows)]
    if missing:
        raise UserError(f"by_batch_size: {csv_path} has no row of {', '.join(missing)}")
    figure = Figure(figsize=(1.0 + 4.0 * len(metrics), 3.5), layout="constrained")
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, metric in zip(panels, metrics, strict=True):
        own = [r for r in rows if r.metric == metric]
        sizes = sorted({r.batch_size for r in own})
        for number, variant in enumerate(dict.fromkeys(r.variant for r in own)):
            points = sorted((r.batch_size, r.value) for r in own if r.variant == variant)
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(*zip(*points, strict=True), marker="o", label=variant, color=colour)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_xlabel("sequences in the batch")
        axes.set_ylabel(ylabel)
        axes.set_ylim(bottom=0)
        axes.set_title(metric.replace("_", " "), fontsize=10)
        axes.legend(fontsize=8)
    return _save(figure, Path(png_path))


def by_case(csv_path: str | Path, png_path: str | Path, *, metric: str, ylabel: str) -> Path:
    """A group of bars for each batch (dataset and size), a bar for each variant, and a line at 1.

    Raises:
        UserError: no row with this metric.
    """
    rows = [r for r in read_rows(csv_path) if r.metric == metric]
    if not rows:
        raise UserError(f"by_case: {csv_path} has no row of {metric}")
    batches = list(dict.fromkeys((r.dataset, r.batch_size) for r in rows))
    variants = list(dict.fromkeys(r.variant for r in rows))
    value = {(r.dataset, r.batch_size, r.variant): r.value for r in rows}
    width = 0.8 / len(variants)
    figure = Figure(figsize=(2.5 + 0.25 * len(batches) * len(variants), 4.0), layout="constrained")
    axes = figure.add_subplot()
    for number, variant in enumerate(variants):
        own = [(x, value[(*b, variant)]) for x, b in enumerate(batches) if (*b, variant) in value]
        places = [x + (number - (len(variants) - 1) / 2) * width for x, _ in own]
        colour = COLOURS[number % len(COLOURS)]
        hatch = ("", "//", "..")[number // len(COLOURS) % 3]
        axes.bar(places, [height for _, height in own], width, label=variant, color=colour, hatch=hatch)
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_xticks(range(len(batches)), [f"{name}\n{size}" for name, size in batches], fontsize=8)
    axes.set_ylabel(ylabel)
    axes.legend(fontsize=8)
    return _save(figure, Path(png_path))


def lines(
    csv_path: str | Path,
    png_path: str | Path,
    *,
    metric: str,
    panels: Sequence[tuple[str, int]],
    x: str,
    xlabel: str,
    ylabel: str,
    logarithmic: bool = False,
) -> Path:
    """A panel for each dataset and number of threads, a line for each variant, over the column `x` on a binary axis.

    Raises:
        UserError: a panel has no row.
    """
    rows = [r for r in read_rows(csv_path) if r.metric == metric]
    across = min(len(panels), 2)
    down = -(-len(panels) // across)
    figure = Figure(figsize=(1.0 + 4.5 * across, 3.5 * down), layout="constrained")
    axes_of = figure.subplots(down, across, squeeze=False).flatten()
    for axes, (dataset, threads) in zip(axes_of, panels, strict=False):
        own = [r for r in rows if (r.dataset, r.threads) == (dataset, threads)]
        if not own:
            raise UserError(f"lines: {csv_path} has no row of {metric} on {dataset}, {threads} threads")
        for number, variant in enumerate(dict.fromkeys(r.variant for r in own)):
            points = sorted((getattr(r, x), r.value) for r in own if r.variant == variant)
            style = ("-", "--", ":")[number // len(COLOURS) % 3]
            axes.plot(
                *zip(*points, strict=True),
                marker="o",
                linestyle=style,
                label=variant,
                color=COLOURS[number % len(COLOURS)],
            )
        sizes = sorted({getattr(r, x) for r in own})
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        if logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_title(f"{dataset}, {threads} thread{'s' if threads > 1 else ''}", fontsize=10)
        axes.legend(fontsize=7)
    return _save(figure, Path(png_path))


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=150)
    return path
