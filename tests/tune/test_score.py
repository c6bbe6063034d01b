"""The median of usable samples."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cora.tune import Score, score_samples
from tests.tune.strategies import BROKEN, costs, samples, steady


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ([3.0], 3.0),
        ([3.0, 1.0, 100.0], 3.0),
        ([1.0, 4.0, 2.0, 100.0], 3.0),
        ([0.0, 0.0, 5.0], 0.0),
        ([math.nan, 2.0, -1.0, math.inf, 4.0, -math.inf], 3.0),
        ([1e308, 1.5e308], 1.25e308),
        ([5e-324, 5e-324], 5e-324),
    ],
)
def test_median(values: list[float], median: float) -> None:
    assert score_samples(values, id="c", secondary=7.0) == Score(median, 7.0, "c")


@steady
@given(st.lists(samples), st.randoms(use_true_random=False))
def test_score_is_the_median_of_the_usable_samples(values: list[float], rng: random.Random) -> None:
    usable = sorted(x for x in values if math.isfinite(x) and x >= 0)
    score = score_samples(values, id="c")
    rng.shuffle(values)
    again = score_samples(iter(values), id="c")
    assert score.usable == bool(usable)
    if usable:
        assert score == again
        assert statistics.median_low(usable) <= score.primary <= statistics.median_high(usable)
        half = statistics.median_low(usable) / 2 + statistics.median_high(usable) / 2
        assert math.isclose(score.primary, half, rel_tol=1e-15, abs_tol=5e-324)
    else:
        assert math.isnan(score.primary)


@steady
@given(st.lists(costs, min_size=1), st.lists(st.sampled_from(BROKEN)))
def test_broken_samples_change_nothing(good: list[float], broken: list[float]) -> None:
    assert score_samples(good + broken, id="c") == score_samples(good, id="c")


@pytest.mark.parametrize("value", BROKEN)
def test_unusable_primary(value: float) -> None:
    assert not Score(value, 0.0, "c").usable


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_unusable_secondary(value: float) -> None:
    assert not Score(1.0, value, "c").usable


def test_zero_and_a_negative_secondary_are_usable() -> None:
    assert Score(0.0, -1.0, "c").usable
