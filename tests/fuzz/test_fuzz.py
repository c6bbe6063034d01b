"""A fixed set of random cases: `make fuzz` runs more."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from tests.fuzz.case import Case, generate
from tests.fuzz.check import RefusedError
from tests.fuzz.choices import Choices, Drawn, Seeded
from tests.fuzz.program import Program
from tests.fuzz.runner import run_case

# Reproducible: no database of failures, no clock. A case takes a fraction of a second, most of it compilation.
FIXED = settings(
    max_examples=25,
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Cases that hypothesis can shrink; an exception while one is made carries the program so far."""
    program = Program()
    try:
        return generate(Choices(Drawn(draw)), program)
    except Exception as error:
        if type(error).__module__.startswith("hypothesis"):
            raise
        raise AssertionError(f"{error}\n\n{program.source()}") from error


def run(case: Case) -> None:
    """Check a case; a schedule that cannot be built is no failure."""
    note(case.source)
    try:
        case.run()
    except RefusedError as refusal:
        note(f"refused: {refusal}")


@pytest.mark.parametrize("number", range(4))
def test_random_programs(number: int) -> None:
    @seed(number)
    @FIXED
    @given(cases())
    def check(case: Case) -> None:
        run(case)

    check()


@pytest.mark.parametrize("number", range(40))
def test_seeded_programs(number: int) -> None:
    result = run_case(0, number)
    assert result.outcome in ("match", "refused"), f"{result.source}\n{result.detail}"


def test_cases_follow_from_their_seed() -> None:
    first, second = (generate(Choices(Seeded("7:3")), Program()) for _ in range(2))
    assert first.source == second.source
    assert first.source != generate(Choices(Seeded("7:4")), Program()).source


def test_a_source_is_a_program() -> None:
    number = next(n for n in range(20) if run_case(7, n).outcome == "match")
    case = generate(Choices(Seeded(f"7:{number}")), Program())
    done = subprocess.run([sys.executable, "-c", case.source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_line() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--cases", "3", "--seed", "1", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("3 cases, 0 mismatches (")
