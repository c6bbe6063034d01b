"""Random sizes and lengths, mostly hostile: empty, one, equal to, below and above what schedules split by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from cora.ir.evaluate import Evaluator
from cora.ir.expr import Expr, Size
from cora.ir.visit import walk
from cora.lang.check import reductions_of
from cora.lang.define import Lengths
from cora.schedule.schedule import Schedule
from tests.fuzz.choices import Choices

Batch = dict[str, "int | list[int]"]

LONGEST = [40, 17, 9, 5, 3, 1]
EDGES = [3, 0, 1, 2, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40]
MAX_LENGTHS = 200
MAX_POINTS = 2000
MAX_STORED = 50_000


def batch(choices: Choices, lengths: Mapping[str, Lengths], sizes: Sequence[str], s: Schedule) -> Batch:
    """Sizes and lengths by name, small enough to enumerate the loops and to hold the storage of `s`."""
    for longest in LONGEST:
        found = _draw(choices, lengths, sizes, longest)
        if found is not None and _affordable(found, s):
            return found
    return _zeros(lengths, sizes)  # constant extents may still make it large: that is what was asked for


def evaluator_of(found: Batch) -> Evaluator:
    """The values of expressions on a batch."""
    return Evaluator(
        {name: v for name, v in found.items() if isinstance(v, int)},
        {name: v for name, v in found.items() if isinstance(v, list)},
    )


def _draw(
    choices: Choices, lengths: Mapping[str, Lengths], sizes: Sequence[str], longest: int
) -> Batch | None:
    values = [v for v in EDGES if v <= longest]
    small = [v for v in (3, 2, 1, 4, 0, 5, 6) if v <= longest]
    found: Batch = {name: choices.pick(small) for name in sizes}
    for name, lens in lengths.items():
        evaluator = evaluator_of(found)
        count = sum(1 for _ in islice(evaluator.points(lens.dims), MAX_LENGTHS + 1))
        if count > MAX_LENGTHS:
            return None
        match choices.pick(["mixed", "mixed", "equal", "giant", "zeros"]):
            case "mixed":
                row = [choices.pick(values) for _ in range(count)]
            case "equal":
                row = [choices.pick(values)] * count
            case "giant":
                row = [1] * count
                if count:
                    row[choices.integer(0, count - 1)] = longest
            case _:
                row = [0] * count
        found[name] = [min(v, longest) for v in row]
    return found


def _zeros(lengths: Mapping[str, Lengths], sizes: Sequence[str]) -> Batch:
    found: Batch = dict.fromkeys(sizes, 0)
    for name, lens in lengths.items():
        found[name] = [0 for _ in evaluator_of(found).points(lens.dims)]
    return found


def _affordable(found: Batch, s: Schedule) -> bool:
    evaluator = evaluator_of(found)
    for tensor in s.tensors:
        if evaluator.value(s.layout(tensor).size()) > MAX_STORED:
            return False
        if tensor.body is not None:
            over = [d for r in reductions_of(tensor.body)[:1] for d in r.over]
            points = evaluator.points([*tensor.dims, *over])
            if sum(1 for _ in islice(points, MAX_POINTS + 1)) > MAX_POINTS:
                return False
    return True


def sizes_in(exprs: Sequence[Expr]) -> list[str]:
    """The names of the sizes in some expressions, in order of first occurrence."""
    return list(dict.fromkeys(n.name for e in exprs for n in walk(e) if isinstance(n, Size)))
