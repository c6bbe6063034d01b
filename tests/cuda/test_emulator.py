"""The emulator catches what a GPU would get wrong: planted bugs, in kernels by hand and in generated ones."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cora
import cora.runtime.cuda.build
from cora.errors import InternalError
from cora.runtime.cuda.driver import open_device
from cora.runtime.cuda.memory import DeviceArray
from tests.cuda import emulator, programs
from tests.operators.harness import Case, check, work_of

THREADS = 64
REVERSE = """
extern "C" __global__ void __launch_bounds__(64) reverse(float* __restrict__ x) {
  __shared__ float s[64];
  s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  BARRIER
  x[blockIdx.x * 64 + threadIdx.x] = s[63 - threadIdx.x];
}
"""
SUM = """
extern "C" __global__ void __launch_bounds__(64) total(float* __restrict__ x) {
  float v = x[threadIdx.x];
  for (int d = 16; d; d /= 2) BRANCH v += __shfl_xor_sync(MASK, v, d, 32);
  x[threadIdx.x] = v;
}
"""


@pytest.fixture
def folder(device: str, tmp_path: Path) -> Path:
    if device != "emulator":
        pytest.skip("this is about the emulator")
    return tmp_path


def launch(source: str, name: str, values: np.ndarray, folder: Path, blocks: int = 1) -> np.ndarray:
    """Run a kernel of one argument, an array that it changes."""
    driver = open_device()
    array = DeviceArray.of(values)
    module = driver.load(emulator.compile_emulated(source, "sm_80", {}, folder=folder).code)
    cell = ctypes.c_int64(array.pointer)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(cell))
    driver.launch(driver.function(module, name), (blocks, 1, 1), (THREADS, 1, 1), arguments, 0)
    return array.numpy()


@pytest.mark.parametrize("order", emulator.ORDERS)
def test_right_kernels_are_right(folder: Path, order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORA_EMULATOR_ORDER", str(order))
    x = np.arange(128, dtype=np.float32)
    reversed_ = launch(REVERSE.replace("BARRIER", "__syncthreads();"), "reverse", x, folder, blocks=2)
    np.testing.assert_array_equal(reversed_, np.concatenate([x[63::-1], x[:63:-1]]))
    summed = launch(SUM.replace("BRANCH", "").replace("MASK", "~0u"), "total", x[:64], folder)
    np.testing.assert_array_equal(summed, np.repeat([x[:32].sum(), x[32:64].sum()], 32))


def test_a_missing_barrier_shows_in_some_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(64, dtype=np.float32)
    wrong = []
    for order in emulator.ORDERS:
        monkeypatch.setenv("CORA_EMULATOR_ORDER", str(order))
        wrong.append((launch(REVERSE.replace("BARRIER", ""), "reverse", x, folder) != x[::-1]).any())
    assert any(wrong)


@pytest.mark.parametrize(
    ("barrier", "told"),
    [
        (
            "if (threadIdx.x > 3) { __syncthreads(); }",
            "a barrier that not all threads reach|different barriers",
        ),
        ("if (threadIdx.x > 3) { __syncthreads(); }\nelse { __syncthreads(); }", "different barriers"),
    ],
)
def test_divergence_at_a_barrier_is_told(folder: Path, barrier: str, told: str) -> None:
    source = REVERSE.replace("BARRIER", barrier + "\n__syncthreads();")
    with pytest.raises(InternalError, match=told):
        launch(source, "reverse", np.zeros(64, np.float32), folder)


@pytest.mark.parametrize(
    ("branch", "mask", "told"),
    [
        ("if (threadIdx.x < 20)", "~0u", "a warp operation that not all lanes reach"),
        ("", "0xffffu", "not in the mask of its own"),
        ("if (threadIdx.x % 2) v += __shfl_xor_sync(0xaaaaaaaau, v, d, 32); else ", "~0u", "deadlock"),
    ],
)
def test_wrong_warp_operations_are_told(folder: Path, branch: str, mask: str, told: str) -> None:
    source = SUM.replace("BRANCH", branch).replace("MASK", mask)
    with pytest.raises(InternalError, match=told):
        launch(source, "total", np.zeros(64, np.float32), folder)


@pytest.mark.parametrize("size", [63, 1])
def test_an_overrun_is_told(folder: Path, size: int) -> None:
    source = REVERSE.replace("BARRIER", "__syncthreads();")
    with pytest.raises(InternalError, match=r"memory fault.*block \(0,0,0\)|past the end of an array"):
        launch(source, "reverse", np.zeros(size, np.float32), folder)


def test_shared_memory_is_poisoned(folder: Path) -> None:
    source = REVERSE.replace("s[threadIdx.x] =", "if (threadIdx.x) s[threadIdx.x] =")
    result = launch(
        source.replace("BARRIER", "__syncthreads();"), "reverse", np.zeros(64, np.float32), folder
    )
    assert np.isnan(result[63])
    assert not np.isnan(result[:63]).any()


def test_unknown_ptx_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"mma\.sync"):
        emulator.prepare('asm volatile("mma.sync.aligned" : : );')


# generated kernels with one bug planted


def mutant(case: Case, schedule: str, change: Callable[[str], str], folder: Path) -> cora.Kernel:
    """The kernel of a case with its source changed."""
    changed = False

    def compile_mutant(source: str, arch: str, threads: dict[str, int]) -> object:
        nonlocal changed
        mutated = change(source)
        changed = mutated != source
        return emulator.compile_emulated(mutated, arch, threads, folder=folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cora.runtime.cuda.build, "compile_cubin", compile_mutant)
        program = case.schedules[schedule](cora.schedule(*case.outputs))
        kernel = cora.build(program, "cuda", cora.Settings(cache=False))
    assert changed, "the bug was not planted"
    return kernel


def caught(case: Case, kernel: cora.Kernel, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether some order and batch shows that the kernel is wrong."""
    for order in emulator.ORDERS:
        monkeypatch.setenv("CORA_EMULATOR_ORDER", str(order))
        for number in range(len(case.batches)):
            try:
                check(case, kernel, work_of(case, number))
            except (AssertionError, InternalError):
                return True
    return False


def nth(pattern: str, number: int, replacement: str) -> Callable[[str], str]:
    """A change of one occurrence of a pattern."""
    count = iter(range(1000))
    return functools.partial(
        re.sub, pattern, lambda found: replacement if next(count) == number else found[0]
    )


@pytest.mark.parametrize(
    ("case", "number"),
    [(programs.row_sums(128), 0), (programs.mirror(), 0)],
    ids=["between the warps of a reduction", "after a stage"],
)
def test_the_barriers_of_a_generated_kernel_are_needed(
    case: Case, number: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = mutant(case, "blocks", nth(r"__syncthreads\(\);", number, ";"), folder)
    assert caught(case, kernel, monkeypatch)


@pytest.mark.parametrize(
    ("pattern", "number", "replacement"),
    [
        (r"__syncthreads\(\);", 1, ";"),
        (r"cora_await_copies\(\);", 0, ";"),
        (r"\(ko(_\w+)? & 1\)", 0, "(0)"),
    ],
    ids=["barrier", "wait", "half"],
)
def test_what_a_pipelined_loop_waits_for_is_needed(
    pattern: str, number: int, replacement: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = programs.tiled_matmul(24)
    kernel = mutant(case, "ahead", nth(pattern, number, replacement), folder)
    assert caught(case, kernel, monkeypatch)


COPY = """
extern "C" __global__ void __launch_bounds__(64) copied(float* __restrict__ x) {
  __shared__ float s[64];
  ptx_copy_async(s + threadIdx.x, x + threadIdx.x SHIFT, BYTES);
  WAIT
  __syncthreads();
  x[threadIdx.x] = s[63 - threadIdx.x];
}
"""


@pytest.mark.parametrize(
    ("shift", "size", "wait", "told"),
    [
        ("", 4, "", "that its thread does not wait for"),
        ("", 8, "ptx_await_copies();", "not aligned"),
        ("+ 64", 4, "ptx_await_copies();", "memory fault"),
    ],
)
def test_wrong_copies_are_told(folder: Path, shift: str, size: int, wait: str, told: str) -> None:
    source = COPY.replace("SHIFT", shift).replace("BYTES", str(size)).replace("WAIT", wait)
    with pytest.raises(InternalError, match=told):
        launch(source, "copied", np.zeros(64, np.float32), folder)


def test_a_lost_guard_of_a_generated_kernel_is_caught(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = programs.two_outputs()
    kernel = mutant(
        case, "one_grid", nth(r"if \(\(\(p_i|if \(\(+[^\n]* < offset_\d+\) \{", 0, "if (true) {"), folder
    )
    assert caught(case, kernel, monkeypatch)


def test_a_shuffle_left_out_is_caught(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = programs.row_sums(32)
    change = nth(r"__shfl_xor_sync\(\(uint\)4294967295, (\w+), 4, 32\)", 0, "0.0f")
    assert caught(case, mutant(case, "blocks", change, folder), monkeypatch)
