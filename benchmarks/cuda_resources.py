"""What kernels for a GPU take of a multiprocessor, from the compiler's own report: no GPU is needed.

A table of every launch of every program, for two architectures: registers of a thread, shared memory of a block,
bytes spilled, occupancy. The check: nothing is spilled.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

import cora
from benchmarks.cuda_programs import PROGRAMS
from benchmarks.options import Options
from benchmarks.results import Row, write_results
from cora.runtime.cuda.kernel import CudaKernel

NAME = "cuda_resources"
ARCHES = ("sm_80", "sm_90")
QUICK_PROGRAMS = ("softmax", "linear")


def run(options: Options, console: Console) -> bool:
    """Compile all programs; False if a kernel spills."""
    names = QUICK_PROGRAMS if options.quick else tuple(PROGRAMS)
    rows: list[Row] = []
    table = Table(
        "kernel", "arch", "threads", "registers", "shared bytes", "spilled bytes", "blocks", "occupancy"
    )
    kept = True
    for name in names:
        program = PROGRAMS[name]()
        for arch in ARCHES:
            kernel = cora.build(program.built_from, {"kind": "cuda", "arch": arch})
            assert isinstance(kernel, CudaKernel)
            for number, taken in enumerate(kernel.resources):
                label = name if len(kernel.resources) == 1 else f"{name}.{number}"
                spilled = taken.spill_store_bytes + taken.spill_load_bytes + taken.stack_bytes
                kept = kept and not taken.spills
                values = (
                    ("threads", taken.threads, ""),
                    ("registers", taken.registers, ""),
                    ("shared", taken.shared_bytes, "bytes"),
                    ("spilled", spilled, "bytes"),
                    ("blocks", taken.blocks, ""),
                    ("occupancy", round(taken.occupancy, 4), ""),
                )
                rows += [
                    Row(NAME, label, "", 0, arch, 1, metric, float(v), unit) for metric, v, unit in values
                ]
                cells = [str(v) for _, v, _ in values[:-1]]
                table.add_row(label, arch, *cells, f"{taken.occupancy:.0%}")
    path, _ = write_results(options.out, rows)
    console.print(table)
    console.print(f"{path}: {'no kernel spills' if kept else 'A KERNEL SPILLS'}")
    return kept
