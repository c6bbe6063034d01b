"""The machine code of the tiled product: what its loops are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

import cora
from benchmarks.cuda_programs import projection
from cora.runtime.cuda.kernel import CudaKernel
from tests.cuda.sass import disassembler, inner_loops


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_product_is_made_of_multiply_adds(arch: str, tmp_path: Path, nvrtc: None) -> None:
    kernel = cora.build(
        projection().built_from,
        {"kind": "cuda", "arch": arch},
        cora.Settings(cache_dir=tmp_path),
    )
    assert isinstance(kernel, CudaKernel)
    (taken,) = kernel.resources
    assert not taken.spills
    assert taken.registers <= 128
    assert taken.blocks >= 2
    tool = disassembler()
    if tool is None:
        pytest.skip("nvdisasm is not installed")
    loops = inner_loops(kernel.artifact.cubin.code, tool, tmp_path)
    main = max(loops, key=lambda loop: loop["FFMA"])
    assert main["FFMA"] >= 0.85 * main.total()
    assert main["LDS.128"] * 16 <= main["FFMA"]
    assert not main.keys() & {
        "LDG",
        "LDG.128",
        "LDS",
        "I2F",
        "MUFU",
    }  # no table, no division, no narrow access
    staging = [loop for loop in loops if loop["LDG.128"]]
    assert staging
    assert not any(loop["LDG"] for loop in loops)
