"""Calls of micro-kernels on memory that ends at inaccessible pages, and what they must give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from cora.tiles.contract import ARGUMENTS, Flags
from cora.tiles.family import TileFamily
from cora.tiles.library import LoadedTiles
from tests.guard_pages import guarded

Array = np.ndarray[Any, Any]
Side = Literal["begin", "end"]

EPSILON = float(np.finfo(np.float32).eps)

#: Every legal combination.
ALL_FLAGS = tuple(
    start | residual | mode
    for start in (Flags.NONE, Flags.START_ROW, Flags.START_C)
    for residual in (Flags.NONE, Flags.RESIDUAL)
    for mode in (Flags.NONE, Flags.PACK, Flags.TRIANGLE)
)


@dataclass(frozen=True)
class Call:
    """One call. `slack`: how much larger strides are than they must be; `transposed`: a_row is 1."""

    mr: int
    nv: int
    nrem: int
    k: int
    flags: Flags = Flags.NONE
    slack: int = 0
    transposed: bool = False
    side: Side = "end"

    @property
    def depth(self) -> int:
        """How many products the last row has."""
        return self.k + (self.mr - 1 if Flags.TRIANGLE in self.flags else 0)


@dataclass(frozen=True)
class View:
    """Part of an arena: `values[r, c]` are the elements of a matrix with strides (row, column)."""

    values: Array
    row: int
    column: int

    @property
    def address(self) -> int:
        return self.values.ctypes.data


@dataclass
class Memory:
    """An arena for each operand. What belongs to no operand is NaN, and must be when a call is over.

    elements: of an arena; whole pages, so that there is an inaccessible page on both sides.
    """

    side: Side
    elements: int
    arenas: dict[str, Array] = field(default_factory=dict)

    def place(self, name: str, data: Array, row: int, column: int = 1) -> View:
        """Put a matrix into the arena `name`; its first or last element touches the inaccessible page."""
        if name not in self.arenas:
            self.arenas[name] = guarded(np.empty(self.elements, np.float32))
        arena = self.arenas[name]
        arena[:] = np.nan
        rows, columns = data.shape
        used = (rows - 1) * row + (columns - 1) * column + 1 if data.size else 0
        assert used <= self.elements
        part = arena[self.elements - used :] if self.side == "end" else arena[:used]
        view = np.lib.stride_tricks.as_strided(part, data.shape, (4 * row, 4 * column))
        view[...] = data
        return View(view, row, column)

    def bits(self) -> dict[str, Array]:
        """The contents of all arenas."""
        return {name: arena.view(np.uint32).copy() for name, arena in self.arenas.items()}


class Runner:
    """Runs calls of one family and compares each with float64 arithmetic."""

    def __init__(self, tiles: LoadedTiles, elements: int = 1 << 12) -> None:
        self.tiles = tiles
        self.family: TileFamily = tiles.family
        self._memory: dict[Side, Memory] = {
            "begin": Memory("begin", elements),
            "end": Memory("end", elements),
        }
        self._random = np.random.default_rng(7)

    def check(self, call: Call) -> Array:
        """Run `call` on random operands; the elements of C. Everything the contract says is checked."""
        memory = self._memory[call.side]
        n = (call.nv - 1) * self.family.lanes + call.nrem
        a, b = self._draw(call.mr, call.depth), self._draw(call.depth, n)
        if Flags.TRIANGLE in call.flags:
            a[~np.tri(call.mr, call.depth, call.k - 1, dtype=bool)] = np.nan
        old, residual, start = self._draw(call.mr, n), self._draw(call.mr, n), self._draw(1, n)
        if Flags.START_C not in call.flags:
            old[...] = np.nan  # what is not asked for must not be read
        strides = (1, call.mr + call.slack) if call.transposed else (call.depth + call.slack, 1)
        views = {
            "A": memory.place("A", a, *strides),
            "B": memory.place("B", b, n + call.slack),
            "C": memory.place("C", old, n + 2 * call.slack),
            "R": memory.place("R", residual, n + 3 * call.slack),
            "start": memory.place("start", start, n),
            "packed": memory.place("packed", np.full((call.k, n), np.nan, np.float32), n + call.slack),
        }
        before = memory.bits()
        assert self.tiles(*self._arguments(call, views)) == 0
        result = views["C"].values.copy()
        self._compare(call, a, b, old, residual, start[0], result)
        if Flags.PACK in call.flags:
            np.testing.assert_array_equal(views["packed"].values, b)
            views["packed"].values[...] = np.nan
        views["C"].values[...] = old
        after = memory.bits()
        for name, content in before.items():
            np.testing.assert_array_equal(after[name], content, err_msg=f"{call}: {name} was written")
        return result

    def _draw(self, rows: int, columns: int) -> Array:
        return self._random.standard_normal((rows, columns)).astype(np.float32)

    def _arguments(self, call: Call, views: dict[str, View]) -> Iterable[int]:
        unused = {
            "start": Flags.START_ROW not in call.flags,
            "R": Flags.RESIDUAL not in call.flags,
            "packed": Flags.PACK not in call.flags,
        }
        numbers = {name: 0 if unused.get(name) else view.address for name, view in views.items()}
        numbers |= {"mr": call.mr, "nv": call.nv, "nrem": call.nrem, "k": call.k, "flags": int(call.flags)}
        numbers |= {"a_bend": 0, "a_row": views["A"].row, "a_k": views["A"].column, "b_k": views["B"].row}
        numbers |= {"c_row": views["C"].row, "r_row": views["R"].row, "p_row": views["packed"].row}
        return [numbers[name] for name in ARGUMENTS]

    def _compare(
        self, call: Call, a: Array, b: Array, old: Array, residual: Array, start: Array, result: Array
    ) -> None:
        """|error| <= (depth + 2) eps times the sum of absolute terms: one rounding per addition."""
        terms = [np.zeros(result.shape)]
        if Flags.START_C in call.flags:
            terms.append(old)
        if Flags.START_ROW in call.flags:
            terms.append(np.broadcast_to(start, result.shape))
        if Flags.RESIDUAL in call.flags:
            terms.append(residual)
        if Flags.TRIANGLE in call.flags:
            a = np.tril(a, call.k - 1)
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        exact = wide_a @ wide_b + sum(term.astype(np.float64) for term in terms)
        scale = abs(wide_a) @ abs(wide_b) + sum(abs(term).astype(np.float64) for term in terms)
        error = abs(result - exact)
        assert (error <= (call.depth + 2) * EPSILON * scale).all(), (call, float(error.max()))
