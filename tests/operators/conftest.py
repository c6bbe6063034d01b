"""The kernels of this folder's tests."""

from __future__ import annotations

import os

import pytest

from tests.operators.harness import Kernels


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """Built once for all test processes: the folder of a process lies in that of the whole run."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    return Kernels(folder / "kernels")
