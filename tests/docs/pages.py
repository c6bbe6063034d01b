"""The pages of the documentation as programs.

Every block fenced as `python` runs, those of one page in one namespace, in order. A block fenced as `text`
that follows such a block directly is what it prints. A line `...` in it stands for any lines, `...` within a
line for any text. Other fences (`sh`, and `text` elsewhere) only illustrate.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A program of a page and the output that the page promises; `place` is where that stands in the text."""

    line: int
    program: str
    promised: str | None
    place: tuple[int, int]


def blocks(text: str) -> Iterator[Block]:
    """The programs of a page, in order."""
    found = list(_FENCE.finditer(text))
    for match, after in zip_longest(found, found[1:]):
        if match[1] != "python":
            continue
        promised = None
        if after is not None and after[1] == "text" and not text[match.end() : after.start()].strip():
            promised = after
        line = text.count("\n", 0, match.start(2)) + 1
        place = promised.span(2) if promised is not None else (match.end(), match.end())
        yield Block(line, match[2], None if promised is None else promised[2], place)


def outputs(page: Path, text: str) -> Iterator[tuple[Block, str]]:
    """Each program of a page with what it prints when it runs."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(text):
        code = compile("\n" * (block.line - 1) + block.program, str(page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        yield block, printed.getvalue()


def fits(promised: str, printed: str) -> bool:
    """Whether `printed` is what was promised, where `...` stands for anything."""
    pattern = ""
    for line in promised.splitlines():
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += "[^\n]*".join(map(re.escape, line.rstrip().split("..."))) + r"[ ]*\n"
    return re.fullmatch(pattern, printed if printed.endswith("\n") else printed + "\n") is not None
