"""Scores and ids for property tests: few distinct values, so that ties are common, and broken ones."""

from __future__ import annotations

import math

from hypothesis import settings
from hypothesis import strategies as st

from cora.tune import Score

BROKEN = (math.nan, math.inf, -math.inf, -1.0)

#: The same examples in every run, however slow the machine.
steady = settings(deadline=None, derandomize=True)

#: Finite, non-negative.
costs = st.one_of(
    st.sampled_from([0.0, 5e-324, 1.0, 1.005, 1.01, 1.02, 2.0, 100.0, 1e308]),
    st.floats(0, allow_infinity=False),
)
samples = st.one_of(costs, st.sampled_from(BROKEN), st.floats())
ids = st.text("ab=,%*é:1", min_size=1, max_size=4)


@st.composite
def scores(draw: st.DrawFn) -> list[Score]:
    """Scores with unique ids, usable or not."""
    primary = st.one_of(costs, st.sampled_from(BROKEN))
    secondary = st.one_of(st.integers(0, 3).map(float), st.floats())
    names = draw(st.lists(ids, unique=True, max_size=12))
    return [Score(draw(primary), draw(secondary), name) for name in names]


@st.composite
def usable_scores(draw: st.DrawFn) -> list[Score]:
    """At least one score, all usable, on a grid so small that equal metrics are common."""
    names = draw(st.lists(ids, unique=True, min_size=1, max_size=12))
    metric = st.integers(0, 4).map(float)
    return [Score(draw(metric), draw(metric), name) for name in names]
