"""Candidate spaces: an enumeration of candidates, and which of them are neighbours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

from cora.errors import UserError

__all__ = ["CandidateSpace", "Identified", "grid_neighbors"]


class Identified(Protocol):
    """What the policy needs to know of a candidate: a name, unique within its space."""

    @property
    def id(self) -> str: ...


C = TypeVar("C", bound=Identified)


@dataclass(frozen=True, slots=True)
class CandidateSpace(Generic[C]):
    """The candidates that a search may choose from, in their natural order.

    candidates: the enumeration; ids are unique and not empty.
    neighbor_ids: for a local search of the application: the ids next to a candidate's id. A candidate that
        is missing here has no neighbours. Nothing in this package follows them.

    A space in another order is `dataclasses.replace(space, candidates=seeded_order(space, seed))`.

    Raises:
        UserError: an id is empty or occurs twice; a neighbour is not in the space, or the candidate itself.
    """

    candidates: tuple[C, ...]
    neighbor_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        known = set[str]()
        for candidate in self.candidates:
            if not candidate.id or candidate.id in known:
                raise UserError(
                    f"CandidateSpace: candidates: expected unique, non-empty ids, got {candidate.id!r}"
                    + (" twice" if candidate.id else "")
                )
            known.add(candidate.id)
        for id, others in self.neighbor_ids.items():
            wrong = [other for other in (id, *others) if other not in known]
            if wrong or id in others:
                raise UserError(
                    f"CandidateSpace: neighbor_ids: expected ids of other candidates for {id!r}, "
                    f"got {(wrong or [id])[0]!r}"
                )

    def __len__(self) -> int:
        return len(self.candidates)

    def __iter__(self) -> Iterator[C]:
        return iter(self.candidates)

    def neighbors(self, id: str) -> tuple[C, ...]:
        """The candidates next to the one called `id`, in the order of the enumeration.

        Raises:
            UserError: no candidate has this id.
        """
        if all(candidate.id != id for candidate in self.candidates):
            raise UserError(f"CandidateSpace.neighbors: id: expected the id of a candidate, got {id!r}")
        near = frozenset(self.neighbor_ids.get(id, ()))
        return tuple(candidate for candidate in self.candidates if candidate.id in near)


def grid_neighbors(points: Mapping[str, Sequence[int]]) -> dict[str, tuple[str, ...]]:
    """`neighbor_ids` for candidates on a grid: one step along one axis.

    points: the coordinates of each candidate, by id; coordinate a is the position of its choice for
        parameter a among the choices, in an order in which close choices behave alike.

    Two candidates are neighbours if they agree on all axes but one, and no other candidate lies between
    them. So illegal points that were left out are stepped over. The relation is symmetric.

    Raises:
        UserError: two candidates have different numbers of coordinates, or the same coordinates.
    """
    at: dict[tuple[int, ...], str] = {}
    for id, point in points.items():
        other = at.setdefault(tuple(point), id)
        if other != id:
            raise UserError(f"grid_neighbors: points: {other!r} and {id!r} are both at {tuple(point)}")
    dimensions = {len(point) for point in at}
    if len(dimensions) > 1:
        raise UserError(
            f"grid_neighbors: points: expected one number of coordinates, got {sorted(dimensions)}"
        )
    near: dict[str, list[str]] = {id: [] for id in points}
    for axis in range(max(dimensions, default=0)):
        lines: defaultdict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
        for point in at:
            lines[point[:axis] + point[axis + 1 :]].append(point)
        for line in lines.values():
            line.sort()
            for a, b in pairwise(line):
                near[at[a]].append(at[b])
                near[at[b]].append(at[a])
    return {id: tuple(others) for id, others in near.items()}
