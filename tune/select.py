"""The winner: practical ties by cost, then the secondary metric, then the smallest id."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cora.errors import UserError
from cora.tune.score import Score

__all__ = ["select_best", "tie_set"]


def tie_set(scores: Iterable[Score], threshold_percent: float) -> tuple[Score, ...]:
    """The usable scores that count as fast as the fastest one, in input order:

        F = { c : p_c <= p_min * (1 + t/100) }        p: primary, p_min: its minimum, t: threshold_percent

    This is (p_c - p_min) / p_min * 100 <= t without the quotient: where p_min = 0, F is the scores of cost 0.
    The fastest is always in F; F grows with t. Empty exactly when no score is usable.

    Raises:
        UserError: the threshold is negative, infinite or NaN.
    """
    if not (math.isfinite(threshold_percent) and threshold_percent >= 0):
        raise UserError(f"tie_set: threshold_percent: expected a finite number >= 0, got {threshold_percent}")
    usable = [score for score in scores if score.usable]
    limit = min((score.primary for score in usable), default=math.nan) * (1 + threshold_percent / 100)
    return tuple(score for score in usable if score.primary <= limit)


def select_best(scores: Iterable[Score], threshold_percent: float) -> Score | None:
    """The score in the tie set with the least (secondary, id); None exactly when no score is usable.

    The result does not depend on the order of the input: the tie set is defined by values alone, and the
    order on it is total. Should ids repeat against the rule, the least cost decides between the rest.

    Raises:
        UserError: the threshold is negative, infinite or NaN.
    """
    ties = tie_set(scores, threshold_percent)
    return min(ties, key=lambda score: (score.secondary, score.id, score.primary), default=None)
