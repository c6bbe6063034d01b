"""Families of schedules for the loops of one operator: a grid of choices each, and the steps for a point of it.

Nothing here knows which choices are legal: they are made, and the schedule language decides.

rows      no reduction: fused or not, in lanes, chunks
lanes     a reduction loop in vector lanes
columns   a spatial loop in vector lanes inside the reductions, a block of rows around it
tile      the micro-kernel: rows and columns of a tile, order, balance
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from cora.schedule.nest import LoopNest
from cora.schedule.schedule import Schedule

__all__ = ["Choices", "Family", "families_of"]

Choices = Mapping[str, Any]
Tail = Literal["guard", "balanced"]


@dataclass(frozen=True, slots=True)
class Family:
    """axes: the choices for each parameter, in an order in which close choices behave alike.

    make: the schedule with the steps of one point added for operator `op`. Raises ScheduleError if it is illegal.
    """

    name: str
    axes: Mapping[str, tuple[Any, ...]]
    make: Callable[[Schedule, str, Choices], Schedule]


def families_of(nest: LoopNest, attached: bool) -> tuple[Family, ...]:
    """The families that suit a nest; `attached`: it runs inside a loop of another operator."""
    spatial = [leaf.name for leaf in nest.leaves if not leaf.reduction]
    reductions = [leaf.name for leaf in nest.leaves if leaf.reduction]
    shares = ("serial",) if attached else ("cost", "count", "tiles")
    # How many loops are fused into the outermost one; the loop in lanes stays on its own.
    fuse = tuple(range(min(max(len(spatial) - 1, 1), 3))) if not attached else (0,)
    tails = ("guard", "balanced")
    if not spatial:
        return (Family("lanes", {"lanes": (0, 4, 8, 16, 32, 64)}, _lanes),) if reductions else ()
    if not reductions:
        axes = {
            "fuse": tuple(range(len(spatial))) if not attached else (0,),
            "lanes": (0, 4, 8, 16, 32, 64),
            "chunk": (1, 4, 16, 64) if not attached else (1,),
            "unroll": (1, 2, 4),
            "share": shares[:2],
        }
        return (Family("rows", axes, _rows),)
    lanes = Family(
        "lanes",
        {
            "fuse": fuse,
            "lanes": (0, 4, 8, 16, 32, 64),
            "rows": (1, 2, 4, 8),
            "share": shares[:2],
        },
        _lanes,
    )
    columns = Family(
        "columns",
        {
            "fuse": fuse,
            "lane": tuple(reversed(spatial[-2:])),
            "width": (4, 8, 16, 32, 64),
            "rows": (1, 2, 4, 6, 8) if len(spatial) > 1 else (1,),
            "tail": tails,
            "order": ("rows", "columns"),
            "unroll": (False, True),
            "share": shares,
        },
        _columns,
    )
    tile = Family(
        "tile",
        {
            "fuse": fuse,
            "rows": (4, 6, 8, 12, 16, 24, 32) if len(spatial) > 1 else (1,),
            "columns": (0, 16, 32, 48, 64, 96, 128, 192, 256),
            "tail": tails,
            "order": ("rows", "columns"),
            "share": shares,
        },
        _tile,
    )
    return (tile, columns, lanes)


def _names(s: Schedule, op: str) -> tuple[list[str], list[str]]:
    """Spatial and reduction loops of an operator, outermost first."""
    leaves = s.nest(op).leaves
    return [x.name for x in leaves if not x.reduction], [x.name for x in leaves if x.reduction]


def _fused(s: Schedule, op: str, count: int) -> Schedule:
    """The `count` + 1 outermost spatial loops as one."""
    if not count:
        return s
    spatial, _ = _names(s, op)
    return s.fuse(op, *spatial[: count + 1], name=f"{spatial[0]}_f")


def _shared(s: Schedule, op: str, share: str) -> Schedule:
    """The outermost loop on the workers; "tiles": fused with the next one first."""
    if share == "serial":
        return s
    spatial, _ = _names(s, op)
    if share == "tiles":
        s = s.fuse(op, spatial[0], spatial[1], name=f"{spatial[0]}_t")
        spatial, _ = _names(s, op)
    return s.parallel(op, spatial[0], "count" if share == "count" else "cost")


def _rows(s: Schedule, op: str, choice: Choices) -> Schedule:
    s = _fused(s, op, choice["fuse"])
    spatial, _ = _names(s, op)
    last = spatial[-1]
    if choice["chunk"] > 1 and len(spatial) > 1:
        s = s.split(op, spatial[0], choice["chunk"])
    elif choice["chunk"] > 1:
        s = s.split(op, last, choice["chunk"] * 64)
        last = f"{last}_i"
    if choice["lanes"]:
        if choice["unroll"] > 1:
            s = s.split(op, last, choice["lanes"] * choice["unroll"])
            last = f"{last}_i"
        s = s.vectorize(op, last, choice["lanes"])
        if choice["unroll"] > 1:
            s = s.unroll(op, f"{last}_o")
    elif choice["unroll"] > 1:
        s = s.split(op, last, choice["unroll"]).unroll(op, f"{last}_i")
    return _shared(s, op, choice["share"])


def _lanes(s: Schedule, op: str, choice: Choices) -> Schedule:
    s = _fused(s, op, choice.get("fuse", 0))
    spatial, reductions = _names(s, op)
    rows = choice.get("rows", 1)
    if choice["lanes"]:
        s = s.vectorize(op, reductions[-1], choice["lanes"])
    if rows > 1:
        s = s.split(op, spatial[-1], rows)
        _, inside = _names(s, op)
        block = f"{spatial[-1]}_i"
        order = [*inside, block] if not choice["lanes"] else [*inside[:-1], block, inside[-1]]
        s = s.reorder(op, *order).unroll(op, block)
    return _shared(s, op, choice.get("share", "serial"))


def _columns(s: Schedule, op: str, choice: Choices) -> Schedule:
    s = _fused(s, op, choice["fuse"])
    spatial, _ = _names(s, op)
    # A loop that was fused into others is no column any more.
    lane = choice["lane"] if choice["lane"] in spatial else spatial[-1]
    s = _blocked(s, op, lane, choice["rows"], choice["width"], cast(Tail, choice["tail"]), choice["order"])
    if choice["unroll"]:
        _, reductions = _names(s, op)
        last = [x.name for x in s.nest(op).leaves][-2]
        s = s.unroll(op, last) if last not in reductions else s.unroll(op, lane)
    s = s.vectorize(op, f"{lane}_i")
    return _shared(s, op, choice["share"])


def _blocked(s: Schedule, op: str, lane: str, rows: int, width: int, tail: Tail, order: str) -> Schedule:
    """Blocks of rows x width inside all other loops, the reductions directly around them."""
    spatial, reductions = _names(s, op)
    before = spatial[: spatial.index(lane)] or spatial[spatial.index(lane) + 1 :]
    s = s.split(op, lane, width)
    inner, outer = [f"{lane}_i"], [f"{lane}_o"]
    others = [name for name in spatial if name != lane]
    if rows > 1:
        row = before[-1]
        s = s.split(op, row, rows, tail=tail)
        inner = [f"{row}_i", *inner]
        outer = [f"{row}_o", *outer] if order == "rows" else [*outer, f"{row}_o"]
        others.remove(row)
    return s.reorder(op, *others, *outer, *reductions, *inner)


def _tile(s: Schedule, op: str, choice: Choices) -> Schedule:
    s = _fused(s, op, choice["fuse"])
    spatial, reductions = _names(s, op)
    column = spatial[-1]
    inner, outer = [column], list[str]()
    if choice["columns"]:
        s = s.split(op, column, choice["columns"])
        inner, outer = [f"{column}_i"], [f"{column}_o"]
    others = spatial[:-1]
    if choice["rows"] > 1:
        row = others.pop()
        s = s.split(op, row, choice["rows"], tail=cast(Tail, choice["tail"]))
        inner = [f"{row}_i", *inner]
        outer = [f"{row}_o", *outer] if choice["order"] == "rows" else [*outer, f"{row}_o"]
    s = s.reorder(op, *others, *outer, *inner, *reductions).tensorize(op, inner[0])
    return _shared(s, op, choice["share"])
