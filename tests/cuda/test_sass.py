"""Kernels of the library for both architectures: resources that they take, and what their loops are made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import cora
from benchmarks.cuda_programs import PROGRAMS
from cora.runtime.cuda.kernel import CudaKernel
from tests.cuda.sass import disassembler, inner_loops

ARCHES = ("sm_80", "sm_90")


@dataclass(frozen=True)
class Bound:
    """Of a program: the most registers, the fewest blocks on a multiprocessor, of its first kernel; and the least share
    of multiply-adds in the loop that has most of them, with the width of its copies to shared memory ("": none).
    computes: whether that loop also reads memory and computes what is staged."""

    registers: int
    blocks: int
    share: float
    copies: str = ""
    computes: bool = False


BOUNDS = {
    "linear": Bound(128, 2, 0.88, "LDGSTS.128"),
    "linear_float16": Bound(128, 2, 0.0),
    "vgemm": Bound(128, 2, 0.72, "LDGSTS"),
    "vgemm_padded": Bound(128, 2, 0.82, "LDGSTS.128"),
    "trmm": Bound(128, 2, 0.85),
    "attention": Bound(112, 4, 0.55, "LDGSTS.128", computes=True),
    "attention_flash": Bound(128, 4, 0.84, "LDGSTS.128"),
    "layer_norm": Bound(48, 8, 0.0),
}


def kernel_of(name: str, arch: str, folder: Path) -> CudaKernel:
    """A program compiled by NVRTC, once in a run."""
    settings = cora.Settings(cache_dir=folder / "nvrtc_kernels")
    kernel = cora.build(PROGRAMS[name]().built_from, {"kind": "cuda", "arch": arch}, settings)
    assert isinstance(kernel, CudaKernel)
    return kernel


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("name", BOUNDS)
def test_resources(name: str, arch: str, folder_of_run: Path, nvrtc: None) -> None:
    kernel = kernel_of(name, arch, folder_of_run)
    bound = BOUNDS[name]
    for taken in kernel.resources:
        assert not taken.spills, str(taken)
        assert taken.registers <= bound.registers, str(taken)
        assert taken.blocks >= bound.blocks, str(taken)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("name", [name for name, bound in BOUNDS.items() if bound.share])
def test_loops(name: str, arch: str, folder_of_run: Path, tmp_path: Path, nvrtc: None) -> None:
    tool = disassembler()
    if tool is None:
        pytest.skip("nvdisasm is not installed")
    kernel = kernel_of(name, arch, folder_of_run)
    bound = BOUNDS[name]
    loops = inner_loops(kernel.artifact.cubin.code, tool, tmp_path)
    main = max(loops, key=lambda loop: (loop["FFMA"], loop["FFMA"] / loop.total()))
    assert main["FFMA"] >= bound.share * main.total()
    assert main["LDS.128"] * 10 <= main["FFMA"]
    # no table, no division, no local memory; memory is read by asynchronous copies, which come before the math
    assert not main.keys() & {"LDL", "STL", "I2F"}
    assert bound.computes or not main.keys() & {"LDG", "LDG.128", "MUFU"}
    if bound.copies:
        assert main[bound.copies]


@pytest.mark.parametrize("arch", ARCHES)
def test_a_product_by_tensor_cores(arch: str, folder_of_run: Path, tmp_path: Path, nvrtc: None) -> None:
    tool = disassembler()
    if tool is None:
        pytest.skip("nvdisasm is not installed")
    kernel = kernel_of("linear_float16", arch, folder_of_run)
    main = max(inner_loops(kernel.artifact.cubin.code, tool, tmp_path), key=lambda loop: loop["HMMA"])
    assert main["HMMA"] == 32
    assert main["LDSM"] == 12
    assert main["LDGSTS.128"] == 4
    assert main.total() <= 3.25 * main["HMMA"]
