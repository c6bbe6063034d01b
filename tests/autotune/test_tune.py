"""Tuning as a whole, with workers: planted faults, records, resuming, and the serving side."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import cora
from cora import tune as policy
from cora.autotune import Protocol, Records, TuningWarning, best_schedule, load_tuned, tune
from cora.autotune.batches import batch_of, hostile
from cora.autotune.protocol import Prepare, Setup, Shape
from cora.autotune.report import Report
from cora.autotune.spaces import DEFAULT
from cora.autotune.spaces.candidate import Candidate, ListedSpace, default_candidate, listed
from cora.autotune.worker import LocalWorker, WorkerDiedError
from cora.errors import UserError
from tests.autotune.programs import doubled

PLANTED = "tests.autotune.planted:build"
LENGTHS = [40, 7, 0, 19]
QUICK = Protocol(warmup_ms=0.0, min_sample_ms=0.05, build_limit_s=8.0)
BUDGET = policy.TuningBudget(
    candidates=30, samples=3, finalists=2, confirmation_samples=3, holdout_samples=3, search_samples=60
)
FAULTS = ("crashing", "hanging", "failing", "wrong", "outside", "late_soon", "late")


def space_of_lanes(output: cora.Tensor, *names: str) -> ListedSpace:
    """Candidates with these names, all with different lanes or splits, in this order."""
    schedules = {}
    for number, name in enumerate(names):
        s = cora.schedule(output).split(output, "pos", 128 + number)
        schedules[name] = s.vectorize(output, "pos_i", 8)
    return listed([output], schedules)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    """A run in which everything that may go wrong does."""
    output = doubled()
    space = space_of_lanes(output, *FAULTS, "good", "fine")
    twin = Candidate("twin", space.candidates[-1].steps)
    namesake = Candidate("good", space.candidates[-2].steps[:-1])
    space = ListedSpace((*space.candidates, twin, namesake), {})
    path = tmp_path_factory.mktemp("faulty") / "r.db"
    result = tune(
        output, [LENGTHS], budget_s=None, budget=BUDGET, db=path, space=space, search_by="random",
        protocol=QUICK, builder=PLANTED, threads=1, settings=cora.Settings(cache_dir=path.parent),
    )  # fmt: skip
    return path, result.report


def test_the_search_goes_on_past_every_fault(faulty: tuple[Path, Report]) -> None:
    _, report = faulty
    assert report.statuses == {
        "ok": 3, "crashed": 3, "timeout": 1, "failed": 1, "wrong": 2, "duplicate": 1,
    }  # fmt: skip
    assert report.winner in (DEFAULT, "good", "fine", "twin")


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("crashing", "crashed", "signal 11"),
        ("hanging", "timeout", "no answer within 8.0 s"),
        ("failing", "failed", "RuntimeError: planted"),
        ("wrong", "wrong", "instead of"),
        ("outside", "wrong", "outside the storage of O"),
        ("late_soon", "crashed", "exit status 7"),
        ("late", "crashed", "measuring: the process ended with exit status 7"),
        ("good", "ok", ""),
        ("fine", "ok", ""),
    ],
)
def test_each_fault_is_on_record_with_its_reason(
    faulty: tuple[Path, Report], name: str, status: str, reason: str
) -> None:
    with Records(faulty[0], read_only=True) as records:
        ((task, _, _),) = records.tasks()
        row = records.candidates(task.key)[name]
    assert row.status == status
    assert reason in row.reason


def test_twins_are_measured_once(faulty: tuple[Path, Report]) -> None:
    with Records(faulty[0], read_only=True) as records:
        ((task, _, _),) = records.tasks()
        rows = records.candidates(task.key)
    pair = {rows["fine"].status, rows["twin"].status}
    assert pair == {"ok", "duplicate"}


def test_only_the_default_may_be_left(tmp_path: Path) -> None:
    output = doubled()
    result = tune(
        output, [LENGTHS], budget_s=None, budget=BUDGET, space=space_of_lanes(output, "failing", "failing_too"),
        protocol=QUICK, builder=PLANTED, threads=1, settings=cora.Settings(cache_dir=tmp_path),
    )  # fmt: skip
    assert (result.report.winner, result.report.verdict) == (DEFAULT, "default")
    assert result.schedule == default_candidate([output]).schedule([output])
    assert str(result.policy) == "global:default"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Report]]:
    """Two runs over the same records."""
    output = doubled()
    path = tmp_path_factory.mktemp("tuned") / "r.db"
    reports = []
    for _ in range(2):
        result = tune(
            output, [LENGTHS, [300] * 5], budget_s=None, budget=BUDGET, db=path, protocol=QUICK, threads=2,
            space=space_of_lanes(output, "a", "b", "c"), settings=cora.Settings(cache_dir=path.parent),
        )  # fmt: skip
        reports += result.reports
        values = np.arange(66, dtype=np.float32)
        made = cora.build(result.schedule_for(LENGTHS), settings=cora.Settings(cache_dir=path.parent))
        np.testing.assert_array_equal(made(values, lens=LENGTHS).packed(), 2 * values)
    return path, reports


def test_each_length_class_has_its_report(tuned: tuple[Path, list[Report]]) -> None:
    _, reports = tuned
    assert [r.length_class for r in reports[:2]] == ["lens:c3t7m6s1", "lens:c3t11m9s3"]
    for report in reports:
        assert report.statuses == {"ok": 4}
        assert report.confirmed > 0
        assert report.holdout > 0
        assert report.holdout_shapes
        low, high = report.confirmed_interval
        assert low <= report.confirmed <= high
        assert Report.from_data(report.to_data()) == report
        for word in ("selected", "confirmed", "holdout", "shrinkage", report.winner, report.policy):
            assert word in str(report)


def test_the_second_run_resumes(tuned: tuple[Path, list[Report]]) -> None:
    _, (first, _, second, _) = tuned
    assert first.resumed == 0
    assert first.search_samples > 0
    assert second.resumed >= first.search_samples
    assert second.search_samples < first.search_samples
    assert second.confirmed > 0


def test_records_have_one_row_for_each_measurement(tuned: tuple[Path, list[Report]]) -> None:
    path, reports = tuned
    with Records(path, read_only=True) as records:
        assert sum(count for *_, count in records.tasks()) == sum(r.all_samples for r in reports)
        stages = {m.stage for task, *_ in records.tasks() for m in records.measurements(task.key)}
        assert stages == {"search", "confirm", "holdout"}
        assert {row.task.length_class for row in records.winners()} == {r.length_class for r in reports}


def test_serving_takes_the_class_or_the_nearest_or_the_default(tuned: tuple[Path, list[Report]]) -> None:
    path, reports = tuned
    output = doubled()
    found = load_tuned(path, output, threads=2)
    last = {r.length_class: r.winner for r in reports}
    for lengths in (LENGTHS, [300] * 5):
        candidate, why = found.choice(lengths)
        assert why.startswith("tuned for")
        assert "nearest" not in why
        assert candidate.id == last[why.removeprefix("tuned for ")]
    assert "the nearest to" in found.choice([30, 9, 3, 17])[1]
    candidate, why = found.choice([2**20] * 4000)
    assert (candidate.id, why[:22]) == (DEFAULT, "nothing was tuned near")
    assert best_schedule(path, output, LENGTHS, threads=2) == found.schedule(LENGTHS)


def test_disable_pin_and_print(
    tuned: tuple[Path, list[Report]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = tuned
    output = doubled()
    default = default_candidate([output]).schedule([output])
    assert best_schedule(path, output, LENGTHS, disable=True) == default
    pinned = best_schedule(path, output, LENGTHS, pin="b", printing=True)
    assert pinned.steps == space_of_lanes(output, "a", "b").candidates[2].steps
    assert "cora: O: b (pinned)" in capsys.readouterr().err
    monkeypatch.setenv("CORA_TUNE_PIN", "b")
    assert best_schedule(path, output, LENGTHS) == pinned
    assert best_schedule(path, output, LENGTHS, pin="a") != pinned
    monkeypatch.setenv("CORA_TUNE_DISABLE", "1")
    monkeypatch.setenv("CORA_TUNE_PRINT", "1")
    assert best_schedule(path, output, LENGTHS) == default
    assert "default" in capsys.readouterr().err
    monkeypatch.setenv("CORA_TUNE_DISABLE", "yes")
    with pytest.raises(UserError, match="must be 0 or 1"):
        best_schedule(path, output, LENGTHS)
    monkeypatch.setenv("CORA_TUNE_DISABLE", "0")
    with pytest.raises(UserError, match="no candidate 'zz'"):
        best_schedule(path, output, LENGTHS, pin="zz")


def test_a_candidate_that_failed_cannot_be_pinned(faulty: tuple[Path, Report]) -> None:
    with pytest.raises(UserError, match="cannot be pinned: wrong"):
        load_tuned(faulty[0], doubled(), pin="wrong")


def test_records_from_elsewhere_are_ignored_aloud(tuned: tuple[Path, list[Report]], tmp_path: Path) -> None:
    path, _ = tuned
    output = doubled()
    with pytest.warns(TuningWarning, match="with 2 threads, not 1"):
        found = load_tuned(path, output, threads=1)
    assert found.choice(LENGTHS)[0].id == DEFAULT
    exported, elsewhere = tmp_path / "e.json", tmp_path / "e.db"
    with Records(path) as records:
        records.export_json(exported)
    text = exported.read_text().replace('\\"cores\\": \\"', '\\"cores\\": \\"9')
    exported.write_text(text)
    with Records(elsewhere) as records:
        records.import_json(exported)
    with pytest.warns(TuningWarning, match="cores is"):
        found = load_tuned(elsewhere, output, threads=2)
    assert not found.winners
    with pytest.warns(TuningWarning, match="no records"):
        load_tuned(tmp_path / "missing.db", output)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not load_tuned(None, output).winners


def test_serving_builds_and_measures_nothing(
    tuned: tuple[Path, list[Report]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the serving path must not do this")

    for name in ("cora.runtime.build.build", "cora.autotune.timer.measure", "subprocess.Popen"):
        monkeypatch.setattr(name, refuse)
    path, _ = tuned
    before = path.stat().st_mtime_ns
    best_schedule(path, doubled(), LENGTHS, threads=2)
    assert path.stat().st_mtime_ns == before


def test_arguments_that_are_wrong() -> None:
    output = doubled()
    with pytest.raises(UserError, match="at least one batch"):
        tune(output, [])
    with pytest.raises(UserError, match="search_by"):
        tune(output, [LENGTHS], search_by="none")
    with pytest.raises(UserError, match="between 0 and"):
        tune(output, [[-1]])


def test_a_program_that_cannot_run_is_refused(tmp_path: Path) -> None:
    """The planted builder is not asked for the default: a program whose default schedule is refused is an error."""
    output = doubled()
    batch = batch_of([output], LENGTHS)
    setup = Setup(
        (output,), Candidate(DEFAULT, space_of_lanes(output, "x").candidates[1].steps * 2), hostile([output]),
        (Shape("a", batch),), 1, "llvm", cora.Settings(cache_dir=tmp_path), 10.0,
    )  # fmt: skip
    worker = LocalWorker(1)
    with pytest.raises(UserError, match=r"tune: .*split"):
        worker.start(setup)
    worker.close()


def test_a_worker_that_died_is_replaced(tmp_path: Path) -> None:
    output = doubled()
    default = default_candidate([output])
    setup = Setup(
        (output,), default, hostile([output])[:2], (Shape("a", batch_of([output], LENGTHS)),), 1, "llvm",
        cora.Settings(cache_dir=tmp_path), 10.0, PLANTED,
    )  # fmt: skip
    worker = LocalWorker(1)
    try:
        worker.start(setup)
        with pytest.raises(WorkerDiedError, match="signal 11"):
            worker.ask(Prepare(Candidate("crashing", default.steps)), 60.0)
        reply = worker.ask(Prepare(Candidate("good", default.steps)), 60.0)
        assert reply.id == "good"  # type: ignore[union-attr]
        assert worker.restarts == 1
    finally:
        worker.close()
