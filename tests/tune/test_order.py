"""FNV-1a and the orders made from it."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cora.errors import UserError
from cora.tune import fnv1a_64, seeded_order
from tests.tune.strategies import steady


@dataclass(frozen=True)
class Named:
    id: str


seeds = st.integers(0, 2**64 - 1)
names = st.lists(st.text(max_size=6), unique=True, max_size=20)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        # The vectors that the authors of FNV publish.
        (b"", 0xCBF29CE484222325),
        (b"a", 0xAF63DC4C8601EC8C),
        (b"b", 0xAF63DF4C8601F1A5),
        (b"fo", 0x08985907B541D342),
        (b"foobar", 0x85944171F73967E8),
    ],
)
def test_published_vectors(data: bytes, value: int) -> None:
    assert fnv1a_64(data) == value


def test_bytes_of_the_key() -> None:
    # "é" is c3 a9 in UTF-8; the seed stands in front and behind, least significant byte first.
    seed = 0x0123456789ABCDEF
    salt = bytes.fromhex("efcdab8967452301")
    by_key = sorted(["a", "é", "foobar"], key=lambda id: fnv1a_64(salt + id.encode() + salt))
    assert [c.id for c in seeded_order(map(Named, ["a", "é", "foobar"]), seed)] == by_key
    assert by_key == ["foobar", "a", "é"]


def test_the_order_never_changes() -> None:
    # Records of earlier searches rely on it.
    ids = [f"tile={t},unroll={u}" for t, u in product((16, 32, 64), (1, 2))]
    assert [c.id for c in seeded_order(map(Named, ids), 7)] == [
        "tile=32,unroll=1",
        "tile=32,unroll=2",
        "tile=64,unroll=2",
        "tile=16,unroll=1",
        "tile=64,unroll=1",
        "tile=16,unroll=2",
    ]


@steady
@given(names, seeds, st.randoms(use_true_random=False))
def test_a_permutation_that_depends_on_ids_and_seed_alone(
    ids: list[str], seed: int, rng: random.Random
) -> None:
    candidates = [Named(id) for id in ids]
    order = seeded_order(candidates, seed)
    assert sorted(c.id for c in order) == sorted(ids)
    rng.shuffle(candidates)
    assert seeded_order(iter(candidates), seed) == order


@steady
@given(names, st.text(max_size=6), seeds)
def test_a_further_candidate_does_not_move_the_others(ids: list[str], more: str, seed: int) -> None:
    order = [c.id for c in seeded_order(map(Named, {*ids, more}), seed)]
    assert [id for id in order if id != more] == [
        c.id for c in seeded_order(map(Named, set(ids) - {more}), seed)
    ]


@steady
@given(st.lists(st.sampled_from("abc"), max_size=8), seeds)
def test_repeated_ids_are_kept(ids: list[str], seed: int) -> None:
    assert sorted(c.id for c in seeded_order(map(Named, ids), seed)) == sorted(ids)


def test_any_string_is_an_id() -> None:
    assert len(seeded_order([Named("\ud800"), Named(""), Named("\0")], 1)) == 3


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_does_not_fit_is_refused(seed: int) -> None:
    with pytest.raises(UserError, match=r"seed: expected an integer in \[0, 2\^64\)"):
        seeded_order([Named("a")], seed)


# Families in which quality goes with the id: a block of neighbours, or one choice of the last parameter.
BLOCK = [f"i={i},j={j},u={u}" for i, j, u in product(range(4), range(5), range(10))]
FAMILIES = {"block": BLOCK[100:110], "last parameter": BLOCK[3::20]}


@pytest.mark.parametrize("family", FAMILIES)
def test_prefixes_are_as_good_as_random_ones_for_structured_ids(family: str) -> None:
    good, size, orders = set(FAMILIES[family]), len(BLOCK), 1000
    space = [Named(id) for id in BLOCK]
    budget = 20
    hits = sum(any(c.id in good for c in seeded_order(space, seed)[:budget]) for seed in range(orders))
    # Without replacement; 1 - (1 - q)^B is its limit for large spaces.
    expected = 1 - math.comb(size - len(good), budget) / math.comb(size, budget)
    deviation = math.sqrt(expected * (1 - expected) / orders)
    assert abs(hits / orders - expected) < 4 * deviation


def test_every_place_is_equally_likely() -> None:
    orders = 1000
    space = [Named(str(number)) for number in range(40)]
    first = dict.fromkeys((c.id for c in space), 0)
    for seed in range(orders):
        first[seeded_order(space, seed)[0].id] += 1
    expected = orders / len(space)
    chi2 = sum((count - expected) ** 2 / expected for count in first.values())
    assert chi2 < 39 + 4 * math.sqrt(2 * 39)  # 39 degrees of freedom: mean and four deviations
