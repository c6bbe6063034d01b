"""A laboratory without machines: true costs and noise that are made up, and the budget counted."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from cora import tune
from cora.autotune.spaces import DEFAULT, Candidate
from cora.autotune.spaces.candidate import ListedSpace
from cora.schedule.steps import HoistLoads
from cora.tune import grid_neighbors

Noise = Callable[[random.Random, float], float]


def grid(*sizes: int) -> tuple[ListedSpace, dict[str, tuple[int, ...]]]:
    """A space on a grid, with its coordinates; the default schedule is at the origin."""
    points = list(product(*(range(n) for n in sizes)))
    at = {DEFAULT if not any(p) else "x" + "_".join(map(str, p)): p for p in points}
    near = grid_neighbors(at)
    space = ListedSpace(tuple(Candidate(id, (HoistLoads(True),)) for id in at), near)
    return space, at


class FakeLab:
    """See search.Laboratory; every sample is `cost` with noise. broken: candidates that cannot be built."""

    def __init__(
        self,
        costs: Mapping[str, float],
        noise: Noise = lambda rng, cost: cost,
        *,
        samples: float = float("inf"),
        broken: Sequence[str] = (),
        seed: int = 0,
    ) -> None:
        self.costs, self.noise, self.limit = costs, noise, samples
        self.broken = set(broken)
        self.taken: dict[str, list[float]] = {}
        self.prepared: list[str] = []
        self._rng = random.Random(seed)

    @property
    def spent_samples(self) -> int:
        return sum(map(len, self.taken.values()))

    def prepare(self, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        self.prepared += [c.id for c in candidates]
        return tuple(c for c in candidates if c.id not in self.broken)

    def reason(self, id: str) -> str | None:
        return "broken" if id in self.broken else None

    def sample(self, candidates: Sequence[Candidate], count: int) -> None:
        for candidate in candidates:
            assert candidate.id not in self.broken
            taken = self.taken.setdefault(candidate.id, [])
            while len(taken) < count and self.spent() < 1:
                taken.append(self.noise(self._rng, self.costs[candidate.id]))

    def again(self, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            self.sample([candidate], len(self.taken.get(candidate.id, ())) + 1)

    def taken_of(self, id: str) -> Sequence[float]:
        return self.taken.get(id, ())

    def score(self, id: str) -> tune.Score:
        return tune.score_samples(self.taken.get(id, ()), id=id)

    def spent(self) -> float:
        return self.spent_samples / self.limit

    def best(self) -> str:
        """The candidate with the least score, of those with most samples."""
        most = max(map(len, self.taken.values()))
        return min((self.score(id).primary, id) for id, taken in self.taken.items() if 2 * len(taken) > most)[
            1
        ]
