"""The experiments on products and triangles, on problems so small that they take seconds, and their peers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import benchmarks.taco as taco
import benchmarks.trmm as trmm
import benchmarks.vgemm as vgemm
from benchmarks import peers
from benchmarks.fma import FmaPeak
from benchmarks.options import Options
from benchmarks.plots import lines, read_rows
from benchmarks.products import Batch, Recorder, wrong_elements
from cora.errors import UserError

DRAWN = vgemm.shapes_of
LIBRARIES = [library for library in (peers.openblas(), peers.mkl()) if library is not None]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vgemm, "QUICK", vgemm.Scale(((5, 70, 9),), (1, 2), (2,), (2,), (8,), 1))
    monkeypatch.setattr(vgemm, "HIDDEN", 16)
    monkeypatch.setattr(vgemm, "WORKERS", (2,))
    monkeypatch.setattr(vgemm, "BALANCED", (1, 2))
    monkeypatch.setattr(vgemm, "shapes_of", lambda dataset, size: ((7, 70, 5), (0, 3, 3), (13, 9, 0))[:size])
    monkeypatch.setattr(trmm, "QUICK", trmm.Scale((13, 70), 1))
    monkeypatch.setattr(taco, "QUICK", taco.Scale((32, 64), 64, 1))


def test_vgemm(tmp_path: Path) -> None:
    assert vgemm.run(Options(True, tmp_path, None, 2), Console())
    rows = read_rows(tmp_path / "vgemm.csv")
    found = {(r.dataset, r.variant) for r in rows if r.metric == "wrong_elements"}
    assert {("paper", v) for v in ("cora", "cora_padded", *vgemm.VARIANTS)} <= found
    assert {r.value for r in rows if r.metric == "wrong_elements"} == {0}
    measured = {r.variant for r in rows if r.metric == "of_peak"}
    assert measured >= {"cora", "bias_gelu", *(library.name for library in LIBRARIES)}
    assert {r.metric for r in rows} >= {"slowest_over_mean", "build_cold", "build_cached"}
    assert (tmp_path / "vgemm.png").exists()
    with pytest.raises(UserError, match="no row of rate on nowhere, 1 threads"):
        lines(
            tmp_path / "vgemm.csv",
            tmp_path / "a.png",
            metric="rate",
            panels=[("nowhere", 1)],
            x="batch_size",
            xlabel="",
            ylabel="",
        )


def test_trmm_and_taco(tmp_path: Path) -> None:
    options = Options(True, tmp_path, None, 2)
    assert trmm.run(options, Console())
    assert taco.run(options, Console())
    for experiment in ("trmm", "taco"):
        rows = read_rows(tmp_path / f"{experiment}.csv")
        assert {r.value for r in rows if r.metric == "wrong_elements"} == {0}
        assert (tmp_path / f"{experiment}.png").exists()


def test_a_wrong_result_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taco, "wrong_elements", lambda *_: 1)
    assert not taco.run(Options(True, tmp_path, None, 1), Console())


def test_the_distributions() -> None:
    paper, harsh = (np.array(DRAWN(dataset, 64)) for dataset in ("paper", "harsh"))
    assert not (paper % 128).any()
    assert (paper.min(), paper.max()) == (512, 1408)
    assert 1 <= harsh.min() < harsh.max() <= 1408
    assert (harsh % 2).any()
    assert DRAWN("paper", 64) == DRAWN("paper", 64)


def test_wrong_elements_counts_nan_and_differences() -> None:
    expected = np.ones(4, np.float32)
    assert wrong_elements(np.float32([1, np.nan, 1.1, 1]), expected, 8) == 2


def test_lead_is_over_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Recorder("vgemm")
    timings = record.compare(
        "x", 1, 1, {"cora": lambda: None, "a": lambda: None, "b": lambda: sum(range(20000))}, 8,
        own="cora", best_of=("a", "b"), repeats=3,
    )  # fmt: skip
    assert timings["b"].median_ms > timings["a"].median_ms
    lead, slow = (record.value("cora", "x", 1, 1, m) for m in ("lead", "b_over_cora"))
    assert lead is not None
    assert slow is not None
    assert lead < slow
    assert record.value("cora", "x", 1, 1, "nothing") is None


def test_the_peak_counts_what_it_does() -> None:
    with FmaPeak(1) as one, FmaPeak(2) as two:
        one()
        two()
        assert two.flops == 2 * one.flops


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_libraries(library: peers.Blas) -> None:
    batch = Batch.random(((5, 7, 3), (0, 3, 2), (4, 4, 0), (100, 77, 33)))
    library.set_threads(1)
    for make in (library.gemm, library.gemm_batch):
        problems = batch.problems(batch.empty())
        make(problems)()
        for p in problems:
            np.testing.assert_allclose(p.C, p.A @ p.B, atol=1e-4)
    T, B = np.float32(np.arange(9).reshape(3, 3)), np.ones((2, 3), np.float32)
    library.trmm(peers.Trmm(T, B, "right", "upper", True, True))()
    np.testing.assert_array_equal(B, np.ones((2, 3)) @ (np.triu(T, 1) + np.eye(3)).T)
    with pytest.raises(UserError, match="expected T of shape"):
        peers.Trmm(T, np.ones((2, 3), np.float32))


def test_gemm_shapes_are_checked() -> None:
    a, b = np.ones((2, 3), np.float32), np.ones((4, 5), np.float32)
    with pytest.raises(UserError, match="expected"):
        peers.Gemm(a, b, np.ones((2, 5), np.float32))
    with pytest.raises(UserError, match="C-contiguous"):
        peers.Gemm(a, np.ones((5, 3), np.float32).T, np.ones((2, 5), np.float32))


def test_padded_bmm() -> None:
    torch = peers.padded_bmm()
    if torch is None:
        pytest.skip("PyTorch is not installed")
    batch = Batch.random(((5, 7, 3), (2, 3, 9)))
    problems = batch.problems(batch.empty())
    call = torch.gemm(problems)
    call()
    for out, p in zip(call.out.numpy(), problems, strict=True):  # type: ignore[attr-defined]
        np.testing.assert_allclose(out[: p.A.shape[0], : p.B.shape[1]], p.A @ p.B, atol=1e-5)
    assert torch.stored_bytes(problems) == 4 * 2 * (5 * 9 + 9 * 7 + 5 * 7)
