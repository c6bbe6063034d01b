"""The tables of a fused loop over a ragged batch: native code against NumPy.

NumPy makes new arrays on every call, and what that costs depends on the process: at first the C
library gets arrays of this size from the system and gives them back (page faults); once it has
seen larger ones come and go, it keeps the memory. The second can be several times faster. So this
is measured in a new process, with the C library held in its first state or not; the kind is said.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.processes import output_of
from benchmarks.programs import twice
from benchmarks.timer import Timing, measure
from cora.ir.ufun import fusion_maps, scan
from cora.prelude import Arena, jit, specify
from cora.storage.offsets import table_offset, table_size

ROOT = Path(__file__).resolve().parent.parent
#: glibc's initial values; once they are given, it does not change them by itself.
FRESH_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
#: What it arrives at after large arrays have come and gone.
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "67108864"}


@dataclass(frozen=True, slots=True)
class TableTimes:
    """Times of both ways on one batch, the entries of all tables, and how many differ."""

    native: Timing
    numpy: Timing
    entries: int
    wrong: int


def table_times(lengths: npt.NDArray[np.int32], repeats: int) -> TableTimes:
    """Time row starts, outer and inner index of every iteration, on one thread, in this process."""
    A, _ = twice()
    batch, pos = A.dims
    offset = scan((), batch, pos.extent)
    maps = fusion_maps(offset)
    native = jit(specify([offset, *maps], table_offset, table_size))
    arena = Arena()
    sizes, given = {"M": len(lengths)}, {"lens": lengths}

    def by_numpy() -> tuple[npt.NDArray[Any], ...]:
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=starts[1:])
        ffo = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        ffi = np.arange(starts[-1], dtype=np.int32) - np.repeat(starts[:-1].astype(np.int32), lengths)
        return starts, ffo, ffi

    expected = by_numpy()
    tables = native.compute(sizes, given, arena)
    found = [tables[native.spec.position(fun)] for fun in (offset, *maps)]
    wrong = sum(int(np.count_nonzero(f != e)) for f, e in zip(found, expected, strict=True))
    timings = measure(
        {"native": lambda: native.compute(sizes, given, arena), "numpy": by_numpy}, repeats=repeats
    )
    return TableTimes(timings["native"], timings["numpy"], sum(t.size for t in expected), wrong)


def table_times_in_new_process(
    lengths: npt.NDArray[np.int32], repeats: int, memory: dict[str, str]
) -> TableTimes:
    """`table_times` in a new process with the C library's memory as in FRESH_MEMORY or KEPT_MEMORY."""
    printed = output_of(
        "-m",
        "benchmarks.fused_tables",
        environment={**os.environ, **memory},
        given=json.dumps([lengths.tolist(), repeats]),
    )
    native, numpy, entries, wrong = json.loads(printed)
    return TableTimes(Timing.of(tuple(native)), Timing.of(tuple(numpy)), entries, wrong)


def _main() -> None:
    lengths, repeats = json.load(sys.stdin)
    times = table_times(np.array(lengths, np.int32), repeats)
    print(json.dumps([times.native.samples, times.numpy.samples, times.entries, times.wrong]))


if __name__ == "__main__":
    _main()
