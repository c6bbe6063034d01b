"""Measured values as rows, and the files they are kept in.

Every experiment writes `<out>/<experiment>.json` (the machine and the rows) and
`<out>/<experiment>.csv` (the rows, one a line). Plots and tables are made from
these files alone.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.machine import Machine, this_machine
from cora.errors import UserError

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value.

    Attributes:
        experiment: name of the experiment; also the name of its files.
        variant: what was measured, e.g. "cora" or "numpy".
        dataset: where the lengths come from; "" if there are none.
        batch_size: sequences in the batch; 0 if there is none.
        target: back end, e.g. "llvm".
        threads: threads used.
        metric: what `value` is, e.g. "median".
        value: the value, finite.
        unit: its unit, e.g. "ms"; "" for a plain ratio.

    Raises:
        UserError: a name is missing or unfit for a file, a number is negative where
            it cannot be, or the value is not finite.
    """

    experiment: str
    variant: str
    dataset: str
    batch_size: int
    target: str
    threads: int
    metric: str
    value: float
    unit: str

    def __post_init__(self) -> None:
        if not self.experiment.replace("_", "").replace("-", "").isalnum():
            raise UserError(f"Row: experiment must be letters, digits, '_' and '-', got {self.experiment!r}")
        for name, text in (("variant", self.variant), ("metric", self.metric)):
            if not text:
                raise UserError(f"Row: {name} must not be empty (experiment {self.experiment!r})")
        for name, number in (("batch_size", self.batch_size), ("threads", self.threads)):
            if number < 0:
                raise UserError(f"Row: {name} must be at least 0, got {number}")
        if not math.isfinite(self.value):
            raise UserError(f"Row: {self.metric} of {self.variant} must be finite, got {self.value}")


COLUMNS = tuple(field.name for field in fields(Row))


def write_results(out: str | Path, rows: Sequence[Row], machine: Machine | None = None) -> tuple[Path, Path]:
    """Write one experiment's rows, replacing the files of an earlier run.

    Each file is replaced at once: a reader sees the old rows or the new, never a part.

    Args:
        out: folder, made if it is missing.
        rows: at least one, all of the same experiment.
        machine: what they were measured on; this machine by default.

    Returns:
        The paths of the JSON file and of the CSV file.

    Raises:
        UserError: no rows, or rows of several experiments.
    """
    experiments = {row.experiment for row in rows}
    if len(experiments) != 1:
        raise UserError(
            f"write_results: expected rows of one experiment, got {sorted(experiments) or 'none'}"
        )
    machine = machine or this_machine()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / experiments.pop()
    json_path, csv_path = stem.with_suffix(".json"), stem.with_suffix(".csv")
    _replace(json_path, _as_json(rows, machine))
    _replace(csv_path, _as_csv(rows, machine))
    return json_path, csv_path


def _as_json(rows: Sequence[Row], machine: Machine) -> str:
    document = {
        "schema": SCHEMA,
        "machine": {
            "fingerprint": machine.fingerprint,
            **asdict(machine),
            "packages": dict(machine.packages),
        },
        "rows": [asdict(row) for row in rows],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _as_csv(rows: Sequence[Row], machine: Machine) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, "machine"))
    for row in rows:
        writer.writerow((*(getattr(row, name) for name in COLUMNS), machine.fingerprint))
    return text.getvalue()


def _replace(path: Path, text: str) -> None:
    """Write `text` beside `path`, then move it there in one step."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
    ) as file:
        temporary = Path(file.name)
        try:
            file.write(text)
            file.flush()
            temporary.chmod(0o644)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
