"""Every operator, under every schedule, on every batch, gives what the interpreter gives."""

from __future__ import annotations

from tests.operators.cases import CASES
from tests.operators.harness import Case, check, every, kernel_of, work_of


@every(CASES)
def test_is_what_the_interpreter_computes(case: Case, schedule: str) -> None:
    kernel = kernel_of(case, schedule)
    for number in range(len(case.batches)):
        work = work_of(case, number)
        try:
            check(case, kernel, work)
        except Exception as error:
            raise AssertionError(f"{case.name} under {schedule} on {work.batch}: {error}") from error
