"""Guards: conditions that must hold where an access happens, each removed on proof or kept and explained."""

from __future__ import annotations

from cora.ir.expr import FALSE, Const, Expr
from cora.ir.simplify import Simplifier
from cora.lower.records import Guard
from cora.prove import Context, Outcome, Proof, Prover
from cora.settings import Settings


class Guards:
    """Decides about guards for one build, and records the decisions."""

    def __init__(self, prover: Prover, settings: Settings) -> None:
        self.prover = prover
        self.keep_all = settings.guards == "keep"
        self.records: dict[tuple[str, str, str], Guard] = {}

    def proof(self, goal: Expr, context: Context) -> Proof:
        """What the prover says of `goal`."""
        return self.prover.prove(goal, context)

    def needed(
        self, goal: Expr, context: Context, simplifier: Simplifier, operator: str, where: str
    ) -> Expr | None:
        """`goal`, simplified, if it must be checked at run time; None if it always holds."""
        condition = simplifier(goal)
        if self.keep_all:
            self._record(operator, where, goal, True, "settings", "every guard is kept")
            return goal
        if condition == Const(True, "bool"):
            if goal != condition:
                self._record(operator, where, goal, False, "bounds", "constant bounds")
            return None
        proof = self.proof(condition, context)
        kept = proof.outcome is not Outcome.PROVED
        self._record(operator, where, condition, kept, proof.method, proof.reason)
        if condition == FALSE:
            return goal  # its variables say which loops it belongs to
        return condition if kept else None

    def _record(
        self, operator: str, where: str, condition: Expr, kept: bool, method: str, reason: str
    ) -> None:
        text = str(condition)
        self.records.setdefault((operator, where, text), Guard(operator, where, text, kept, method, reason))
