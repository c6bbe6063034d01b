"""Size, filling and checking of the table of one function, by kind of definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from cora.errors import InternalError
from cora.ir.expr import Dim
from cora.ir.ufun import (
    Cuts,
    Descending,
    FusedInner,
    FusedOuter,
    Given,
    Lists,
    Maximum,
    Owners,
    Scan,
    Starts,
    UFun,
    formal,
    rows_of,
)
from cora.prelude.emit import I1, I64, Cell, Emitter, Env, Value, const, stored_type
from cora.prelude.orders import CHECK_ORDER, DESCENDING, LISTS, OWNERS, STARTS
from cora.prelude.rows import (
    CHECK_CUTS,
    CHECK_LENGTHS,
    CHECK_ROWS,
    CHECK_SUMS,
    FILL_ROWS,
    Helpers,
)
from cora.prelude.spec import Table

_I128 = ir.IntType(128)


def emit_fill(x: Emitter, helpers: Helpers, table: Table, out: Value, entries: Value) -> None:
    """Write all `entries` of `table` to `out`, in order of position. Lengths are there already."""
    match table.fun.definition:
        case Given():
            pass
        case Scan(index=index, body=body):
            _fill_scan(x, table.fun, out, lambda env, i: x.value(body, {**env, index: i}))
        case FusedOuter(offset=offset) | FusedInner(offset=offset):
            inner = const(int(isinstance(table.fun.definition, FusedInner)))
            with _fused_loops(x, table.fun, offset) as (starts, base, count, rows):
                helpers.call(x, FILL_ROWS, [out, starts, base, count, rows, entries, inner])
        case Maximum(over=over, body=body):
            _fill_maximum(x, table.fun, out, over, lambda env: x.value(body, env))
        case Cuts() as definition:
            _fill_cuts(x, table.fun, out, definition)
        case Descending(cost=cost):
            helpers.call(x, DESCENDING, [out, x.address(cost), entries])
        case Owners(order=UFun(definition=Descending(cost=cost)) as order, parts=parts):
            workers = x.count(parts, {})
            helpers.call(x, OWNERS, [out, x.address(order), x.address(cost), entries, workers])
        case Starts(owners=owners):
            helpers.call(x, STARTS, [out, x.address(owners), x.count(rows_of(owners), {}), entries])
        case Lists(owners=UFun(definition=Owners(parts=parts)) as owners):
            starts = x.address(UFun("starts", (formal(0, parts + 1),), Starts(owners)))
            helpers.call(x, LISTS, [out, x.address(owners), starts, entries, x.count(parts, {})])
        case other:
            raise InternalError(f"prelude: cannot compute the table of '{table.fun}': {other}")


def emit_check(x: Emitter, helpers: Helpers, table: Table, data: Value, entries: Value) -> Value:
    """The position of an entry that violates a fact, -1 if none is found.

    Given: entries are not negative. Scan: rows start at 0 and do not decrease. FusedOuter, FusedInner: the
    first and the last entry of a fused loop are in their row. Cuts, Starts: from 0 to n, not decreasing.
    Descending, Lists, and a permutation: from 0 to n - 1. Maximum, Owners: no facts.
    """
    match table.fun.definition:
        case Given(permutation=True) | Descending() | Lists():
            return helpers.call(x, CHECK_ORDER, [data, entries])
        case Starts():
            return helpers.call(x, CHECK_CUTS, [data, entries, x.count(rows_of(table.fun), {})])
        case Given():
            return helpers.call(x, CHECK_LENGTHS, [data, entries])
        case Scan():
            bad = Cell(x, const(-1))
            with _table_rows(x, table.fun) as (_, base, count):
                bad.set(x.larger(bad.get(), helpers.call(x, CHECK_SUMS, [data, base, count])))
            return bad.get()
        case FusedOuter(offset=offset) | FusedInner(offset=offset):
            inner = const(int(isinstance(table.fun.definition, FusedInner)))
            bad = Cell(x, const(-1))
            with _fused_loops(x, table.fun, offset) as (starts, base, count, rows):
                found = helpers.call(x, CHECK_ROWS, [data, starts, base, count, rows, inner])
                bad.set(x.larger(bad.get(), found))
            return bad.get()
        case Cuts(cost=cost):
            return helpers.call(x, CHECK_CUTS, [data, entries, x.count(_rows_of(cost), {})])
        case Maximum() | Owners():
            return const(-1)


@contextmanager
def _table_rows(x: Emitter, fun: UFun) -> Iterator[tuple[Env, Value, Value]]:
    """The loop nest over the outer formals; gives their values, and first position and length of each row."""
    *outer, last = fun.domain
    position = Cell(x, const(0))
    with x.loops(outer, {}) as env:
        base, count = position.get(), x.count(last.extent, env)
        yield env, base, count
        position.set(x.builder.add(base, count))


@contextmanager
def _fused_loops(x: Emitter, fun: UFun, offset: UFun) -> Iterator[tuple[Value, Value, Value, Value]]:
    """The fused loops in a table: address of the row starts, first position, iterations, rows."""
    theirs = x.table(offset).fun
    with _table_rows(x, fun) as (env, base, count):
        outer: dict[Any, Value] = {
            formal: env[dim] for formal, dim in zip(theirs.domain[:-1], fun.domain[:-1], strict=True)
        }
        starts = x.at(x.address(theirs), x.start(theirs, outer), I64)
        yield starts, base, count, x.count(_rows_of(theirs), outer)


def _fill_scan(x: Emitter, fun: UFun, out: Value, body: Callable[[Env, Value], Value]) -> None:
    b = x.builder
    with _table_rows(x, fun) as (env, base, count), b.if_then(b.icmp_signed(">", count, const(0))):
        total = Cell(x, const(0))
        x.store(I64, out, base, const(0))
        with x.loop(b.sub(count, const(1))) as i:
            total.set(x.add(total.get(), body(env, i)))
            x.store(I64, out, b.add(base, b.add(i, const(1))), total.get())


def _fill_maximum(
    x: Emitter, fun: UFun, out: Value, over: Sequence[Dim], body: Callable[[Env], Value]
) -> None:
    b = x.builder
    position, lowest = Cell(x, const(0)), const(-(2**63))
    with x.loops(fun.domain, {}) as env:
        best = Cell(x, lowest)
        with x.loops(over, env) as inner:
            best.set(x.larger(body(inner), best.get()))
        # the lowest integer is no valid entry, so it can stand for "none"
        empty = b.icmp_signed("==", best.get(), lowest)
        x.store(stored_type(fun), out, position.get(), b.select(empty, const(0), best.get()))
        position.set(b.add(position.get(), const(1)))


def _fill_cuts(x: Emitter, fun: UFun, out: Value, definition: Cuts) -> None:
    """Cuts and costs increase: one walk over the rows finds all. Products have 128 bits: they fit.

    The walk ends at the least row that reaches the target; the one before may be nearer.
    """
    b, cost = x.builder, definition.cost
    n, parts = x.count(_rows_of(cost), {}), x.value(definition.parts, {})
    starts = x.at(x.address(cost), x.start(cost, {}), I64)
    some = b.icmp_signed(">", n, const(0))
    total = x.lazily(some, lambda: x.load(I64, starts, n), lambda: const(0))

    def product(p: Value, q: Value) -> Value:
        return b.mul(b.sext(p, _I128), b.sext(q, _I128))

    row = Cell(x, const(0))
    with _table_rows(x, fun) as (_, base, count), x.loop(count) as w:
        target = product(w, total)

        def before_cut() -> Value:
            return x.lazily(
                b.icmp_signed("<", row.get(), n),
                lambda: b.icmp_signed("<", product(x.load(I64, starts, row.get()), parts), target),
                lambda: ir.Constant(I1, 0),
            )

        with x.while_(before_cut):
            row.set(b.add(row.get(), const(1)))

        def nearest() -> Value:
            here, before = row.get(), b.sub(row.get(), const(1))
            over = b.sub(product(x.load(I64, starts, here), parts), target)
            under = b.sub(target, product(x.load(I64, starts, before), parts))
            return b.select(b.icmp_signed("<=", under, over), before, here)

        cut = x.lazily(b.icmp_signed(">", row.get(), const(0)), nearest, lambda: const(0))
        between = b.and_(b.icmp_signed(">", w, const(0)), b.icmp_signed("<", w, parts))
        end = b.select(b.icmp_signed("==", w, const(0)), const(0), n)
        value = b.select(between, cut, end)
        x.store(stored_type(fun), out, b.add(base, w), value)


def _rows_of(offset: UFun) -> Any:
    """The number of rows that a Scan sums over, as an expression."""
    if not isinstance(offset.definition, Scan):
        raise InternalError(f"prelude: row starts '{offset}' must be a Scan; got {offset.definition}")
    return offset.definition.index.extent
