"""The decision: who wins, by fresh samples, and whether the win is more than noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from cora import tune
from cora.autotune.estimate import Model
from cora.autotune.spaces.candidate import DEFAULT
from cora.autotune.statistics import median_interval
from cora.errors import UserError

__all__ = ["Decision", "Verdict", "decide", "slower_on_holdout"]

#: win      the winner is faster than the default schedule, beyond noise
#: tie      it may be as fast as the default, which stays
#: default  nothing was faster than the default
#: holdout  it was slower than the default on a shape that it was not chosen on, beyond noise; the default stays
Verdict = Literal["win", "tie", "default", "holdout"]

#: Standard deviations of a difference within which candidates are not told apart: one-sided, 95 %.
CONFIDENCE = 1.64


@dataclass(frozen=True, slots=True)
class Decision:
    """winner: the id of the schedule to use. chosen: the finalist with the best score.

    ties: the candidates that may be as fast as the chosen one, up to the threshold, itself included; sorted.
    """

    winner: str
    chosen: str
    verdict: Verdict
    ties: tuple[str, ...]
    scores: tuple[tune.Score, ...]


def decide(
    confirmed: Mapping[str, Sequence[float]],
    stored_bytes: Mapping[str, int],
    threshold_percent: float,
    searched: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> Decision:
    """Decide between finalists.

    confirmed: fresh samples by id, the default schedule's among them: times relative to the default schedule beside
    them; the i-th samples were taken together. stored_bytes: what decides between ties. searched: the samples of
    all candidates in the search. Raises UserError if the default is missing.

    Which finalist is chosen, all of its samples decide, old and new: half as many new ones alone find the best less
    often, and unbiased they are not either once the least of them is taken. Whether it beats the default, the fresh
    ones alone. Candidates that the search does not tell from the chosen one are declared ties as well.
    """
    if DEFAULT not in confirmed:
        raise UserError("decide: confirmed: expected samples of the default schedule")
    pooled = {id: (*samples, *searched.get(id, ())) for id, samples in confirmed.items()}
    scores = tuple(
        tune.score_samples(samples, id=id, secondary=float(stored_bytes.get(id, 0)))
        for id, samples in pooled.items()
    )
    best = tune.select_best(scores, threshold_percent)
    if best is None or best.id == DEFAULT:
        return Decision(DEFAULT, DEFAULT, "default", (DEFAULT,), scores)
    tied = {score.id for score in tune.tie_set(scores, threshold_percent)}
    tied |= _undecided({**searched, **pooled}, best.id, threshold_percent)
    _, high = median_interval(_ratios(confirmed[best.id], confirmed[DEFAULT]))
    won = high < 1
    return Decision(
        best.id if won else DEFAULT, best.id, "win" if won else "tie", tuple(sorted(tied)), scores
    )


def slower_on_holdout(winner: Mapping[str, Sequence[float]], threshold_percent: float) -> str | None:
    """The first holdout shape on which a winner is slower than the default beyond noise; None if it is on none.

    winner: its times relative to the default schedule beside them, by shape.
    """
    for shape, samples in winner.items():
        low, _ = median_interval(samples)
        if low > 1 + threshold_percent / 100:
            return shape
    return None


def _undecided(samples: Mapping[str, Sequence[float]], chosen: str, threshold_percent: float) -> set[str]:
    """Candidates that the samples do not tell from the chosen one: with estimates m and standard deviations s of the
    logarithms of the costs (estimate.Model),

        m_c - m_chosen <= log(1 + t/100) + CONFIDENCE * sqrt(s_c^2 + s_chosen^2)
    """
    model = Model()
    model.fit(samples)
    found = model.estimates(samples)
    at = found.ids.index(chosen)
    width = np.sqrt(found.sd**2 + found.sd[at] ** 2)
    near = found.mean - found.mean[at] <= math.log1p(threshold_percent / 100) + CONFIDENCE * width
    return {id for id, tied in zip(found.ids, near, strict=True) if tied}


def _ratios(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Ratios of samples that were taken together."""
    return [x / y for x, y in zip(a, b, strict=False) if y > 0]
