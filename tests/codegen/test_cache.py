"""The cache on disk: what comes back is what was stored, or nothing."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cora.codegen.cache import Cache, Entry, make_key
from cora.errors import InternalError, UserError

KEY, OTHER = make_key("a"), make_key("b")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_round_trip(cache: Cache) -> None:
    assert cache.load(KEY) is None
    stored = cache.store(KEY, b"library", b"metadata")
    assert cache.load(KEY) == stored == Entry(stored.path, b"metadata")
    assert stored.path.read_bytes() == b"library"
    assert cache.load(OTHER) is None
    assert Cache(cache.folder).load(KEY) == stored


def test_storing_again_replaces(cache: Cache) -> None:
    cache.store(KEY, b"old", b"1")
    new = cache.store(KEY, b"new", b"2")
    assert cache.load(KEY) == new
    assert new.path.read_bytes() == b"new"


def test_keys_of_different_parts_differ() -> None:
    keys = {make_key(), make_key("ab"), make_key("a", "b"), make_key("", "ab"), make_key("ab", "")}
    assert len(keys) == 5
    assert make_key("ab") == make_key(b"ab")


@pytest.mark.parametrize("damage", ["tampered", "cut", "empty"])
@pytest.mark.parametrize("which", [".so", ".entry"])
def test_damaged_files_are_ignored_with_a_warning(cache: Cache, which: str, damage: str) -> None:
    cache.store(KEY, b"library" * 100, b"metadata" * 100)
    (path,) = cache.folder.glob(f"*{which}")
    content = path.read_bytes()
    match damage:
        case "tampered":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "cut":
            path.write_bytes(content[:-1])
        case _:
            path.write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="cache"):
        assert cache.load(KEY) is None
    assert cache.load(KEY) is None  # removed: no second warning
    assert cache.load(KEY) != cache.store(KEY, b"rebuilt", b"m")
    assert cache.load(KEY) is not None


def test_missing_library_is_no_entry(cache: Cache) -> None:
    cache.store(KEY, b"library", b"").path.unlink()
    assert cache.load(KEY) is None


def test_folder_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "cache"
    Cache(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    Cache(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_default_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache().folder == tmp_path / "cora"


def test_a_file_in_the_way_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be used"):
        Cache(tmp_path / "file")


def test_keys_cannot_leave_the_folder(cache: Cache) -> None:
    with pytest.raises(InternalError, match="key"):
        cache.load("../other")


def age(cache: Cache, seconds: float) -> None:
    for path in cache.folder.iterdir():
        os.utime(path, (time.time() - seconds,) * 2)


def test_the_oldest_entries_make_room(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=3000)
    first = cache.store(KEY, b"a" * 1000, b"")
    age(cache, 300)
    second = cache.store(OTHER, b"b" * 1000, b"")
    for path in (second.path, cache.folder / f"{OTHER}.entry"):
        os.utime(path, (time.time() - 200,) * 2)
    third = cache.store(make_key("c"), b"c" * 1000, b"")
    assert not first.path.exists()
    assert cache.load(KEY) is None
    assert cache.load(OTHER) == second
    assert cache.load(make_key("c")) == third


def test_use_keeps_an_entry_young_and_recent_ones_stay(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=1500)
    first = cache.store(KEY, b"a" * 1000, b"")
    age(cache, 300)
    assert cache.load(KEY) == first
    cache.store(OTHER, b"b" * 1000, b"")  # over the bound, but both are in use
    assert cache.load(KEY) == first


def test_temporary_files_of_dead_processes_go(cache: Cache) -> None:
    old, young = cache.folder / "x.tmp", cache.folder / "y.tmp"
    old.write_bytes(b"")
    os.utime(old, (time.time() - 7200,) * 2)
    young.write_bytes(b"")
    cache.store(KEY, b"library", b"")
    assert (old.exists(), young.exists()) == (False, True)


PROGRAM = """
import sys
from pathlib import Path
from cora.codegen.cache import Cache, make_key
cache = Cache(Path(sys.argv[1]), max_bytes=40_000)
for step in range(150):
    key = make_key(str(step % 5))
    library = sys.argv[2].encode() * (1000 + step)
    cache.store(key, library, library[:10] + b"%d" % len(library))
    entry = cache.load(key)
    if entry is not None:
        content = entry.path.read_bytes()
        assert entry.metadata == content[:10] + b"%d" % len(content), entry
"""


def test_processes_may_share_a_folder(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path), name])
        for name in ("a", "b", "c")
    ]
    assert [w.wait(timeout=60) for w in writers] == [0, 0, 0]
    assert not list(tmp_path.glob("*.tmp"))
