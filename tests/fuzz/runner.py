"""Runs seeded cases in worker processes, so that a crash or a hang of native code is one more kind of mismatch."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.case import generate
from tests.fuzz.check import RefusedError
from tests.fuzz.choices import Choices, Seeded
from tests.fuzz.program import Program

SECONDS_PER_CASE = 600  # a case takes seconds of processor time at most, but the machine may be busy


@dataclass(frozen=True)
class Result:
    """What became of one case; `detail` is the error, or the reason of the refusal."""

    number: int
    outcome: str  # "match", "refused" (by build), "mismatch"
    detail: str
    source: str
    steps_refused: int
    seconds: float


@dataclass
class Summary:
    """The counts of a run."""

    cases: int = 0
    mismatches: int = 0
    builds_refused: int = 0
    steps_refused: int = 0
    seconds: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        """Count one result."""
        self.cases += 1
        self.mismatches += result.outcome == "mismatch"
        self.builds_refused += result.outcome == "refused"
        self.steps_refused += result.steps_refused

    def __str__(self) -> str:
        return (
            f"{self.cases} cases, {self.mismatches} mismatches ({self.builds_refused} schedules refused by build, "
            f"{self.steps_refused} steps refused; {self.cases / max(self.seconds, 1e-9):.2f} cases/s)"
        )


def run_case(seed: int, number: int) -> Result:
    """Case `number` of a seed, in this process."""
    program = Program()
    start = time.monotonic()
    source, steps, outcome, detail = "", 0, "match", ""
    try:
        case = generate(Choices(Seeded(f"{seed}:{number}")), program)
        source, steps = case.source, len(case.refused)
        case.run()
    except RefusedError as refusal:
        outcome, detail = "refused", str(refusal)
    except Exception:  # noqa: BLE001  (any other exception is what the fuzzer looks for)
        outcome, detail = "mismatch", traceback.format_exc()
    return Result(number, outcome, detail, source or program.source(), steps, time.monotonic() - start)


def run_many(
    seed: int, numbers: Iterator[int], jobs: int, deadline: float | None, report: Callable[[Result], None]
) -> Summary:
    """The cases `numbers` on `jobs` worker processes, until the deadline (time.monotonic); calls `report` for each."""
    summary = Summary()
    lock = threading.Lock()
    start = time.monotonic()

    def work() -> None:
        worker = Worker(seed)
        try:
            while deadline is None or time.monotonic() < deadline:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                result = worker.run(number)
                with lock:
                    summary.add(result)
                    report(result)
        finally:
            worker.stop()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    summary.seconds = time.monotonic() - start
    return summary


class Worker:
    """A process that runs one case after another; replaced where a case ends it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._process: subprocess.Popen[str] | None = None

    def run(self, number: int) -> Result:
        """Run a case; a process that dies or takes too long makes a mismatch."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        start = time.monotonic()
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], SECONDS_PER_CASE)
        line = process.stdout.readline() if ready else ""
        if line:
            return Result(**json.loads(line))
        self.stop()
        code = process.returncode
        detail = f"the process ended with code {code}" if ready else f"no result in {SECONDS_PER_CASE} s"
        return Result(number, "mismatch", detail, self._source(number), 0, time.monotonic() - start)

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.kill()
            self._process.wait()
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-X",
                    "faulthandler",
                    "-m",
                    "tests.fuzz",
                    "--seed",
                    str(self._seed),
                    "--worker",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._process

    def _source(self, number: int) -> str:
        program = Program()
        try:
            return generate(Choices(Seeded(f"{self._seed}:{number}")), program).source
        except Exception:  # noqa: BLE001  (the source so far is what is wanted)
            return program.source()


def serve(seed: int) -> None:
    """The worker: case numbers come on standard input, results go to standard output, a line of JSON each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what native code prints must not get between the answers
    for line in sys.stdin:
        result: dict[str, Any] = vars(run_case(seed, int(line)))
        answers.write(json.dumps(result) + "\n")
        answers.flush()
