"""Exhaustive search over a bounded prefix of an enumeration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from cora.errors import UserError
from cora.tune.model import BuildEvent, BuiltCandidate, RejectedCandidate
from cora.tune.score import Score

__all__ = ["SearchResult", "exhaustive_scores"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class SearchResult:
    """scores: of the valid candidates; events: of all that were examined; both in enumeration order."""

    scores: tuple[Score, ...]
    events: tuple[BuildEvent, ...]


def exhaustive_scores(
    candidates: Iterable[BuiltCandidate[R] | RejectedCandidate],
    score: Callable[[BuiltCandidate[R]], Score],
    budget: int,
) -> SearchResult:
    """Score the first `budget` candidates of the enumeration; one `BuildEvent` for each, rejected or not.

    candidates: consumed lazily, `budget` elements at most, each one scored before the next is asked for. So a
        generator can build them one by one. With a prefix in `seeded_order` this is a reproducible random
        search, with the natural order and a large budget a full grid search.
    score: called once for each valid candidate and for no other. An unusable score is a score. What it
        raises ends the search.

    A built candidate whose id was seen before is rejected: ids decide ties, so they must be unique.

    Raises:
        UserError: the budget is negative, or a score has another id than its candidate.
    """
    if budget < 0:
        raise UserError(f"exhaustive_scores: budget: expected a count >= 0, got {budget}")
    scores: list[Score] = []
    events: list[BuildEvent] = []
    first: dict[str, int] = {}
    for position, candidate in enumerate(islice(candidates, budget)):
        seen = first.setdefault(candidate.id, position)
        match candidate:
            case RejectedCandidate(id=id, reason=reason):
                events.append(BuildEvent(position, id, reason))
            case BuiltCandidate(id=id) if seen != position:
                events.append(BuildEvent(position, id, f"the candidate at position {seen} has the same id"))
            case BuiltCandidate(id=id):
                found = score(candidate)
                if found.id != id:
                    raise UserError(
                        f"exhaustive_scores: score: expected a score of {id!r}, got one of {found.id!r}"
                    )
                scores.append(found)
                events.append(BuildEvent(position, id))
    return SearchResult(tuple(scores), tuple(events))
