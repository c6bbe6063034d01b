"""Nothing that is proved is false: random goals in random loops, against evaluation on random batches."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from cora.ir.evaluate import Evaluator
from cora.ir.expr import Const, Dim, Expr, Var, binary, ceildiv, round_up, select, unary
from cora.ir.ufun import cuts, fusion_maps, maximum_over, scan
from cora.lang.define import lengths, size
from cora.prove import Context, Outcome, Prover, Range
from cora.settings import Settings

M, N = size("M"), size("N")
B = Dim("b", M)
LENS = lengths("lens", B)
I = Dim("i", LENS[B])  # noqa: E741
EXACT = scan((), B, LENS[B])
PADDED = scan((), B, round_up(LENS[B], 4))
FFO, FFI = fusion_maps(PADDED)
LONGEST = maximum_over((B,), LENS[B])
CUTS = cuts(PADDED, Const(3))
FO, FI, W, J = Var("fo"), Var("fi"), Var("w"), Var("j")

LOOPS = [
    (Range(B, M), Range(I, LENS[B])),
    (Range(B, M), Range(I, round_up(LENS[B], 2)), Range(J, I + 1)),
    (Range(FO, ceildiv(PADDED(M), 4)), Range(FI, Const(4))),
    (Range(FO, ceildiv(PADDED(M), 3)), Range(FI, Const(3))),
    (Range(W, Const(3)), Range(B, N), Range(J, binary("min", B + 1, 3))),
    (Range(B, M), Range(J, binary("max", LENS[B] - N, 0))),
]


class Goals:
    """Random conditions over the variables of a loop nest; comparisons are mostly close."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loops = self.random.choice(LOOPS)
        self.variables = [r.var for r in self.loops]

    def atom(self, depth: int) -> Expr:
        kind = self.random.randrange(16 if depth else 3)
        inner = self.term(depth - 1) if depth else Const(0)
        match kind:
            case 0 | 1:
                return self.random.choice(self.variables)
            case 2:
                return self.random.choice([M, N, Const(self.random.randrange(-2, 6))])
            case 3:
                return LENS[inner]
            case 4:
                return self.random.choice([EXACT, PADDED])(inner)
            case 5:
                return self.random.choice([FFO, FFI])(inner)
            case 6:
                return inner // self.random.choice([2, 3, 4])
            case 7:
                return inner % self.random.choice([2, 4])
            case 8:
                return binary(self.random.choice(["min", "max"]), inner, self.term(depth - 1))
            case 9:
                return select(self.condition(depth - 1), inner, self.term(depth - 1))
            case 10:
                return self.random.choice([LONGEST(), EXACT(M), PADDED(M), CUTS(inner)])
            case 11:
                return round_up(inner, self.random.choice([2, 4, 8]))
            case 12:
                return inner * self.term(depth - 1)
            case 13 | 14:
                divisor = binary("max", self.term(depth - 1), 1)
                return binary(self.random.choice(["floordiv", "mod"]), inner, divisor)
            case _:
                return unary("abs", inner)

    def term(self, depth: int) -> Expr:
        result = self.atom(depth)
        for _ in range(self.random.randrange(3)):
            op = self.random.choice(["add", "add", "sub", "mul"])
            other = Const(self.random.choice([2, 4])) if op == "mul" else self.atom(depth)
            result = binary(op, result, other)
        return result

    def condition(self, depth: int) -> Expr:
        match self.random.randrange(8):
            case 0:
                both = self.condition(max(depth - 1, 0)), self.condition(max(depth - 1, 0))
                return binary(self.random.choice(["and", "or"]), *both)
            case 1:
                return unary("not", self.condition(max(depth - 1, 0)))
            case 2:
                a = self.term(depth)
                return binary(self.random.choice(["eq", "ne"]), a, self.term(depth))
            case 3 | 4:  # a bound that often holds
                r = self.random.choice(self.loops)
                return r.var * 2 + self.term(0) <= 2 * r.end + self.term(0)
            case 5:
                a = self.term(depth)
                return a <= a + self.atom(depth)
            case _:
                return self.term(depth) <= self.term(depth) + self.random.randrange(4)


def batches() -> Iterator[Evaluator]:
    generator = random.Random(5)
    for count, n in ((0, 0), (1, 2), (2, 0), (3, 1), (3, 5), (4, 3)):
        for top in (1, 5, 9):
            values = [generator.randrange(top + 1) for _ in range(count)]
            yield Evaluator({"M": count, "N": n}, {"lens": values})


BATCHES = list(batches())


def iterations(
    batch: Evaluator, ranges: tuple[Range, ...], env: dict[Expr, int]
) -> Iterator[dict[Expr, int]]:
    if not ranges:
        yield dict(env)
        return
    first, *rest = ranges
    for value in range(batch.value(first.end, env)):
        yield from iterations(batch, tuple(rest), {**env, first.var: value})


def falsified(goal: Expr, context: Context) -> str | None:
    for batch in BATCHES:
        for env in iterations(batch, context.ranges, {}):
            if all(batch.value(a, env) for a in context.assumptions) and not batch.value(goal, env):
                return str(env)
    return None


def questions(seeds: range) -> Iterator[tuple[Expr, Context]]:
    for seed in seeds:
        goals = Goals(seed)
        assumptions = [goals.condition(goals.random.randrange(2)) for _ in range(goals.random.randrange(3))]
        yield goals.condition(2), Context(goals.loops, tuple(assumptions))


@pytest.mark.parametrize("solver", ["z3", "off"])
def test_what_is_proved_is_true(solver: str) -> None:
    """200 goals with every method, 400 with intervals and the refuter alone."""
    prover = Prover(Settings(solver="z3", solver_rlimit=20_000))
    seeds = range(200)
    if solver == "off":
        prover, seeds = Prover(Settings(solver="off")), range(1000, 1400)
    counts = dict.fromkeys(Outcome, 0)
    for goal, context in questions(seeds):
        proof = prover.prove(goal, context)
        counts[proof.outcome] += 1
        if proof.proved:
            wrong = falsified(goal, context)
            assert wrong is None, f"{proof} in {context} is false for {wrong}"
    assert counts[Outcome.PROVED] > len(seeds) // 6, counts
    assert counts[Outcome.REFUTED] > len(seeds) // 6, counts
