"""The example of docs/tuning.md prints what its comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tuning.md"


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    exec(compile(found[1], str(PAGE), "exec"), {})
    comments = re.findall(r"^print.*?  # (\S+?)(?::? .*)?$", found[1], re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == [comment.removesuffix(":") for comment in comments]
    assert len(comments) == 3
