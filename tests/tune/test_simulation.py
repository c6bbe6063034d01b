"""What docs/tuning.md claims of the winner's curse and of random prefixes, by its own simulation."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "winners_curse.py"
RUNS = 200


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def found(script: dict[str, Any]) -> dict[str, np.ndarray]:
    """Ratios of reported to true costs in searches among 100 candidates, by how they were estimated."""
    return script["replays"](100, RUNS)


def deviations(values: np.ndarray) -> float:
    """How many standard errors the mean of `values` is above 1."""
    return float((values.mean() - 1) / (values.std(ddof=1) / len(values) ** 0.5))


def test_the_minimum_of_measurements_is_below_the_true_minimum(found: dict[str, np.ndarray]) -> None:
    # E[min_c measured_c] <= min_c true_c
    assert deviations(found["minimum"]) < -10
    assert (found["selected"] <= found["minimum"]).all()
    assert found["selected"].mean() < 0.92


def test_fresh_samples_of_the_selected_candidate_are_unbiased(found: dict[str, np.ndarray]) -> None:
    assert abs(deviations(found["again"])) < 3


def test_choosing_among_finalists_is_biased_again_but_less(found: dict[str, np.ndarray]) -> None:
    assert deviations(found["confirmed"]) < -10
    assert deviations(found["confirmed"] - found["selected"] + 1) > 10


def test_the_holdout_is_unbiased(found: dict[str, np.ndarray]) -> None:
    assert abs(deviations(found["holdout"])) < 3


def test_the_confirmed_winner_is_better(found: dict[str, np.ndarray]) -> None:
    gain = found["regret_selected"] - found["regret_confirmed"]
    assert deviations(gain + 1) > 3


def test_without_a_choice_there_is_no_curse(script: dict[str, Any]) -> None:
    alone = script["replays"](1, RUNS)
    assert all(abs(deviations(alone[name])) < 3 for name in ("selected", "confirmed", "holdout"))


def test_more_candidates_curse_more(script: dict[str, Any], found: dict[str, np.ndarray]) -> None:
    few = script["replays"](10, RUNS)["selected"].mean()
    assert found["selected"].mean() < few - 0.03


def test_a_prefix_holds_one_of_the_best_as_often_as_the_formula_says(script: dict[str, Any]) -> None:
    orders = 200
    for q, hits in script["first_hits"]((0.2, 0.05), orders).items():
        for budget in (5, 20, 60):
            expected = 1 - (1 - q) ** budget
            # 0.005: the formula draws with replacement, a prefix does not.
            tolerance = 3 * (expected * (1 - expected) / orders) ** 0.5 + 0.005
            assert abs((hits <= budget).mean() - expected) <= tolerance


def test_the_figure_is_written(script: dict[str, Any], tmp_path: Path) -> None:
    assert SCRIPT.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    script["draw"](tmp_path / "figure.png", counts=(1, 10), runs=10, orders=5)
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
