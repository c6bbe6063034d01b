"""Vector loops on a GPU: loads and stores of 8 or 16 bytes where they are proved aligned, arithmetic lane by lane.

A loop over lanes that stores adjacent elements becomes: adjacent loads, each as one instruction, into registers; the
body for every lane; one store. Where a condition cuts the lanes, that runs if it holds for all of them, and otherwise
the lanes run one by one. Arrays begin at multiples of 16 bytes; offsets must be multiples of the lanes by their form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cora.ir import dtypes
from cora.ir.bounds import multiple_of
from cora.ir.expr import TRUE, Binary, Const, Expr, Read, Select, Var, binary, conjunction
from cora.ir.poly import linear_in
from cora.ir.simplify import simplify
from cora.ir.stmt import Buffer, CopyAsync, For, If, LoopKind, Stmt, Store
from cora.ir.visit import children, free_vars, substitute, transform

#: Bytes of an access, and the types of which TVM prints such accesses.
_WIDTHS: Final = (8, 16)
_TYPES: Final = ("float32", "int32", "float64")
#: Bytes of the smallest copy that goes on by itself.
LEAST_COPY: Final = 4
#: Bytes of the largest, of which a part may be left out.
WIDEST_COPY: Final = 16


@dataclass(frozen=True, slots=True)
class VectorCopy:
    """`lanes` adjacent elements of `buffer` from `offset`, and the local array that holds them."""

    buffer: Buffer
    offset: Expr
    local: Buffer


@dataclass(frozen=True, slots=True)
class VectorLoop:
    """A vector loop: loads, then `lane_body` for each lane, then `store`; all of it where `whole` holds."""

    lanes: int
    var: Var
    whole: Expr
    loads: tuple[VectorCopy, ...]
    lane_body: Stmt
    store: VectorCopy


def as_vectors(loop: For, definitions: Mapping[Expr, Expr]) -> VectorLoop | None:
    """`loop` by vector accesses; None where its store cannot be one.

    definitions: what index variables bound outside stand for.
    """
    match loop.end, loop.body:
        case Const(value=int(lanes)), Store() as store:
            condition: Expr = TRUE
        case Const(value=int(lanes)), If(cond=cond, then=Store() as store, other=None):
            condition = cond
        case _:
            return None
    if loop.kind is not LoopKind.VECTOR or store.buffer.scope == "local":
        return None
    place = _aligned(store.buffer, store.offset, loop.var, lanes, definitions)
    reads = list(dict.fromkeys(_always(store.value)))
    if place is None or any(read.buffer == store.buffer for read in reads):
        return None
    loads: dict[Expr, VectorCopy] = {}
    for read in reads:
        first = _aligned(read.buffer, read.offset, loop.var, lanes, definitions)
        if first is not None:
            name = f"{read.buffer.name}_lanes{len(loads) or ''}"
            loads[read] = VectorCopy(
                read.buffer, first, Buffer(name, read.buffer.dtype, Const(lanes), "local")
            )

    def rule(e: Expr) -> Expr | None:
        return Read(loads[e].local, loop.var) if e in loads else None

    out = Buffer(f"{store.buffer.name}_out", store.buffer.dtype, Const(lanes), "local")
    return VectorLoop(
        lanes,
        loop.var,
        _for_all_lanes(condition, loop.var, lanes),
        tuple(loads.values()),
        Store(out, loop.var, transform(store.value, rule)),
        VectorCopy(store.buffer, place, out),
    )


@dataclass(frozen=True, slots=True)
class WideCopy:
    """`lanes` adjacent elements copied at once, where `condition` holds: a buffer and an offset each.

    count: how many of the lanes are copied, the first ones (None: all); the others become 0.
    """

    lanes: int
    condition: Expr
    count: Expr | None
    to: tuple[Buffer, Expr]
    source: tuple[Buffer, Expr]


def as_wide_copy(loop: For, definitions: Mapping[Expr, Expr]) -> WideCopy | None:
    """`loop` over the lanes of an asynchronous copy as one copy; None where it cannot be one."""
    match loop.end, loop.body:
        case Const(value=int(lanes)), CopyAsync() as copy:
            condition: Expr = TRUE
        case Const(value=int(lanes)), If(cond=cond, then=CopyAsync() as copy, other=None):
            condition = cond
        case _:
            return None
    if loop.kind is not LoopKind.VECTOR:
        return None
    if dtypes.itemsize(copy.buffer.dtype) * lanes not in (LEAST_COPY, *_WIDTHS):
        return None
    to = _group(copy.offset, loop.var, lanes, definitions)
    source = _group(copy.source.offset, loop.var, lanes, definitions)
    if to is None or source is None:
        return None
    parts = conjuncts(condition)
    some = [c for c in parts if loop.var in free_vars(c)]
    counts = [_first_lanes(c, loop.var) for c in some]
    known = [c for c in counts if c is not None]
    size = dtypes.itemsize(copy.buffer.dtype) * lanes
    if len(known) < len(some) or (some and size != WIDEST_COPY):
        return None
    count: Expr | None = None
    for limit in known:
        count = binary("min", limit, Const(lanes) if count is None else count)
    condition = conjunction([c for c in parts if c not in some])
    if count is not None:
        condition = conjunction([condition, binary("lt", 0, count)])
    return WideCopy(lanes, condition, count, (copy.buffer, to), (copy.source.buffer, source))


def _first_lanes(condition: Expr, lane: Var) -> Expr | None:
    """The n for which `condition` says `lane < n`; None if it says something else."""
    match condition:
        case Binary(op="lt", a=a, b=b) if lane not in free_vars(b):
            split = linear_in(a, lane)
            return simplify(b - split[1]) if split is not None and split[0] == 1 else None
    return None


def _for_all_lanes(condition: Expr, var: Var, lanes: int) -> Expr:
    if condition == TRUE:
        return TRUE
    every = [simplify(substitute(condition, {var: Const(lane)})) for lane in range(lanes)]
    return conjunction(list(dict.fromkeys(every)))


def _always(e: Expr) -> Iterator[Read]:
    """The reads that are evaluated whenever `e` is, of what is not a table and not a thread's own."""
    if isinstance(e, Read):
        if e.buffer.scope not in ("table", "local"):
            yield e
        return
    lazy = isinstance(e, Select) or (isinstance(e, Binary) and e.op in ("and", "or"))
    for part in children(e)[:1] if lazy else children(e):
        yield from _always(part)


def _aligned(
    buffer: Buffer, offset: Expr, var: Var, lanes: int, definitions: Mapping[Expr, Expr]
) -> Expr | None:
    """The offset of lane 0, if the lanes are adjacent and begin at a multiple of their number; None otherwise."""
    if buffer.dtype not in _TYPES or dtypes.itemsize(buffer.dtype) * lanes not in _WIDTHS:
        return None
    return _group(offset, var, lanes, definitions)


def _group(offset: Expr, var: Var, lanes: int, definitions: Mapping[Expr, Expr]) -> Expr | None:
    """The offset of lane 0, if the lanes are adjacent and begin at a multiple of their number; None otherwise."""
    split = linear_in(offset, var)
    if split is None or split[0] != 1 or var in free_vars(split[1]):
        return None
    divisor = multiple_of(simplify(substitute(split[1], definitions)))
    return split[1] if divisor % lanes == 0 else None


def conjuncts(e: Expr) -> list[Expr]:
    """The conditions that hold together where `e` does."""
    match e:
        case Binary(op="and", a=a, b=b):
            return [*conjuncts(a), *conjuncts(b)]
    return [] if e == TRUE else [e]
