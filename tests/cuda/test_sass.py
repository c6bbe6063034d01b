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
    """Of a program: the most registers and the fewest blocks on a multiprocessor; and, in the main loop of each kernel
    that is a product, the least share of multiply-adds and the width of copies to shared memory ("": none).
    computes: whether such a loop may also read memory and compute what is staged."""

    registers: int
    blocks: int
    share: float
    copies: str = ""
    computes: bool = False


BOUNDS = {
    "linear": Bound(128, 2, 0.9, "LDGSTS.128"),
    "linear_float16": Bound(128, 2, 0.0),
    "linear_tf32": Bound(128, 2, 0.0),
    "vgemm": Bound(128, 2, 0.855, "LDGSTS"),
    "vgemm_padded": Bound(128, 2, 0.88, "LDGSTS.128"),
    "trmm": Bound(128, 2, 0.86),
    "attention": Bound(96, 5, 0.755, "LDGSTS.128", computes=True),
    "attention_flash": Bound(128, 4, 0.84, "LDGSTS.128"),
    "layer_norm": Bound(48, 8, 0.0),
}
#: Multiply-adds of the main loop of a product: at least half a step of 16, of 8 x 4 elements a thread.
PRODUCT = 128


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
    of_kernels = inner_loops(kernel.artifact.cubin.code, tool, tmp_path)
    products = [[loop for loop in loops if loop["FFMA"] >= PRODUCT] for loops in of_kernels.values()]
    # steps that all exist; the last ones have conditions
    mains = [max(loops, key=lambda loop: loop["FFMA"] / loop.total()) for loops in products if loops]
    assert len(mains) == (2 if name == "attention" else 1)
    for main in mains:
        assert main["FFMA"] >= bound.share * main.total()
        assert main["LDS.128"] * 10 <= main["FFMA"]
        # no table, no division, no local memory; memory is read by asynchronous copies, which come before the math
        assert not main.keys() & {"LDL", "STL", "I2F"}
        assert bound.computes or not main.keys() & {"LDG", "LDG.128", "MUFU"}
        if bound.copies:
            assert main[bound.copies]


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(("name", "loads", "most"), [("linear_float16", 12, 2.7), ("linear_tf32", 8, 6.0)])
def test_a_product_by_tensor_cores(
    name: str, loads: int, most: float, arch: str, folder_of_run: Path, tmp_path: Path, nvrtc: None
) -> None:
    """loads: of four matrices at once; most: instructions for each product of the hardware."""
    tool = disassembler()
    if tool is None:
        pytest.skip("nvdisasm is not installed")
    kernel = kernel_of(name, arch, folder_of_run)
    (loops,) = inner_loops(kernel.artifact.cubin.code, tool, tmp_path).values()
    main = max(loops, key=lambda loop: loop["HMMA"])
    assert main["HMMA"] == 32
    assert main["LDSM"] == loads
    assert main["LDGSTS.128"] == 4
    assert main.total() <= most * main["HMMA"]
