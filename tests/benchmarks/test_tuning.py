"""The experiment on the tuner: a grid of four candidates from end to end, and what its rows say."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import tuning
from benchmarks.tuning import Quality
from tests.benchmarks.small import run

QUALITY = Quality(
    candidates=4,
    noise_percent=3.0,
    truth_percent=1.0,
    ours=(0.0, 1.0, 5.0, 3.0),
    naive=(9.0, 9.0, 9.0, 1.0),
    exhaustive=(0.0, 0.0, 0.0, 0.0),
    informed=(0.0, 0.0, 0.0, 9.0),
    tied=(1, 2, 1, 3),
    held_percent=75.0,
    agree_percent=100.0,
    samples_share=0.25,
    best="a",
    best_cost=0.5,
    holdout=((0.9, 0.8, 1.0),),
)


def metrics(quality: Quality) -> dict[tuple[str, str], float]:
    return {(row.variant, row.metric): row.value for row in tuning._rows("vgemm", quality, 1)}


def test_a_grid_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "KERNELS", ("trmm",))
    monkeypatch.setattr(tuning, "QUICK", tuning.Scale(candidates=4, samples=3, replays=4))
    monkeypatch.setattr(tuning, "MIN_SAMPLE_MS", 0.1)
    monkeypatch.setattr(tuning, "BUDGET", replace(tuning.BUDGET, holdout_samples=2))
    monkeypatch.setattr(Quality, "slower", False)  # so few samples say nothing of it
    right, printed, rows = run(tuning, tmp_path)
    assert right
    assert "measuring a grid of 4 candidates" in printed
    assert {row.dataset for row in rows} == {"trmm", "trmm, noise 2 %"}
    assert all(0 <= row.value <= 100 for row in rows if row.metric == "within_2_percent")
    # what the policy takes is counted, not measured
    assert {row.value for row in rows if row.metric == "candidates"} == {4}


def test_rows() -> None:
    found = metrics(QUALITY)
    assert found["tuner", "within_2_percent"] == 50
    assert found["naive", "within_2_percent"] == 25
    assert found["informed", "within_2_percent"] == 75
    assert found["tuner", "ties_declared"] == 50
    assert found["tuner", "ties_p95_above_best"] == pytest.approx(1.0 + 0.95 * 2.0)
    assert found["holdout_1", "relative_time"] == 0.9


def test_where_no_tie_is_declared_its_loss_has_no_row() -> None:
    none = replace(QUALITY, tied=(1, 1, 1, 1))
    assert math.isnan(none.tie_loss)
    found = metrics(none)
    assert found["tuner", "ties_declared"] == 0
    assert ("tuner", "ties_p95_above_best") not in found
    assert len(tuning._table({"vgemm": none}).rows) == 1


def test_slower_than_the_default_beyond_noise() -> None:
    assert not QUALITY.slower
    assert not replace(QUALITY, holdout=((1.2, 1.0, 1.4),)).slower
    assert replace(QUALITY, holdout=((0.9, 0.8, 1.0), (1.2, 1.1, 1.4))).slower
