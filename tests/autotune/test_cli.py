"""The command line: tune, records, and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cora.autotune.catalogue import find, names
from cora.autotune.spaces.generic import generic_space
from cora.cli.app import application, main
from cora.errors import UserError

TUNE = [
    "tune", "tests.autotune.planted:program", "--budget-s", "6", "--candidates", "4",
    "--samples", "12", "--threads", "1",
]  # fmt: skip


def run(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(
        application(), list(arguments), catch_exceptions=False, prog_name="cora"
    )
    assert result.exit_code == 0, result.output
    return result.output


def test_help_lists_the_subcommands() -> None:
    text = run("--help")
    for name in ("tune", "records", "serve"):
        assert name in text
        assert "--help" in run(name, "--help")


def test_tune_and_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    db, exported = tmp_path / "out" / "r.db", tmp_path / "r.json"
    text = run(*TUNE, "--db", str(db), "--plot", str(tmp_path / "costs.png"))
    for word in ("winner", "selected", "confirmed", "holdout", "schedule(O)"):
        assert word in text
    assert (tmp_path / "costs.png").read_bytes().startswith(b"\x89PNG")
    text = run(
        "records",
        str(db),
        "--export",
        str(exported),
        "--reports",
        "--failures",
        "--plot",
        str(tmp_path / "p"),
    )
    assert "program" in text
    assert "shrinkage" in text or "not measured" in text
    assert list((tmp_path / "p").glob("program-*.png"))
    document = json.loads(exported.read_text())
    assert document["measurements"]
    other = tmp_path / "other.db"
    text = run("records", str(other), "--import", str(exported))
    assert f"imported {len(document['measurements'])} measurements" in text.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune", "nothing"], "no operator 'nothing'; there are attention, trmm, vgemm"),
        (["tune", "no.such.module:f"], "cannot import 'no.such.module'"),
        (["tune", "tests.autotune.planted:nothing"], "no function 'nothing'"),
        (["tune", "vgemm", "--batch", "{"], "expected a batch as JSON"),
        (["tune", "vgemm", "--batch", '{"m": [1]}'], "must have"),
        (["tune", "vgemm", "--plot", "x.png"], "give --db"),
        (["records", "missing.db"], "no file missing.db"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["cora", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert message in capsys.readouterr().err


def test_every_entry_of_the_catalogue_can_be_tuned() -> None:
    for name in names():
        entry = find(name)
        assert entry.batches
        assert len(generic_space(entry.outputs, 12).candidates) == 12


def test_batches_are_made_up_for_programs_without() -> None:
    entry = find("tests.autotune.programs:gathered")
    (batch,) = entry.batches
    assert set(batch) == {"lens", "V"}
    with pytest.raises(UserError, match="several dims"):
        find("tests.autotune.programs:nested")
