"""What compiled code depends on besides the program: the versions of the packages, and cora's own sources."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("cora-ragged", "apache-tvm", "apache-tvm-ffi", "llvmlite", "z3-solver")


@cache
def versions() -> tuple[str, ...]:
    """A part of the key of every cached kernel; read once per process."""
    return (*(f"{package}={_version(package)}" for package in PACKAGES), f"sources={_sources()}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _sources() -> str:
    """A hash of names, sizes and times of cora's files: a changed compiler must not find old kernels.

    Takes a few milliseconds, several times less than reading the files.
    """
    root = Path(__file__).resolve().parent.parent
    found: list[tuple[str, int, int]] = []
    for folder, _, files in os.walk(root, followlinks=True):
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                info = os.stat(path)
                found.append((os.path.relpath(path, root), info.st_size, info.st_mtime_ns))
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()
