"""Where the generators get their decisions from: a seeded generator, or hypothesis, which can shrink them.

The first entry of a list and the lowest integer are the simplest: that is what hypothesis shrinks towards.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Source(Protocol):
    """A source of integers."""

    def integer(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        ...


class Choices:
    """Decisions of all kinds, made from the integers of one source."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def integer(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return self._source.integer(low, high)

    def chance(self, percent: int) -> bool:
        """True in `percent` of 100 cases."""
        return self._source.integer(0, 99) >= 100 - percent

    def pick(self, options: Sequence[T]) -> T:
        """One of `options`; repeat an option to give it weight."""
        return options[self._source.integer(0, len(options) - 1)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in some order."""
        rest, result = list(items), []
        while rest:
            result.append(rest.pop(self._source.integer(0, len(rest) - 1)))
        return result

    def subset(self, items: Sequence[T], percent: int = 50) -> list[T]:
        """Some of the items, in their order."""
        return [item for item in items if self.chance(percent)]


class Seeded:
    """A source that follows from a seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class Drawn:
    """A source that hypothesis controls."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], Any]) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return int(self._draw(st.integers(low, high)))
