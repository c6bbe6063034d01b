"""From an `Operation` to loops: bounds, conditions, accumulators of reductions, and work shared by the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cora.errors import InternalError, ScheduleError, UnsupportedError
from cora.ir import dtypes
from cora.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Call,
    Const,
    Dim,
    Expr,
    LaneReduce,
    Read,
    Reduce,
    ReduceOp,
    Size,
    Var,
    binary,
    conjunction,
)
from cora.ir.simplify import common_factor, simplify
from cora.ir.stmt import Alloc, Buffer, For, If, Let, LoopKind, Stmt, Store, block
from cora.ir.ufun import cuts, scan
from cora.ir.visit import free_vars, substitute, walk
from cora.lang.check import reductions_of
from cora.lower.flatten import flatten, flatten_body
from cora.lower.guards import Guards
from cora.lower.operation import Operation, reduction_identity, simplifier_of
from cora.lower.tensorize import make_tile
from cora.lower.threads import across_threads
from cora.schedule.nest import Leaf
from cora.storage.layout import Layout

WORKERS = Size("%workers")
MAX_TILE = 4096


def make_loops(
    op: Operation,
    layouts: Mapping[str, Layout],
    buffers: Mapping[str, Buffer],
    guards: Guards,
    attached: Mapping[str, Stmt] = MappingProxyType({}),
) -> Stmt:
    """The loops of one operator; table calls are still calls.

    attached: what other operators compute at the start of each iteration of a leaf, by its name.
    """
    simplifier = simplifier_of(op.nest)
    flat = _Flat(
        buffers[op.tensor.name],
        flatten(op.tensor, op.indices, layouts, simplifier),
        simplifier(flatten_body(op.body, layouts, buffers, simplifier)),
    )
    loops = _Loops(op.nest.leaves, attached)
    if op.nest.tile:
        tile, conditions = make_tile(op, flat.buffer, flat.offset, flat.body, guards)
        return loops.around(loops.leaves[: -op.nest.tile], conditions, tile)
    if any(leaf.reduction for leaf in op.nest.leaves):
        return _reduction(op, flat, loops)
    return loops.around(loops.leaves, op.conditions, Store(flat.buffer, flat.offset, flat.body))


@dataclass(frozen=True, slots=True)
class _Flat:
    """An operator over flat buffers: where its element goes, and its value."""

    buffer: Buffer
    offset: Expr
    body: Expr


@dataclass(frozen=True, slots=True)
class _Loops:
    """All leaves of a nest, and what is attached to them."""

    leaves: tuple[Leaf, ...]
    attached: Mapping[str, Stmt]

    def around(self, leaves: tuple[Leaf, ...], conditions: tuple[Expr, ...], body: Stmt) -> Stmt:
        """`body` inside some of the leaves, each condition as far outside as its variables allow."""
        place_of = {leaf.var: place for place, leaf in enumerate(leaves)}
        at: dict[int, list[Expr]] = {}
        for condition in conditions:
            depth = max((place_of[v] for v in free_vars(condition) if v in place_of), default=-1)
            at.setdefault(depth, []).append(condition)
        for place in reversed(range(len(leaves))):
            leaf = leaves[place]
            if leaf.name in self.attached:
                body = block([self.attached[leaf.name], body])
            if place in at:
                body = If(conjunction(at[place]), body)
            body = self._loop(leaf, body)
        return If(conjunction(at[-1]), body) if -1 in at else body

    def _loop(self, leaf: Leaf, body: Stmt) -> Stmt:
        if leaf.kind is not LoopKind.PARALLEL:
            return For(leaf.var, ZERO, leaf.extent, leaf.kind, body)
        worker = worker_of(leaf)
        begin, end = work_share(self.leaves, self.leaves.index(leaf), worker)
        share = For(leaf.var, begin, end, LoopKind.SERIAL, body)
        return For(worker, ZERO, WORKERS, LoopKind.PARALLEL, share)


def worker_of(leaf: Leaf) -> Var:
    """The loop variable that counts the workers that share a parallel leaf."""
    return Var(f"{leaf.name}_worker")


def work_share(leaves: tuple[Leaf, ...], place: int, worker: Var) -> tuple[Expr, Expr]:
    """The iterations `begin..end` of the parallel leaf at `place` that `worker` runs.

    Cut by cost, where the cost of an iteration is a function of its index alone: the product of the extents
    inside, those that depend on inner loops taken at their largest. Otherwise in equal numbers.
    """
    leaf = leaves[place]
    cost = iteration_cost(leaves, place)
    if leaf.balance == "cost" and free_vars(cost) == {leaf.var} and not free_vars(leaf.extent):
        index = Dim(leaf.name, leaf.extent)
        body = substitute(cost, {leaf.var: index})
        _, varying = common_factor(body, frozenset((index,)))
        cut = cuts(scan((), index, varying), WORKERS)
        return cut(worker), cut(worker + 1)
    return (
        binary("floordiv", leaf.extent * worker, WORKERS),
        binary("floordiv", leaf.extent * (worker + 1), WORKERS),
    )


def iteration_cost(leaves: tuple[Leaf, ...], place: int) -> Expr:
    """About how often the body runs in one iteration of the leaf at `place`, over variables outside and its own.

    Loops inside that depend on one another are taken at their largest; where that is not known, as one iteration.
    """
    cost: Expr = ONE
    largest: dict[Expr, Expr] = {}
    for leaf in leaves[place + 1 :]:
        known = _grows_with(leaf.weight, largest)
        largest[leaf.var] = substitute(leaf.weight, largest) if known else ONE
        cost = cost * largest[leaf.var]
    return simplify(cost)


def _grows_with(weight: Expr, inner: Mapping[Expr, Expr]) -> bool:
    """Whether `weight` may be evaluated anywhere, and where the variables `inner` are at their largest.

    A length that depends on them has no value there, and a divisor may be 0 where a loop is empty.
    """
    for node in walk(weight):
        match node:
            case Call() if free_vars(node) & inner.keys():
                return False
            case Binary(op="floordiv" | "mod", b=divisor) if not isinstance(divisor, Const):
                return False
    return True


def _reduction(op: Operation, flat: _Flat, loops: _Loops) -> Stmt:
    """Accumulators for the spatial loops inside the first reduction loop; set, run, store."""
    leaves = op.nest.leaves
    first = next(place for place, leaf in enumerate(leaves) if leaf.reduction)
    outer, inner = leaves[:first], leaves[first:]
    tile = tuple(leaf for leaf in inner if not leaf.reduction)
    last = leaves[-1]
    lanes = int(last.extent.value) if _is_vector(last) and last.reduction else 1  # type: ignore[attr-defined]
    slot, count = _slot(op, tile)
    reductions = reductions_of(flat.body)
    sums = [_Accumulator.make(op, r, n, count, lanes, slot, last.var) for n, r in enumerate(reductions)]
    outside = frozenset(leaf.var for leaf in (*op.nest.around, *outer))
    bound = outside | {leaf.var for leaf in tile}
    around = tuple(c for c in op.conditions if free_vars(c) <= outside)
    running = tuple(c for c in op.conditions if c not in around)
    storing = tuple(c for c in running if free_vars(c) <= bound)
    lane_loop = (last,) if lanes > 1 else ()
    values: dict[Expr, Expr] = {s.reduction: s.result() for s in sums}
    result = simplify(substitute(flat.body, values))
    if op.nest.accumulates:
        result = combine(reductions[0].op, result, Read(flat.buffer, flat.offset))
    body = block(
        [
            loops.around((*tile, *lane_loop), (), block([s.start() for s in sums])),
            loops.around(inner, running, block([s.step() for s in sums])),
            *across_threads(op.nest, [(s.reduction.op, s.values, s.positions) for s in sums]),
            loops.around(tile, storing, Store(flat.buffer, flat.offset, result)),
        ]
    )
    for buffer in (b for s in sums for b in s.buffers()):
        body = Alloc(buffer, body)
    return loops.around(outer, around, body)


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
    """The row-major position of an element in its tile of accumulators, and the size of the tile."""
    slot: Expr = ZERO
    count = 1
    for leaf in tile:
        if not isinstance(leaf.extent, Const):
            raise ScheduleError(
                f"loop '{leaf.name}' of '{op.tensor.name}' stands inside a reduction loop, so its extent must be "
                f"constant (its iterations accumulate side by side); it is {leaf.extent}: split it first, and "
                "reorder only the inner part"
            )
        slot = slot * int(leaf.extent.value) + leaf.var
        count *= int(leaf.extent.value)
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
