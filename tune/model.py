"""The data of a tuning run. Nothing here is enforced by this package: the application does that."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from cora.errors import UserError

__all__ = [
    "BuildEvent",
    "BuiltCandidate",
    "HoldoutPlan",
    "RejectedCandidate",
    "TuningBudget",
    "TuningObjective",
]

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class TuningObjective:
    """What is minimized.

    primary, secondary: names of the metrics, with their units as suffixes.
    threshold_percent: up to which difference in the primary metric two candidates tie (`select_best`).

    Raises:
        UserError: the threshold is negative, infinite or NaN.
    """

    primary: str = "time_ms"
    secondary: str = "workspace_bytes"
    threshold_percent: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.threshold_percent) and self.threshold_percent >= 0):
            raise UserError(
                "TuningObjective: threshold_percent: expected a finite number >= 0, "
                f"got {self.threshold_percent}"
            )


@dataclass(frozen=True, slots=True)
class TuningBudget:
    """What a search may spend, and the two remedies for the winner's curse.

    candidates: how many candidates are examined, those that are rejected included.
    samples: measurements of each valid candidate in the search.
    finalists: how many of the best are confirmed.
    confirmation_samples: fresh measurements of a quiet finalist (`confirmation_count`); the selection did
        not see their noise.
    holdout_samples: measurements of the winner on each holdout shape (`HoldoutPlan`).
    time_s: seconds for everything together; infinite if only counts limit the search.
    search_samples: measurements of all candidates together in the search; infinite if `samples` limits it alone.

    Raises:
        UserError: a field is negative or NaN.
    """

    candidates: int
    samples: int
    finalists: int
    confirmation_samples: int
    holdout_samples: int
    time_s: float = math.inf
    search_samples: float = math.inf

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not value >= 0:
                raise UserError(f"TuningBudget: {item.name}: expected a number >= 0, got {value}")


@dataclass(frozen=True, slots=True)
class HoldoutPlan:
    """Which shapes select the winner, and which ones then say how good it is.

    tuning, holdout: names of shapes; for ragged operators, of sets of lengths.

    Raises:
        UserError: a side is empty, names a shape twice, or shares one with the other side.
    """

    tuning: tuple[str, ...]
    holdout: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, shapes in (("tuning", self.tuning), ("holdout", self.holdout)):
            if not shapes or len(set(shapes)) < len(shapes):
                raise UserError(f"HoldoutPlan: {name}: expected different shapes, at least one, got {shapes}")
        if shared := set(self.tuning) & set(self.holdout):
            raise UserError(
                f"HoldoutPlan: holdout: expected shapes that do not select, got {sorted(shared)} in both"
            )


@dataclass(frozen=True, slots=True)
class BuiltCandidate(Generic[R]):
    """A candidate that the application has built and checked.

    runner: what the application's measuring protocol runs, e.g. a compiled kernel with its arguments. This
        package only passes it on to the score callback.
    """

    id: str
    runner: R


@dataclass(frozen=True, slots=True)
class RejectedCandidate:
    """A candidate that cannot be measured: illegal, not built, crashed, hung, or with wrong values."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """What became of one candidate of an enumeration.

    position: its place in the enumeration, from 0.
    rejection: why it was not scored; None if it was.
    """

    position: int
    id: str
    rejection: str | None = None
