"""The data of a tuning run refuses what makes no sense."""

from __future__ import annotations

import math
import pickle
from dataclasses import fields, replace

import pytest

from cora.errors import UserError
from cora.tune import (
    BuildEvent,
    BuiltCandidate,
    CandidateSpace,
    GlobalPolicy,
    HoldoutPlan,
    RejectedCandidate,
    Score,
    TuningBudget,
    TuningObjective,
)

BUDGET = TuningBudget(candidates=50, samples=3, finalists=5, confirmation_samples=9, holdout_samples=9)


@pytest.mark.parametrize("name", [field.name for field in fields(TuningBudget)])
@pytest.mark.parametrize("value", [-1, math.nan])
def test_a_budget_is_not_negative(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"TuningBudget: {name}: expected a number >= 0"):
        replace(BUDGET, **{name: value})


def test_a_budget_may_be_nothing() -> None:
    assert TuningBudget(0, 0, 0, 0, 0, 0.0).confirmation_samples == 0


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_the_threshold_of_an_objective(value: float) -> None:
    with pytest.raises(UserError, match="threshold_percent: expected a finite number >= 0"):
        TuningObjective(threshold_percent=value)


@pytest.mark.parametrize(
    ("tuning", "holdout", "message"),
    [
        ((), ("a",), "tuning: expected different shapes, at least one"),
        (("a",), (), "holdout: expected different shapes, at least one"),
        (("a", "a"), ("b",), "tuning: expected different shapes"),
        (("a",), ("b", "b"), "holdout: expected different shapes"),
        (("a", "b"), ("c", "b"), r"shapes that do not select, got \['b'\] in both"),
    ],
)
def test_a_holdout_does_not_select(tuning: tuple[str, ...], holdout: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        HoldoutPlan(tuning, holdout)


@pytest.mark.parametrize(
    "value",
    [
        BUDGET,
        TuningObjective(),
        HoldoutPlan(("a",), ("b",)),
        BuiltCandidate("a", ("kernel", 1)),
        RejectedCandidate("a", "crash"),
        BuildEvent(0, "a"),
        Score(1.0, 2.0, "a"),
        GlobalPolicy("a"),
        CandidateSpace((RejectedCandidate("a", "crash"), RejectedCandidate("b", "crash")), {"a": ("b",)}),
    ],
)
def test_values_go_to_other_processes(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert isinstance(hash(value), int)
