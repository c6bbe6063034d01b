"""The experiment on load hoisting, on a batch so small that it takes seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import benchmarks.loadhoist as loadhoist
from benchmarks.options import Options
from benchmarks.plots import read_rows

TINY = loadhoist.Scale(batch=2, length=64, repeats=1)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadhoist, "QUICK", TINY)


def test_all_operators_in_all_variants(tmp_path: Path) -> None:
    assert loadhoist.run(Options(True, tmp_path, None, 2), Console())
    rows = read_rows(tmp_path / "loadhoist.csv")
    for operator in loadhoist.OPERATORS:
        value = {row.variant: row.value for row in rows if row.metric == f"{operator.name}_over_dense"}
        assert tuple(value) == loadhoist.VARIANTS
        assert value["dense"] == 1
    assert {row.value for row in rows if row.metric.endswith("_wrong_elements")} == {0}
    assert (tmp_path / "loadhoist.png").exists()


def test_a_wrong_result_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = loadhoist.OPERATORS[-1]
    monkeypatch.setattr(loadhoist, "OPERATORS", (replace(last, numpy=lambda x, w: 2 * (x @ w)),))
    assert not loadhoist.run(Options(True, tmp_path, None, 1), Console())


@pytest.mark.parametrize(
    "operator", [o for o in loadhoist.OPERATORS if o.name != "softmax"], ids=lambda o: o.name
)
def test_ragged_products_have_no_guards(operator: loadhoist.Operator) -> None:
    """So the variants differ in how they find their data, and in nothing else."""
    kernel = loadhoist.kernel_of(operator, "loadhoist", TINY)
    assert not [guard for guard in kernel.artifact.guards if guard.kept]
    assert "longest" not in kernel.ir("lowered")
