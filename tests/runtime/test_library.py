"""Kernels on disk: the cache, and exported libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cora
from cora.runtime.versions import versions
from tests.runtime.programs import UNCACHED, first_program, kernel, rows, scaled

ROOT = Path(__file__).resolve().parent.parent.parent
a = rows([1, 2, 3], [4], [])
DOUBLED = [[2, 4, 6], [8], []]
TRIPLED = [[3, 6, 9], [12], []]

FROM_CACHE = """
import sys
import cora
from cora.runtime.versions import versions
from tests.runtime.programs import first_program, rows
kernel = cora.build(first_program(), settings=cora.Settings(cache_dir=sys.argv[1]))
print(kernel(rows([1, 2, 3], [4], [])).to_list())
"""
FROM_EXPORT = """
import sys
import cora
import numpy as np
kernel = cora.load(sys.argv[1])
print(kernel(np.arange(1, 5, dtype=np.float32), lens=[3, 1, 0]).to_list())
"""
WITHOUT_COMPILERS = "print(sorted({'tvm', 'z3', 'llvmlite'} & set(sys.modules)))"


def run_elsewhere(program: str, *arguments: object) -> list[str]:
    """The lines that a program prints in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program + WITHOUT_COMPILERS, *map(str, arguments)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def entries(folder: Path) -> int:
    """How many kernels a cache holds: all entries but the code that preludes share."""
    return len(list(folder.glob("*.entry"))) - 1


def refused(match: str) -> Any:
    return pytest.raises(cora.UserError, match=match)


class TestCache:
    def test_a_cached_kernel_needs_no_compiler(self, tmp_path: Path) -> None:
        settings = cora.Settings(cache_dir=tmp_path)
        built = cora.build(first_program(), settings=settings)
        assert built(a).to_list() == DOUBLED
        assert len(list(tmp_path.glob("*.so"))) == 2
        assert entries(tmp_path) == 1
        assert run_elsewhere(FROM_CACHE, tmp_path) == ["[[2.0, 4.0, 6.0], [8.0], []]", "[]"]
        again = cora.build(first_program(), settings=settings)
        assert again(a).to_list() == DOUBLED
        assert again.explain() == built.explain()
        assert again.source("asm") == built.source("asm")  # compiled again: the cache holds no texts
        assert again.ir("tir") == built.ir("tir")

    def test_what_is_part_of_the_key(self, tmp_path: Path) -> None:
        def stored(program: Any, **choices: Any) -> int:
            cora.build(program, settings=cora.Settings(cache_dir=tmp_path, **choices))
            return entries(tmp_path)

        assert stored(cora.schedule(scaled(2))) == 1
        assert stored(cora.schedule(scaled(2))) == 1
        assert stored(cora.schedule(scaled(3))) == 2
        assert stored(cora.schedule(scaled(2)), guards="keep") == 3
        assert stored(cora.schedule(scaled(2)), solver="off") == 4
        assert stored(cora.schedule(scaled(2)), cache=False) == 4
        assert stored(scaled(2)) == 6  # as tensors, and as the default schedule of these
        assert stored(scaled(2)) == 6

    def test_another_compiler_does_not_find_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = cora.Settings(cache_dir=tmp_path)
        cora.build(cora.schedule(scaled(2)), settings=settings)
        assert any(part.startswith("sources=") for part in versions())
        monkeypatch.setattr("cora.runtime.build.versions", lambda: ("cora-ragged=0", "sources=0"))
        cora.build(cora.schedule(scaled(2)), settings=settings)
        assert entries(tmp_path) == 3  # a kernel and what preludes share, once more

    @pytest.mark.parametrize("suffix", [".so", ".entry"])
    def test_a_corrupted_entry_is_built_again(self, tmp_path: Path, suffix: str) -> None:
        settings = cora.Settings(cache_dir=tmp_path)
        cora.build(cora.schedule(scaled(2)), settings=settings)
        changed = {}
        for path in tmp_path.glob(f"*{suffix}"):
            good = path.read_bytes()
            path.unlink()  # not written over: it may be mapped into this process
            changed[path] = good[:-1] + bytes([good[-1] ^ 1])
            path.write_bytes(changed[path])
        with pytest.warns(RuntimeWarning, match="it is removed and the code built again"):
            again = cora.build(cora.schedule(scaled(2)), settings=settings)
        assert again(a).to_list() == DOUBLED
        assert len(changed) == 2  # the kernel, and what all preludes share
        assert all(path.read_bytes() != content for path, content in changed.items())

    def test_the_folder_may_go_away(self, tmp_path: Path) -> None:
        folder = tmp_path / "cache"
        built = cora.build(scaled(2), settings=cora.Settings(cache_dir=folder))
        for path in folder.iterdir():
            path.unlink()
        assert built(a).to_list() == DOUBLED
        with refused("the kernel's own file is gone; build it again"):
            built.export(tmp_path / "k.so")


class TestExport:
    def test_round_trip(self, tmp_path: Path) -> None:
        path = tmp_path / "k.so"
        assert kernel("first").export(path) == path
        loaded = cora.load(str(path))
        assert loaded(a).to_list() == DOUBLED
        assert loaded.explain() == kernel("first").explain()
        assert loaded.ir("lowered") == kernel("first").ir("lowered")
        assert (loaded.inputs, loaded.outputs) == (("A",), ("O",))
        for form in ("ll", "asm"):
            with pytest.raises(cora.UnsupportedError, match="does not carry the text of its code"):
                loaded.source(form)
        assert run_elsewhere(FROM_EXPORT, path) == ["[[2.0, 4.0, 6.0], [8.0], []]", "[]"]

    def test_a_loaded_kernel_can_be_exported(self, tmp_path: Path) -> None:
        kernel("first").export(tmp_path / "1.so")
        cora.load(tmp_path / "1.so").export(tmp_path / "2.so")
        assert (tmp_path / "1.so").read_bytes() == (tmp_path / "2.so").read_bytes()
        assert cora.load(tmp_path / "2.so")(a).to_list() == DOUBLED

    def test_a_path_may_be_used_again(self, tmp_path: Path) -> None:
        path = tmp_path / "k.so"
        kernel("scale").export(path)
        first = cora.load(path)
        kernel("triple").export(path)
        second = cora.load(path)
        assert first(a).to_list() == DOUBLED
        assert second(a).to_list() == TRIPLED
        path.unlink()
        assert first(a).to_list() == DOUBLED

    def test_an_uncached_kernel_can_be_exported(self, tmp_path: Path) -> None:
        cora.build(scaled(3), settings=UNCACHED).export(tmp_path / "k.so")
        assert cora.load(tmp_path / "k.so")(a).to_list() == TRIPLED

    def test_no_such_folder(self, tmp_path: Path) -> None:
        with refused("export: cannot write .*no/k.so"):
            kernel("scale").export(tmp_path / "no" / "k.so")


class TestLoad:
    @pytest.fixture
    def exported(self, tmp_path: Path) -> Path:
        return kernel("scale").export(tmp_path / "k.so")

    def test_no_file(self, tmp_path: Path) -> None:
        with refused("load: cannot read .*none.so"):
            cora.load(tmp_path / "none.so")
        with refused("load: cannot read"):
            cora.load(tmp_path)
        with refused("load: expected a path; got int: 3"):
            cora.load(3)  # type: ignore[arg-type]

    @pytest.mark.parametrize("content", [b"", b"CORAMETA", b"\x7fELF" + bytes(1000)])
    def test_no_library(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "k.so").write_bytes(content)
        with refused("is no library exported by cora"):
            cora.load(tmp_path / "k.so")

    @pytest.mark.parametrize("place", [100, -100, -30, -12])
    def test_damage(self, exported: Path, place: int) -> None:
        content = bytearray(exported.read_bytes())
        content[place] ^= 1
        exported.write_bytes(content)
        with refused("is damaged; export the kernel again"):
            cora.load(exported)

    def test_cut_off(self, exported: Path) -> None:
        exported.write_bytes(exported.read_bytes()[1000:])
        with refused("is damaged"):
            cora.load(exported)
        exported.write_bytes(exported.read_bytes()[:-1])
        with refused("is no library exported by cora"):
            cora.load(exported)

    def test_another_version(self, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("cora.runtime.code.own_version", lambda: b"9.9")
        with refused(r"was exported by cora .*; this is 9.9: export the kernel again"):
            cora.load(exported)

    def test_another_processor(self, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from dataclasses import replace

        from cora.codegen.target import detect

        host = detect()
        lacking = replace(host, features=frozenset())
        monkeypatch.setattr("cora.runtime.code.detect", lambda: lacking)
        if host.features:
            with pytest.raises(cora.UnsupportedError, match="this machine lacks"):
                cora.load(exported)


def test_the_default_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cora.build(scaled(2))
    assert os.listdir(tmp_path) == ["cora"]
    assert (tmp_path / "cora").stat().st_mode & 0o777 == 0o700
