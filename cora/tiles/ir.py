"""Writing functions of LLVM IR as text, in SSA form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Writer:
    """The lines of one function, and fresh names for its values."""

    def __init__(self, head: str) -> None:
        """`head`: from "define" to the attributes."""
        self._lines = [f"{head} {{"]
        self._fresh = 0

    def text(self) -> str:
        """The whole function."""
        return "\n".join([*self._lines, "}"])

    def label(self, name: str) -> None:
        """Begin the block `name`."""
        self._lines.append(f"{name}:")

    def do(self, instruction: str) -> None:
        """Append an instruction without a value."""
        self._lines.append(f"  {instruction}")

    def value(self, instruction: str) -> str:
        """Append an instruction; the name of its value."""
        self._fresh += 1
        return self.define(f"%t{self._fresh}", instruction)

    def define(self, name: str, instruction: str) -> str:
        """Append an instruction whose value has this name."""
        self._lines.append(f"  {name} = {instruction}")
        return name

    def offset(self, element: str, pointer: str, index: str | int) -> str:
        """The address of element `index` from `pointer`."""
        if index == 0:
            return pointer
        return self.value(f"getelementptr {element}, ptr {pointer}, i64 {index}")

    def rows(self, element: str, pointer: str, stride: str, count: int) -> list[str]:
        """The addresses pointer + r * stride, for r < count."""
        return [
            self.offset(element, pointer, self.value(f"mul i64 {stride}, {r}") if r else 0)
            for r in range(count)
        ]

    def phis(self, kind: str, incoming: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
        """Values that depend on the block one comes from: for each block, the values it gives."""
        ways = list(incoming)
        return [
            self.value(f"phi {kind} " + ", ".join(f"[{values[i]}, %{block}]" for block, values in ways))
            for i in range(len(ways[0][1]))
        ]
