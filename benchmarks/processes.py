"""Programs in a new process of this interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def output_of(*arguments: str, environment: Mapping[str, str] | None = None, given: str | None = None) -> str:
    """What Python prints with these arguments, in the project's folder.

    environment: all of it; this process's by default. given: the standard input. Raises CalledProcessError if it fails.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        input=given,
        check=True,
        cwd=ROOT,
        env=dict(os.environ if environment is None else environment),
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout
