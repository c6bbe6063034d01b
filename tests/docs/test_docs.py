"""The programs in the documentation run, and print what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cora.schedule.schedule import Schedule
from cora.schedule.steps import TAILS
from tests.docs.pages import PAGES, ROOT, blocks, fits, outputs

LINK = re.compile(r"\]\((?!https?:)([^)#]+)(#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home-cache"))
    for block, printed in outputs(page, page.read_text()):
        if block.promised is not None and not fits(block.promised, printed):
            pytest.fail(
                f"{page.relative_to(ROOT)}, line {block.line}: the page says\n{block.promised}\n"
                f"but this is printed\n{printed}\n"
                "(`python -m tests.docs` writes it into the page, if that is right)"
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target[0]).exists(), f"{page.name} links to {target[0]}"


def test_every_primitive_has_a_section() -> None:
    """A heading of its own in docs/schedule, where it is shown before and after."""
    primitives = {
        name
        for name, method in vars(Schedule).items()
        if not name.startswith("_") and getattr(method, "__annotations__", {}).get("return") == "Schedule"
    } - {"then", "replay"}
    headings = {
        name
        for page in (ROOT / "docs" / "schedule").glob("*.md")
        for heading in re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
        for name in re.split(r", | and ", heading)
    }
    assert len(primitives) > 15
    assert primitives <= headings, f"not in docs/schedule: {', '.join(sorted(primitives - headings))}"


def test_every_tail_has_a_section() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "docs" / "schedule" / "tails.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(TAILS)


def test_readme_starts_with_the_first_program() -> None:
    """The README's first block is what examples/first_program.py runs, but for its comments."""

    def bare(program: str) -> list[str]:
        lines = (line.split("  #")[0].strip() for line in program.splitlines())
        return [line for line in lines if line and not line.startswith(("#", "import ", "from "))]

    first = next(blocks(PAGES[0].read_text()))
    example = (ROOT / "examples" / "first_program.py").read_text()
    example = re.sub(r'^""".*?"""', "", example, flags=re.DOTALL)
    assert bare(first.program) == bare(example)


def test_the_first_program_prints_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    block, printed = next(outputs(PAGES[0], PAGES[0].read_text()))
    result, _, explanation = printed.partition("\n")
    assert result == "[[2.0, 4.0, 6.0], [8.0], []]"
    assert f"print(out.to_list())                                 # {result}" in block.program
    assert explanation.startswith("kernel kernel_O for ")


def test_outputs_are_compared() -> None:
    text = "```python\nprint(1)\nprint(2)\n```\n\n```text\n1\n2\n```\n```text\nelsewhere\n```\n"
    (block,) = blocks(text)
    assert (block.line, block.promised) == (2, "1\n2\n")
    ((_, printed),) = outputs(Path("x.md"), text)
    assert fits("1\n2\n", printed)
    assert fits("...\n2\n", printed)
    assert fits("1\n...\n", printed)
    assert not fits("1\n", printed)
    assert not fits("1\n3\n", printed)
    assert fits("a ... d\n", "a b c d\n")
    assert not fits("a ... d\n", "a b\nc d\n")
    assert not any(b.promised for b in blocks("```python\nprint(1)\n```\nprose\n```text\n1\n```\n"))
