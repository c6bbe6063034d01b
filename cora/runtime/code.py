"""The code of a kernel: a shared library (from the cache, or exported), or code in memory where no linker is."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cora.codegen.load import Library, load
from cora.errors import UnsupportedError, UserError
from cora.prelude import NativePrelude, PreludeSpec, jit
from cora.prelude import load as load_prelude
from cora.runtime.artifact import Artifact

MAGIC = b"CORAMETA"
LENGTH_BYTES = 8


class Code(Protocol):
    """Where a kernel's functions come from."""

    def function(self, name: str) -> Callable[..., None]:
        """A compiled function by name."""

    def prelude(self, spec: PreludeSpec) -> NativePrelude:
        """The compiled prelude."""

    def source(self, kind: str) -> str:
        """The code as text: "tir", "ll" or "asm"."""

    def export(self, path: Path) -> Path:
        """Write a library that `load_library` reads."""


@dataclass(frozen=True, slots=True, eq=False)
class LibraryCode:
    """Code in a shared library; `text` makes the source texts again when they are asked for."""

    library: Library
    metadata: bytes
    text: Callable[[str], str] | None

    def function(self, name: str) -> Callable[..., None]:
        """A function of the library."""
        return self.library.function(name)

    def prelude(self, spec: PreludeSpec) -> NativePrelude:
        """The prelude that was linked in."""
        return load_prelude(spec, ctypes.CDLL(str(self.library.path)))

    def source(self, kind: str) -> str:
        """The source text; UnsupportedError for a library that came without its program."""
        if self.text is None:
            raise UnsupportedError("source: an exported library does not carry the text of its code")
        return self.text(kind)

    def export(self, path: Path) -> Path:
        """The library with its metadata appended, written at once or not at all."""
        tail = self.metadata + len(self.metadata).to_bytes(LENGTH_BYTES, "little") + MAGIC
        try:
            write_atomically(path, split_library(self.library.path)[0] + tail)
        except OSError as error:
            raise UserError(f"export: cannot write {path}: {error}") from error
        return path


@dataclass(frozen=True, slots=True, eq=False)
class MemoryCode:
    """Code in this process alone: the machine has no linker."""

    functions: Callable[[str], Callable[..., None]]
    text: Callable[[str], str]

    def function(self, name: str) -> Callable[..., None]:
        """A function compiled in memory."""
        return self.functions(name)

    def prelude(self, spec: PreludeSpec) -> NativePrelude:
        """The prelude, compiled in memory."""
        return jit(spec)

    def source(self, kind: str) -> str:
        """The source text."""
        return self.text(kind)

    def export(self, path: Path) -> Path:
        """UnsupportedError: a library needs a linker."""
        raise UnsupportedError(f"export to {path}: no linker was found (ld or g++)")


def load_library(path: Path) -> tuple[Artifact, LibraryCode]:
    """The kernel in an exported library. Raises UserError if the file is none."""
    try:
        _, metadata = split_library(path)
    except OSError as error:
        raise UserError(f"load: cannot read {path}: {error}") from error
    if not metadata:
        raise UserError(f"load: {path} is no library exported by cora")
    return Artifact.from_bytes(metadata), LibraryCode(load(path), metadata, None)


def split_library(path: Path) -> tuple[bytes, bytes]:
    """The library proper, and the metadata that `export` appended (empty: none)."""
    data = path.read_bytes()
    end = len(data) - len(MAGIC)
    if data[end:] != MAGIC:
        return data, b""
    start = end - LENGTH_BYTES - int.from_bytes(data[end - LENGTH_BYTES : end], "little")
    if start < 0:
        raise UserError(f"load: {path} is damaged")
    return data[:start], data[start : end - LENGTH_BYTES]


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees all of it or none."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o755)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
