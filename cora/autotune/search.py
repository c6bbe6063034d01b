"""Searches: which candidates are measured, how often, in which order. They see a laboratory, not a machine.

exhaustive  all candidates in their own order, `samples` measurements each
random      the same for a seeded random prefix
halving     one measurement of each candidate, twice as many of the best third, and so on
local       from the best known, neighbours, as long as they are better
guided      a survey, then whoever may still be the best by what candidates with the same choices cost; the default
combined    halving, then local with what is left

Every search stops when its laboratory says that the budget is spent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Protocol

import numpy as np

from cora import tune
from cora.autotune.estimate import Model
from cora.autotune.spaces.candidate import Candidate, Space
from cora.errors import UserError

__all__ = ["SEARCHES", "Laboratory", "search"]

#: Of each round of halving one in so many stays.
ETA = 3
#: Candidates that are measured together, in turn.
GROUP = 6
#: Shares of the budget after which the first round of halving, and halving as part of "combined", end.
FIRST_ROUND, HALVING = 0.6, 0.75
#: Guided: share of the budget for the survey, and shares after which the model is fitted anew.
SURVEY, FITS = 0.4, (0.0, 0.4, 0.7)
#: Candidates with estimated costs that wait to be built, and how far from the best, in standard deviations, nobody is
#: measured any more.
POOL, HOPELESS = 256, 8.0
#: Differences in cost that are not worth samples.
INDIFFERENT = 0.02
#: Samples after which a candidate is known well enough to look at its neighbours instead.
SETTLED = 8


class Laboratory(Protocol):
    """Builds and measures candidates, under a budget."""

    def prepare(self, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Build and check; those that can be measured. What became of the others is on record."""

    def reason(self, id: str) -> str | None:
        """Why a prepared candidate cannot be measured; None if it can."""

    def sample(self, candidates: Sequence[Candidate], count: int) -> None:
        """Measure each until it has `count` samples, or the budget is spent."""

    def again(self, candidates: Sequence[Candidate]) -> None:
        """Measure each once more, in one group, unless the budget is spent."""

    def taken_of(self, id: str) -> Sequence[float]:
        """The samples of a candidate so far."""

    def score(self, id: str) -> tune.Score:
        """The score by the samples so far; unusable if there are none."""

    def spent(self) -> float:
        """The share of the search's budget that is spent; 1 and more: no measurement will be made."""


Search = Callable[[Space, Laboratory, tune.TuningBudget, int], None]


def search(name: str, space: Space, laboratory: Laboratory, budget: tune.TuningBudget, seed: int) -> None:
    """Run a search by name; what it found is in the laboratory. Raises UserError for an unknown name."""
    if name not in SEARCHES:
        raise UserError(f"search: expected one of {', '.join(SEARCHES)}; got {name!r}")
    SEARCHES[name](space, laboratory, budget, seed)


class _Remembering:
    """A laboratory that knows which candidates it was asked about."""

    def __init__(self, laboratory: Laboratory) -> None:
        self._laboratory = laboratory
        self.seen: dict[str, Candidate] = {}
        self.prepare = laboratory.prepare
        self.reason = laboratory.reason
        self.score = laboratory.score
        self.spent = laboratory.spent
        self.again = laboratory.again
        self.taken_of = laboratory.taken_of

    def sample(self, candidates: Sequence[Candidate], count: int) -> None:
        self.seen.update((c.id, c) for c in candidates)
        self._laboratory.sample(candidates, count)


def _exhaustive(space: Space, laboratory: Laboratory, budget: tune.TuningBudget, seed: int) -> None:
    _one_by_one(space.candidates, laboratory, budget)


def _random(space: Space, laboratory: Laboratory, budget: tune.TuningBudget, seed: int) -> None:
    _one_by_one(space.ordered(seed), laboratory, budget)


def _one_by_one(candidates: Iterable[Candidate], laboratory: Laboratory, budget: tune.TuningBudget) -> None:
    def built() -> Iterator[tune.BuiltCandidate[Candidate] | tune.RejectedCandidate]:
        for candidate in candidates:
            if laboratory.spent() >= 1:
                return
            if laboratory.prepare([candidate]):
                yield tune.BuiltCandidate(candidate.id, candidate)
            else:
                yield tune.RejectedCandidate(candidate.id, laboratory.reason(candidate.id) or "not built")

    def score(candidate: tune.BuiltCandidate[Candidate]) -> tune.Score:
        laboratory.sample([candidate.runner], budget.samples)
        return laboratory.score(candidate.id)

    tune.exhaustive_scores(built(), score, budget.candidates)


def _halving(space: Space, laboratory: Laboratory, budget: tune.TuningBudget, seed: int) -> None:
    _halve(space, laboratory, budget, seed, 1.0, budget.samples)


def _halve(
    space: Space, laboratory: Laboratory, budget: tune.TuningBudget, seed: int, share: float, most: int
) -> None:
    """Successive halving (Karnin, Koren, Somekh, ICML 2013; here one in three stays), up to a share of the budget.

    most: samples of each that stays to the end.
    """
    pool = islice(space.ordered(seed), budget.candidates)
    measured: list[Candidate] = []
    while laboratory.spent() < FIRST_ROUND * share:
        group = tuple(islice(pool, GROUP))
        if not group:
            break
        usable = laboratory.prepare(group)
        laboratory.sample(usable, 1)
        measured += usable
    count, most = 1, min(most, budget.samples)
    while len(measured) > 1 and laboratory.spent() < share:
        keep = max(budget.finalists, -(-len(measured) // ETA), 2)
        if keep >= len(measured) and count >= most:
            return
        measured = _best(measured, laboratory)[:keep]
        count = min(2 * count, most)
        laboratory.sample(measured, count)


def _local(space: Space, laboratory: Laboratory, budget: tune.TuningBudget, seed: int) -> None:
    start = laboratory.prepare(tuple(islice(space.ordered(seed), min(2 * GROUP, budget.candidates))))
    laboratory.sample(start, min(2, budget.samples))
    _climb(space, laboratory, budget, {c.id: c for c in start})


def _climb(
    space: Space, laboratory: Laboratory, budget: tune.TuningBudget, known: dict[str, Candidate]
) -> None:
    """Look at the neighbours of the best candidate whose neighbours nobody has looked at, until there is none.

    Only candidates within a tenth of the best are looked at. Neighbours get two samples; those that come near the
    best one then as many as it has.
    """
    visited: set[str] = set()
    while laboratory.spent() < 1:
        ranked = _best(list(known.values()), laboratory)
        limit = 1.1 * laboratory.score(ranked[0].id).primary if ranked else 0.0
        here = next(
            (c for c in ranked if c.id not in visited and laboratory.score(c.id).primary <= limit), None
        )
        if here is None or len(known) >= budget.candidates:
            break
        visited.add(here.id)
        fresh = [c for c in space.neighbors(here.id) if c.id not in known]
        new = laboratory.prepare(fresh[: budget.candidates - len(known)])
        known.update((c.id, c) for c in new)
        laboratory.sample(new, min(2, budget.samples))
        near = [c for c in new if laboratory.score(c.id).primary <= limit]
        laboratory.sample([here, *near], min(6, budget.samples))
    _refine(list(known.values()), laboratory, budget)


def _refine(candidates: list[Candidate], laboratory: Laboratory, budget: tune.TuningBudget) -> None:
    """More samples for the best few, again and again: whoever is among them gets as many as the others."""
    count = 4
    while laboratory.spent() < 1:
        best = _best(candidates, laboratory)[: max(2 * budget.finalists, 2)]
        laboratory.sample(best, min(count, budget.samples))
        if count >= budget.samples:
            return
        count *= 2


def _guided(space: Space, laboratory: Laboratory, budget: tune.TuningBudget, seed: int) -> None:
    """Measure one sample of candidates in a seeded order; then, in groups, those that may be the best.

    After the survey a model of all samples (estimate.Model) gives each candidate, those not built yet included, a mean
    m and a variance v of the logarithm of its cost. With the least mean at b, the group with the least

        (m_c - m_b + INDIFFERENT) / sqrt(v_c + v_b)

    is measured once more: this raises the least of these distances, by which two candidates are told apart (the
    balance of optimal allocations: Chen et al., Discrete Event Dynamic Systems 10, 2000; Glynn and Juneja, WSC 2004).
    Neighbours of the best join the candidates that wait. It ends with the budget, or when all that are nearer than
    HOPELESS have `budget.samples` samples.
    """
    order = islice(space.ordered(seed), budget.candidates)
    known: dict[str, Candidate] = {}
    asked = 0
    while laboratory.spent() < SURVEY and (group := tuple(islice(order, GROUP))):
        asked += len(group)
        usable = laboratory.prepare(group)
        laboratory.sample(usable, 1)
        known.update((c.id, c) for c in usable)
    waiting = {c.id: c for c in islice(order, POOL)}
    tried = {*known, *waiting}
    # Measurements that were asked for: what cannot be timed must not be asked for ever.
    turns = Counter(list(known))
    model, fits = Model(), list(FITS)
    begun = laboratory.spent()
    while known and laboratory.spent() < 1:
        samples = {id: taken for id in known if (taken := laboratory.taken_of(id))}
        if fits and (laboratory.spent() - begun) / max(1 - begun, 1e-9) >= fits[0]:
            model.fit(samples)
            fits.pop(0)
        found = model.estimates(samples, tuple(waiting) if asked < budget.candidates else ())
        best = int(np.argmin(found.mean))
        for near in space.neighbors(found.ids[best]) if found.ids[best] in known else ():
            if near.id not in tried:
                waiting[near.id] = near
            tried.add(near.id)
        distance = (found.mean - found.mean[best] + INDIFFERENT) / np.sqrt(
            found.sd**2 + found.sd[best] ** 2 + 1e-12
        )
        ids = [found.ids[at] for at in np.argsort(distance, kind="stable") if distance[at] < HOPELESS]
        group = tuple(
            known.get(id) or waiting[id]
            for id in ids
            if id not in known or max(turns[id], len(samples.get(id, ()))) < budget.samples
        )[:GROUP]
        new = [c for c in group if c.id not in known][: budget.candidates - asked]
        asked += len(new)
        for candidate in new:
            del waiting[candidate.id]
        known.update((c.id, c) for c in laboratory.prepare(new))
        usable = tuple(c for c in group if c.id in known)
        if not group:
            return
        turns.update(c.id for c in usable)
        laboratory.again(usable)


def _combined(space: Space, laboratory: Laboratory, budget: tune.TuningBudget, seed: int) -> None:
    remembering = _Remembering(laboratory)
    _halve(space, remembering, budget, seed, HALVING, SETTLED)
    _climb(space, laboratory, budget, dict(remembering.seen))


def _best(candidates: Sequence[Candidate], laboratory: Laboratory) -> list[Candidate]:
    """The candidates with a usable score, best first."""
    scored = [(laboratory.score(c.id), c) for c in candidates]
    usable = [(s.primary, s.secondary, c.id, c) for s, c in scored if s.usable]
    return [c for *_, c in sorted(usable, key=lambda x: x[:3])]


SEARCHES: Mapping[str, Search] = MappingProxyType(
    {
        "guided": _guided,
        "combined": _combined,
        "halving": _halving,
        "local": _local,
        "random": _random,
        "exhaustive": _exhaustive,
    }
)
