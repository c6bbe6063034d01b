"""A stable digest of programs and other frozen data, the same in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum


def fingerprint(*objects: object) -> str:
    """The sha256 (hex) of the structure of `objects`: frozen dataclasses, tuples, mappings, sets and plain values."""
    memo: dict[int, bytes] = {}
    kept: list[object] = []  # ids stay valid while the objects live

    def digest(x: object) -> bytes:
        known = memo.get(id(x))
        if known is not None:
            return known
        h = hashlib.sha256(type(x).__name__.encode())
        match x:
            case Enum():
                h.update(x.name.encode())
            case tuple() | list():
                for item in x:
                    h.update(digest(item))
            case Mapping():
                for key, value in x.items():
                    h.update(digest(key))
                    h.update(digest(value))
            case frozenset() | set():
                for part in sorted(digest(item) for item in x):
                    h.update(part)
            case _ if is_dataclass(x) and not isinstance(x, type):
                for field in fields(x):
                    h.update(digest(getattr(x, field.name)))
            case _:
                h.update(repr(x).encode())
        result = h.digest()
        memo[id(x)] = result
        kept.append(x)
        return result

    return digest(objects).hex()


def is_plain(x: object) -> bool:
    """Whether `fingerprint` says all about `x`: no part is a function or of another kind that it does not know."""
    known: dict[int, bool] = {}

    def go(x: object) -> bool:
        match x:
            case None | bool() | int() | float() | str() | bytes() | Enum():
                return True
        if id(x) in known:
            return known[id(x)]
        known[id(x)] = True  # `x` is not asked twice; it holds what is asked, so that ids stay valid
        match x:
            case tuple() | list() | frozenset() | set():
                result = all(go(item) for item in x)
            case Mapping():
                result = all(go(item) for pair in x.items() for item in pair)
            case _ if is_dataclass(x) and not isinstance(x, type):
                result = all(go(getattr(x, field.name)) for field in fields(x))
            case _:
                result = False
        known[id(x)] = result
        return result

    return go(x)
