"""What the tests of experiments with transformers share: one small batch, a small layer, and times that are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from rich.console import Console

from benchmarks.options import Options
from benchmarks.plots import read_rows
from benchmarks.results import COLUMNS, Row
from benchmarks.timer import Timing
from benchmarks.transformer import OWN, Case
from cora.kernels import LayerConfig

LAYER = LayerConfig(hidden=32, heads=2, inner=48, activation="gelu")
#: One giant among empty and tiny ones; 32 sequences of CoLA are a batch of the paper's tables.
LENGTHS = np.array([0, 3, 0, 0, 1, 40, 16, 15, 17, *[2] * 22, 0], np.int32)
CASE = Case("cola", 32, LENGTHS)
PEAK_GFLOPS = 100.0

Values = dict[tuple[str, str], float]


def known_times(
    calls: Mapping[str, Callable[[], object]], options: Options, **_: object
) -> dict[str, Timing]:
    """Run each call once, and say that the first took 2 ms, the second 4 ms, and so on."""
    for call in calls.values():
        call()
    return {name: Timing.of((2.0 * number,) * 3) for number, name in enumerate(calls, 1)}


def shrink(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """Let an experiment run on one small batch, with a small layer, and with `known_times`."""
    replaced = {
        "LAYER": LAYER,
        "cases": lambda options, **_: [CASE],
        "times": known_times,
        "peak_gflops": lambda threads: PEAK_GFLOPS,
    }
    for name, value in replaced.items():
        if hasattr(module, name):
            monkeypatch.setattr(module, name, value)


def run(module: ModuleType, out: Path, *, lengths: Path | None = None) -> tuple[bool, str, list[Row]]:
    """Run an experiment quickly on one thread: whether its checks held, what it printed, and its rows.

    Looks after what all experiments have in common.
    """
    console = Console(record=True, width=300)
    right = module.run(Options(True, out, lengths, 1), console)
    csv_path = out / f"{module.EXPERIMENT}.csv"
    assert csv_path.read_text().splitlines()[0] == ",".join((*COLUMNS, "machine"))
    assert csv_path.with_suffix(".json").exists()
    assert csv_path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    rows = read_rows(csv_path)
    assert {(r.experiment, r.target, r.threads) for r in rows} == {(module.EXPERIMENT, "llvm", 1)}
    keys = [(r.variant, r.dataset, r.batch_size, r.metric) for r in rows]
    assert len(set(keys)) == len(keys)
    return right, console.export_text(), rows


def values(rows: list[Row]) -> Values:
    """By variant and metric; for rows of one batch."""
    return {(r.variant, r.metric): r.value for r in rows}


def over_cora(rows: list[Row], metric: str) -> dict[str, float]:
    """The ratios of a metric by variant, each of which must be that of the times."""
    value = values(rows)
    ratios = {r.variant: r.value for r in rows if r.metric == f"{metric}_over_cora"}
    for variant, ratio in ratios.items():
        assert ratio == pytest.approx(value[variant, metric] / value[OWN, metric])
    assert set(ratios) == {r.variant for r in rows if r.metric == metric} - {OWN}
    return ratios
