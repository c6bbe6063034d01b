"""The bounded exhaustive search."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cora.errors import UserError
from cora.tune import (
    BuildEvent,
    BuiltCandidate,
    RejectedCandidate,
    Score,
    exhaustive_scores,
    score_samples,
)
from tests.tune.strategies import samples, steady

Build = BuiltCandidate[list[float]] | RejectedCandidate


@st.composite
def builds(draw: st.DrawFn) -> list[Build]:
    """Candidates with unique ids, which carry their samples instead of something to run."""
    ids = draw(st.lists(st.text("abc", min_size=1, max_size=3), unique=True, max_size=10))
    return [
        BuiltCandidate(id, draw(st.lists(samples, max_size=3)))
        if draw(st.booleans())
        else RejectedCandidate(id, draw(st.sampled_from(["crash", "wrong"])))
        for id in ids
    ]


def measure(candidate: BuiltCandidate[list[float]]) -> Score:
    return score_samples(candidate.runner, id=candidate.id)


def test_example() -> None:
    found = exhaustive_scores(
        [
            BuiltCandidate("a", [1.0]),
            RejectedCandidate("b", "hangs"),
            BuiltCandidate("c", []),
            BuiltCandidate("d", [2.0]),
        ],
        measure,
        3,
    )
    assert found.events == (BuildEvent(0, "a"), BuildEvent(1, "b", "hangs"), BuildEvent(2, "c"))
    assert [(score.id, score.usable) for score in found.scores] == [("a", True), ("c", False)]


@steady
@given(builds(), st.integers(0, 12))
def test_examines_the_first_budget_candidates_and_scores_the_valid_ones(
    given_builds: list[Build], budget: int
) -> None:
    examined: list[str] = []
    scored: list[str] = []

    def enumerate_lazily() -> Iterator[Build]:
        for build in given_builds:
            examined.append(build.id)
            yield build

    def score(candidate: BuiltCandidate[list[float]]) -> Score:
        # Each is scored before the next is built.
        assert examined[-1] == candidate.id
        scored.append(candidate.id)
        return measure(candidate)

    found = exhaustive_scores(enumerate_lazily(), score, budget)
    prefix = given_builds[:budget]
    assert examined == [build.id for build in prefix]
    assert scored == [build.id for build in prefix if isinstance(build, BuiltCandidate)]
    assert [score.id for score in found.scores] == scored
    assert [(event.position, event.id) for event in found.events] == list(enumerate(examined))
    assert [event.rejection for event in found.events] == [
        build.reason if isinstance(build, RejectedCandidate) else None for build in prefix
    ]


def test_the_second_candidate_of_an_id_is_rejected() -> None:
    found = exhaustive_scores([BuiltCandidate("a", [1.0]), BuiltCandidate("a", [0.5])], measure, 9)
    assert found.scores == (Score(1.0, 0.0, "a"),)
    assert found.events[1] == BuildEvent(1, "a", "the candidate at position 0 has the same id")


def test_a_score_of_another_candidate_is_refused() -> None:
    with pytest.raises(UserError, match="expected a score of 'a', got one of 'b'"):
        exhaustive_scores([BuiltCandidate("a", None)], lambda _: Score(1.0, 0.0, "b"), 1)


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(UserError, match="budget: expected a count >= 0, got -1"):
        exhaustive_scores([], measure, -1)


def test_errors_of_the_callback_come_through() -> None:
    def fail(_: BuiltCandidate[list[float]]) -> Score:
        raise RuntimeError("timer")

    with pytest.raises(RuntimeError, match="timer"):
        exhaustive_scores([BuiltCandidate("a", [1.0])], fail, 1)
