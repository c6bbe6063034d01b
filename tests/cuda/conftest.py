"""Where the tests of this folder run their kernels: on a GPU if there is one, else on the emulator."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import cora.runtime.cuda.build
from cora.codegen.cuda.compile import compile_cubin, open_nvrtc
from cora.errors import UnsupportedError
from cora.runtime.cuda.driver import has_device, open_device
from tests.cuda import emulator


def _emulated() -> bool:
    """Asked for by CORA_CUDA_EMULATOR=1, refused by =0; otherwise where no GPU is."""
    asked = os.environ.get("CORA_CUDA_EMULATOR", "")
    return asked == "1" or (asked != "0" and not has_device())


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Kernels can run: "gpu" or "emulator"."""
    if not _emulated():
        if not has_device():
            pytest.skip("no CUDA device, and the emulator is switched off")
        yield "gpu"
        return
    folder: Path = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    emulator.install(folder / "emulator")
    open_device.cache_clear()
    compile_emulated = functools.partial(emulator.compile_emulated, folder=folder / "emulator")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cora.runtime.cuda.build, "compile_cubin", compile_emulated)
        yield "emulator"


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
