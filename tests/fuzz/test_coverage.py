"""Random schedules contain every primitive, with every choice that it offers."""

from __future__ import annotations

import importlib.util
from typing import get_args

from cora.schedule.balance import BALANCES
from cora.schedule.steps import TAILS, HFuse, Parallel, Remap, RFactor, Split, Step
from tests.fuzz.case import generate
from tests.fuzz.choices import Choices, Seeded
from tests.fuzz.program import Program


def test_every_primitive_is_in_random_schedules() -> None:
    found: set[str] = set()
    tails: set[str] = set()
    choices: set[str] = set()
    wanted = {kind.__name__ for kind in get_args(Step)} - {
        "Bind",
        "Pipeline",
        "TensorCore",
        "Online",
    }  # these programs run on CPUs; those of test_online have a form of their own
    if importlib.util.find_spec("scipy_openblas32") is None:
        wanted -= {"Offload"}
    for number in range(600):
        program = Program()
        generate(Choices(Seeded(f"coverage:{number}")), program)
        s = program.named("s")
        for step in getattr(s, "steps", ()):
            found.add(type(step).__name__)
            match step:
                case Split(tail=tail):
                    tails.add(tail)
                case Parallel(balance=choice) | Remap(policy=choice) | RFactor(unit=choice):
                    choices.add(choice)
                case HFuse(depth=depth) if depth:
                    choices.add("depth")
        if found >= wanted and tails >= set(TAILS) and number > 200:
            break
    assert wanted <= found, wanted - found
    assert tails == set(TAILS)
    assert choices >= {*BALANCES, "descending", "reversed", "given", "factor", "parts", "depth"}
