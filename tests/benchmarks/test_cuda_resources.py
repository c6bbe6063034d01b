"""The report of what kernels for GPUs take."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.plots import read_rows


def test_quick_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = CliRunner().invoke(app, ("cuda_resources", "--quick", "--out", str(tmp_path)))
    if "pip install 'cora-ragged[cuda]'" in result.output:
        pytest.skip("the extra cuda is not installed")
    assert result.exit_code == 0, result.output
    assert "no kernel spills" in " ".join(result.output.split())
    rows = read_rows(tmp_path / "cuda_resources.csv")
    assert {row.target for row in rows} == {"sm_80", "sm_90"}
    found = {(row.variant, row.target, row.metric): row.value for row in rows}
    assert found["softmax", "sm_80", "spilled"] == 0
    assert 0 < found["softmax", "sm_90", "registers"] <= 40
    assert found["linear", "sm_80", "threads"] == 256
