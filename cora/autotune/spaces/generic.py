"""The space of any program, generated from its definition.

A candidate is a choice for the *stages* (what is inlined, what is computed inside its consumer: as by default, inlined
only, or nothing) and, for each operator that has loops of its own then, either the default loops or a point of one of
the families in `families.py`. Each is made by applying its steps, so none is illegal; what only differs in name is
offered once. Neighbours differ by one step along one axis of one operator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from cora.autotune.spaces.candidate import DEFAULT, Candidate
from cora.autotune.spaces.families import Family, families_of
from cora.errors import CoraError, ScheduleError, UserError
from cora.ir.tensor import Tensor
from cora.lower.pipeline import lower
from cora.schedule.default import default_nest, in_scratch, inlined, staged
from cora.schedule.schedule import Schedule, schedule
from cora.schedule.steps import Step
from cora.settings import Settings
from cora.tune import seeded_order

__all__ = ["LIMIT", "GenericSpace", "generic_space"]

#: How many candidates a space lists if nothing else is asked for.
LIMIT = 256

#: A point: the stage, and for each operator the family (0: default loops) and the place along each of its axes.
Point = tuple[int, tuple[tuple[int, ...], ...]]
_DEFAULT_LOOPS = (0,)


@dataclass(frozen=True, slots=True)
class _Stage:
    """A way to bring operators together: the schedule so far, and the families of each operator left."""

    name: str
    base: Schedule
    operators: tuple[Tensor, ...]
    families: tuple[tuple[Family, ...], ...]

    def text(self, loops: tuple[tuple[int, ...], ...]) -> str:
        """The id of a point of this stage."""
        parts = [] if self.name == "default" else [f"stages={self.name}"]
        for op, families, point in zip(self.operators, self.families, loops, strict=True):
            if point != _DEFAULT_LOOPS:
                family = families[point[0] - 1]
                choices = zip(family.axes, family.axes.values(), point[1:], strict=True)
                text = ",".join(f"{axis}={values[at]}" for axis, values, at in choices)
                parts.append(f"{op.name if len(self.operators) > 1 else ''}:{family.name},{text}".lstrip(":"))
        return ";".join(parts) or DEFAULT

    def schedule(self, loops: tuple[tuple[int, ...], ...]) -> Schedule | None:
        """The schedule at a point; None if it is illegal."""
        s = self.base
        try:
            for op, families, point in zip(self.operators, self.families, loops, strict=True):
                if point == _DEFAULT_LOOPS:
                    s = default_nest(s, op)
                else:
                    family = families[point[0] - 1]
                    choices = {
                        axis: values[at]
                        for (axis, values), at in zip(family.axes.items(), point[1:], strict=True)
                    }
                    s = family.make(s, op.name, choices)
        except (ScheduleError, IndexError):  # no such loop here
            return None
        return in_scratch(s)


@dataclass(frozen=True)
class GenericSpace:
    """The candidates of a program; see the text of the module.

    candidates: the default schedule, the middle of each family, then others in a seeded order; `limit` at most.
    """

    stages: tuple[_Stage, ...]
    limit: int
    seed: int
    _points: dict[str, Point] = field(default_factory=dict, hash=False)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """The enumeration, made when it is first asked for."""
        return tuple(self._made_in_order(self.seed))

    def ordered(self, seed: int) -> Iterator[Candidate]:
        """See Space. With the seed of the space this is the enumeration itself, made as far as it is asked for."""
        if seed == self.seed:
            yield from self._made_in_order(seed)
        else:
            yield from sorted(seeded_order(self.candidates, seed), key=lambda c: c.id != DEFAULT)

    def _made_in_order(self, seed: int) -> Iterator[Candidate]:
        default = self._default
        points = {self._text(p): p for p in (default, *self._near(default))}
        others = {self._text(p): p for p in self._grid()}
        points.update((name.id, others[name.id]) for name in seeded_order(map(_Named, others), seed))
        seen: set[tuple[Step, ...]] = set()
        for point in points.values():
            candidate = self._made(point)
            if candidate is not None and candidate.steps not in seen:
                seen.add(candidate.steps)
                yield candidate
                if len(seen) == self.limit:
                    return

    @property
    def _default(self) -> Point:
        return 0, (_DEFAULT_LOOPS,) * len(self.stages[0].operators)

    def neighbors(self, id: str) -> tuple[Candidate, ...]:
        """The legal candidates one step along one axis away; those of the default are the middles of all families.

        Raises UserError if no candidate that this space has given out has the id.
        """
        if id == DEFAULT:
            self._made(self._default)
        if id not in self._points:
            raise UserError(f"neighbors: no candidate {id!r} was given out by this space")
        found: dict[str, Candidate] = {}
        for point in self._near(self._points[id]):
            candidate = self._made(point)
            if candidate is not None and candidate.id != id:
                found.setdefault(candidate.id, candidate)
        return tuple(found.values())

    def _made(self, point: Point) -> Candidate | None:
        stage, loops = point
        made = self.stages[stage].schedule(loops)
        if made is None:
            return None
        id = self._text(point)
        self._points[id] = point
        return Candidate(id, made.steps)

    def _text(self, point: Point) -> str:
        return self.stages[point[0]].text(point[1])

    def _grid(self) -> Iterator[Point]:
        """All points that differ from the default in one operator; the others are neighbours of neighbours."""
        for number, stage in enumerate(self.stages):
            loops = (_DEFAULT_LOOPS,) * len(stage.operators)
            yield number, loops
            for place in range(len(stage.operators)):
                for point in _points_of(stage.families[place]):
                    yield number, (*loops[:place], point, *loops[place + 1 :])

    def _near(self, point: Point) -> Iterator[Point]:
        number, loops = point
        stage = self.stages[number]
        if all(own == _DEFAULT_LOOPS for own in loops):
            for other, another in enumerate(self.stages):
                if other != number:
                    yield other, (_DEFAULT_LOOPS,) * len(another.operators)
        for place, own in enumerate(loops):
            for near in _near_in(stage.families[place], own):
                yield number, (*loops[:place], near, *loops[place + 1 :])


@dataclass(frozen=True, slots=True)
class _Named:
    id: str


def _points_of(families: Sequence[Family]) -> Iterator[tuple[int, ...]]:
    for number, family in enumerate(families, start=1):
        yield from ((number, *at) for at in itertools.product(*(range(len(v)) for v in family.axes.values())))


def _near_in(families: Sequence[Family], own: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if own == _DEFAULT_LOOPS:
        for number, family in enumerate(families, start=1):
            sizes = [len(values) for values in family.axes.values()]
            yield (number, *(n // 2 for n in sizes))
            yield (number, *(0 if n <= 3 else n // 2 for n in sizes))
        return
    sizes = [len(values) for values in families[own[0] - 1].axes.values()]
    for axis, size in enumerate(sizes, start=1):
        for at in (own[axis] - 1, own[axis] + 1):
            if 0 <= at < size:
                yield (*own[:axis], at, *own[axis + 1 :])
    yield _DEFAULT_LOOPS


def generic_space(outputs: Sequence[Tensor], limit: int = LIMIT, seed: int = 0) -> GenericSpace:
    """The space of a program: the default schedule and at most `limit` - 1 others, which `seed` picks.

    Raises UserError for a limit below 1.
    """
    if limit < 1:
        raise UserError(f"generic_space: limit: expected a positive integer; got {limit}")
    plain = schedule(*outputs)
    bases = {"default": staged(plain), "inline": inlined(plain), "none": plain}
    stages: dict[tuple[Step, ...], _Stage] = {}
    for name, base in bases.items():
        operators = base.operators
        families = tuple(_families(base, op) for op in operators)
        stages.setdefault(base.steps, _Stage(name, base, operators, families))
    return GenericSpace(tuple(stages.values()), limit, seed)


def _families(base: Schedule, op: Tensor) -> tuple[Family, ...]:
    """The families for an operator; that of micro-kernels only with the choices under which it can be lowered."""
    found: list[Family] = []
    for family in families_of(base.nest(op), op.name in base.state.attached):
        if family.name == "tile":
            family = _lowerable(base, op, family)
        if all(family.axes.values()):
            found.append(family)
    return tuple(found)


def _lowerable(base: Schedule, op: Tensor, family: Family) -> Family:
    """The tiles that a micro-kernel can compute: the pattern of one point for each fusion is checked by lowering.

    Tiles of one row where no others can be: the reduction of a triangle is another one for each row.
    """
    for rows in (tuple(r for r in family.axes["rows"] if r > 1), (1,)):
        fuse = tuple(f for f in family.axes["fuse"] if rows and _tiles(base, op, family, f, rows[0]))
        if fuse:
            return replace(family, axes={**family.axes, "fuse": fuse, "rows": rows})
    return replace(family, axes={**family.axes, "fuse": ()})


def _tiles(base: Schedule, op: Tensor, family: Family, fuse: int, rows: int) -> bool:
    first = {axis: values[0] for axis, values in family.axes.items()}
    for columns in (64, 0):
        try:
            s = family.make(base, op.name, {**first, "fuse": fuse, "rows": rows, "columns": columns})
            lower(s, Settings(solver="off"), "tile")
        except (CoraError, IndexError):
            continue
        return True
    return False
