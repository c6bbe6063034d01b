"""A random program as text and as the objects that it makes: what fails can be printed and run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cora
from tests.tiles.given_kernels import any_tile, row_of_16

HEADER = (
    "import cora\nfrom math import inf, nan\nfrom tests.fuzz.check import check\n"
    "from tests.tiles.given_kernels import any_tile, row_of_16\n"
)


class Program:
    """Lines of Python, executed as they are added."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[str, Any] = {
            "cora": cora,
            "inf": float("inf"),
            "nan": float("nan"),
            "any_tile": any_tile,
            "row_of_16": row_of_16,
        }
        self._counts: dict[str, int] = {}

    def fresh(self, prefix: str) -> str:
        """A name that is not in use."""
        number = self._counts.get(prefix, 0)
        self._counts[prefix] = number + 1
        return f"{prefix}{number}"

    def named(self, name: str) -> Any:
        """What a name of the program means; None if it has none such."""
        return self._names.get(name)

    def value(self, text: str) -> Any:
        """What an expression over the names of the program means."""
        return eval(text, dict(self._names))  # the text is our own

    def assign(self, name: str, text: str) -> Any:
        """Add the line `name = text`; its value."""
        result = self.value(text)
        self._names[name] = result
        self.lines.append(f"{name} = {text}")
        return result

    def run(self, line: str, check: Callable[..., None]) -> None:
        """Execute one more line, with `check` in it, without adding it."""
        exec(line, {**self._names, "check": check})  # the text is our own

    def source(self, *rest: str) -> str:
        """The whole program; `rest` are lines that end it."""
        return HEADER + "\n" + "\n".join([*self.lines, *rest]) + "\n"
