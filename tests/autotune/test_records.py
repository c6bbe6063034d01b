"""Records: whole rows or none, several writers, kills, other files, JSON."""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cora.autotune.records import CandidateRow, Measurement, Records, Task, steps_from_text, steps_to_text
from cora.autotune.spaces import Candidate
from cora.errors import UserError
from cora.schedule.steps import Parallel, Split

TASK = Task("op", "program", "float32", "GenericSpace", "lens:c1t1m1s3", "llvm", 2, "warm", '{"cpu": "a"}')
CANDIDATE = Candidate("tile=4", (Split("O", "i", 4, "io", "ii"), Parallel("O", "io", "cost")))
SAMPLE = Measurement("run", CANDIDATE.digest, "search", "batch", 1.5, 3.0, 1.0, "local")

WRITER = """
import sys
from dataclasses import replace
from cora.autotune.records import Records
from tests.autotune.test_records import SAMPLE, TASK
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Records(path) as records:
    key = records.task(TASK)
    print("ready", flush=True)
    number = 0
    while number != count:
        records.add_measurement(key, replace(SAMPLE, run=name, ms=float(number)))
        number += 1
        print(number, flush=True)
"""


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    with Records(tmp_path / "some" / "r.db") as found:
        yield found


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parent.parent.parent
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_what_is_written_is_read(records: Records) -> None:
    key = records.task(TASK)
    assert records.task(TASK) == key
    row = CandidateRow(CANDIDATE, "ok", "", 12.5, 4096)
    records.add_candidate(key, replace(row, status="crashed", reason="signal 11"))
    records.add_candidate(key, row)
    assert records.candidates(key) == {"tile=4": row}
    records.add_measurement(key, SAMPLE)
    records.add_measurement(key, replace(SAMPLE, ms=math.nan, stage="holdout"))
    first, second = records.measurements(key)
    assert first == SAMPLE
    assert math.isnan(second.ms)
    assert list(records.measurements(key, "search", "batch")) == [SAMPLE]
    assert not list(records.measurements(key, "search", "other"))
    records.decide(key, "run", CANDIDATE, "global:tile=4", {"holdout": 0.5})
    (winner,) = records.winners("program")
    assert (winner.task, winner.candidate, winner.policy) == (TASK, CANDIDATE, "global:tile=4")
    assert records.winners("other") == ()
    assert records.tasks() == ((TASK, {"ok": 1}, 2),)


def test_tasks_are_apart_unless_only_names_differ() -> None:
    assert replace(TASK, operator="x", space="y").key == TASK.key
    for field, value in (
        ("program", "p"), ("length_class", "c"), ("target", "cuda"), ("threads", 1), ("cache", "cold"),
        ("device", "{}"),
    ):  # fmt: skip
        assert replace(TASK, **{field: value}).key != TASK.key


def test_steps_as_text() -> None:
    assert steps_from_text(steps_to_text(CANDIDATE.steps)) == CANDIDATE.steps
    for text in ("no JSON", '{"a": 1}', '[{"step": "Nothing"}]', "[3]"):
        with pytest.raises(UserError):
            steps_from_text(text)


def test_export_and_import(records: Records, tmp_path: Path) -> None:
    key = records.task(TASK)
    records.add_candidate(key, CandidateRow(CANDIDATE, "ok", "", 12.5, 4096))
    for n in range(3):
        records.add_measurement(key, replace(SAMPLE, ms=float(n)))
    records.decide(key, "run", CANDIDATE, "global:tile=4", {"holdout": 0.5})
    exported = tmp_path / "r.json"
    assert records.export_json(exported) == 3
    with Records(tmp_path / "copy.db") as copy:
        assert copy.import_json(exported) == 3
        assert copy.import_json(exported) == 0
        assert copy.winners() == records.winners()
        assert copy.candidates(key) == records.candidates(key)
        assert list(copy.measurements(key)) == list(records.measurements(key))
    document = json.loads(exported.read_text())
    document["measurements"].append({"task": key})
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(document))
    with Records(tmp_path / "empty.db") as empty:
        with pytest.raises(UserError, match="cannot import"):
            empty.import_json(broken)
        assert empty.tasks() == ()
        broken.write_text('{"schema": 99}')
        with pytest.raises(UserError, match="no export"):
            empty.import_json(broken)


def test_files_that_are_none(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("no database, but long enough to be looked at" * 100)
    with pytest.raises(UserError, match="cannot open"):
        Records(text)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE songs (name TEXT)")
    with pytest.raises(UserError, match="something else"):
        Records(other)
    with sqlite3.connect(other) as db:
        assert db.execute("SELECT count(*) FROM songs").fetchone() == (0,)
    with pytest.raises(UserError, match="no file"):
        Records(tmp_path / "missing.db", read_only=True)
    assert not (tmp_path / "missing.db").exists()


def test_a_file_of_a_later_version_is_refused(records: Records) -> None:
    path = records.path
    records.close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(UserError, match="from a later cora"):
        Records(path)


def test_two_writers_at_once(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    writers = [writer(path, name, 150) for name in ("first", "second")]
    assert [w.wait(timeout=120) for w in writers] == [0, 0]
    with Records(path, read_only=True) as records:
        found = list(records.measurements(TASK.key))
    for name in ("first", "second"):
        assert [m.ms for m in found if m.run == name] == [float(n) for n in range(150)]
    for w in writers:
        assert w.stdout is not None
        w.stdout.close()


@pytest.mark.parametrize("rows", [1, 40])
def test_a_killed_writer_loses_at_most_the_row_it_wrote(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "r.db"
    process = writer(path, "killed", -1)
    assert process.stdout is not None
    told = 0
    while told < rows:
        line = process.stdout.readline().strip()
        told = int(line) if line.isdecimal() else 0
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait(timeout=30)
    process.stdout.close()
    told = max([told, *(int(x) for x in rest if x.isdecimal())])
    with Records(path) as records:
        found = [m.ms for m in records.measurements(TASK.key)]
        assert found == [float(n) for n in range(len(found))]
        assert told <= len(found) <= told + 1
        records.add_measurement(TASK.key, SAMPLE)
        assert len(list(records.measurements(TASK.key))) == len(found) + 1
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
