"""What a result was measured on: enough to compare, nothing that identifies."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "cora-ragged", "llvmlite", "numpy", "z3-solver")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine and its software.

    Attributes:
        cpu: the processor's model name.
        cores: logical cores that this process may use.
        python: version of the interpreter.
        packages: pairs of distribution and version, for those that are installed.
    """

    cpu: str
    cores: int
    python: str
    packages: tuple[tuple[str, str], ...]

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that are equal for equal machines and software."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def this_machine() -> Machine:
    """Describe the machine that this process runs on."""
    return Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        python=platform.python_version(),
        packages=tuple((name, version) for name in _PACKAGES if (version := _version(name))),
    )


def last_level_cache_bytes(default: int = 64 << 20) -> int:
    """Size in bytes of the largest cache of core 0, or `default` if it is not known."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        digits = text.rstrip("KMG")
        if digits.isdecimal():
            sizes.append(int(digits) * scale)
    return max(sizes, default=default)


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
