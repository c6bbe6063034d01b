"""The space of a kernel of the library: its own schedules at several block sizes, and the generic space."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from cora.autotune.spaces.candidate import DEFAULT, Candidate, Space
from cora.autotune.spaces.generic import generic_space
from cora.errors import CoraError
from cora.ir.tensor import Tensor
from cora.kernels.blocking import BLOCKING, Blocking
from cora.kernels.registry import Recipe
from cora.schedule.schedule import Schedule
from cora.schedule.steps import Step
from cora.tune import grid_neighbors, seeded_order

__all__ = ["LibrarySpace", "library_space"]

#: Block sizes that are tried, besides those that the library uses.
_TRIED = {"rows": (4, 8, 12), "columns": (32, 128), "row_block": (96, 384), "column_block": (256, 512)}
BLOCKS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {axis: tuple(sorted({*values, getattr(BLOCKING, axis)})) for axis, values in _TRIED.items()}
)


@dataclass(frozen=True)
class LibrarySpace:
    """own: candidates from the library; near: which of them are neighbours; generic: the others."""

    own: tuple[Candidate, ...]
    near: Mapping[str, tuple[str, ...]]
    generic: Space
    limit: int

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """See Space: the default, the library's, then those of the generic space."""
        return tuple(self._merged(self.own, self.generic.candidates))

    def ordered(self, seed: int) -> Iterator[Candidate]:
        """See Space: what the library offers as it is comes before other block sizes, in turn with the generic ones."""
        own = sorted(seeded_order(self.own, seed), key=lambda c: "," in c.id)
        yield from self._merged(own, self.generic.ordered(seed))

    def _merged(
        self, own: Sequence[Candidate], generic: Sequence[Candidate] | Iterator[Candidate]
    ) -> Iterator[Candidate]:
        others = iter(generic)
        seen: set[tuple[Step, ...]] = set()
        plain = [c for c in own if "," not in c.id]
        turns = itertools.zip_longest(own[len(plain) :], others)
        for candidate in itertools.chain([next(others)], plain, itertools.chain.from_iterable(turns)):
            if candidate is not None and candidate.steps not in seen and len(seen) < self.limit:
                seen.add(candidate.steps)
                yield candidate

    def neighbors(self, id: str) -> tuple[Candidate, ...]:
        """See Space: other block sizes; of the default also what the library offers as it is."""
        by_id = {c.id: c for c in self.own}
        if id in by_id:
            return tuple(by_id[other] for other in self.near.get(id, ()))
        plain = tuple(c for c in self.own if "," not in c.id) if id == DEFAULT else ()
        return (*plain, *self.generic.neighbors(id))


def library_space(recipe: Recipe, outputs: Sequence[Tensor], limit: int, seed: int) -> LibrarySpace:
    """The space of a program with one output that `recipe` defined; schedules that do not fit it are left out."""
    (output,) = outputs
    own: dict[tuple[Step, ...], Candidate] = {}
    near: dict[str, tuple[str, ...]] = {}
    for name, variant in recipe.variants.get("llvm", {}).items():
        plain = _legal(variant.make, output)
        sizes = _blockings() if "blocking" in inspect.signature(variant.make).parameters else ()
        points: dict[str, tuple[int, ...]] = {}
        if plain is not None:
            own.setdefault(plain.steps, Candidate(f"library:{name}", plain.steps))
        for point, blocking in sizes:
            made = _legal(variant.make, output, blocking=blocking)
            if made is None:
                continue
            text = ",".join(f"{axis}={getattr(blocking, axis)}" for axis in BLOCKS)
            candidate = own.setdefault(made.steps, Candidate(f"library:{name},{text}", made.steps))
            if candidate.id.startswith(f"library:{name}"):
                points.setdefault(candidate.id, point)
        near.update(grid_neighbors(points))
        # The library may use sizes that are not on the grid: then the grid's middle is next to it.
        near.setdefault(f"library:{name}", tuple(points)[len(points) // 2 :][:4])
    ordered = sorted(own.values(), key=lambda c: "," in c.id)
    known = {c.id for c in ordered}
    near = {id: others for id, others in near.items() if id in known}
    return LibrarySpace(tuple(ordered), near, generic_space(outputs, limit, seed), limit)


def _legal(make: Callable[..., Schedule], output: Tensor, **choices: Blocking) -> Schedule | None:
    try:
        made: Schedule = make(output, **choices)
    except CoraError:
        return None
    return made


def _blockings() -> Iterator[tuple[tuple[int, ...], Blocking]]:
    """Places along the axes of BLOCKS, and the block sizes there."""
    for point in itertools.product(*(range(len(values)) for values in BLOCKS.values())):
        sizes = {axis: values[at] for (axis, values), at in zip(BLOCKS.items(), point, strict=True)}
        if sizes["column_block"] % sizes["columns"] == 0:
            yield point, replace(BLOCKING, **sizes)
