"""Searches: within their budget, blind to order, and they find what is there."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from cora import tune
from cora.autotune.search import SEARCHES, search
from cora.autotune.spaces import DEFAULT, Candidate
from cora.errors import UserError
from tests.autotune.laboratory import FakeLab, grid

BUDGET = tune.TuningBudget(candidates=1000, samples=9, finalists=4, confirmation_samples=8, holdout_samples=8)


def bowl(point: tuple[int, ...]) -> float:
    """A cost with its minimum, 1, at (4, 2, 1, ...)."""
    return 1.0 + sum(0.07 * abs(x - best) for x, best in zip(point, (4, 2, 1), strict=False))


def noisy(rng: random.Random, cost: float) -> float:
    """3 % of noise, and one sample in twenty twice as slow."""
    return cost * (2.0 if rng.random() < 0.05 else 1.0) * (1 + abs(rng.gauss(0, 0.03)))


@pytest.mark.parametrize("name", SEARCHES)
def test_without_noise_the_best_is_found(name: str) -> None:
    space, at = grid(6, 5, 3)
    lab = FakeLab({id: bowl(p) for id, p in at.items()})
    search(name, space, lab, BUDGET, seed=1)
    assert lab.best() == "x4_2_1"
    assert DEFAULT in lab.taken


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("samples", [0, 1, 7, 100])
def test_the_budget_of_samples_is_kept(name: str, samples: int) -> None:
    space, at = grid(6, 5, 3)
    lab = FakeLab({id: bowl(p) for id, p in at.items()}, noisy, samples=samples or 0.001)
    search(name, space, lab, BUDGET, seed=2)
    assert lab.spent_samples <= max(samples, 1)


@pytest.mark.parametrize("name", SEARCHES)
def test_the_budget_of_candidates_is_kept(name: str) -> None:
    space, at = grid(6, 5, 3)
    lab = FakeLab({id: bowl(p) for id, p in at.items()})
    small = tune.TuningBudget(10, samples=3, finalists=2, confirmation_samples=1, holdout_samples=1)
    search(name, space, lab, small, seed=0)
    assert len(set(lab.prepared)) <= 10


@pytest.mark.parametrize("name", SEARCHES)
def test_what_cannot_be_built_is_passed_over(name: str) -> None:
    space, at = grid(4, 4)
    broken = [id for n, id in enumerate(at) if n % 3 == 1]
    lab = FakeLab({id: bowl(p) for id, p in at.items()}, broken=broken)
    search(name, space, lab, BUDGET, seed=3)
    assert lab.taken
    assert not set(lab.taken) & set(broken)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_space_where_only_the_default_can_be_built(name: str) -> None:
    space, at = grid(3, 3)
    lab = FakeLab({DEFAULT: 1.0}, broken=[id for id in at if id != DEFAULT])
    search(name, space, lab, BUDGET, seed=0)
    assert set(lab.taken) == {DEFAULT}


def test_the_same_seed_gives_the_same_search() -> None:
    space, at = grid(6, 5, 3)
    costs = {id: bowl(p) for id, p in at.items()}
    runs = [FakeLab(costs, noisy, samples=150, seed=5) for _ in range(2)]
    for lab in runs:
        search("guided", space, lab, BUDGET, seed=7)
    assert runs[0].taken == runs[1].taken


def test_halving_spends_most_on_the_best() -> None:
    space, at = grid(10, 10)
    costs = {id: 1 + 0.05 * n for n, id in enumerate(at)}
    lab = FakeLab(costs)
    search("halving", space, lab, BUDGET, seed=0)
    assert len(lab.taken[DEFAULT]) == BUDGET.samples
    counts = [len(taken) for taken in lab.taken.values()]
    assert counts.count(1) >= 60
    assert sum(counts) < 2.7 * len(at)


def test_local_search_sees_a_small_part_of_a_smooth_space() -> None:
    space, at = grid(12, 12, 6)
    lab = FakeLab({id: bowl(p) for id, p in at.items()})
    search("local", space, lab, BUDGET, seed=0)
    assert "x4_2_1" in lab.taken
    assert len(lab.taken) < len(at) / 4


@pytest.mark.parametrize("name", ["guided", "combined"])
def test_near_the_best_under_noise_with_a_quarter_of_the_samples(name: str) -> None:
    space, at = grid(6, 6, 6)
    costs = {id: bowl(p) for id, p in at.items()}
    right = 0
    for seed in range(40):
        lab = FakeLab(costs, noisy, samples=len(at) * 9 / 4, seed=seed)
        search(name, space, lab, BUDGET, seed=seed)
        right += costs[lab.best()] <= 1.02
    assert right >= 36


def test_what_can_never_be_timed_does_not_keep_a_guided_search_going() -> None:
    space, at = grid(4, 4)
    lab = FakeLab(
        {id: bowl(p) for id, p in at.items()}, lambda rng, cost: float("nan") if cost < 1.2 else cost
    )
    search("guided", space, lab, BUDGET, seed=0)
    assert max(map(len, lab.taken.values())) <= BUDGET.samples


def test_a_guided_search_spends_little_on_the_hopeless() -> None:
    space, at = grid(6, 6, 6)
    costs = {id: bowl(p) for id, p in at.items()}
    lab = FakeLab(costs, noisy, samples=len(at) * 9 / 4, seed=3)
    search("guided", space, lab, BUDGET, seed=3)
    hopeless = [len(taken) for id, taken in lab.taken.items() if costs[id] > 1.4]
    assert sum(hopeless) / len(hopeless) < 2.5
    assert lab.spent_samples > 450


def test_a_guided_search_ends_when_nobody_else_may_be_the_best() -> None:
    space, at = grid(6, 6)
    costs = {id: bowl(p) for id, p in at.items()}
    lab = FakeLab(costs, lambda rng, cost: cost * (1 + 0.001 * rng.random()), seed=1)
    search("guided", space, lab, BUDGET, seed=1)
    hopeless = [len(taken) for id, taken in lab.taken.items() if costs[id] > 1.4]
    assert len(hopeless) > 3
    assert max(hopeless) < BUDGET.samples
    assert lab.best() == "x4_2"


def test_a_guided_search_does_not_spend_all_on_its_survey() -> None:
    space, at = grid(6, 6, 6)
    lab = FakeLab({id: bowl(p) for id, p in at.items()}, noisy, samples=100, seed=2)
    search("guided", space, lab, BUDGET, seed=2)
    assert len(lab.taken) < 90
    assert max(map(len, lab.taken.values())) > 1


class Forgetful(FakeLab):
    """Asked again, it measures nothing, as where every sample is disturbed; asked for ever, it fails."""

    asked = 0

    def again(self, candidates: Sequence[Candidate]) -> None:
        self.asked += len(candidates)
        assert self.asked < 5000


def test_a_guided_search_asks_nobody_for_ever() -> None:
    space, at = grid(4, 4)
    lab = Forgetful({id: bowl(p) for id, p in at.items()}, noisy)
    search("guided", space, lab, BUDGET, seed=0)
    assert 0 < lab.asked <= len(at) * BUDGET.samples


def test_unknown_search() -> None:
    space, _ = grid(2)
    with pytest.raises(UserError, match="search: expected one of guided"):
        search("bayesian", space, FakeLab({}), BUDGET, seed=0)
