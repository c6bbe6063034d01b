"""Nodes of trees: frozen data that compares by structure."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any


@cache
def _fields_of(kind: type) -> Callable[[object], tuple[object, ...]]:
    """The function that reads the fields of a node as a tuple."""
    names: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    match names:
        case ():
            return lambda _: ()
        case (name,):
            return lambda node: (getattr(node, name),)
        case _:
            return attrgetter(*names)


class Node:
    """Structural equality with a cached hash, for frozen dataclasses. `_order` caches `poly.order_key`,
    `_polynomial` what the function of that name gives, `_dtype` the type of what has operands.

    Nodes that were found equal share a representative, `_same`, so that no two trees are walked twice: expressions that
    share parts would be compared in exponential time otherwise.
    """

    __slots__ = ("_dtype", "_hash", "_order", "_polynomial", "_same")
    _dtype: str
    _hash: int
    _order: str
    _polynomial: object
    _same: Node

    def _key(self) -> tuple[object, ...]:
        kind: Any = type(self)  # mypy takes the hash of the class for that of its instances
        return _fields_of(kind)(self)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            value = hash((type(self).__name__, *self._key()))
            object.__setattr__(self, "_hash", value)
            return value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        assert isinstance(other, Node)
        mine, others = self._representative(), other._representative()
        if mine is others:
            return True
        if self._key() != other._key():
            return False
        first, second = (mine, others) if id(mine) < id(others) else (others, mine)
        object.__setattr__(second, "_same", first)  # one direction in all threads: never in a circle
        return True

    def _representative(self) -> Node:
        node = self
        while True:
            try:
                node = node._same
            except AttributeError:
                return node

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._key()
