"""Candidate spaces and their neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cora.errors import UserError
from cora.tune import CandidateSpace, grid_neighbors, seeded_order
from tests.tune.strategies import steady


@dataclass(frozen=True)
class Named:
    id: str


A, B, C = Named("a"), Named("b"), Named("c")
points = st.sets(st.tuples(*[st.integers(0, 3)] * 3), max_size=30)


def test_a_space_is_its_enumeration() -> None:
    space = CandidateSpace((B, A, C), {"a": ("c", "b")})
    assert list(space) == [B, A, C]
    assert len(space) == 3
    assert space.neighbors("a") == (B, C)
    assert space.neighbors("b") == ()


def test_neighbours_survive_another_order() -> None:
    space = CandidateSpace((A, B, C), {"a": ("b", "c")})
    for seed in range(5):
        other = replace(space, candidates=seeded_order(space, seed))
        assert set(other.neighbors("a")) == {B, C}


@pytest.mark.parametrize(
    ("candidates", "near", "message"),
    [
        ((A, B, A), {}, "unique, non-empty ids, got 'a' twice"),
        ((A, Named("")), {}, "unique, non-empty ids, got ''$"),
        ((A, B), {"a": ("c",)}, "ids of other candidates for 'a', got 'c'"),
        ((A, B), {"c": ("a",)}, "ids of other candidates for 'c', got 'c'"),
        ((A, B), {"a": ("b", "a")}, "ids of other candidates for 'a', got 'a'"),
    ],
)
def test_what_is_no_space_is_refused(
    candidates: tuple[Named, ...], near: dict[str, tuple[str, ...]], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        CandidateSpace(candidates, near)


def test_an_unknown_id_has_no_neighbours_to_ask_for() -> None:
    with pytest.raises(UserError, match="expected the id of a candidate, got 'z'"):
        CandidateSpace((A,)).neighbors("z")


def test_grid_steps_over_what_was_left_out() -> None:
    near = grid_neighbors({"a": (0, 0), "b": (2, 0), "c": (3, 0), "d": (2, 1), "e": (7, 7)})
    assert {id: set(others) for id, others in near.items()} == {
        "a": {"b"},
        "b": {"a", "c", "d"},
        "c": {"b"},
        "d": {"b"},
        "e": set(),
    }


@steady
@given(points)
def test_grid_neighbours_by_definition(found: set[tuple[int, ...]]) -> None:
    near = grid_neighbors({str(point): point for point in found})
    CandidateSpace(tuple(Named(id) for id in near), near)

    def between(a: tuple[int, ...], c: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return c not in (a, b) and all(min(x, z) <= y <= max(x, z) for x, y, z in zip(a, c, b, strict=True))

    for a, b in product(found, found):
        one_axis = sum(x != y for x, y in zip(a, b, strict=True)) == 1
        expected = one_axis and not any(between(a, c, b) for c in found)
        assert (str(b) in near[str(a)]) == expected
        assert near[str(a)].count(str(b)) <= 1


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"a": (0, 1), "b": (0, 1)}, r"'a' and 'b' are both at \(0, 1\)"),
        ({"a": (0, 1), "b": (0,)}, r"one number of coordinates, got \[1, 2\]"),
    ],
)
def test_what_is_no_grid_is_refused(found: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        grid_neighbors(found)
