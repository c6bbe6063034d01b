"""The command line, on data so small that every experiment takes seconds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import benchmarks.demo as demo
import benchmarks.foundation as foundation
from benchmarks.cli import EXPERIMENTS, app
from benchmarks.lengths import DATASETS, draw_lengths
from benchmarks.machine import this_machine
from benchmarks.peers import torch_encoder
from benchmarks.plots import grouped_bars, read_rows, share_of_targets
from benchmarks.results import Row, write_results
from cora.errors import UserError

PNG = b"\x89PNG"
TINY = foundation.Scale(builds=1, starts=1, calls=2, streams=1, stream_elems=10_000)


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # --threads changes it: the other tests get it back as it was.
    monkeypatch.setenv("TVM_NUM_THREADS", os.environ.get("TVM_NUM_THREADS", "2"))


def run(*arguments: str) -> tuple[int, str]:
    """Exit status and all output of a command."""
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_list_names_every_experiment() -> None:
    status, output = run("list")
    assert status == 0
    assert all(experiment.name in output for experiment in EXPERIMENTS)


@pytest.mark.parametrize("command", [*(e.name for e in EXPERIMENTS), "all"])
def test_cuda_is_refused_in_one_line(command: str, tmp_path: Path) -> None:
    status, output = run(command, "--target", "cuda", "--out", str(tmp_path / "out"))
    assert status == 2
    assert output.count("\n") == 1
    assert "cuda" in output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [("demo", "--threads", "0"), ("demo", "--target", "rocm"), ("dema",)])
def test_usage_errors(arguments: tuple[str, ...]) -> None:
    assert run(*arguments)[0] == 2


def test_missing_lengths_are_an_error_in_one_line(tmp_path: Path) -> None:
    status, output = run("demo", "--lengths", str(tmp_path), "--out", str(tmp_path / "out"))
    assert status == 1
    assert output.startswith("benchmarks: read_lengths: cannot read ")
    assert output.count("\n") == 1


def test_lengths_without_a_token_are_an_error_in_one_line(tmp_path: Path) -> None:
    for dataset in DATASETS:
        np.save(tmp_path / f"{dataset}.npy", np.zeros(128, dtype=np.int32))
    for experiment in ("partial_padding", "memory"):
        status, output = run(
            experiment, "--quick", "--lengths", str(tmp_path), "--out", str(tmp_path / "out")
        )
        assert status == 1
        assert output.startswith("benchmarks: ")
        assert "lengths are 0; nothing to measure" in output


def test_demo_writes_rows_and_a_plot(tmp_path: Path) -> None:
    status, output = run("demo", "--quick", "--out", str(tmp_path))
    assert status == 0, output
    rows = read_rows(tmp_path / "demo.csv")
    value = {(row.variant, row.metric): row.value for row in rows}
    variants = {"cora", "NumPy, padded"} | ({"PyTorch, padded"} if torch_encoder.installed() else set())
    assert {row.variant for row in rows} == variants
    for variant in variants:
        assert value[variant, "encoder_layer"] > 0
        assert 0 < value[variant, "encoder_layer_error"] <= demo.TOLERANCE
        assert (variant, "encoder_layer_over_cora") in value or variant == "cora"
    lengths = draw_lengths("mnli", 8)
    assert value["cora", "tokens_computed"] == lengths.sum()
    assert value["NumPy, padded", "tokens_computed"] == 8 * lengths.max()
    assert (tmp_path / "demo.png").read_bytes().startswith(PNG)


def test_demo_fails_if_a_result_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(demo.EncoderLayer):
        def run(self, plan: Any, x: Any, out: Any) -> Any:
            super().run(plan, x, out)
            out[-1, -1] += 1e-3
            return out

    monkeypatch.setattr(demo, "EncoderLayer", Wrong)
    status, output = run("demo", "--quick", "--threads", "1", "--out", str(tmp_path))
    assert status == 1
    assert "WRONG" in output
    assert os.environ["TVM_NUM_THREADS"] == "1"
    assert {row.threads for row in read_rows(tmp_path / "demo.csv")} == {1}


def test_demo_on_lengths_that_are_given(tmp_path: Path) -> None:
    lengths = np.zeros(demo.SEQUENCES, np.int64)
    np.save(tmp_path / "mnli.npy", lengths)
    status, output = run("demo", "--lengths", str(tmp_path), "--out", str(tmp_path / "out"))
    assert status == 1
    assert (
        output
        == f"benchmarks: mnli in {tmp_path}: the first {demo.SEQUENCES} lengths are 0; nothing to measure\n"
    )
    lengths[3:5] = 1, 7
    np.save(tmp_path / "mnli.npy", lengths)
    status, output = run("demo", "--quick", "--lengths", str(tmp_path), "--out", str(tmp_path / "out"))
    assert status == 0, output
    assert "8 tokens, lengths 0 to 7" in output


def test_foundation_measures_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foundation, "QUICK", TINY)
    status, output = run("foundation", "--quick", "--out", str(tmp_path))
    assert status == 0, output
    rows = read_rows(tmp_path / "foundation.csv")
    value = {(row.variant, row.metric): row.value for row in rows}
    assert {(figure.variant, figure.metric) for figure in foundation.FIGURES} <= value.keys()
    assert value["build", "compilations"] == 1
    assert value["process", "cached_start_compiler_modules"] == 0
    assert 2 * value["stream", "buffer"] == pytest.approx(
        1e6 * value["stream", "cora"] * value["stream", "cora_rate"]
    )
    assert [row.value for row in rows if row.metric.startswith("wrong_elements")] == [0] * 5
    assert (tmp_path / "foundation.png").read_bytes().startswith(PNG)


def test_rows_of_the_stream_have_the_total_that_is_asked_for(tmp_path: Path) -> None:
    options = foundation.Options(quick=True, out=tmp_path, lengths=None, threads=1)
    for elements in (1, 511, 100_000):
        lengths = foundation._rows_of(options, elements)
        assert lengths.sum() == elements
        assert lengths.min() > 0


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = [
        Row("e", "cora", "race", 128, "llvm", 2, "time", 1.5, "ms"),
        Row("e", "numpy", "", 0, "llvm", 1, "time", 3e-7, "ms"),
    ]
    _, path = write_results(tmp_path, rows, this_machine())
    assert read_rows(path) == rows
    assert grouped_bars(path, tmp_path / "a.png", metrics=["time"], title="", unit="ms").exists()
    targets = [("cora", "time", 2.0, True), ("numpy", "time", 1.0, False)]
    assert share_of_targets(path, tmp_path / "b.png", targets=targets).exists()


def test_plots_refuse_what_is_not_there(tmp_path: Path) -> None:
    _, path = write_results(tmp_path, [Row("e", "cora", "", 0, "llvm", 1, "time", 1.5, "ms")])
    with pytest.raises(UserError, match="no row of speed in ms"):
        grouped_bars(path, tmp_path / "a.png", metrics=["speed"], title="", unit="ms")
    with pytest.raises(UserError, match="no row of numpy time"):
        share_of_targets(path, tmp_path / "a.png", targets=[("numpy", "time", 1.0, True)])
    (tmp_path / "bad.csv").write_text("experiment,variant\ne,cora\n")
    for name in ("bad.csv", "missing.csv"):
        with pytest.raises(UserError, match="holds no results"):
            read_rows(tmp_path / name)
