"""Where the tests of this folder run their kernels: on a GPU if there is one, else on the emulator."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import cora.runtime.cuda.build
import cora.runtime.cuda.driver
from cora.codegen.cuda.compile import compile_cubin, open_nvrtc
from cora.errors import UnsupportedError
from cora.runtime.cuda.driver import has_device, open_device
from tests.cuda import emulator
from tests.cuda.built import Built


def _emulated() -> bool:
    """Asked for by CORA_CUDA_EMULATOR=1, refused by =0; otherwise where no GPU is."""
    asked = os.environ.get("CORA_CUDA_EMULATOR", "")
    return asked == "1" or (asked != "0" and not has_device())


@pytest.fixture(scope="session")
def folder_of_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the processes of one run share."""
    folder: Path = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def kind_of_device(folder_of_run: Path) -> str:
    """What kernels can run on: "gpu" or "emulator"."""
    if _emulated():
        return "emulator"
    if not has_device():
        pytest.skip("no CUDA device, and the emulator is switched off")
    return "gpu"


@pytest.fixture
def device(kind_of_device: str, folder_of_run: Path) -> Iterator[str]:
    """Kernels that the test builds can run: on a GPU, or on the emulator in place of compiler and driver."""
    if kind_of_device == "gpu":
        yield kind_of_device
        return
    folder = folder_of_run / "emulator"
    with pytest.MonkeyPatch.context() as patch:
        compile_emulated = functools.partial(emulator.compile_emulated, folder=folder)
        patch.setattr(cora.runtime.cuda.build, "compile_cubin", compile_emulated)
        patch.setattr(cora.runtime.cuda.driver, "_LIBRARY", str(emulator.stand_in(folder)))
        open_device.cache_clear()
        yield kind_of_device
    open_device.cache_clear()


@pytest.fixture(scope="session")
def kernels(folder_of_run: Path) -> Built:
    return Built(folder_of_run / "cuda_kernels")


@pytest.fixture
def built(device: str, kernels: Built) -> Built:
    """Builds for the device, or the emulator."""
    return kernels


@pytest.fixture(params=emulator.ORDERS, ids=lambda n: f"order{n}")
def order(request: pytest.FixtureRequest, device: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Each order in which the emulator runs threads; on a GPU just one."""
    number: int = request.param
    if device == "gpu" and number:
        pytest.skip("a GPU has its own order")
    monkeypatch.setenv("CORA_EMULATOR_ORDER", str(number))
    return number


@pytest.fixture
def nvrtc() -> Iterator[None]:
    """Kernels are compiled by the real compiler, also where others run on the emulator."""
    try:
        open_nvrtc()
    except UnsupportedError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cora.runtime.cuda.build, "compile_cubin", compile_cubin)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need a real device are skipped where there is none."""
    if not _emulated() and has_device():
        return
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
