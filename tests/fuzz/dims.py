"""Random dims: constants, sizes, lengths of one or several outer dims, and expressions of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cora.ir.expr import Dim
from cora.ir.visit import free_dims
from cora.lang.define import Lengths
from tests.fuzz.choices import Choices
from tests.fuzz.program import Program

SMALL = [3, 1, 2, 4, 5, 0]
LARGE = [3, 1, 2, 5, 7, 8, 9, 16, 17, 33, 0]


class Dims:
    """The dims of a program, each after those that its extent depends on."""

    def __init__(self, choices: Choices, program: Program, count: int) -> None:
        self.choices = choices
        self.program = program
        self.constants = LARGE if count <= 2 else SMALL
        self.known: list[Dim] = []
        self.lengths: dict[str, Lengths] = {}
        self._extents: dict[str, str] = {}
        self._sizes: list[str] = []
        for _ in range(count):
            self.add()

    def add(self) -> Dim:
        """A new dim inside those that there are."""
        return self.define(self._extent())

    def define(self, extent: str) -> Dim:
        """A new dim with this extent."""
        name = self.program.fresh("d")
        dim: Dim = self.program.assign(name, f'cora.Dim("{name}", {extent})')
        self.known.append(dim)
        self._extents[name] = extent
        return dim

    def extent(self, dim: Dim) -> str:
        """The text of an extent, in parentheses."""
        return f"({self._extents[dim.name]})"

    def closed(self, dims: Sequence[Dim]) -> list[Dim]:
        """`dims` and all that their extents depend on, each once, in an order that is legal."""
        needed = set(dims)
        for dim in reversed(self.known):
            if dim in needed:
                needed |= free_dims(dim.extent)
        return [dim for dim in self.known if dim in needed]

    def ordered(self, dims: Sequence[Dim]) -> list[Dim]:
        """`dims` in some order in which each stands after those that it depends on."""
        rest, result = list(dims), []
        while rest:
            ready = [d for d in rest if not free_dims(d.extent) & set(rest)]
            result.append(self.choices.pick(ready))
            rest.remove(result[-1])
        return result

    def twins(self, dims: Sequence[Dim]) -> list[Dim]:
        """New dims of the same extents (`dims` closed): another name for the same shape."""
        names: dict[str, str] = {}
        made = []
        for dim in dims:
            renamed = self._extents[dim.name]
            for old, new in names.items():
                renamed = re.sub(rf"\b{old}\b", new, renamed)
            made.append(self.define(renamed))
            names[dim.name] = made[-1].name
        return made

    def _extent(self) -> str:
        if not self.known:
            return self.choices.pick([self._size, self._size, self._constant])()
        options = [self._constant, self._size, *4 * [self._one], self._two, *3 * [self._expression]]
        return self.choices.pick(options)()

    def _constant(self) -> str:
        return str(self.choices.pick(self.constants))

    def _size(self) -> str:
        if not self._sizes or self.choices.chance(50):
            name = self.program.fresh("M")
            self.program.assign(name, f'cora.size("{name}")')
            self._sizes.append(name)
        return self.choices.pick(self._sizes)

    def _one(self) -> str:
        return self._length([self.choices.pick(self.known)])

    def _two(self) -> str:
        return self._length([self.choices.pick(self.known), self.choices.pick(self.known)])

    def _length(self, dims: Sequence[Dim]) -> str:
        domain = self.closed(dims)
        same = [name for name, lengths in self.lengths.items() if lengths.dims == tuple(domain)]
        if same and self.choices.chance(60):
            name = self.choices.pick(same)
        else:
            name = self.program.fresh("L")
            over = ", ".join(d.name for d in domain)
            self.lengths[name] = self.program.assign(name, f'cora.lengths("{name}", {over})')
        return f"{name}[{', '.join(d.name for d in domain)}]"

    def _expression(self) -> str:
        pick, d = self.choices.pick, self.choices.pick(self.known).name
        length, c = self._one(), pick(self.constants)
        return pick(
            [
                f"{d} + 1",
                f"{d} + {c}",
                f"cora.minimum({d} + 1, {c})",
                f"{d} - 2",
                f"{c} - {d}",
                f"{d} // 2 + 1",
                f"{d} % 3",
                f"cora.maximum({d} - 1, 1)",
                f"{length} - {d}",
                f"{length} - {self._one()} + {d} + 1",
                f"cora.minimum({length}, 3)",
                f"({length} + 3) // 4",
                f"{length} * 2",
                f"{self._size()} - {d}",
                f"cora.where({d} < 2, 3, {length})",
            ]
        )
