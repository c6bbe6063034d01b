"""Practical ties."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cora.errors import UserError
from cora.tune import Score, select_best, tie_set
from tests.tune.strategies import scores, steady, usable_scores

thresholds = st.one_of(st.sampled_from([0.0, 1.0, 100.0]), st.floats(0, 1e6))


@pytest.mark.parametrize(
    ("threshold", "winner"),
    [(0.0, "fast"), (0.9, "fast"), (1.0, "small"), (49.0, "small"), (50.0, "slow"), (1e9, "slow")],
)
def test_secondary_decides_within_the_threshold(threshold: float, winner: str) -> None:
    # In this order first-come would answer "small" throughout.
    given_scores = [Score(101.0, 5.0, "small"), Score(100.0, 9.0, "fast"), Score(150.0, 1.0, "slow")]
    best = select_best(given_scores, threshold)
    assert best is not None
    assert best.id == winner


def test_the_smallest_id_decides_last() -> None:
    best = select_best([Score(1.0, 2.0, "c"), Score(1.0, 2.0, "a"), Score(1.0, 2.0, "b")], 0.0)
    assert best == Score(1.0, 2.0, "a")


@pytest.mark.parametrize("threshold", [0.0, 1.0, 1e300])
def test_only_zeros_tie_with_zero(threshold: float) -> None:
    zeros = [Score(0.0, 3.0, "a"), Score(0.0, 2.0, "b")]
    assert tie_set([*zeros, Score(5e-324, 0.0, "c")], threshold) == tuple(zeros)
    assert select_best([*zeros, Score(5e-324, 0.0, "c")], threshold) == zeros[1]


def test_a_broken_score_cannot_win() -> None:
    broken = [Score(-1.0, 0.0, "a"), Score(math.nan, 0.0, "b"), Score(0.0, math.nan, "c")]
    assert select_best([*broken, Score(9.0, 9.0, "z")], 5.0) == Score(9.0, 9.0, "z")
    assert select_best(broken, 5.0) is None
    assert select_best([], 5.0) is None


@steady
@given(scores(), thresholds)
def test_none_exactly_when_nothing_is_usable(found: list[Score], threshold: float) -> None:
    best = select_best(found, threshold)
    assert (best is None) == (not any(score.usable for score in found))
    assert best is None or best.usable


@steady
@given(scores(), thresholds)
def test_the_result_is_within_the_threshold_of_the_fastest(found: list[Score], threshold: float) -> None:
    best = select_best(found, threshold)
    if best is not None:
        fastest = min(Fraction(score.primary) for score in found if score.usable)
        limit = fastest * (1 + Fraction(threshold) / 100)
        # Rounding to the nearest double: one unit in the last place, or of a subnormal.
        assert Fraction(best.primary) <= limit * (1 + Fraction(1, 2**51)) + Fraction(5e-324)


@steady
@given(scores(), thresholds, st.randoms(use_true_random=False))
def test_the_result_does_not_depend_on_the_order(
    found: list[Score], threshold: float, rng: random.Random
) -> None:
    best, ties = select_best(found, threshold), set(tie_set(found, threshold))
    rng.shuffle(found)
    assert select_best(iter(found), threshold) == best
    assert set(tie_set(found, threshold)) == ties


@steady
@given(usable_scores(), thresholds)
def test_nothing_in_the_tie_set_is_better(found: list[Score], threshold: float) -> None:
    best = select_best(found, threshold)
    ties = tie_set(found, threshold)
    assert best is not None
    assert best in ties
    assert all((best.secondary, best.id) <= (score.secondary, score.id) for score in ties)
    fastest = min(score.primary for score in found)
    assert all(score in ties for score in found if score.primary == fastest)


@steady
@given(scores(), thresholds, thresholds)
def test_the_tie_set_grows_with_the_threshold(found: list[Score], one: float, other: float) -> None:
    assert set(tie_set(found, min(one, other))) <= set(tie_set(found, max(one, other)))


@steady
@given(usable_scores(), st.randoms(use_true_random=False))
def test_repeated_ids_do_not_make_the_order_matter(found: list[Score], rng: random.Random) -> None:
    found = [Score(score.primary, score.secondary, "same") for score in found]
    best = select_best(found, 1e6)
    rng.shuffle(found)
    assert select_best(found, 1e6) == best


@pytest.mark.parametrize("threshold", [-0.1, math.nan, math.inf])
def test_a_wrong_threshold_is_refused(threshold: float) -> None:
    with pytest.raises(UserError, match="threshold_percent: expected a finite number >= 0"):
        select_best([Score(1.0, 0.0, "a")], threshold)
