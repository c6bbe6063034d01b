"""What a compiled kernel takes of a multiprocessor, and how many of its blocks fit there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: Shared memory of a multiprocessor in bytes, by major and minor version (CUDA C++ Programming Guide, table of
#: technical specifications); a block takes 1 KiB more than it asks for.
_SHARED_BYTES: Final[Mapping[int, int]] = {
    80: 164 * 1024, 86: 100 * 1024, 87: 164 * 1024, 89: 100 * 1024, 90: 228 * 1024, 100: 228 * 1024,
    103: 228 * 1024, 110: 228 * 1024, 120: 100 * 1024, 121: 100 * 1024,
}  # fmt: skip
_THREADS: Final[Mapping[int, int]] = {80: 2048, 87: 1536, 90: 2048, 100: 2048, 103: 2048}
_BLOCKS: Final[Mapping[int, int]] = {86: 16, 87: 16, 89: 24}
_REGISTERS: Final = 65_536
_REGISTER_UNIT: Final = 256
_WARP: Final = 32
_RESERVED_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Resources:
    """A kernel on one architecture: per thread `registers` and bytes spilled; per block bytes of shared memory."""

    kernel: str
    arch: str
    threads: int
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int

    @property
    def spills(self) -> bool:
        """Whether registers go to memory, or local arrays do."""
        return bool(self.stack_bytes or self.spill_store_bytes or self.spill_load_bytes)

    @property
    def blocks(self) -> int:
        """How many blocks run on a multiprocessor at once."""
        number = _number(self.arch)
        warps = -(-self.threads // _WARP)
        per_warp = -(-max(self.registers, 1) * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
        return min(
            _THREADS.get(number, 1536) // (warps * _WARP),
            _BLOCKS.get(number, 32),
            _REGISTERS // per_warp // warps,
            _SHARED_BYTES.get(number, 100 * 1024) // (self.shared_bytes + _RESERVED_BYTES),
        )

    @property
    def occupancy(self) -> float:
        """Threads that run at once, of those that a multiprocessor can hold."""
        warps = -(-self.threads // _WARP)
        return self.blocks * warps * _WARP / _THREADS.get(_number(self.arch), 1536)

    def __str__(self) -> str:
        spilled = f"{self.spill_store_bytes} bytes spilled" if self.spills else "no spills"
        return (
            f"{self.kernel} on {self.arch}: {self.threads} threads, {self.registers} registers, {self.shared_bytes} "
            f"bytes shared, {spilled}, {self.blocks} blocks at once ({self.occupancy:.0%})"
        )


def _number(arch: str) -> int:
    found = re.search(r"\d+", arch)
    return int(found[0]) if found else 0


def parse_log(log: str, arch: str, threads: Mapping[str, int]) -> tuple[Resources, ...]:
    """The resources of the kernels `threads` (with the size of their blocks), from what ptxas says with -v."""
    found: list[Resources] = []
    pattern = r"Compiling entry function '(\w+)'.*?\n(.*?)(?=Compiling entry function|\Z)"
    for name, text in re.findall(pattern, log, re.DOTALL):
        if name not in threads:
            continue

        def number(what: str, text: str = text) -> int:
            match = re.search(what, text)
            return int(match[1]) if match else 0

        found.append(
            Resources(
                name,
                arch,
                threads[name],
                number(r"Used (\d+) registers"),
                number(r"(\d+) bytes smem"),
                number(r"(\d+) bytes stack"),
                number(r"(\d+) bytes spill stores"),
                number(r"(\d+) bytes spill loads"),
            )
        )
    return tuple(found)
