"""Pseudo-random orders of candidates that depend on their ids and a seed alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from cora.errors import UserError
from cora.tune.space import Identified

__all__ = ["fnv1a_64", "seeded_order"]

C = TypeVar("C", bound=Identified)

_OFFSET_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1


def fnv1a_64(data: bytes) -> int:
    """The 64-bit FNV-1a hash of `data` (Fowler, Noll and Vo), in [0, 2^64):

    h = 0xcbf29ce484222325;  for each byte b:  h = (h xor b) * 0x100000001b3  mod 2^64
    """
    state = _OFFSET_BASIS
    for byte in data:
        state = ((state ^ byte) * _PRIME) & _MASK
    return state


def seeded_order(candidates: Iterable[C], seed: int) -> tuple[C, ...]:
    """The candidates in a pseudo-random order, the same on every machine: a permutation of the input.

    They are sorted by (fnv1a_64(key), id), with the bytes

        key = seed | id | seed        seed: 8 bytes, little-endian, unsigned;  id: UTF-8

    so that for unique ids neither the input's order nor anything but ids and seed matters. The seed in front
    makes orders of different seeds unrelated. The seed behind it is needed as well: the last byte hashed
    hardly reaches the upper bits, and ids that differ in their last character only ("u=1", "u=2") would
    stand side by side in every order; eight more rounds spread it over the word.

    Raises:
        UserError: the seed is not in [0, 2^64).
    """
    if not 0 <= seed <= _MASK:
        raise UserError(f"seeded_order: seed: expected an integer in [0, 2^64), got {seed}")
    salt = seed.to_bytes(8, "little")

    def key(candidate: C) -> tuple[int, str]:
        # surrogatepass: any Python string is an id, and different ids are different bytes.
        return fnv1a_64(salt + candidate.id.encode("utf-8", "surrogatepass") + salt), candidate.id

    return tuple(sorted(candidates, key=key))
