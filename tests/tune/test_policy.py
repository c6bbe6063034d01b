"""Policies as text and back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cora.errors import UserError
from cora.tune import (
    DeploymentPolicy,
    GlobalPolicy,
    ParetoPolicy,
    PerShapePolicy,
    Score,
    pareto_frontier,
    parse_policy,
)
from tests.tune.strategies import ids, steady, usable_scores

names = st.one_of(ids, st.text(min_size=1, max_size=5))


@st.composite
def policies(draw: st.DrawFn) -> DeploymentPolicy:
    """Any policy, with separators and escapes inside names."""
    match draw(st.sampled_from(["global", "shape", "pareto"])):
        case "global":
            return GlobalPolicy(draw(names))
        case "shape":
            winners = draw(st.dictionaries(names, names, max_size=4))
            other = draw(st.one_of(st.none(), names)) if winners else draw(names)
            return PerShapePolicy(tuple(winners.items()), other)
        case _:
            chosen = draw(st.lists(names, unique=True, min_size=1, max_size=4))
            values = [draw(st.floats(allow_nan=False, allow_infinity=False)) for _ in chosen]
            return ParetoPolicy(tuple(zip(chosen, sorted(values, reverse=True), strict=True)))


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (GlobalPolicy("tile=32,unroll=4"), "global:tile=32,unroll=4"),
        (GlobalPolicy("global:%"), "global:global:%"),
        (PerShapePolicy((("s2", "b"), ("s1", "a"))), "per-shape:s1=a,s2=b"),
        (PerShapePolicy((("*", "t=1,u=2"),), "50%"), "per-shape:%2A=t%3D1%2Cu%3D2,*=50%25"),
        (PerShapePolicy((), "a"), "per-shape:*=a"),
        (ParetoPolicy((("a", 4096), ("b,c", 0.5))), "pareto:a=4096.0,b%2Cc=0.5"),
    ],
)
def test_text(policy: DeploymentPolicy, text: str) -> None:
    assert str(policy) == text
    assert parse_policy(text) == policy


@steady
@given(policies())
def test_round_trip(policy: DeploymentPolicy) -> None:
    assert parse_policy(str(policy)) == policy
    assert str(parse_policy(str(policy))) == str(policy)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected global:, per-shape: or pareto: in front, got ''"),
        ("global", "expected global:, per-shape: or pareto: in front"),
        ("Global:a", "expected global:, per-shape: or pareto: in front"),
        ("global:", "names that are not empty"),
        ("per-shape:", "entries of the form a=b, got ''"),
        ("per-shape:a", "entries of the form a=b, got 'a'"),
        ("per-shape:a=b=c", "entries of the form a=b"),
        ("per-shape:a=b,a=c", "each shape once"),
        ("per-shape:a=", "names that are not empty"),
        ("per-shape:=a", "names that are not empty"),
        ("per-shape:*=a,*=b", "one entry for *, got two"),
        ("per-shape:a%=b", "expected one of %25, %2C, %3D, %2A, got '%'"),
        ("per-shape:a%2c=b", "got '%2c'"),
        ("pareto:", "entries of the form a=b"),
        ("pareto:a=x", "could not convert"),
        ("pareto:a=nan", "finite, descending secondaries"),
        ("pareto:a=1,b=2", "finite, descending secondaries"),
        ("pareto:a=2,a=1", "different ids"),
    ],
)
def test_what_is_no_policy_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_policy(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "make", [lambda: PerShapePolicy(()), lambda: PerShapePolicy((), ""), lambda: ParetoPolicy(())]
)
def test_empty_policies_are_refused(make: Callable[[], DeploymentPolicy]) -> None:
    with pytest.raises(UserError, match="expected"):
        make()


def test_winner_of_a_shape() -> None:
    policy = PerShapePolicy((("s1", "a"), ("s2", "b")))
    assert [policy.winner(shape) for shape in ("s1", "s2", "s3")] == ["a", "b", None]
    assert PerShapePolicy(policy.winners, "c").winner("s3") == "c"


@steady
@given(usable_scores(), st.integers(-1, 5))
def test_winner_within_a_limit_is_the_fastest_that_fits(found: list[Score], limit: int) -> None:
    winner = ParetoPolicy.of(pareto_frontier(found)).winner(limit)
    fitting = [score for score in found if score.secondary <= limit]
    assert (winner is None) == (not fitting)
    if winner is not None:
        chosen = next(score for score in found if score.id == winner)
        assert chosen.secondary <= limit
        assert chosen.primary == min(score.primary for score in fitting)
