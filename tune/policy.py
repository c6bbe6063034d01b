"""Deployment policies: which candidate serves which call; each is one line of text and back.

global:<id>                                          one winner for everything
per-shape:<shape>=<id>,<shape>=<id>,*=<id>           one for each shape; * serves the shapes not listed
pareto:<id>=<secondary>,<id>=<secondary>             the fastest whose secondary metric is within a limit

A global id is everything behind the colon, as it is. In the other two, "%", ",", "=" and "*" within ids and
shapes are written %25, %2C, %3D and %2A.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cora.errors import UserError
from cora.tune.score import Score

__all__ = ["DeploymentPolicy", "GlobalPolicy", "ParetoPolicy", "PerShapePolicy", "parse_policy"]

_ESCAPES = {"%": "%25", ",": "%2C", "=": "%3D", "*": "%2A"}
_PLAIN = {code: char for char, code in _ESCAPES.items()}
_ANY_ESCAPE = re.compile("%.{0,2}")
_OTHERS = "*"


@dataclass(frozen=True, slots=True)
class GlobalPolicy:
    """One winner for every call.

    Raises:
        UserError: the id is empty.
    """

    id: str

    def __post_init__(self) -> None:
        _check_names("GlobalPolicy", [self.id])

    def __str__(self) -> str:
        return f"global:{self.id}"


@dataclass(frozen=True, slots=True)
class PerShapePolicy:
    """A winner for each shape.

    winners: (shape, id) pairs, kept sorted; each shape once.
    other: the id for shapes that are not listed; None if there is none.

    Raises:
        UserError: a shape or id is empty, a shape is listed twice, or nothing is listed at all.
    """

    winners: tuple[tuple[str, str], ...]
    other: str | None = None

    def __post_init__(self) -> None:
        if not self.winners and self.other is None:
            raise UserError("PerShapePolicy: winners: expected at least one entry, got none")
        _check_names("PerShapePolicy", [name for entry in self.winners for name in entry])
        _check_names("PerShapePolicy", [] if self.other is None else [self.other])
        shapes = [shape for shape, _ in self.winners]
        if len(set(shapes)) < len(shapes):
            raise UserError(f"PerShapePolicy: winners: expected each shape once, got {sorted(shapes)}")
        object.__setattr__(self, "winners", tuple(sorted(self.winners)))

    def winner(self, shape: str) -> str | None:
        """The id that serves `shape`; None if the policy has none for it."""
        return dict(self.winners).get(shape, self.other)

    def __str__(self) -> str:
        entries = [f"{_escape(shape)}={_escape(id)}" for shape, id in self.winners]
        if self.other is not None:
            entries.append(f"{_OTHERS}={_escape(self.other)}")
        return "per-shape:" + ",".join(entries)


@dataclass(frozen=True, slots=True)
class ParetoPolicy:
    """The candidates of a frontier, of which each call takes the fastest that it can afford.

    points: (id, secondary metric) pairs in ascending order of cost, so that the secondary metric descends.

    Raises:
        UserError: no point, an id is empty or listed twice, or the secondary metric is not finite or ascends.
    """

    points: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        ids = [id for id, _ in self.points]
        values = [value for _, value in self.points]
        _check_names("ParetoPolicy", ids)
        if not ids or len(set(ids)) < len(ids):
            raise UserError(f"ParetoPolicy: points: expected different ids, at least one, got {ids}")
        if not all(math.isfinite(v) for v in values) or values != sorted(values, reverse=True):
            raise UserError(f"ParetoPolicy: points: expected finite, descending secondaries, got {values}")

    @classmethod
    def of(cls, frontier: Sequence[Score]) -> ParetoPolicy:
        """The policy of what `pareto_frontier` returned."""
        return cls(tuple((score.id, float(score.secondary)) for score in frontier))

    def winner(self, limit: float) -> str | None:
        """The id of the fastest point whose secondary metric is at most `limit`; None if none is."""
        return next((id for id, value in self.points if value <= limit), None)

    def __str__(self) -> str:
        return "pareto:" + ",".join(f"{_escape(id)}={float(value)!r}" for id, value in self.points)


DeploymentPolicy: TypeAlias = GlobalPolicy | PerShapePolicy | ParetoPolicy


def parse_policy(text: str) -> DeploymentPolicy:
    """The policy that prints as `text`: `parse_policy(str(p)) == p` for every policy p.

    Raises:
        UserError: the text is no policy.
    """
    kind, colon, rest = text.partition(":")
    try:
        match kind + colon:
            case "global:":
                return GlobalPolicy(rest)
            case "per-shape:":
                return _parse_per_shape(rest)
            case "pareto:":
                return ParetoPolicy(tuple((_unescape(id), float(value)) for id, value in _entries(rest)))
    except ValueError as error:
        raise UserError(f"parse_policy: text: {text!r} is no policy: {error}") from error
    raise UserError(f"parse_policy: text: expected global:, per-shape: or pareto: in front, got {text!r}")


def _parse_per_shape(text: str) -> PerShapePolicy:
    winners: list[tuple[str, str]] = []
    other: str | None = None
    for shape, id in _entries(text):
        if shape != _OTHERS:
            winners.append((_unescape(shape), _unescape(id)))
        elif other is None:
            other = _unescape(id)
        else:
            raise UserError(f"expected one entry for {_OTHERS}, got two")
    return PerShapePolicy(tuple(winners), other)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """The two sides of each "a=b" in "a=b,a=b", still escaped."""
    for entry in text.split(","):
        left, equals, right = entry.partition("=")
        if not equals or "=" in right:
            raise UserError(f"expected entries of the form a=b, got {entry!r}")
        yield left, right


def _escape(name: str) -> str:
    return "".join(_ESCAPES.get(char, char) for char in name)


def _unescape(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code = found[0]
        if code not in _PLAIN:
            raise UserError(f"expected one of {', '.join(_PLAIN)}, got {code!r}")
        return _PLAIN[code]

    return _ANY_ESCAPE.sub(plain, text)


def _check_names(what: str, names: Sequence[str]) -> None:
    if not all(names):
        raise UserError(f"{what}: expected names that are not empty, got {list(names)}")
