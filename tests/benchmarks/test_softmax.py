"""The experiment on softmax, on one small batch and with known times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import softmax
from benchmarks.peers import rows as peers
from benchmarks.peers import torch_encoder
from benchmarks.peers.torch_encoder import Way
from tests.benchmarks.small import LENGTHS, over_cora, run, shrink, values


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shrink(monkeypatch, softmax)


def test_all_ways(tmp_path: Path) -> None:
    right, printed, rows = run(softmax, tmp_path)
    assert right
    ways = ["numpy by sequence"]
    if torch_encoder.installed():
        ways += ["torch padded", "torch by sequence"]
    ratios = over_cora(rows, "softmax")
    assert ratios == {way: pytest.approx(number) for number, way in enumerate(ways, 2)}
    moved_bytes = 2 * 4 * softmax.LAYER.heads * int((LENGTHS.astype(int) ** 2).sum())
    assert values(rows)["cora", "rate"] == pytest.approx(moved_bytes / 2e6)
    assert "3.00" in printed  # what is wanted


def test_a_way_that_gives_another_result_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = peers.softmax_ways

    def wrong(scores: list[peers.Array], threads: int) -> dict[str, Way]:
        (name, way), *_ = ways(scores, threads).items()
        return {name: way, "another": Way(way.call, lambda: 1.1 * way.result())}

    monkeypatch.setattr(softmax, "softmax_ways", wrong)
    right, printed, rows = run(softmax, tmp_path)
    assert not right
    assert "another gives another result" in printed
    assert {row.variant for row in rows} == {"cora", "numpy by sequence"}


def test_the_peers_agree_with_numpy() -> None:
    rng = np.random.default_rng(0)
    scores = [rng.standard_normal((n, 2, n), np.float32) for n in (3, 1, 0, 17)]
    shifted = [np.exp(x.astype(float)) for x in scores]
    expected = np.concatenate([(e / e.sum(axis=-1, keepdims=True)).ravel() for e in shifted])
    for name, way in peers.softmax_ways(scores, 1).items():
        way.call()
        np.testing.assert_allclose(way.result(), expected, rtol=1e-5, err_msg=name)
