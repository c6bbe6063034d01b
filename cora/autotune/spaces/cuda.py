"""The space of a program on a GPU: the default schedule, and the library's own at several sizes of tiles."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from cora.autotune.spaces.candidate import DEFAULT, Candidate, ListedSpace
from cora.errors import CoraError
from cora.ir.tensor import Tensor
from cora.kernels import RECIPES
from cora.kernels.cuda_tiles import Tile
from cora.kernels.registry import Variant
from cora.schedule.default_gpu import default_gpu_schedule
from cora.schedule.schedule import Schedule, schedule
from cora.schedule.steps import Step
from cora.tune import grid_neighbors

__all__ = ["cuda_space"]

#: Sizes of tiles that are tried; threads are as many as give each 4 to 8 rows of elements.
TILES: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"rows": (64, 128), "columns": (64, 128), "depth": (8, 16, 32), "row_threads": (8, 16)}
)
#: What two halves of the operands' tiles may take of shared memory, in bytes, and elements of a thread.
_SHARED_BYTES = 48 * 1024
_ELEMENTS = range(16, 65)


def cuda_space(outputs: Sequence[Tensor], name: str = "", limit: int = 64) -> ListedSpace:
    """The candidates for a program with one output; `name`: of the kernel of the library that it is, if any.

    Schedules that do not fit the program are left out. At most `limit` candidates: those of the library as they are
    come before other sizes.
    """
    own: dict[tuple[Step, ...], Candidate] = {}
    near: dict[str, tuple[str, ...]] = {}
    recipe = RECIPES.get(name)
    variants = recipe.variants.get("cuda", {}) if recipe is not None else {}
    for kind, variant in variants.items():
        plain = _legal(variant, outputs, None)
        if plain is not None:
            own.setdefault(plain.steps, Candidate(f"library:{kind}", plain.steps))
    for kind, variant in variants.items():
        points: dict[str, tuple[int, ...]] = {}
        for id, point, tile in _tiles(variant):
            made = _legal(variant, outputs, tile)
            if made is not None:
                candidate = own.setdefault(made.steps, Candidate(f"library:{kind},{id}", made.steps))
                points.setdefault(candidate.id, point)
        near.update(grid_neighbors(points))
        near.setdefault(f"library:{kind}", tuple(points)[len(points) // 2 :][:4])
    default = Candidate(DEFAULT, default_gpu_schedule(schedule(*outputs)).steps)
    listed = sorted((c for c in own.values() if c.steps != default.steps), key=lambda c: "," in c.id)
    near[DEFAULT] = tuple(c.id for c in listed if "," not in c.id)
    chosen = (default, *listed)[:limit]
    known = {c.id for c in chosen}
    near = {id: tuple(o for o in others if o in known) for id, others in near.items() if id in known}
    return ListedSpace(chosen, near)


def _tiles(variant: Variant) -> Iterator[tuple[str, tuple[int, ...], Tile]]:
    """Sizes of tiles for a schedule that takes one: how they are called, their places along TILES, and they."""
    if "tile" not in inspect.signature(variant.make).parameters:
        return
    for point in itertools.product(*(range(len(values)) for values in TILES.values())):
        sizes = {axis: values[at] for (axis, values), at in zip(TILES.items(), point, strict=True)}
        tile = Tile(**sizes)
        elements = tile.rows * tile.columns // (tile.row_threads * tile.column_threads)
        shared = 2 * 4 * tile.depth * (tile.rows + tile.columns)
        if elements in _ELEMENTS and shared <= _SHARED_BYTES:
            text = ",".join(f"{axis}={value}" for axis, value in sizes.items())
            yield text, point, tile


def _legal(variant: Variant, outputs: Sequence[Tensor], tile: Tile | None) -> Schedule | None:
    (output,) = outputs
    try:
        made: Schedule = variant.make(output) if tile is None else variant.make(output, tile=tile)
    except CoraError:
        return None
    return made
