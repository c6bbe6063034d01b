"""The experiment on build times: one program in new processes, and where a missed limit shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import builds
from tests.benchmarks.small import run, values


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kernels are kept."""
    return tmp_path_factory.mktemp("cache")


def test_a_program_in_a_new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has the real table of programs; this one measures one of them, once."""
    build, _ = builds.PROGRAMS["linear"]
    monkeypatch.setattr(builds, "QUICK_SAMPLES", 1)
    monkeypatch.setattr(builds, "PROGRAMS", {"linear": (build, 0.0)})
    right, printed, rows = run(builds, tmp_path)
    assert right
    assert "MISSED" in printed
    value = {metric: v for (_, metric), v in values(rows).items()}
    assert 0 < value["proofs"] < value["lowering"] < value["cold"]
    assert 0 <= value["solver"] <= value["proofs"]
    assert 0 < value["cached"] < value["cold"] == value["cold_min"]


@pytest.mark.parametrize("name", builds.PROGRAMS)
def test_every_program_builds(name: str, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert builds.PROGRAMS[name][0]() is not None
