"""What the samples say about all candidates together: candidates that share choices have similar costs.

The logarithm of a candidate's cost is taken as m + f, f normal with mean zero and the covariance

    cov(f_a, f_b) = variance * ((1 - own) * s(a, b)^power + own * [a = b])

s(a, b) is the cosine between the choices that the ids of a and b name: 1 for the same candidate, 0 if they share none.
With power 1 this is an additive model with ridge penalties (a main effect for each choice), with 2 one with
interactions of pairs, and so on; `own` is what a candidate does not share with any other, at 1 nothing is shared. The
three are those of a small grid under which the samples are likeliest; m is its weighted least squares estimate. A
sample is the cost times noise with heavy tails: Student's t, by iteratively reweighted least squares, as wide as the
candidate's samples differ among each other, which is shrunk towards what is common to all candidates.

Estimates say who is measured next and who becomes a finalist. Who wins, medians decide (`decide`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["Estimates", "Model", "choices", "ranked"]

Vector = npt.NDArray[np.float64]

#: Degrees of freedom of the noise, and passes of reweighting.
FREEDOM, PASSES = 4.0, 2
#: Relative noise as long as no candidate has two samples, and what it is at least.
UNKNOWN, LEAST = 0.05, 1e-4
#: Deviations that tell the common noise.
ENOUGH = 6
#: The common noise counts in a candidate's own as much as this many samples.
SHRINK = 6.0
#: The mean of n samples is less certain by 1 + tail / n, since tails are told from width only once there are several.
#: tail: by how much the pooled deviations' mean square exceeds that of their middle, at most this.
MOST_TAIL = 12.0
#: What is tried: power, own, and standard deviation of the logarithm.
POWERS, OWN, SPREADS = (1, 2, 4), (0.05, 0.2, 1.0), (0.03, 0.1, 0.3)
#: Costs above this many times the median of the best tenth are as bad as that: they tell nothing about the best.
CLIP = 1.6


@lru_cache(maxsize=65536)
def choices(id: str) -> frozenset[str]:
    """The choices that a candidate's id names: its parts between commas, colons and semicolons."""
    return frozenset(part for part in re.split("[;,:]", id) if part)


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Of each candidate of `ids`: mean and standard deviation (`sd`) of the logarithm of its cost."""

    ids: tuple[str, ...]
    mean: Vector
    sd: Vector

    @property
    def ranking(self) -> tuple[str, ...]:
        """The ids, least mean first; equal means by id."""
        return tuple(id for _, id in sorted(zip(self.mean.tolist(), self.ids, strict=True)))


@dataclass(slots=True)
class Model:
    """See the text of the module. power, own, spread: the covariance, which `fit` chooses."""

    power: int = 2
    own: float = 0.3
    spread: float = 0.3
    _similar: tuple[tuple[str, ...], Vector] = field(default=((), np.zeros((0, 0))))

    def fit(self, samples: Mapping[str, Sequence[float]]) -> None:
        """Choose the covariance under which the samples are likeliest; as it was if there are less than four."""
        known = _Samples.of(samples)
        ids = known.ids
        if len(ids) < 4:
            return
        value, variance = known.weighted(known.noise(), known.medians)
        s = self._similarity(ids)
        found: list[tuple[float, int, float, float]] = []
        for power in POWERS:
            shared = s**power
            for own, spread in itertools.product(OWN, SPREADS):
                if own == 1.0 and power != POWERS[0]:
                    continue
                cov = spread**2 * ((1 - own) * shared + own * np.eye(len(ids))) + np.diag(variance)
                found.append((_cost(cov, value), power, own, spread))
        _, self.power, self.own, self.spread = min(found)

    def estimates(self, samples: Mapping[str, Sequence[float]], others: Sequence[str] = ()) -> Estimates:
        """Of all candidates with a usable sample, and of `others`, which have none."""
        known = _Samples.of(samples)
        every = tuple(dict.fromkeys((*known.ids, *others)))
        count = len(known.ids)
        if count == 0:
            return Estimates(every, np.zeros(len(every)), np.full(len(every), self.spread))
        s = self._similarity(every) ** self.power
        prior = self.spread**2 * ((1 - self.own) * s + self.own * np.eye(len(every)))
        noise, mean = known.noise(), known.medians
        ones = np.ones(count)
        for _ in range(PASSES):
            value, variance = known.weighted(noise, mean)
            inverse = np.linalg.inv(prior[:count, :count] + np.diag(variance))
            gain = prior[:, :count] @ inverse
            total = float(ones @ inverse @ ones)
            middle = float(ones @ inverse @ value) / total
            everything = middle + gain @ (value - middle)
            mean = everything[:count]
        # The last term: the middle is estimated too.
        left = np.diag(prior) - np.einsum("ij,ij->i", gain, prior[:, :count]) + (1 - gain @ ones) ** 2 / total
        return Estimates(every, everything, np.sqrt(np.maximum(left, 0.0)))

    def _similarity(self, ids: tuple[str, ...]) -> Vector:
        if self._similar[0] != ids:
            self._similar = ids, _similarity(ids)
        return self._similar[1]


def ranked(samples: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """The ids of candidates with usable samples, by the estimates of their costs."""
    model = Model()
    model.fit(samples)
    return model.estimates(samples).ranking


def _similarity(ids: Sequence[str]) -> Vector:
    """Cosines between the choices of candidates, [n, n]."""
    named = [choices(id) for id in ids]
    column = {choice: at for at, choice in enumerate(sorted(set().union(*named)))}
    has = np.zeros((len(ids), len(column)))
    for row, own in enumerate(named):
        has[row, [column[choice] for choice in own]] = 1 / math.sqrt(max(1, len(own)))
    return np.asarray(has @ has.T)


@dataclass(frozen=True, slots=True, eq=False)
class _Samples:
    """Logarithms of samples, one after the other; `at` has whose each is, `counts` how many each candidate has."""

    ids: tuple[str, ...]
    logs: Vector
    at: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    medians: Vector

    @staticmethod
    def of(samples: Mapping[str, Sequence[float]]) -> _Samples:
        """The usable ones: finite and positive. Candidates without any are left out."""
        usable = {id: [x for x in taken if 0 < x < math.inf] for id, taken in samples.items()}
        ids = tuple(id for id, taken in usable.items() if taken)
        counts = np.array([len(usable[id]) for id in ids], dtype=np.int64)
        at = np.repeat(np.arange(len(ids)), counts)
        logs = np.log(np.array([x for id in ids for x in usable[id]], dtype=np.float64))
        ordered, first = logs[np.lexsort((logs, at))], np.cumsum(counts) - counts
        medians = (ordered[first + (counts - 1) // 2] + ordered[first + counts // 2]) / 2
        return _Samples(ids, logs, at, counts, medians)

    def noise(self) -> Vector:
        """The relative noise of each candidate's samples."""
        away = self.logs - self.medians[self.at]
        # Two samples are as far from their middle as each other: they count while there is nothing better.
        many = self.counts[self.at] > 2
        if np.count_nonzero(many) < ENOUGH:
            many = self.counts[self.at] > 1
        n = self.counts[self.at][many]
        pooled = np.abs(away[many]) * np.sqrt(n / (n - 1))
        if len(pooled) < ENOUGH:
            return np.full(len(self.ids), UNKNOWN)
        common = max(1.48 * float(np.median(pooled)), LEAST)
        # A deviation counts up to four times the common noise, so that a tail is not taken for width.
        own = np.bincount(self.at, np.minimum(away**2, 16 * common**2))
        return np.asarray(np.sqrt((SHRINK * common**2 + own) / (SHRINK + self.counts - 1)))

    def _tail(self, noise: Vector) -> float:
        """See MOST_TAIL; 0 as long as nothing was measured often enough."""
        many = self.counts[self.at] > 2
        if np.count_nonzero(many) < 12:
            return 0.0
        n = self.counts[self.at][many]
        away = np.abs(self.logs - self.medians[self.at])[many] * np.sqrt(n / (n - 1)) / noise[self.at][many]
        middle = max(1.48 * float(np.median(away)), LEAST)
        return min(max(float(np.mean(away**2)) / middle**2 - 1, 0.0), MOST_TAIL)

    def weighted(self, noise: Vector, mean: Vector) -> tuple[Vector, Vector]:
        """The weighted mean of each candidate's samples, and its variance; weights by distances from `mean`."""
        distance = (self.logs - mean[self.at]) / noise[self.at]
        weight = (FREEDOM + 1) / (FREEDOM + distance**2)
        total = np.bincount(self.at, weight)
        return _clipped(np.bincount(self.at, weight * self.logs) / total), noise**2 / total * (
            1 + self._tail(noise) / self.counts
        )


def _clipped(value: Vector) -> Vector:
    best = np.sort(value)[: max(1, len(value) // 10)]
    return np.minimum(value, float(np.median(best)) + math.log(CLIP))


def _cost(cov: Vector, value: Vector) -> float:
    """Minus twice the logarithm of the restricted likelihood of normal values with a common unknown mean."""
    lower = np.linalg.cholesky(cov)
    both = np.linalg.solve(lower, np.column_stack((value, np.ones(len(value)))))
    yy, yo, oo = both[:, 0] @ both[:, 0], both[:, 0] @ both[:, 1], both[:, 1] @ both[:, 1]
    return float(2 * np.sum(np.log(np.diag(lower))) + np.log(oo) + yy - yo**2 / oo)
