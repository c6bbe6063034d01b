"""Rows are checked, and written whole or not at all."""

from __future__ import annotations

import csv
import json
import platform
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.machine import Machine, last_level_cache_bytes, this_machine
from benchmarks.results import COLUMNS, Row, write_results
from cora.errors import UserError

ROW = Row(
    experiment="foundation",
    variant="cora",
    dataset="mnli",
    batch_size=32,
    target="llvm",
    threads=2,
    metric="median",
    value=0.1 + 0.2,
    unit="ms",
)
MACHINE = Machine(cpu="A CPU", cores=2, python="3.11.7", packages=(("numpy", "2.4.6"),))


def test_json_holds_the_rows_and_the_machine(tmp_path: Path) -> None:
    rows = [ROW, replace(ROW, variant="numpy", value=1.0)]
    path, _ = write_results(tmp_path / "a" / "b", rows, MACHINE)
    assert path == tmp_path / "a" / "b" / "foundation.json"
    document = json.loads(path.read_text())
    assert document["schema"] == 1
    assert [Row(**row) for row in document["rows"]] == rows
    assert document["machine"] == {
        "fingerprint": MACHINE.fingerprint,
        "cpu": "A CPU",
        "cores": 2,
        "python": "3.11.7",
        "packages": {"numpy": "2.4.6"},
    }


def test_csv_has_one_line_a_row(tmp_path: Path) -> None:
    tricky = replace(ROW, variant='with "quotes", commas')
    _, path = write_results(tmp_path, [ROW, tricky], MACHINE)
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == [*COLUMNS, "machine"]
    assert lines[1]["variant"] == tricky.variant
    assert float(lines[0]["value"]) == ROW.value
    assert {line["machine"] for line in lines} == {MACHINE.fingerprint}


def test_a_second_run_replaces_the_first(tmp_path: Path) -> None:
    write_results(tmp_path, [ROW, ROW, ROW], MACHINE)
    path, _ = write_results(tmp_path, [ROW], MACHINE)
    assert len(json.loads(path.read_text())["rows"]) == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "foundation.csv",
        "foundation.json",
    ]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = write_results(tmp_path, [ROW], MACHINE)
    before = path.read_text()

    def refuse(source: object, target: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("benchmarks.results.os.replace", refuse)
    with pytest.raises(OSError, match="no space left"):
        write_results(tmp_path, [replace(ROW, value=7.0)], MACHINE)
    assert path.read_text() == before
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": float("nan")}, "median of cora must be finite, got nan"),
        ({"value": float("inf")}, "must be finite"),
        ({"experiment": "../up"}, "experiment must be letters"),
        ({"experiment": ""}, "experiment must be letters"),
        ({"metric": ""}, "metric must not be empty"),
        ({"threads": -1}, "threads must be at least 0, got -1"),
    ],
)
def test_unfit_rows(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Row(**{**asdict(ROW), **change})


def test_one_experiment_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="got none"):
        write_results(tmp_path, [])
    with pytest.raises(UserError, match=r"one experiment, got .*foundation.*other"):
        write_results(tmp_path, [ROW, replace(ROW, experiment="other")])


def test_the_machine_is_described_without_its_name() -> None:
    machine = this_machine()
    assert machine == this_machine()
    assert machine.cpu
    assert machine.cores >= 1
    assert "numpy" in dict(machine.packages)
    assert platform.node() not in json.dumps(asdict(machine)).split('"')
    assert len(machine.fingerprint) == 12
    assert machine.fingerprint != replace(machine, cores=machine.cores + 1).fingerprint


def test_cache_size_is_plausible() -> None:
    assert 1 << 15 <= last_level_cache_bytes() < 1 << 34
