"""The experiment on operation splitting, on batches so small that it takes seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import benchmarks.opsplit as opsplit
import cora
from benchmarks.options import Options
from benchmarks.plots import by_batch_size, read_rows
from cora.errors import UserError


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opsplit, "QUICK", opsplit.Scale((2, 4), repeats=1))


def test_both_operators_in_all_variants(tmp_path: Path) -> None:
    assert opsplit.run(Options(True, tmp_path, None, 2), Console())
    rows = read_rows(tmp_path / "opsplit.csv")
    for operator in opsplit.OPERATORS:
        value = {
            (row.variant, row.batch_size): row.value
            for row in rows
            if row.metric == f"{operator.name}_over_nosplit"
        }
        assert set(value) == {(v, size) for v in opsplit.VARIANTS for size in (2, 4)}
        work = {r.variant: r.value for r in rows if r.metric == f"{operator.name}_executed_over_useful_flops"}
        assert work["split2_hfused"] <= work["split"] < work["nosplit"]
    assert {row.value for row in rows if row.metric.endswith("_wrong_elements")} == {0}
    assert (tmp_path / "opsplit.png").exists()
    with pytest.raises(UserError, match="no row of speed"):
        by_batch_size(tmp_path / "opsplit.csv", tmp_path / "a.png", metrics=["speed"], ylabel="")


def test_a_wrong_result_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opsplit.OPERATORS[0]
    wrong = replace(first, numpy=lambda a, b: np.zeros(first.numpy(a, b).shape, np.float32))
    monkeypatch.setattr(opsplit, "OPERATORS", (wrong,))
    assert not opsplit.run(Options(True, tmp_path, None, 1), Console())


@pytest.mark.parametrize("variant", opsplit.VARIANTS)
@pytest.mark.parametrize("operator", opsplit.OPERATORS, ids=lambda o: o.name)
def test_on_lengths_around_the_tile(operator: opsplit.Operator, variant: str) -> None:
    kernel = cora.build(operator.schedule(variant), settings=opsplit.UNCACHED)
    assert not [guard for guard in kernel.artifact.guards if guard.kept]
    rng = np.random.default_rng(0)
    lengths = np.array([0, 1, 31, 32, 33, 64, 65, 7, 8, 9], np.int32)
    arrays = []
    for name in kernel.inputs:
        array = cora.RaggedArray.empty(kernel.layout(name), {"lens": lengths}, name=name)
        array.values[:] = rng.standard_normal(array.values.size, np.float32)
        arrays.append(array)
    parts = zip(*(array.to_rows() for array in arrays), strict=True)
    expected = np.concatenate([operator.numpy(a, b).reshape(-1) for a, b in parts])
    np.testing.assert_allclose(kernel(*arrays).packed(), expected, rtol=1e-3, atol=1e-4)
