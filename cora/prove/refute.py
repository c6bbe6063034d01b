"""The refuter: evaluates a goal on a few small, hostile batches. One counterexample settles it.

Which batches and which iterations is decided by the functions, sizes and constants in the question
alone, so the answer is the same every time. Lengths are taken around the constants c that occur
(c - 1, c, c + 1): there round-ups and tails go wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice

from cora.errors import UserError
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Call, Const, Dim, Expr, Size, Var
from cora.ir.ufun import (
    Cuts,
    Descending,
    FusedInner,
    FusedOuter,
    Given,
    Lists,
    Maximum,
    Owners,
    Scan,
    Starts,
    UFun,
)
from cora.ir.visit import walk
from cora.prove.context import Context

_POINTS = 40  # iterations tried for each batch
_SMALL = (3, 0, 5, 1, 0, 2, 7)  # lengths that need no reason
_SIZES = (3, 4, 1, 3, 2, 4, 0, 3)  # values of run-time sizes, by batch
_LARGEST_SIZE = 260
_MOST_LENGTHS = 2000  # a batch with a longer array is left out
_MOST_TERMS = 1000  # of sums and maxima, in each batch: what needs more says nothing
_LARGEST_CONSTANT = 4096  # larger ones suggest no lengths: tables would become long


@dataclass(frozen=True, slots=True)
class _Question:
    """What a question depends on, each in order of first occurrence."""

    given: tuple[UFun, ...]
    sizes: tuple[str, ...]
    constants: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Batch:
    text: str
    evaluator: Evaluator


class Refuter:
    """Searches for counterexamples. Batches, and what was computed for them, are remembered."""

    def __init__(self) -> None:
        self._batches: dict[_Question, list[_Batch]] = {}
        self._reached: dict[UFun, tuple[Expr, ...]] = {}

    def refute(self, goal: Expr, context: Context) -> str | None:
        """A batch and an iteration for which `goal` is false: "lens=[3, 0, 5], M=3, b=0, i=3"."""
        exprs = [goal, *(r.end for r in context.ranges), *context.assumptions]
        question = self._question(exprs)
        bound = {r.var for r in context.ranges}
        free: list[Expr] = [
            e
            for e in dict.fromkeys(n for e in exprs for n in walk(e))
            if isinstance(e, (Var, Dim)) and e not in bound
        ]
        batches = self._batches.get(question)
        if batches is None:
            batches = self._batches[question] = list(_make_batches(question))
        for number, batch in enumerate(batches):
            found = _attempt(batch, goal, context, free, question.constants, number)
            if found is not None:
                return found
        return None

    def _question(self, exprs: list[Expr]) -> _Question:
        given: dict[UFun, None] = {}
        sizes: dict[str, None] = {}
        constants: dict[int, None] = {}
        seen: set[UFun] = set()

        def visit(e: Expr) -> None:
            for node in walk(e):
                match node:
                    case Call(fun=fun) if fun not in seen:
                        seen.add(fun)
                        for part in self._parts(fun):
                            visit(part)
                        if isinstance(fun.definition, Given):
                            given.setdefault(fun)
                    case Size(name=name):
                        sizes.setdefault(name)
                    case Const(value=v, type="int64" | "int32"):
                        if 2 <= abs(v) <= _LARGEST_CONSTANT:
                            constants.setdefault(int(abs(v)))

        for e in exprs:
            visit(e)
        return _Question(tuple(given), tuple(sizes), tuple(constants))

    def _parts(self, fun: UFun) -> tuple[Expr, ...]:
        """The expressions that the values of `fun` depend on."""
        found = self._reached.get(fun)
        if found is None:
            extents = tuple(d.extent for d in fun.domain)
            match fun.definition:
                case Given():
                    found = extents
                case Scan(index=index, body=body):
                    found = (*extents, index.extent, body)
                case FusedOuter(offset=offset) | FusedInner(offset=offset):
                    found = (*extents, *self._parts(offset))
                case Maximum(over=over, body=body):
                    found = (*extents, *(d.extent for d in over), body)
                case Cuts(cost=cost, parts=parts):
                    found = (*extents, parts, *self._parts(cost))
                case Descending(cost=inner) | Starts(owners=inner) | Lists(owners=inner):
                    found = (*extents, *self._parts(inner))
                case Owners(order=order, parts=parts):
                    found = (*extents, parts, *self._parts(order))
            self._reached[fun] = found
        return found


def _make_batches(question: _Question) -> Iterator[_Batch]:
    """Batches for all functions and sizes of a question; given functions come after those they use."""
    edges = _edges(question.constants)
    small = cycle(_SMALL)
    sharp = cycle(edges or _SMALL)
    choices = [tuple(_SIZES[i:] + _SIZES[:i]) for i in range(len(_SIZES))]
    large = [v for v in edges if v <= _LARGEST_SIZE]
    if question.sizes and large:
        choices += [(max(large),), (large[0],)]
    for number, choice in enumerate(choices):
        sizes = {name: choice[j % len(choice)] for j, name in enumerate(question.sizes)}
        lengths: dict[str, list[int]] = {}
        for fun in question.given:
            points = Evaluator(sizes, lengths).points(fun.domain)
            count = sum(1 for _ in islice(points, _MOST_LENGTHS + 1))
            if count > _MOST_LENGTHS:
                break
            if fun.definition == Given(permutation=True):
                lengths[fun.name] = list(reversed(range(count)))
            else:
                lengths[fun.name] = list(islice(sharp if number % 2 else small, count))
        else:
            text = [f"{name}={values}" for name, values in lengths.items()]
            text += [f"{name}={value}" for name, value in sizes.items()]
            yield _Batch(", ".join(text), Evaluator(sizes, lengths, _MOST_TERMS))
        if not question.given and not question.sizes:
            return


def _edges(constants: tuple[int, ...]) -> tuple[int, ...]:
    """Values around the constants of a question."""
    return tuple(dict.fromkeys(v for c in constants[:8] for v in (c + 1, c, c - 1)))


def _attempt(
    batch: _Batch,
    goal: Expr,
    context: Context,
    free: list[Expr],
    constants: tuple[int, ...],
    seed: int,
) -> str | None:
    """Evaluate `goal` at some iterations of `batch`: the last ones, the first ones, then mixed."""
    unbound = [0, 1, 2, 3, -1, 5, *_edges(constants)]
    random = seed * 7919 + 12345
    value = batch.evaluator.value
    fruitless = 0
    for point in range(_POINTS):
        env: dict[Expr, int] = {}
        try:
            for e in free:
                random = (random * 1103515245 + 12345) % 2147483648
                choices = [0, 1] if e.dtype == "bool" else unbound
                env[e] = choices[(random >> 16) % len(choices)]
            for r in context.ranges:
                n = int(value(r.end, env))
                if n <= 0:
                    break
                random = (random * 1103515245 + 12345) % 2147483648
                env[r.var] = _pick(n, point, random >> 16)
            else:
                if value(goal, env):  # says nothing, whether the assumptions hold or not
                    continue
                if all(value(a, env) for a in context.assumptions):
                    return _describe(batch, env)
        except UserError:  # a division by zero: this point says nothing
            pass
        fruitless += 1
        if fruitless > _POINTS // 2 and fruitless == point + 1:
            return None
    return None


def _pick(n: int, point: int, random: int) -> int:
    """An iteration of 0..n-1: mostly near the ends."""
    match point:
        case 0:
            return n - 1
        case 1:
            return 0
        case _:
            edge = random // 8 % min(n, 3)
            return (n - 1 - edge, edge, random // 8 % n)[random % 3]


def _describe(batch: _Batch, env: dict[Expr, int]) -> str:
    text = [batch.text] if batch.text else []
    return ", ".join([*text, *(f"{var}={value}" for var, value in env.items())])
