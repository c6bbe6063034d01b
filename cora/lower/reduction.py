"""Reductions: accumulators are set, run and stored; blocks of a reduction continue what is stored."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cora.errors import InternalError, ScheduleError, UnsupportedError
from cora.ir import dtypes
from cora.ir.bounds import bounds
from cora.ir.expr import ZERO, Const, Expr, LaneReduce, Read, Reduce, ReduceOp, Var, binary, select
from cora.ir.simplify import simplify
from cora.ir.stmt import THREAD_AXES, Alloc, Buffer, If, Let, LoopKind, Stmt, Store, block
from cora.ir.visit import free_vars, substitute
from cora.lang.check import reductions_of
from cora.lower.flatten import Flat
from cora.lower.loops import Loops, existing, first_and_last
from cora.lower.online import Correction
from cora.lower.operation import Operation, reduction_identity
from cora.lower.tensor_core import INNERMOST, warp_product
from cora.lower.threads import across_threads, reads_block_memory
from cora.schedule.nest import Leaf

MAX_TILE = 4096


def reduction(op: Operation, flat: Flat, loops: Loops, corrected: Correction | None = None) -> Stmt:
    """Accumulators for the spatial loops inside the place where they live; set, run, store.

    corrected: where a maximum runs along the outermost reduction loop, they are corrected in each of its iterations.
    """
    nest = op.nest
    outer, inner = nest.leaves[: nest.inside], nest.leaves[nest.inside :]
    tile = tuple(leaf for leaf in inner if not leaf.reduction)
    last = nest.leaves[-1]
    lanes = int(last.extent.value) if _is_vector(last) and last.reduction else 1  # type: ignore[attr-defined]
    slot, count = _slot(op, tile)
    reductions = reductions_of(flat.body)
    sums = [_Accumulator.make(op, r, n, count, lanes, slot, last.var) for n, r in enumerate(reductions)]
    outside = frozenset(leaf.var for leaf in (*nest.around, *outer))
    bound = outside | {leaf.var for leaf in tile}
    reduced = {leaf.var for leaf in nest.blocks}
    around = tuple(c for c in op.conditions if free_vars(c) <= outside - reduced)
    running = tuple(c for c in op.conditions if c not in around)
    storing = tuple(c for c in running if free_vars(c) <= bound - reduced)
    ranges: dict[Expr, Expr] = {leaf.var: leaf.extent for leaf in nest.scope}
    if all(reads_block_memory(r.body, ranges) for r in reductions):
        running = tuple(c for c in running if c not in storing)
    lane_loop = (last,) if lanes > 1 else ()
    bare = replace(loops, attached={})  # what is attached inside runs once, with the reduction
    steps = block([s.step() for s in sums])
    if nest.by_warp:
        here = tuple(c for c in op.conditions if c in running)
        origin: dict[Expr, Expr] = {leaf.var: ZERO for leaf in nest.leaves[-INNERMOST:]}
        first = simplify(substitute(slot, origin))
        steps = warp_product(nest, reductions[0], sums[0].values, first, here)
        inner = inner[:-INNERMOST]
    start: list[Stmt] = []
    if corrected is not None:
        assert corrected.flat is not None
        scaled = block([s.scaled(corrected.flat.body) for s in sums])
        whole = bare.around((*tile, *lane_loop), storing, scaled)
        stages = {corrected.loop: block([loops.attached[corrected.loop], whole])}
        loops = replace(loops, attached={**loops.attached, **stages})
        start.append(corrected.start)
    body = block(
        [
            *start,
            bare.around((*tile, *lane_loop), (), block([s.start() for s in sums])),
            loops.around(inner, (*existing(nest.blocks), *running), steps),
            *across_threads(nest, [(s.reduction.op, s.values, s.positions) for s in sums]),
            bare.around(tile, storing, _store(op, flat, sums)),
        ]
    )
    for buffer in (b for s in sums for b in s.buffers()):
        body = Alloc(buffer, body)
    return loops.around(outer, around, body)


def _store(op: Operation, flat: Flat, sums: list[_Accumulator]) -> Stmt:
    """Store the element; between blocks, and pieces, the partial result."""
    stored = Read(flat.buffer, flat.offset)
    if not op.nest.continues:
        values: dict[Expr, Expr] = {s.reduction: s.result() for s in sums}
        return Store(flat.buffer, flat.offset, simplify(substitute(flat.body, values)))
    (total,) = sums
    first, last = first_and_last(op.nest.blocks)
    so_far = combine(total.reduction.op, total.result(), stored)
    if not op.nest.accumulates:
        so_far = select(first, total.result(), so_far)
    partial = Store(flat.buffer, flat.offset, so_far)
    if flat.body == total.reduction or op.nest.accumulates:
        return partial
    result = simplify(substitute(flat.body, {total.reduction: so_far}))
    return If(last, Store(flat.buffer, flat.offset, result), partial)


def combine(op: ReduceOp, new: Expr, so_far: Expr) -> Expr:
    """One partial result of sum, prod, max or min with another.

    The running value comes second: for max and min that makes the shorter dependence chain (vecmath).
    """
    match op:
        case "sum":
            return binary("add", so_far, new)
        case "prod":
            return binary("mul", so_far, new)
        case "max" | "min":
            return binary(op, new, so_far)
    raise InternalError(f"{op} does not combine partial results")


def _is_vector(leaf: Leaf) -> bool:
    return leaf.kind is LoopKind.VECTOR


def _slot(op: Operation, tile: tuple[Leaf, ...]) -> tuple[Expr, int]:
    """The row-major position of an element in its tile of accumulators, and the size of the tile.

    Each thread of a GPU has a tile of its own.
    """
    slot: Expr = ZERO
    count = 1
    for leaf in (leaf for leaf in tile if leaf.kind not in THREAD_AXES):
        largest = bounds(leaf.extent)[1] if leaf.largest is None else leaf.largest
        if largest is None:
            raise ScheduleError(
                f"loop '{leaf.name}' of '{op.tensor.name}' stands inside a reduction loop, so its extent must have "
                f"a constant bound (its iterations accumulate side by side); it is {leaf.extent}: split it first, and "
                "reorder only the inner part"
            )
        slot = slot * largest + leaf.var
        count *= max(largest, 1)
    if count > MAX_TILE:
        raise ScheduleError(
            f"the loops of '{op.tensor.name}' inside its first reduction loop hold {count} elements; "
            f"at most {MAX_TILE} accumulate side by side"
        )
    return slot, count


@dataclass(frozen=True, slots=True)
class _Accumulator:
    """The running value of one reduction: `count` slots of `lanes` partial values each."""

    reduction: Reduce
    values: Buffer
    positions: Buffer | None
    lanes: int
    slot: Expr
    lane: Var
    index: Expr

    @staticmethod
    def make(
        op: Operation, r: Reduce, number: int, count: int, lanes: int, slot: Expr, lane: Var
    ) -> _Accumulator:
        name = f"{op.tensor.name}_{r.op}{number or ''}"
        dtype = r.body.dtype
        values = Buffer(name, dtype, Const(count * lanes), "local")
        is_arg = r.op in ("argmax", "argmin")
        if is_arg and lanes > 1:
            raise UnsupportedError(
                f"vectorize: the loop '{lane.name}' of '{op.tensor.name}' runs an {r.op}; vectorize another loop"
            )
        positions = Buffer(f"{name}_at", dtypes.INDEX, Const(count), "local") if is_arg else None
        return _Accumulator(r, values, positions, lanes, slot, lane, op.nest.values[r.over[0]])

    def buffers(self) -> tuple[Buffer, ...]:
        return (self.values,) if self.positions is None else (self.values, self.positions)

    def _at(self) -> Expr:
        return self.slot if self.lanes == 1 else self.slot * self.lanes + self.lane

    def start(self) -> Stmt:
        identity = reduction_identity(self.reduction.op, self.values.dtype)
        first = Store(self.values, self._at(), identity)
        if self.positions is None:
            return first
        return block([first, Store(self.positions, self._at(), Const(-1))])

    def step(self) -> Stmt:
        at = self._at()
        so_far = Read(self.values, at)
        value = self.reduction.body
        if self.positions is None:
            return Store(self.values, at, combine(self.reduction.op, value, so_far))
        candidate = Var(f"{self.values.name}_new", value.dtype)
        position = Read(self.positions, at)
        better = self._beats(candidate, so_far, self.index, position)
        update = block([Store(self.values, at, candidate), Store(self.positions, at, self.index)])
        return Let(candidate, value, If(better, update))

    def scaled(self, factor: Expr) -> Stmt:
        return Store(self.values, self._at(), Read(self.values, self._at()) * factor)

    def _beats(self, new: Expr, best: Expr, at: Expr, best_at: Expr) -> Expr:
        """NumPy's argmax: the first NaN, else the first largest; whatever the order of the iterations."""
        larger = binary("lt", best, new) if self.reduction.op == "argmax" else binary("lt", new, best)
        tie = binary("eq", new, best)
        if dtypes.is_float(new.dtype):
            new_nan, best_nan = binary("ne", new, new), binary("ne", best, best)
            larger = larger | (new_nan & binary("eq", best, best))
            tie = tie | (new_nan & best_nan)
        return binary("lt", best_at, 0) | larger | (tie & (at < best_at))

    def result(self) -> Expr:
        if self.positions is not None:
            return Read(self.positions, self.slot)
        if self.lanes == 1:
            return Read(self.values, self.slot)
        return LaneReduce(self.reduction.op, self.values, self.slot * self.lanes, self.lanes)
