"""The code of a kernel: a shared library (from the cache, or exported), or code in memory where no linker is."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Protocol

from cora.codegen.load import Library, load
from cora.codegen.target import detect
from cora.errors import UnsupportedError, UserError
from cora.prelude import NativePrelude, PreludeSpec, jit
from cora.prelude import load as load_prelude
from cora.runtime.artifact import Artifact
from cora.runtime.routines import prepare

#: What follows a library in an exported file: version, newline, metadata, hash of all before, length, MAGIC.
MAGIC = b"CORAMETA"
LENGTH_BYTES = 8
HASH_BYTES = 32


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
        return export_library(self.library.path, self.metadata, path)


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


def export_library(library_path: Path, metadata: bytes, path: Path) -> Path:
    """Write the library of a kernel with its metadata to `path`; UserError if a file cannot be read or written."""
    try:
        library = library_path.read_bytes()
    except OSError as error:
        raise UserError(f"export: the kernel's own file is gone; build it again: {error}") from error
    try:
        write_atomically(path, join_library(library, metadata))
    except OSError as error:
        raise UserError(f"export: cannot write {path}: {error}") from error
    return path


def load_library(path: Path) -> tuple[Artifact, LibraryCode]:
    """The kernel in an exported library. Raises UserError if the file is none, damaged, or of another version.

    What is loaded is a copy: the loader knows libraries by path, and would take a file that was exported
    again for the one it has.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"load: cannot read {path}: {error}") from error
    library, metadata = split_library(content, path)
    artifact = Artifact.from_bytes(metadata)
    _check_processor(artifact, path)
    prepare(artifact.nests)
    return artifact, LibraryCode(load(private_copy(library)), metadata, None)


def _check_processor(artifact: Artifact, path: Path) -> None:
    """UnsupportedError if the code was made for instructions that this machine lacks."""
    arch, _, _, features = artifact.target.split("|")[-4:]
    host = detect()
    missing = sorted({f for f in features.split(",") if f} - host.features)
    if arch != host.arch or missing:
        lacks = f"lacks {', '.join(missing)}" if missing else f"is {host.arch}"
        raise UnsupportedError(f"load: {path} was built for {artifact.target}; this machine {lacks}")


def join_library(library: bytes, metadata: bytes) -> bytes:
    """The content of an exported file."""
    tail = own_version() + b"\n" + metadata
    digest = hashlib.sha256(library + tail).digest()
    return library + tail + digest + len(tail).to_bytes(LENGTH_BYTES, "little") + MAGIC


def split_library(content: bytes, path: Path) -> tuple[bytes, bytes]:
    """The library and the metadata that `join_library` joined. Raises UserError if it joined nothing here."""
    length_at = len(content) - len(MAGIC) - LENGTH_BYTES
    if length_at < 0 or not content.endswith(MAGIC):
        raise UserError(f"load: {path} is no library exported by cora")
    digest_at = length_at - HASH_BYTES
    start = digest_at - int.from_bytes(content[length_at:][:LENGTH_BYTES], "little")
    if start < 0 or hashlib.sha256(content[:digest_at]).digest() != content[digest_at:length_at]:
        raise UserError(f"load: {path} is damaged; export the kernel again")
    version, _, metadata = content[start:digest_at].partition(b"\n")
    if version != own_version():
        raise UserError(
            f"load: {path} was exported by cora {version.decode()}; this is {own_version().decode()}: "
            "export the kernel again"
        )
    return content[:start], metadata


def private_copy(library: bytes) -> Path:
    """A library file that nobody else sees, for the life of the process."""
    folder = Path(tempfile.mkdtemp(prefix="cora-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "kernel.so"
    path.write_bytes(library)
    return path


def own_version() -> bytes:
    """The version of cora, as libraries carry it."""
    try:
        return version_of("cora-ragged").encode()
    except PackageNotFoundError:
        return b"(not installed)"


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
