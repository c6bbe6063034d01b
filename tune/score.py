"""Scores: the median of the usable samples of a candidate, and what breaks ties."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Score", "score_samples"]


@dataclass(frozen=True, slots=True)
class Score:
    """What is known about one candidate; less is better in both metrics.

    primary: the cost, in the unit of the objective (e.g. ms); NaN marks a candidate without a usable sample.
    secondary: what decides between practical ties, in its own unit (e.g. bytes of workspace).
    id: the candidate. Ids are unique within a search; the smaller one (by code points) decides last.
    """

    primary: float
    secondary: float
    id: str

    @property
    def usable(self) -> bool:
        """Whether the candidate may win: the cost is finite and non-negative, the secondary metric finite."""
        return math.isfinite(self.primary) and self.primary >= 0 and math.isfinite(self.secondary)


def score_samples(samples: Iterable[float], *, id: str, secondary: float = 0.0) -> Score:
    """The score of a candidate: the median of its usable samples, those that are finite and non-negative.

        primary = x[(m-1)/2]                    m odd     x: the m usable samples in ascending order
                = (x[m/2 - 1] + x[m/2]) / 2     m even
                = NaN, an invalid score         m = 0

    A sample of 0 is usable. So a timer reports what is below its resolution as NaN, and a broken measurement
    cannot win. The median lies between the two middle samples in floating point too: no sum overflows.
    """
    usable = sorted(float(x) for x in samples if math.isfinite(x) and x >= 0)
    if not usable:
        return Score(math.nan, secondary, id)
    low, high = usable[(len(usable) - 1) // 2], usable[len(usable) // 2]
    return Score(low + (high - low) / 2, secondary, id)
