"""Every operator, under every schedule, on every batch, gives what the interpreter gives."""

from __future__ import annotations

from tests.operators.cases import CASES
from tests.operators.harness import Case, Kernels, check, every, work_of


@every(CASES)
def test_is_what_the_interpreter_computes(kernels: Kernels, case: Case, schedule: str) -> None:
    kernel = kernels.get(case, schedule)
    for number in range(len(case.batches)):
        work = work_of(case, number)
        try:
            check(case, kernel, work)
        except Exception as error:
            raise AssertionError(f"{case.name} under {schedule} on {work.batch}: {error}") from error
