"""Compiled code on disk: shared libraries with metadata, in a folder that is private to the user.

An entry is two files. `<key>.entry` holds the metadata and the hash of the library; `<hash>.so` is the
library, named by its content. So two processes that store under one key at once cannot mix their files, and a
library that was changed or cut off is noticed, since its name no longer fits. Files are written elsewhere and
moved into place.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

from cora.errors import InternalError, UserError

#: The bound on the size of a cache folder.
DEFAULT_MAX_BYTES: Final = 512 * 2**20

_MAGIC: Final = b"cora-entry-1\n"
_HASH_CHARS: Final = 64
#: Files used so recently stay, whatever their size: a process may be about to load them.
_GRACE_SECONDS: Final = 60.0
#: Temporary files of this age were left behind by a process that died.
_STALE_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored library: its file, and what was stored with it."""

    path: Path
    metadata: bytes


def make_key(*parts: str | bytes) -> str:
    """A key from everything that decides what the code is: structure, target, versions."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


class Cache:
    """A folder of compiled libraries, safe to share between processes of one user."""

    def __init__(self, folder: Path | None = None, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        """The cache in `folder` (None: the user's cache folder), made on first use with mode 0700.

        Raises UserError if the folder belongs to somebody else or cannot be made. Other users' rights to an
        existing folder are taken away: who can write there can make this process run any code.
        """
        self.folder = Path(platformdirs.user_cache_dir("cora")) if folder is None else Path(folder)
        self.max_bytes = max_bytes
        _make_private(self.folder)

    def load(self, key: str) -> Entry | None:
        """The entry of `key`; None if there is none, or if it is not what was stored (with a warning)."""
        note = self._entry_path(key)
        try:
            content = note.read_bytes()
        except FileNotFoundError:
            return None
        parsed = _parse(content)
        if parsed is None:
            self._reject(note, "damaged")
            return None
        digest, metadata = parsed
        library = self._library_path(digest)
        try:
            actual = hashlib.sha256(library.read_bytes()).hexdigest()
        except FileNotFoundError:  # another process made room
            return None
        if actual != digest:
            self._reject(library, "not what was stored")
            return None
        for path in (note, library):
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)
        return Entry(library, metadata)

    def store(self, key: str, library: bytes, metadata: bytes) -> Entry:
        """Keep `library` and `metadata` under `key`, in place of what was there; makes room if need be."""
        digest = hashlib.sha256(library).hexdigest()
        path = self._library_path(digest)
        # The library comes first: whoever sees the note finds it.
        _replace(path, library)
        _replace(self._entry_path(key), _format(digest, metadata))
        self._make_room()
        return Entry(path, metadata)

    def _entry_path(self, key: str) -> Path:
        if not key or not key.isalnum():
            raise InternalError(f"cache: a key must be letters and digits; got {key!r}")
        return self.folder / f"{key}.entry"

    def _library_path(self, digest: str) -> Path:
        return self.folder / f"{digest}.so"

    def _reject(self, path: Path, why: str) -> None:
        warnings.warn(
            f"cache: {path} is {why}; it is removed and the code built again", RuntimeWarning, stacklevel=4
        )
        path.unlink(missing_ok=True)

    def _make_room(self) -> None:
        """Remove the files used longest ago until the bound holds, and what dead processes left."""
        now = time.time()
        total = 0
        found: list[tuple[float, int, Path]] = []
        for path in self.folder.iterdir():
            try:
                info = path.stat()
            except FileNotFoundError:
                continue
            if path.suffix == ".tmp":
                if now - info.st_mtime > _STALE_SECONDS:
                    path.unlink(missing_ok=True)
            elif path.suffix in (".so", ".entry"):
                total += info.st_size
                found.append((info.st_mtime, info.st_size, path))
        for used, size, path in sorted(found):
            if total <= self.max_bytes or now - used < _GRACE_SECONDS:
                break
            path.unlink(missing_ok=True)
            total -= size


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = folder.stat()
        if info.st_uid != os.getuid():
            raise UserError(f"cache folder {folder} belongs to another user")
        if stat.S_IMODE(info.st_mode) & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise UserError(f"cache folder {folder} cannot be used: {error}") from error


def _format(digest: str, metadata: bytes) -> bytes:
    body = digest.encode() + metadata
    return _MAGIC + hashlib.sha256(body).hexdigest().encode() + body


def _parse(content: bytes) -> tuple[str, bytes] | None:
    """The library's hash and the metadata; None if the note is damaged."""
    if not content.startswith(_MAGIC):
        return None
    check = content[len(_MAGIC) : len(_MAGIC) + _HASH_CHARS]
    body = content[len(_MAGIC) + _HASH_CHARS :]
    if hashlib.sha256(body).hexdigest().encode() != check:
        return None
    return body[:_HASH_CHARS].decode(), body[_HASH_CHARS:]


def _replace(path: Path, content: bytes) -> None:
    """Write `path` at once: readers see all of the content or none, and a library in use is left alone."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
