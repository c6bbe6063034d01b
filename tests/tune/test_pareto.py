"""The frontier against the definition of dominance."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cora.tune import Score, dominates, pareto_frontier, select_best
from tests.tune.strategies import scores, steady, usable_scores


def test_example() -> None:
    a, b, c = Score(1.0, 9.0, "a"), Score(2.0, 5.0, "b"), Score(3.0, 1.0, "c")
    dominated = [Score(1.0, 10.0, "d"), Score(2.5, 5.0, "e"), Score(4.0, 4.0, "f"), Score(3.0, 1.5, "g")]
    twin = Score(2.0, 5.0, "bb")
    assert pareto_frontier([c, *dominated, twin, a, b]) == (a, b, twin, c)


@steady
@given(scores())
def test_frontier_is_what_no_usable_score_dominates(found: list[Score]) -> None:
    usable = [s for s in found if s.usable]
    expected = [c for c in usable if not any(dominates(o, c) for o in usable)]
    assert set(pareto_frontier(found)) == set(expected)
    assert len(pareto_frontier(found)) == len(expected)


@steady
@given(scores(), st.randoms(use_true_random=False))
def test_frontier_is_sorted_whatever_the_order(found: list[Score], rng: random.Random) -> None:
    frontier = pareto_frontier(found)
    assert list(frontier) == sorted(frontier, key=lambda s: (s.primary, s.secondary, s.id))
    rng.shuffle(found)
    assert pareto_frontier(iter(found)) == frontier


@steady
@given(usable_scores())
def test_secondary_strictly_decreases_from_cost_to_cost(found: list[Score]) -> None:
    for a, b in pairwise(pareto_frontier(found)):
        if a.primary == b.primary:
            assert a.secondary == b.secondary
        else:
            assert a.primary < b.primary
            assert a.secondary > b.secondary


@steady
@given(usable_scores())
def test_what_is_off_the_frontier_is_dominated_by_a_point_on_it(found: list[Score]) -> None:
    frontier = pareto_frontier(found)
    for score in set(found) - set(frontier):
        assert any(dominates(o, score) for o in frontier)


@steady
@given(usable_scores())
def test_dominance_is_a_strict_partial_order(found: list[Score]) -> None:
    for a in found:
        assert not dominates(a, a)
        for b in found:
            assert not (dominates(a, b) and dominates(b, a))
            for c in found:
                assert dominates(a, c) or not (dominates(a, b) and dominates(b, c))


@steady
@given(usable_scores())
def test_the_winner_without_a_threshold_is_on_the_frontier(found: list[Score]) -> None:
    assert select_best(found, 0.0) in pareto_frontier(found)
