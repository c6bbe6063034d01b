"""What was measured, kept in an SQLite file: one row for each measurement.

Every row is a transaction of its own in a write-ahead log: a process that is killed loses at most the row it was
writing, several tuners may write at once, and readers never wait.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cora.autotune.schema import MIGRATIONS, TABLES, VERSION
from cora.autotune.spaces.candidate import Candidate
from cora.errors import UserError
from cora.ir.fingerprint import fingerprint
from cora.runtime.code import write_atomically
from cora.schedule.step_data import from_data, to_data
from cora.schedule.steps import Step

__all__ = ["CandidateRow", "Measurement", "Records", "Task", "WinnerRow", "steps_from_text", "steps_to_text"]

#: Seconds to wait for another writer.
BUSY_S = 60.0


@dataclass(frozen=True, slots=True)
class Task:
    """What is tuned, for what, on what; the fields are those of the table `tasks`."""

    operator: str
    program: str
    dtypes: str
    space: str
    length_class: str
    target: str
    threads: int
    cache: str
    device: str

    @property
    def key(self) -> str:
        """Equal for tasks whose measurements may be compared: neither the operator's name nor the space matter."""
        return fingerprint(
            self.program, self.length_class, self.target, self.threads, self.cache, self.device
        )[:24]


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """What is known of a candidate; status and reason as in `protocol.Status`."""

    candidate: Candidate
    status: str
    reason: str
    build_ms: float | None
    stored_bytes: int | None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One sample of a candidate, named by the digest of its steps, on a batch; see the table `measurements`."""

    run: str
    candidate: str
    stage: str
    batch: str
    ms: float
    reference_ms: float
    busy: float
    worker: str


@dataclass(frozen=True, slots=True)
class WinnerRow:
    """The decision of a task, its task and its report (JSON)."""

    task: Task
    candidate: Candidate
    policy: str
    report: str
    decided: str


class Records:
    """An open record file. Not for use from several threads; open it once in each.

    Raises UserError for a file that is none of ours, or of a later version of cora.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path = Path(path)
        if read_only and not self.path.exists():
            raise UserError(f"records: no file {self.path}")
        try:
            if not read_only:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            mode = "?mode=ro" if read_only else ""
            uri = f"file:{_quoted(self.path)}{mode}"
            self._db = sqlite3.connect(uri, timeout=BUSY_S, isolation_level=None, uri=True)
            self._db.execute("PRAGMA foreign_keys = ON")
            if not read_only:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
            self._migrate(read_only)
        except (sqlite3.Error, OSError) as error:
            raise UserError(f"records: cannot open {self.path}: {error}") from error

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def task(self, task: Task) -> str:
        """The key of a task, which is added if it is new."""
        values = (task.key, *astuple(task), _now())
        self._db.execute(f"INSERT OR IGNORE INTO tasks VALUES ({_marks(values)})", values)
        return task.key

    def add_candidate(self, task: str, row: CandidateRow) -> None:
        """Add what became of a candidate, or replace what was known."""
        candidate = row.candidate
        values = (
            task, candidate.id, candidate.digest, steps_to_text(candidate.steps),
            row.status, row.reason, row.build_ms, row.stored_bytes,
        )  # fmt: skip
        self._db.execute(f"INSERT OR REPLACE INTO candidates VALUES ({_marks(values)})", values)

    def candidates(self, task: str) -> dict[str, CandidateRow]:
        """The candidates of a task by id."""
        rows = self._db.execute(
            "SELECT id, steps, status, reason, build_ms, stored_bytes FROM candidates WHERE task = ?", (task,)
        )
        return {id: CandidateRow(Candidate(id, steps_from_text(steps)), *rest) for id, steps, *rest in rows}

    def add_measurement(self, task: str, row: Measurement) -> None:
        """Add one sample."""
        values = (task, *(_nullable(v) for v in astuple(row)), _now())
        names = ", ".join(TABLES["measurements"])
        self._db.execute(f"INSERT INTO measurements ({names}) VALUES ({_marks(values)})", values)

    def measurements(self, task: str, stage: str = "", batch: str = "") -> Iterator[Measurement]:
        """The samples of a task in the order in which they were taken, of one stage and batch if given."""
        where, values = "task = ?", [task]
        for column, value in (("stage", stage), ("batch", batch)):
            if value:
                where += f" AND {column} = ?"
                values.append(value)
        columns = "run, candidate, stage, batch, ms, reference_ms, busy, worker"
        rows = self._db.execute(f"SELECT {columns} FROM measurements WHERE {where} ORDER BY number", values)
        for run, candidate, of_stage, of_batch, ms, reference_ms, busy, worker in rows:
            yield Measurement(
                run, candidate, of_stage, of_batch, _number(ms), _number(reference_ms), _number(busy), worker
            )

    def decide(self, task: str, run: str, winner: Candidate, policy: str, report: dict[str, Any]) -> None:
        """Set the winner of a task."""
        values = (task, run, winner.id, steps_to_text(winner.steps), policy, json.dumps(report), _now())
        self._db.execute(f"INSERT OR REPLACE INTO winners VALUES ({_marks(values)})", values)

    def winners(self, program: str = "") -> tuple[WinnerRow, ...]:
        """All decisions, or those for one program, the latest first."""
        columns = ", ".join(f"t.{name}" for name in TABLES["tasks"][1:-1])
        where, values = ("WHERE t.program = ?", (program,)) if program else ("", ())
        rows = self._db.execute(
            f"SELECT {columns}, w.candidate, w.steps, w.policy, w.report, w.decided FROM winners w "
            f"JOIN tasks t ON t.key = w.task {where} ORDER BY w.decided DESC, w.task",
            values,
        )
        return tuple(
            WinnerRow(Task(*row[:9]), Candidate(row[9], steps_from_text(row[10])), row[11], row[12], row[13])
            for row in rows
        )

    def tasks(self) -> tuple[tuple[Task, dict[str, int], int], ...]:
        """All tasks with the number of candidates by status and of measurements, the oldest first."""
        columns = ", ".join(TABLES["tasks"][:-1])
        found = []
        for key, *fields in self._db.execute(f"SELECT {columns} FROM tasks ORDER BY created, key").fetchall():
            statuses = dict(
                self._db.execute(
                    "SELECT status, count(*) FROM candidates WHERE task = ? GROUP BY status", (key,)
                )
            )
            (count,) = self._db.execute("SELECT count(*) FROM measurements WHERE task = ?", (key,)).fetchone()
            found.append((Task(*fields), statuses, int(count)))
        return tuple(found)

    def export_json(self, path: str | os.PathLike[str]) -> int:
        """Write everything as JSON, at once or not at all. Gives the number of measurements."""
        document: dict[str, Any] = {"schema": VERSION}
        self._db.execute("BEGIN")
        try:
            for table, columns in TABLES.items():
                order = "number" if table == "measurements" else "rowid"
                rows = self._db.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order}")
                document[table] = [dict(zip(columns, row, strict=True)) for row in rows]
        finally:
            self._db.execute("COMMIT")
        try:
            write_atomically(Path(path), (json.dumps(document, indent=1) + "\n").encode())
        except OSError as error:
            raise UserError(f"records: cannot write {path}: {error}") from error
        return len(document["measurements"])

    def import_json(self, path: str | os.PathLike[str]) -> int:
        """Add what `export_json` wrote, all or nothing. Gives the number of measurements added.

        What is there already stays: measurements that are the same in everything are not added again; of candidates
        and winners of one task those of this file are kept. Raises UserError for a file that is none.
        """
        try:
            document = json.loads(Path(path).read_text())
            if not isinstance(document, dict) or document.get("schema") != VERSION:
                raise UserError(f"records: {path} is no export of version {VERSION}")
            rows = {
                table: [tuple(row[c] for c in columns) for row in document[table]]
                for table, columns in TABLES.items()
            }
            for steps in (row[3] for row in rows["candidates"]):
                steps_from_text(steps)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"records: cannot import {path}: {error}") from error
        with self._transaction():
            for table in ("tasks", "candidates", "winners"):
                self._insert(table, rows[table])
            before = self._db.total_changes
            names = TABLES["measurements"]
            same = " AND ".join(f"{name} IS ?" for name in names)
            for row in rows["measurements"]:
                self._db.execute(
                    f"INSERT INTO measurements ({', '.join(names)}) SELECT {_marks(row)} "
                    f"WHERE NOT EXISTS (SELECT 1 FROM measurements WHERE {same})",
                    (*row, *row),
                )
        return self._db.total_changes - before

    def _insert(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        names = TABLES[table]
        self._db.executemany(
            f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({_marks(names)})", rows
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _migrate(self, read_only: bool) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == VERSION:
            return
        if version > VERSION:
            raise UserError(
                f"records: {self.path} has version {version}, from a later cora; this one reads {VERSION}"
            )
        if read_only:
            raise UserError(f"records: {self.path} holds no records")
        with self._transaction():
            # Another process may have done it while this one waited.
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()
            if version == 0 and tables:
                raise UserError(f"records: {self.path} is a database of something else")
            for script in MIGRATIONS[version:]:
                for statement in script.split(";"):
                    self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {VERSION}")


def steps_to_text(steps: Sequence[Step]) -> str:
    """Steps as JSON, as `Schedule.to_json` writes them."""
    return json.dumps([to_data(step) for step in steps])


def steps_from_text(text: str) -> tuple[Step, ...]:
    """The steps that `steps_to_text` wrote. Raises UserError if it did not."""
    try:
        data = json.loads(text)
        return tuple(from_data(step) for step in data)
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"records: no steps of a schedule: {error}") from error


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _nullable(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _quoted(path: Path) -> str:
    return quote(str(path.absolute()))
