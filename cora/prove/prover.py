"""The prover: interval reasoning, then the refuter, then Z3 (DESIGN: three outcomes, bounded, explained)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cora.errors import UserError
from cora.ir.expr import Expr
from cora.prove import smt
from cora.prove.context import Context, Method, Outcome, Proof
from cora.prove.interval import Interval
from cora.prove.logic import prepare
from cora.prove.refute import Refuter
from cora.settings import Settings


@dataclass(frozen=True, slots=True)
class Effort:
    """What one method did: how many goals it was asked, how many it settled, and its time in seconds."""

    queries: int = 0
    settled: int = 0
    seconds: float = 0.0


class Prover:
    """Proves goals about all batches. Answers are remembered; they do not depend on earlier questions."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._memo: dict[tuple[Expr, Context], Proof] = {}
        self._refuter = Refuter()
        self._efforts: dict[Method, Effort] = {}

    @property
    def statistics(self) -> dict[Method, Effort]:
        """The effort so far, by method."""
        return dict(self._efforts)

    def prove(self, goal: Expr, context: Context) -> Proof:
        """Whether the bool expression `goal` holds for every batch and every iteration of `context`.

        PROVED is certain. REFUTED comes with a counterexample. UNKNOWN says why. Raises UserError if the
        goal is not a bool expression.
        """
        key = goal, context
        proof = self._memo.get(key)
        if proof is None:
            if goal.dtype != "bool":
                raise UserError(f"prove: expected a condition; got {goal} of type {goal.dtype}")
            proof = self._memo[key] = self._prove(goal, context)
        return proof

    def follows(self, goal: Expr, context: Context) -> bool:
        """Whether `goal` follows from the bounds of its terms: what `prove` tries first, without the rest."""
        known = self._memo.get((goal, context))
        return known.proved if known is not None else self._by_bounds(*prepare(goal, context))

    def _by_bounds(self, question: Expr, context: Context) -> bool:
        with self._timed("interval"):
            proved = Interval(context).holds(question)
        if proved:
            self._settle("interval")
        return proved

    def _prove(self, goal: Expr, context: Context) -> Proof:
        question, prepared = prepare(goal, context)
        if self._by_bounds(question, prepared):
            return Proof(goal, Outcome.PROVED, "interval", "follows from the bounds of its terms")
        with self._timed("counterexample"):
            found = self._refuter.refute(question, prepared)
        if found is not None:
            self._settle("counterexample")
            return Proof(goal, Outcome.REFUTED, "counterexample", f"false for {found}")
        if self._settings.solver == "off":
            return Proof(goal, Outcome.UNKNOWN, "none", "the solver is switched off")
        with self._timed("z3"):
            proof = self._solve(goal, question, prepared)
        if proof.proved:
            self._settle("z3")
        return proof

    def _solve(self, goal: Expr, question: Expr, context: Context) -> Proof:
        limit = self._settings.solver_rlimit
        try:
            answer = smt.is_unsatisfiable(smt.script(question, context), limit)
        except ImportError:
            return Proof(goal, Outcome.UNKNOWN, "none", "Z3 is not installed (z3-solver)")
        match answer:
            case True:
                return Proof(goal, Outcome.PROVED, "z3", "follows from the facts")
            case False:
                return Proof(goal, Outcome.UNKNOWN, "z3", "does not follow from the facts")
            case None:
                return Proof(goal, Outcome.UNKNOWN, "z3", f"not decided within rlimit {limit}")

    @contextmanager
    def _timed(self, method: Method) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - begin
            old = self._efforts.get(method, Effort())
            self._efforts[method] = Effort(old.queries + 1, old.settled, old.seconds + seconds)

    def _settle(self, method: Method) -> None:
        old = self._efforts[method]
        self._efforts[method] = Effort(old.queries, old.settled + 1, old.seconds)
