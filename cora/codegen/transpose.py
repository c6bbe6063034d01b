"""A copy that reads down columns and writes along rows, as transposes of square blocks in registers.

    for r in 0..rows: for lane in 0..L: T[.. + r * t + lane] = S[.. + r + lane * s]       (s is not 1)

Lane by lane, each vector of T is L loads from L places. Here L vectors along r are loaded, transposed by shuffles
that stay within 128 bits (4 x 4) and then move 128-bit blocks, and stored. Lanes and rows that do not run are neither
read nor written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm import tirx as T  # noqa: N812

from cora.codegen.abi import memory_dtype
from cora.codegen.emit_expr import evaluate
from cora.codegen.nodes import Tir, const, i64, int_value, ramp, typed
from cora.codegen.values import Context, Mask, Value, below, find, index_constant, make_mask
from cora.ir.expr import ONE, TRUE, ZERO, Const, Expr, Read, Var
from cora.ir.poly import stride_in
from cora.ir.stmt import For, If, LoopKind, Store
from cora.ir.visit import free_vars

#: Lanes of the blocks that there is a network for.
_SIZES = (4, 8, 16)
_ELEMENTS = ("float32", "int32")


def emit_transposed(c: Context, s: For) -> bool:
    """Append the loop `s` if it is such a copy; gives whether it is."""
    copy = _pattern(s)
    if copy is None or c.lanes > 1 or c.mask is not None:
        return False
    inner = c.child()
    active = None
    if copy.condition != TRUE:
        lane = Value(i64(0), "int64", copy.lanes, 1, nonneg=True, small=True)
        varying = replace(inner.with_value(copy.lane, lane), lanes=copy.lanes)
        runs = evaluate(varying, copy.condition)
        if runs.uniform or runs.count is None:
            return False
        active = make_mask(inner.scope, runs)
    if active is None:
        _emit(inner, copy, None)
    else:
        some = inner.child()
        _emit(some, copy, active)
        inner.scope.add(T.IfThenElse(active.any, some.scope.stmt(), None))
    c.scope.add(inner.scope.stmt())
    return True


@dataclass(frozen=True, slots=True)
class _Copy:
    """The pattern: rows of the loop, lanes, the lanes that run, and the two sides."""

    loop: For
    lane: Var
    lanes: int
    condition: Expr
    store: Store
    read: Read


def _pattern(s: For) -> _Copy | None:
    if s.kind not in (LoopKind.SERIAL, LoopKind.UNROLL):
        return None
    match s.body:
        case For(
            var=lane, begin=Const(value=0), end=Const(value=int(lanes)), kind=LoopKind.VECTOR, body=body
        ):
            pass
        case _:
            return None
    condition: Expr = TRUE
    if isinstance(body, If) and body.other is None:
        condition, body = body.cond, body.then
    match body:
        case Store(value=Read() as read) as store if lanes in _SIZES:
            pass
        case _:
            return None
    if read.buffer == store.buffer or not read.buffer.dtype == store.buffer.dtype in _ELEMENTS:
        return None
    if s.var in free_vars(condition):
        return None
    along = (stride_in(store.offset, lane), stride_in(read.offset, s.var))
    across = (stride_in(store.offset, s.var), stride_in(read.offset, lane))
    fixed = all(stride is not None and not free_vars(stride) & {lane, s.var} for stride in across)
    if along != (ONE, ONE) or not fixed or across[1] in (ZERO, ONE):
        return None
    return _Copy(s, lane, lanes, condition, store, read)


def _emit(c: Context, copy: _Copy, active: Mask | None) -> None:
    """Blocks of as many rows as there are lanes, then the rows that are left."""
    begin, end = evaluate(c, copy.loop.begin).tir, evaluate(c, copy.loop.end).tir
    known, size = int_value(end), copy.lanes
    if known is not None and int_value(begin) == 0:
        blocks, rest = divmod(known, size)
        full, left = i64(blocks), i64(rest)
    else:
        rest = 1
        count = c.scope.bind(T.Sub(end, begin), "rows")
        full = c.scope.bind(T.truncdiv(T.Max(count, i64(0)), i64(size)), "blocks")
        left = T.Sub(count, T.Mul(full, i64(size)))
    number = c.scope.var("block", "int64")
    inner = c.child()
    _block(inner, copy, T.Add(begin, T.Mul(number, i64(size))), None, active)
    c.scope.add(T.For(number, i64(0), full, T.ForKind.SERIAL, inner.scope.stmt()))
    if rest:
        some = c.child()
        rows = some.scope.bind(left, "left")
        _block(some, copy, T.Add(begin, T.Mul(full, i64(size))), rows, active)
        c.scope.add(T.IfThenElse(T.GT(left, i64(0)), some.scope.stmt(), None))


def _block(c: Context, copy: _Copy, first: Tir, rows: Tir | None, active: Mask | None) -> None:
    """The rows from `first`: one for each lane, or fewer."""
    size, dtype = copy.lanes, memory_dtype(copy.read.buffer.dtype)
    row = Value(c.scope.bind(first, "first"), "int64", nonneg=True, small=True)
    here = c.with_value(copy.loop.var, row).with_value(copy.lane, index_constant(0))
    source, target = find(c, copy.read.buffer), find(c, copy.store.buffer)
    start = c.scope.bind(evaluate(here, copy.read.offset).tir, "source")
    place = c.scope.bind(evaluate(here, copy.store.offset).tir, "target")
    apart = _stride(here, copy.read.offset, copy.lane)
    step = _stride(here, copy.store.offset, copy.loop.var)
    wanted = None if rows is None else c.scope.bind(below(rows, size), "wanted")
    vectors = []
    for k in range(size):
        number = i64(k) if active is None else T.Min(i64(k), T.Sub(active.count, i64(1)))
        index = ramp(c.scope.bind(T.Add(start, T.Mul(number, apart)), "at"), 1, size)
        if wanted is None:
            vector = T.BufferLoad(source, [index])
        else:
            vector = T.op.masked_load(typed(dtype, size), source, index, wanted)
        vectors.append(c.scope.bind(vector, "column"))
    for r, vector in enumerate(_transposed(c, vectors)):
        index = ramp(T.Add(place, T.Mul(i64(r), step)), 1, size)
        if active is None:
            write = T.BufferStore(target, vector, [index])
        else:
            write = T.Evaluate(T.op.masked_store(target, vector, index, active.vector))
        c.scope.add(write if rows is None else T.IfThenElse(T.GT(rows, i64(r)), write, None))


def _stride(c: Context, offset: Expr, var: Var) -> Tir:
    stride = stride_in(offset, var)
    assert stride is not None
    return c.scope.bind(evaluate(c, stride).tir, "stride")


def _transposed(c: Context, vectors: Sequence[Tir]) -> list[Tir]:
    """The vectors whose k-th elements are the given ones': 4 x 4 in each 128 bits, then blocks of 128 bits."""
    size = len(vectors)
    pairs = [p for i in range(0, size, 2) for p in _zipped(c, vectors[i], vectors[i + 1], 1, size)]
    fours: list[Tir] = []
    for i in range(0, size, 4):
        for k in range(2):
            fours += _zipped(c, pairs[i + k], pairs[i + k + 2], 2, size)
    # Element m of group g is now column m % 4 of each 128-bit block, of rows 4 * g to 4 * g + 3.
    groups = [fours[i : i + 4] for i in range(0, size, 4)]
    columns = [_gathered(c, [group[k] for group in groups], size) for k in range(4)]
    return [columns[m % 4][m // 4] for m in range(size)]


def _zipped(c: Context, a: Tir, b: Tir, width: int, size: int) -> tuple[Tir, Tir]:
    """Runs of `width` elements of a and b in turn, of the lower and of the upper half of each 128 bits."""
    halves = []
    for half in (0, 2):
        lanes = []
        for quad in range(0, size, 4):
            for k in range(0, 2, width):
                for base in (0, size):
                    lanes += [base + quad + half + k + w for w in range(width)]
        halves.append(_shuffle(c, a, b, lanes))
    return halves[0], halves[1]


def _gathered(c: Context, vectors: Sequence[Tir], size: int) -> list[Tir]:
    """For each 128-bit block: those of all vectors side by side."""
    if len(vectors) == 1:
        return list(vectors)
    blocks = size // 4

    def halved(a: Tir, b: Tir, odd: int) -> Tir:
        chosen = [*range(odd, blocks, 2), *range(blocks + odd, 2 * blocks, 2)]
        return _shuffle(c, a, b, [4 * block + k for block in chosen for k in range(4)])

    even, odd = ([halved(vectors[i], vectors[i + 1], o) for i in range(0, len(vectors), 2)] for o in (0, 1))
    if len(vectors) == 2:
        return [even[0], odd[0]]
    return [halved(half[0], half[1], o) for o in (0, 1) for half in (even, odd)]


def _shuffle(c: Context, a: Tir, b: Tir, lanes: Sequence[int]) -> Tir:
    """The lanes of a and b, numbered through."""
    return c.scope.bind(T.Shuffle([a, b], [const(lane, "int32") for lane in lanes]), "shuffled")
