"""A stable digest of programs and other frozen data, the same in every process."""

from __future__ import annotations

import hashlib
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
            case dict():
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
