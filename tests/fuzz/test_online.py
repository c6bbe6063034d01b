"""Random programs in which a maximum may run along with sums: the general ones do not have this form."""

from __future__ import annotations

import pytest

from cora.schedule.online_step import Online
from tests.fuzz.batches import batch
from tests.fuzz.check import RefusedError, check
from tests.fuzz.choices import Choices, Seeded
from tests.fuzz.program import Program
from tests.fuzz.schedules import FACTORS, Schedules

CONDITIONS = ["", "c < r * 3 + 1", "(c < r * 4 + 2) & (r * 4 < c + 5)", "c % 3 < r", "c < 0"]


def generate(choices: Choices, program: Program) -> Schedules:
    """A weighted sum, its total beside it or not, in one pass, and random steps on all of its operators."""
    program.assign("batch", 'cora.Dim("batch", cora.size("M"))')
    program.assign("lens", 'cora.lengths("lens", batch)')
    program.assign("r", choices.pick(['cora.Dim("r", 3)', 'cora.Dim("r", lens[batch])']))
    program.assign("c", choices.pick(['cora.Dim("c", lens[batch])', 'cora.Dim("c", lens[batch] + r)']))
    program.assign("e", f'cora.Dim("e", {choices.pick([2, 1, 5])})')
    program.assign("X", 'cora.placeholder("X", [batch, r, c])')
    program.assign("V", 'cora.placeholder("V", [batch, r, c, e])')
    seen, scale = choices.pick(CONDITIONS), choices.pick(["", " * 0.5", " * 2.0"])
    program.assign(
        "top", f'cora.compute("top", [batch, r], cora.max({_where(seen, "X[batch, r, c]", "-inf")}, over=c))'
    )
    shift = "cora.where(top[batch, r] > -inf, top[batch, r], 0.0)"
    weight = _where(seen, f"cora.exp(X[batch, r, c]{scale} - {shift}{scale})", "0.0")
    program.assign("w", f'cora.compute("w", [batch, r, c], {weight})')
    program.assign("total", 'cora.compute("total", [batch, r], cora.sum(w[batch, r, c], over=c))')
    sums = choices.pick([', "total"', ', "total"', ""])
    result = " / cora.maximum(total[batch, r], 0.25)" if sums else ""
    program.assign(
        "R", f'cora.compute("R", [batch, r, e], cora.sum(V[batch, r, c, e] * w[batch, r, c], over=c){result})'
    )
    steps = Schedules(choices, program, [program.named("R")])
    inlined = choices.chance(30)
    if inlined:
        steps.step('inline("w")')
    how = choices.pick([str(choices.pick(FACTORS)), f'{choices.pick(FACTORS)}, tail="peel"', "parts=3"])
    steps.step(f'split("R", "c", {how}, names=("co", "ci"))')
    if choices.chance(40):
        steps.step(f'split("R", "r", {choices.pick(FACTORS)}, names=("ro", "ri"))')
    inside = [leaf.name for leaf in steps.schedule.nest("R").leaves if leaf.name in ("r", "ri", "e")]
    order = choices.shuffled([*choices.subset(inside, 60), "ci"])
    if choices.chance(60):
        names = ", ".join(f'"{name}"' for name in ("co", *order))
        steps.step(f'reorder("R", {names})')
    steps.step(f'online("R", "co", "top"{sums})')
    if not inlined:
        steps.step('compute_at("w", "R", "co")')
    for nest in [n for n in steps.schedule.nests if n.name != "R"]:
        if choices.chance(40):
            steps.step(f'set_scope("{nest.name}", "scratch")')
    steps.steps_of([n.name for n in steps.schedule.nests])
    return steps


def _where(seen: str, value: str, other: str) -> str:
    return f"cora.where({seen}, {value}, {other})" if seen else value


@pytest.mark.parametrize("part", range(4))
def test_random_schedules(part: int) -> None:
    matched = 0
    for number in range(8):
        choices, program = Choices(Seeded(f"online:{part}:{number}")), Program()
        s = generate(choices, program).schedule
        if not any(isinstance(step, Online) for step in s.steps):
            continue  # refused: where blocks begin depends on rows inside
        batches = [batch(choices, {"lens": program.named("lens")}, ["M"], s) for _ in range(2)]
        try:
            check(s, batches, seed=number, special=choices.chance(20), ulps=8)
        except RefusedError:
            continue
        except Exception as error:
            raise AssertionError(
                f"{error}\n{program.source(f'check(s, {batches}, seed={number})')}"
            ) from error
        matched += 1
    assert matched >= 3
