"""`python -m tests.docs [page ...]`: write what the programs print now into the pages, where it differs."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.docs.pages import PAGES, fits, outputs


def update(page: Path) -> int:
    """Replace the outputs of `page` that are wrong; gives their number."""
    text = page.read_text()
    changed = 0
    for block, printed in reversed(list(outputs(page, text))):
        if block.promised is not None and not fits(block.promised, printed):
            begin, end = block.place
            text = text[:begin] + printed.rstrip("\n") + "\n" + text[end:]
            changed += 1
    page.write_text(text)
    return changed


if __name__ == "__main__":
    for page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            print(f"{page.name}: {update(page)} outputs replaced")
