"""How often finalists are measured again."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cora.errors import UserError
from cora.tune import confirmation_count
from tests.tune.strategies import steady

counts = st.integers(0, 10**6)
uncertainties = st.floats(0, allow_nan=False)


@pytest.mark.parametrize(
    ("uncertainty", "factor"),
    [(0.0, 1), (0.0499, 1), (0.05, 2), (0.1999, 2), (0.20, 3), (7.0, 3), (math.inf, 3), (math.nan, 3)],
)
def test_factor(uncertainty: float, factor: int) -> None:
    assert confirmation_count(9, uncertainty, 100) == 9 * factor


def test_the_budget_is_never_exceeded() -> None:
    assert [confirmation_count(9, 0.1, budget) for budget in (0, 8, 17, 18, 19)] == [0, 8, 17, 18, 18]


@steady
@given(counts, st.floats(0), counts)
def test_the_count_lies_between_zero_and_the_budget(base: int, uncertainty: float, budget: int) -> None:
    count = confirmation_count(base, uncertainty, budget)
    assert 0 <= count <= budget
    assert count in {base, 2 * base, 3 * base, budget}


@steady
@given(counts, uncertainties, uncertainties, counts)
def test_noisier_never_means_fewer(base: int, one: float, other: float, budget: int) -> None:
    low, high = sorted((one, other))
    assert confirmation_count(base, low, budget) <= confirmation_count(base, high, budget)


@pytest.mark.parametrize(
    ("base", "uncertainty", "budget", "name"),
    [(-1, 0.0, 1, "base"), (1, -0.1, 1, "relative_uncertainty"), (1, 0.0, -1, "budget")],
)
def test_negative_arguments_are_refused(base: int, uncertainty: float, budget: int, name: str) -> None:
    with pytest.raises(UserError, match=f"{name}: expected a number >= 0"):
        confirmation_count(base, uncertainty, budget)
