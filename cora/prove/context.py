"""What a proof is about: a goal, the loops around it, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from cora.ir.expr import Expr
from cora.ir.node import Node

Method = Literal["interval", "counterexample", "z3", "none"]


@dataclass(frozen=True, slots=True, eq=False)
class Range(Node):
    """`0 <= var < end` for a Var or a Dim; `end` may use the variables of the ranges before it."""

    var: Expr
    end: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Context(Node):
    """Where a goal must hold: for all values in `ranges` (outermost first) that meet all `assumptions`."""

    ranges: tuple[Range, ...] = ()
    assumptions: tuple[Expr, ...] = ()


class Outcome(Enum):
    """How a proof ended. Only PROVED may change the code that is generated."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Proof:
    """The end of a proof: `reason` says, for people, by which argument or at which counterexample."""

    goal: Expr
    outcome: Outcome
    method: Method
    reason: str

    @property
    def proved(self) -> bool:
        """Whether the goal holds on every batch."""
        return self.outcome is Outcome.PROVED
