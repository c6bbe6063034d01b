"""A candidate: a schedule with a name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from cora.errors import UserError
from cora.ir.fingerprint import fingerprint
from cora.ir.tensor import Tensor
from cora.schedule.default import default_schedule
from cora.schedule.schedule import Schedule, schedule
from cora.schedule.steps import Step
from cora.tune import seeded_order

__all__ = ["DEFAULT", "Candidate", "ListedSpace", "Space", "default_candidate", "listed"]

#: The id of the default schedule, a candidate of every space.
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule of the program that is tuned: the steps, from the untransformed program on.

    id: a name, unique in its space, that says how the schedule was made.
    """

    id: str
    steps: tuple[Step, ...]

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that are equal for equal steps."""
        return fingerprint(self.steps)[:16]

    def schedule(self, outputs: Sequence[Tensor]) -> Schedule:
        """The schedule, replayed and checked. Raises ScheduleError if it does not fit the program."""
        return schedule(*outputs).replay(self.steps)


class Space(Protocol):
    """The candidates that a search may choose from."""

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The enumeration, with unique ids. The default schedule comes first."""

    def ordered(self, seed: int) -> Iterator[Candidate]:
        """The same candidates in a pseudo-random order, the default schedule still first; made one by one."""

    def neighbors(self, id: str) -> tuple[Candidate, ...]:
        """The candidates one choice away from `id`; they need not be in the enumeration."""


def default_candidate(outputs: Sequence[Tensor]) -> Candidate:
    """The default schedule as a candidate."""
    return Candidate(DEFAULT, default_schedule(schedule(*outputs)).steps)


@dataclass(frozen=True, slots=True)
class ListedSpace:
    """A space that is written down."""

    candidates: tuple[Candidate, ...]
    near: dict[str, tuple[str, ...]]

    def ordered(self, seed: int) -> Iterator[Candidate]:
        """See Space."""
        yield from sorted(seeded_order(self.candidates, seed), key=lambda c: c.id != DEFAULT)

    def neighbors(self, id: str) -> tuple[Candidate, ...]:
        """The candidates that were listed as neighbours of `id`."""
        ids = frozenset(self.near.get(id, ()))
        return tuple(c for c in self.candidates if c.id in ids)


def listed(
    outputs: Sequence[Tensor],
    schedules: dict[str, Schedule],
    neighbors: dict[str, tuple[str, ...]] | None = None,
) -> ListedSpace:
    """A space of schedules of `outputs` by id; the default schedule comes in front.

    neighbors: ids next to an id, for a local search. Raises UserError for a schedule of another program, for one
    under the default's id, and for neighbours that do not exist.
    """
    given = fingerprint(tuple(outputs))
    for id, made in schedules.items():
        if not id or id == DEFAULT:
            raise UserError(f"listed: expected ids that are not empty and not {DEFAULT!r}; got {id!r}")
        if fingerprint(made.outputs) != given:
            raise UserError(f"listed: {id!r} is a schedule of another program")
    candidates = (
        default_candidate(outputs),
        *(Candidate(id, made.steps) for id, made in schedules.items()),
    )
    known = {c.id for c in candidates}
    near = neighbors or {}
    wrong = sorted({id for pair in near.items() for id in (pair[0], *pair[1])} - known)
    if wrong:
        raise UserError(f"listed: neighbors: no candidate {wrong[0]!r}")
    return ListedSpace(candidates, near)
