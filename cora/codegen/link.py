"""Objects to a shared library, with whatever linker the machine has."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cora.errors import InternalError

_LINKERS: Final = ("ld", "ld.lld", "ld.gold")
_DRIVERS: Final = ("cc", "gcc", "g++", "clang")


def find_linker() -> str | None:
    """The path of a linker, or of a compiler that knows one; None if there is none."""
    for name in (*_LINKERS, *_DRIVERS):
        path = shutil.which(name)
        if path is not None:
            return path
    return None


def link(objects: Sequence[bytes], linker: str, libraries: Sequence[Path] = ()) -> bytes:
    """The shared library of `objects` (contents of ELF files), without debug information.

    Symbols are resolved when the library is loaded (`-z now`): a missing one is an error then, not a crash
    later. Of `libraries`, shared ones, those that are used are recorded by their own names: they must be loaded, or
    found, before. Raises InternalError with the linker's message.
    """
    with tempfile.TemporaryDirectory(prefix="cora-") as folder:
        inputs = []
        for number, content in enumerate(objects):
            path = Path(folder, f"{number}.o")
            path.write_bytes(content)
            inputs.append(str(path))
        output = Path(folder, "library.so")
        libm = _libm()
        if libm is not None:
            inputs.append(libm)
        inputs += map(str, libraries)
        done = subprocess.run(
            [linker, *_options(linker), "-o", str(output), *inputs],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise InternalError(f"linking with {linker} failed:\n{done.stderr.strip()}")
        return output.read_bytes()


def _options(linker: str) -> list[str]:
    if Path(linker).name in _LINKERS:
        return ["-shared", "-S", "-z", "now", "--as-needed"]
    return ["-shared", "-nostdlib", "-Wl,-S,-z,now,--as-needed"]


def _libm() -> str | None:
    """The mathematical library of this process, which float64 functions call; it is recorded by name."""
    found = re.search(r"/\S*/libm\.so\S*$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return None if found is None else found.group()
