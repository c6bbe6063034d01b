"""The decision: wins, ties and defaults."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cora.autotune.decide import decide, slower_on_holdout
from cora.autotune.spaces import DEFAULT
from cora.autotune.statistics import geometric_mean, median, median_interval, relative_uncertainty
from cora.errors import UserError

STEADY = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.0]


def scaled(factor: float) -> list[float]:
    return [factor * x for x in STEADY]


def test_a_clear_win() -> None:
    found = decide({DEFAULT: STEADY, "fast": scaled(0.5), "slow": scaled(2.0)}, {}, 1.0)
    assert (found.winner, found.verdict, found.ties) == ("fast", "win", ("fast",))


def test_a_win_inside_the_noise_is_a_tie_and_the_default_stays() -> None:
    noisy = [0.80, 1.15, 0.90, 1.20, 0.95, 1.10, 0.85, 0.9]
    found = decide({DEFAULT: STEADY, "lucky": noisy}, {}, 1.0)
    assert (found.winner, found.chosen, found.verdict) == (DEFAULT, "lucky", "tie")
    assert DEFAULT in found.ties


def test_nothing_faster() -> None:
    found = decide({DEFAULT: STEADY, "slow": scaled(1.1)}, {}, 1.0)
    assert (found.winner, found.verdict) == (DEFAULT, "default")


def test_practical_ties_go_to_less_memory() -> None:
    samples = {DEFAULT: STEADY, "a": scaled(0.500), "b": scaled(0.503)}
    assert decide(samples, {"a": 2000, "b": 1000}, 1.0).winner == "b"
    assert decide(samples, {"a": 2000, "b": 1000}, 0.1).winner == "a"
    assert decide(samples, {"a": 2000, "b": 1000}, 1.0).ties == ("a", "b")


def test_what_the_search_could_not_tell_apart_is_a_tie() -> None:
    samples = {DEFAULT: STEADY, "a": scaled(0.5)}
    searched = {"near": [0.505], "far": [0.6], "farther": [0.9, 0.9], "a": [0.4], "none": []}
    assert decide(samples, {}, 1.0, searched).ties == ("a", "near")
    noisy = [0.4, 0.6, 0.5, 0.45, 0.55, 0.5, 0.52, 0.48]
    assert decide({DEFAULT: [2 * x for x in noisy], "a": noisy}, {}, 1.0, searched).ties == (
        "a",
        "far",
        "near",
    )
    assert "far" in decide({DEFAULT: [2 * x for x in noisy], "a": noisy}, {}, 1.0, {"far": [0.55]}).ties
    assert decide({DEFAULT: [2 * x for x in noisy], "a": noisy}, {}, 1.0, {"far": [0.8]}).ties == ("a",)


def test_ties_hold_the_best_and_little_else() -> None:
    costs = {DEFAULT: 1.0, "a": 0.50, "b": 0.505, "c": 0.55, "d": 0.7, "e": 0.9}
    held, sizes = 0, []
    for seed in range(60):
        rng = random.Random(seed)
        drawn = {id: [c * (1 + rng.gauss(0, 0.02)) for _ in range(12)] for id, c in costs.items()}
        found = decide(drawn, {}, 0.5)
        held += "a" in found.ties
        sizes.append(len(found.ties))
    assert held >= 54
    assert sum(sizes) / len(sizes) < 2.5


def test_old_samples_help_to_choose_and_do_not_help_to_win() -> None:
    samples = {DEFAULT: STEADY, "a": scaled(0.52), "b": scaled(0.5)}
    assert decide(samples, {}, 0.0).winner == "b"
    assert decide(samples, {}, 0.0, {"a": [0.4] * 20, "b": [0.5] * 20}).winner == "a"
    found = decide({DEFAULT: STEADY, "a": scaled(1.0)}, {}, 0.0, {"a": [0.4] * 20})
    assert (found.winner, found.verdict) == (DEFAULT, "tie")


def test_without_the_default_nothing_is_decided() -> None:
    with pytest.raises(UserError, match="samples of the default schedule"):
        decide({"a": STEADY}, {}, 1.0)


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=2), st.lists(st.floats(0.1, 3), min_size=1, max_size=9)
    )
)
def test_the_winner_is_the_default_or_beats_it(samples: dict[str, list[float]]) -> None:
    found = decide({DEFAULT: STEADY, **samples}, {}, 1.0)
    if found.winner != DEFAULT:
        assert median(samples[found.winner]) < median(STEADY) * 1.02
        assert found.winner in found.ties
    else:
        assert found.verdict in ("tie", "default")


def test_slower_on_a_holdout_shape() -> None:
    assert slower_on_holdout({"a": scaled(0.5), "b": scaled(1.0)}, 1.0) is None
    assert slower_on_holdout({"a": scaled(0.5), "b": scaled(1.2)}, 1.0) == "b"
    assert slower_on_holdout({"b": [0.9, 1.3, 1.2, 1.4]}, 1.0) is None
    assert slower_on_holdout({"b": []}, 1.0) is None


def test_the_interval_holds_the_median_about_as_often_as_it_says() -> None:
    rng = random.Random(1)
    inside = 0
    for _ in range(2000):
        low, high = median_interval([rng.expovariate(1.0) for _ in range(25)])
        inside += low <= 0.6931 <= high
    assert 0.92 <= inside / 2000 <= 0.99


def test_statistics_of_little() -> None:
    nan = float("nan")
    assert median_interval([]) == (float("-inf"), float("inf"))
    assert median_interval([2.0, nan]) == (2.0, 2.0)
    assert relative_uncertainty([]) != relative_uncertainty([])
    assert relative_uncertainty([1.0, 1.2]) == pytest.approx(0.1 / 1.1)
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert geometric_mean([1.0, nan]) != geometric_mean([1.0, nan])
    with pytest.raises(UserError):
        geometric_mean([])
