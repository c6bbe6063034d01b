"""Calling kernels on a device: arrays of host and device, plans, errors, the cache, exports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cora
import cora.codegen.cuda.compile as compiler
import cora.runtime.cuda.build
from cora.codegen.cuda.ranges import host_value, too_wide
from cora.codegen.cuda.target import CudaTarget, resolve_cuda
from cora.runtime.cuda.driver import open_device
from cora.runtime.cuda.kernel import CudaKernel
from cora.runtime.cuda.memory import DeviceArray

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])
A = cora.placeholder("A", [batch, pos])
O = cora.compute("O", [batch, pos], 2 * A[batch, pos])  # noqa: E741
ROWS = [[1.0, 2.0, 3.0], [4.0], []]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> cora.Settings:
    return cora.Settings(cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.fixture
def kernel(device: str, settings: cora.Settings) -> CudaKernel:
    built = cora.build(O, "cuda", settings)
    assert isinstance(built, CudaKernel)
    return built


def test_arrays_of_the_host(kernel: CudaKernel) -> None:
    a = cora.ragged(ROWS, A)
    result = kernel(a)
    assert isinstance(result, cora.RaggedArray)
    assert result.to_list() == [[2.0, 4.0, 6.0], [8.0], []]
    assert kernel(a.values, lens=[3, 1, 0]).to_list() == result.to_list()


def test_arrays_of_the_device_stay_there(kernel: CudaKernel) -> None:
    x = DeviceArray.of(np.arange(4, dtype=np.float32))
    result = kernel(x, lens=[3, 1, 0])
    assert isinstance(result, DeviceArray)
    np.testing.assert_array_equal(result.numpy(), [0, 2, 4, 6])
    plan = cora.plan(kernel, lens=[3, 1, 0])
    into = DeviceArray(4, "float32")
    assert kernel.run(plan, x, outputs={"O": into}) is into
    np.testing.assert_array_equal(into.numpy(), [0, 2, 4, 6])
    host = np.full(4, np.nan, np.float32)
    kernel.run(plan, x, outputs={"O": host})
    np.testing.assert_array_equal(host, [0, 2, 4, 6])


class Foreign:
    """An array of another library on the device."""

    def __init__(self, of: DeviceArray, **changes: Any) -> None:
        self.of = of
        self.__cuda_array_interface__ = {**of.__cuda_array_interface__, **changes}


def test_arrays_of_other_libraries(kernel: CudaKernel) -> None:
    x = DeviceArray.of(np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(kernel(Foreign(x), lens=[4]).numpy(), [0, 2, 4, 6])
    two_d = Foreign(x, shape=(2, 2), strides=(8, 4))
    np.testing.assert_array_equal(kernel(two_d, lens=[4]).numpy(), [0, 2, 4, 6])
    for changes, reason in (
        ({"shape": (3,)}, "stores 4 elements on this batch; got 3"),
        ({"typestr": "<i4"}, "expected values of type float32; got int32"),
        ({"shape": (2, 2), "strides": (4, 8)}, "must be C-contiguous"),
    ):
        with pytest.raises(cora.UserError, match=reason):
            kernel(Foreign(x, **changes), lens=[4])
    plan = cora.plan(kernel, lens=[4])
    out = DeviceArray(4, "float32")
    with pytest.raises(cora.UserError, match="must be writable"):
        kernel.run(plan, x, outputs={"O": Foreign(out, data=(out.pointer, True))})
    with pytest.raises(cora.UserError, match="output 'O' overlaps 'A'"):
        kernel.run(plan, x, outputs={"O": x})


def test_empty_batches_launch_nothing(kernel: CudaKernel) -> None:
    for lengths in ([], [0], [0, 0]):
        assert kernel(np.zeros(0, np.float32), lens=lengths).to_list() == [[] for _ in lengths]


def test_one_plan_serves_several_kernels(kernel: CudaKernel, settings: cora.Settings) -> None:
    total = cora.compute("total", [batch], cora.sum(A[batch, pos], over=pos))
    other = cora.build(total, "cuda", settings)
    plan = cora.plan([kernel, other], lens=[3, 1, 0])
    values = np.arange(1, 5, dtype=np.float32)
    assert kernel.run(plan, values).to_list() == [[2.0, 4.0, 6.0], [8.0], []]
    assert other.run(plan, values).to_list() == [6.0, 4.0, 0.0]
    assert len([key for key in plan.on_device if key == "tables"]) == 1


def test_indices_from_data_are_checked_on_the_device(device: str, settings: cora.Settings) -> None:
    n = cora.Dim("n", cora.size("N"))
    index = cora.placeholder("index", [batch, pos], dtype="int32")
    table = cora.placeholder("table", [n])
    G = cora.compute("G", [batch, pos], table[index[batch, pos]])
    gather = cora.build(G, "cuda", settings)
    rows = np.arange(5, dtype=np.float32)
    assert "__shfl_xor_sync" in gather.source()  # a block of threads looks at them, not one
    assert gather(rows, np.array([4, 0, 3], np.int32), lens=[2, 1]).to_list() == [[4.0, 0.0], [3.0]]
    lengths = [1] * 500
    bad = np.zeros(500, np.int32)
    bad[[7, 300]] = 5, -1
    with pytest.raises(cora.UserError, match="it is not for 2 of the indices"):
        gather(rows, bad, lens=lengths)


def test_kernels_come_from_the_cache_and_from_exports(
    kernel: CudaKernel, settings: cora.Settings, tmp_path: Path
) -> None:
    again = cora.build(O, "cuda", settings)
    assert again.source() == kernel.source()
    path = kernel.export(tmp_path / "k.so")
    loaded = cora.load(path)
    assert isinstance(loaded, CudaKernel)
    assert loaded(cora.ragged(ROWS, A)).to_list() == [[2.0, 4.0, 6.0], [8.0], []]
    assert loaded.source("cuda") == kernel.source()
    with pytest.raises(cora.UserError, match="kind must be 'cuda'; got 'll'"):
        kernel.source("ll")
    assert "blockIdx" in kernel.ir("tir")
    with pytest.raises(cora.UserError, match="CUDA C\\+\\+ alone"):
        loaded.ir("tir")


def test_the_explanation_names_the_launches(kernel: CudaKernel) -> None:
    plan = cora.plan(kernel, lens=[3, 1, 0])
    text = kernel.explain(plan)
    assert "kernel_O: grid (offset[M] + 127) // 128, block 128 x 1 x 1" in text
    assert kernel.waste(plan).useful_flops == 4
    assert kernel.waste(plan).executed_flops == 128


def test_64_bit_indices(device: str, settings: cora.Settings) -> None:
    wide = cora.build(O, CudaTarget("sm_80", 64), settings)
    assert "int64_t" in wide.source()
    assert wide(cora.ragged(ROWS, A)).to_list() == [[2.0, 4.0, 6.0], [8.0], []]


def test_batches_that_need_64_bits_are_refused(kernel: CudaKernel) -> None:
    (call,) = kernel.artifact.calls
    sizes = {"M": 2}

    def extremes(largest: int) -> Any:
        return lambda buffer: (0, largest)

    grid = (10, 1, 1)
    assert too_wide(call.launch, grid, sizes, extremes(2**31 - 1)) is None
    found = too_wide(call.launch, grid, sizes, extremes(2**31))
    assert found is not None
    assert found[1] == (0, 2**31)
    grown = too_wide(call.launch, (2**24 + 1, 1, 1), sizes, extremes(100))
    assert grown is not None
    assert host_value(call.launch.grid[0], sizes, {"offset": np.array([0, 5, 129])}) == 2


def test_grids_beyond_the_limits_are_refused(device: str, settings: cora.Settings) -> None:
    s = cora.schedule(O).bind(O, batch, "blockIdx.y")
    kernel = cora.build(s, "cuda", settings)
    with pytest.raises(cora.UnsupportedError, match=r"65,536 blocks along blockIdx\.y .* at most 65,535"):
        kernel(np.zeros(0, np.float32), lens=np.zeros(65_536, np.int32))


def test_more_rows_than_blocks_along_y(device: str, settings: cora.Settings) -> None:
    s = (
        cora.schedule(O)
        .split(O, batch, 64)
        .bind(O, "batch_o", "blockIdx.x")
        .bind(O, "batch_i", "threadIdx.x")
    )
    lengths = np.ones(70_000, np.int32)
    values = np.arange(70_000, dtype=np.float32)
    np.testing.assert_array_equal(cora.build(s, "cuda", settings)(values, lens=lengths).values, 2 * values)


@pytest.mark.parametrize(
    ("target", "error", "reason"),
    [
        ({"kind": "cuda"}, cora.UserError, "needs an arch such as 'sm_80'"),
        ({"kind": "cuda", "arch": "volta"}, cora.UserError, "got 'volta'"),
        ({"kind": "cuda", "arch": "sm_75"}, cora.UnsupportedError, "'sm_75' is older than sm_80"),
        ({"kind": "cuda", "arch": "sm_80", "index_bits": 16}, cora.UserError, "must be 32 or 64; got 16"),
    ],
)
def test_targets_that_are_refused(target: object, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        cora.build(O, target)


def test_targets() -> None:
    import tvm

    assert resolve_cuda("llvm") is None
    assert resolve_cuda({"kind": "llvm"}) is None
    assert resolve_cuda("cuda") == CudaTarget("sm_80", 32)
    assert resolve_cuda({"kind": "cuda", "arch": "sm_90a"}) == CudaTarget("sm_90a", 32)
    assert resolve_cuda(tvm.target.Target({"kind": "cuda", "arch": "sm_90"})) == CudaTarget("sm_90")


NO_DEVICE = """
import sys, cora, cora.runtime.cuda.driver as driver
driver._LIBRARY = "libno-such-driver.so.1"
M = cora.size("M")
b = cora.Dim("b", M)
x = cora.placeholder("x", [b])
k = cora.build(cora.compute("y", [b], x[b] + 1), "cuda", cora.Settings(cache_dir=sys.argv[1]))
assert "__global__" in k.source() and k.resources[0].registers > 0 and not k.resources[0].spills
try:
    k([1.0])
except cora.UserError:
    import numpy as np
    try:
        k(np.ones(3, np.float32))
    except cora.UnsupportedError as error:
        print(error)
"""


def test_without_a_device_building_works_and_running_says_so(tmp_path: Path, nvrtc: None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_DEVICE, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert "a CUDA device is needed to run kernels of target 'cuda'" in done.stdout
    assert done.stdout.count("\n") == 1


def test_a_missing_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_LIBRARY", "libnvrtc.so.0")
    compiler.open_nvrtc.cache_clear()
    monkeypatch.setattr(cora.runtime.cuda.build, "compile_cubin", compiler.compile_cubin)
    with pytest.raises(cora.UnsupportedError, match=r"NVRTC.* is missing.*pip install 'cora-ragged\[cuda\]'"):
        cora.build(O, "cuda", cora.Settings(cache=False))
    compiler.open_nvrtc.cache_clear()


@pytest.mark.gpu
def test_streams_and_pytorch(kernel: CudaKernel) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA device")
    stream = torch.cuda.Stream()
    x = torch.arange(4, dtype=torch.float32, device="cuda")
    out = torch.empty(4, device="cuda")
    torch.cuda.synchronize()
    plan = cora.plan(kernel, lens=[3, 1, 0])
    kernel.run(plan, x, outputs={"O": out}, stream=stream.cuda_stream)
    stream.synchronize()
    assert out.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert open_device().compute >= (8, 0)
