"""Every kernel compiles for both architectures, within bounds: registers, no spills, shared memory."""

from __future__ import annotations

from pathlib import Path

import pytest

import cora
from cora.codegen.cuda.resources import Resources, parse_log
from cora.runtime.cuda.kernel import CudaKernel
from tests.cuda import programs
from tests.operators.harness import Case

ARCHES = ("sm_80", "sm_90")
#: The most registers and bytes of shared memory that each kernel may take.
BOUNDS = {
    ("softmax_64", "warps"): (32, 0),
    ("ragged_softmax_128", "blocks"): (40, 64),
    ("mirror", "rows"): (48, 0),
    ("row_sum_128", "blocks"): (40, 16),
    ("row_argmax_128", "blocks"): (56, 64),
    ("matmul", "tiles"): (72, 0),
    ("two_outputs", "one_grid"): (32, 0),
    ("lanes", "vectors"): (48, 0),
}
CASES = {c.name: c for c in programs.CASES}


def kernel_of(case: Case, schedule: str, arch: str, folder: Path) -> CudaKernel:
    """A kernel compiled by NVRTC, not for the emulator."""
    program = case.schedules[schedule](cora.schedule(*case.outputs))
    kernel = cora.build(program, {"kind": "cuda", "arch": arch}, cora.Settings(cache_dir=folder))
    assert isinstance(kernel, CudaKernel)
    return kernel


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(("name", "schedule"), BOUNDS, ids=lambda x: str(x))
def test_bounds(name: str, schedule: str, arch: str, tmp_path: Path, nvrtc: None) -> None:
    kernel = kernel_of(CASES[name], schedule, arch, tmp_path)
    registers, shared = BOUNDS[name, schedule]
    assert kernel.resources
    for taken in kernel.resources:
        assert not taken.spills, str(taken)
        assert taken.registers <= registers, str(taken)
        assert taken.shared_bytes <= shared + (1024 if arch == "sm_90" else 0), str(taken)
        assert taken.threads == 128 or taken.threads <= 1024


def test_the_report_of_the_assembler_is_read() -> None:
    log = """ptxas info    : 8 bytes gmem
ptxas info    : Compiling entry function 'f' for 'sm_80'
ptxas info    : Function properties for f
    24 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 33792 bytes smem, 400 bytes cmem[0]
ptxas info    : Compile time = 5.0 ms
ptxas info    : Compiling entry function 'g' for 'sm_80'
ptxas info    : Function properties for g
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 400 bytes cmem[0]
"""
    f, g = parse_log(log, "sm_80", {"f": 256, "g": 128})
    assert f == Resources("f", "sm_80", 256, 128, 33792, 24, 16, 20)
    assert f.spills
    assert (f.blocks, f.occupancy) == (2, 0.25)
    assert g == Resources("g", "sm_80", 128, 32, 0, 0, 0, 0)
    assert not g.spills
    assert (g.blocks, g.occupancy) == (16, 1.0)
