"""Estimates: sharing between candidates helps where costs are additive, and does no harm where they are not."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from cora.autotune.estimate import Model, choices, ranked

IDS = [f"tile,rows={a},columns={b},order={c}" for a in range(6) for b in range(6) for c in range(4)]


def drawn(costs: dict[str, float], seed: int, count: int = 1, noise: float = 0.05) -> dict[str, list[float]]:
    rng = random.Random(seed)
    return {id: [math.exp(c + rng.gauss(0, noise)) for _ in range(count)] for id, c in costs.items()}


def additive(seed: int) -> dict[str, float]:
    rng = random.Random(seed)
    effect: dict[str, float] = {}
    return {
        id: sum(effect.setdefault(choice, rng.uniform(0, 0.2)) for choice in sorted(choices(id)))
        for id in IDS
    }


def error(model: Model, costs: dict[str, float], samples: dict[str, list[float]]) -> float:
    """Root mean square error of the estimated differences of logarithms of costs."""
    found = model.estimates(samples)
    wrong = found.mean - np.array([costs[id] for id in found.ids])
    return float(np.std(wrong))


def test_choices_are_the_parts_of_an_id() -> None:
    assert choices("library:tiled,rows=4;O:tile,rows=4") == {"library", "tiled", "rows=4", "O", "tile"}
    assert choices("") == frozenset()


@pytest.mark.parametrize("seed", range(3))
def test_one_sample_each_says_more_together_than_alone(seed: int) -> None:
    costs = additive(seed)
    samples = drawn(costs, seed)
    model = Model()
    model.fit(samples)
    assert model.own < 1
    assert error(model, costs, samples) < 0.7 * 0.05


@pytest.mark.parametrize("seed", range(3))
def test_without_structure_nothing_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    costs = {id: rng.gauss(0, 0.1) for id in IDS}
    samples = drawn(costs, seed)
    model = Model()
    model.fit(samples)
    assert error(model, costs, samples) < 1.15 * 0.05


def test_standard_deviations_are_honest() -> None:
    inside = []
    for seed in range(8):
        costs = additive(seed)
        samples = drawn(costs, seed, count=3)
        model = Model()
        model.fit(samples)
        found = model.estimates(samples)
        away = (found.mean - np.array([costs[id] for id in found.ids])) / found.sd
        inside.append(float(np.mean(np.abs(away) < 2)))
    assert 0.85 < np.mean(inside) <= 1


def test_candidates_without_samples_are_predicted() -> None:
    costs = additive(1)
    rng = random.Random(0)
    known = dict(rng.sample(sorted(costs.items()), 70))
    model = Model()
    model.fit(drawn(known, 1))
    others = [id for id in IDS if id not in known]
    found = model.estimates(drawn(known, 1), others)
    assert found.ids == (*known, *others)
    mean = dict(zip(found.ids, found.mean.tolist(), strict=True))
    assert np.corrcoef([mean[id] for id in others], [costs[id] for id in others])[0, 1] > 0.8


def test_a_preempted_sample_does_not_decide() -> None:
    samples = {"a": [1.0, 1.01, 0.99, 5.0], "b": [1.1, 1.11, 1.09, 1.1], "c": [1.3, 1.29, 1.31, 1.3]}
    assert ranked(samples) == ("a", "b", "c")


def test_little_and_unusable() -> None:
    nan = float("nan")
    assert ranked({}) == ()
    assert ranked({"a": [nan, 0.0, -1.0, math.inf]}) == ()
    assert ranked({"b": [1.0], "a": [1.0]}) == ("a", "b")
    assert ranked({"a": [1.0] * 5, "b": [1.0] * 5, "c": [2.0] * 5}) == ("a", "b", "c")
    found = Model().estimates({}, ["x"])
    assert found.ids == ("x",)
    assert np.isfinite(found.sd).all()


def test_the_order_of_candidates_does_not_matter() -> None:
    samples = drawn(additive(2), 2, count=2)
    assert ranked(samples) == ranked(dict(reversed(samples.items())))
