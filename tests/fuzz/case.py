"""One random case: a program, its schedule, batches, and the call that checks them, as the text of a program."""

from __future__ import annotations

from dataclasses import dataclass

from cora.ir.expr import Expr
from cora.schedule.default import default_schedule
from cora.schedule.schedule import Schedule, schedule
from tests.fuzz.batches import batch, sizes_in
from tests.fuzz.check import check
from tests.fuzz.choices import Choices
from tests.fuzz.dims import Dims
from tests.fuzz.operators import Operators
from tests.fuzz.program import Program
from tests.fuzz.schedules import Schedules

# What is documented of functions that are less accurate than others (cora.codegen.vecmath), against one epsilon of
# the argument for gelu and of the value for erf, which is what the error bounds of the interpreter count.
DOCUMENTED_ULPS = {"cora.gelu(": 16, "cora.erf(": 8}


@dataclass(frozen=True)
class Case:
    """A program with its check as the last line. `refused`: the steps that were illegal, with the reasons."""

    program: Program
    last: str
    refused: tuple[str, ...]

    @property
    def source(self) -> str:
        """A program that runs by itself, from the root of the repository."""
        return self.program.source(self.last)

    def run(self) -> None:
        """Check it; see `check`."""
        self.program.run(self.last, check)


def generate(choices: Choices, program: Program) -> Case:
    """A case; what has been made of it is in `program` if an exception ends this."""
    dims = Dims(choices, program, choices.pick([2, 1, 2, 3, 3, 4, 5]))
    operators = Operators(choices, program, dims)
    for _ in range(choices.pick([1, 1, 2, 2, 3])):
        operators.add()
    computed = operators.computed
    outputs = [t for t in computed[:-1] if choices.chance(30)] + [computed[-1]]
    names = ", ".join(t.name for t in outputs)
    refused: list[str] = []
    if choices.chance(25):
        scheduled = default_schedule(schedule(*outputs))
        first = f"[{names}]"
    else:
        steps = Schedules(choices, program, outputs)
        steps.add()
        scheduled, refused = steps.schedule, steps.refused
        first = "s"
    batches = _batches(choices, dims, scheduled)
    used = {t.name for t in scheduled.tensors}
    ranges = {name: end for name, end in operators.index_ranges.items() if name in used}
    arguments = [first, repr(batches), f"seed={choices.integer(0, 999)}"]
    arguments += [f"ranges={ranges}"] if ranges else []
    arguments += ["special=True"] if choices.chance(10) else []
    definition = "\n".join(program.lines)
    ulps = next((n for function, n in DOCUMENTED_ULPS.items() if function in definition), None)
    arguments += [f"ulps={ulps}"] if ulps else []
    return Case(program, f"check({', '.join(arguments)})", tuple(refused))


def _batches(choices: Choices, dims: Dims, s: Schedule) -> list[dict[str, int | list[int]]]:
    """Batches for the sizes and lengths of a program."""
    extents: list[Expr] = [d.extent for d in dims.known]
    sizes = sizes_in(extents)
    return [batch(choices, dims.lengths, sizes, s) for _ in range(choices.pick([2, 1, 3]))]
