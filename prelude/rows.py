"""What tables share, the loops over rows and entries among it: functions, each in a module at most once.

They know nothing of a specification, so that they are compiled once for a processor (`native.shared_code`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from cora.prelude.emit import I32, I64, PTR, Cell, Emitter, Value, const, no_tables
from cora.prelude.status import MAX_ENTRIES, NO_ROOM, TOO_LARGE, WRONG_COUNT

_LANES = 16
_VECTOR = ir.VectorType(I32, _LANES)


@dataclass(frozen=True)
class Helper:
    """A function: `emit` gives its result (64 bits) from its arguments, of types `types`."""

    name: str
    types: tuple[Any, ...]
    emit: Callable[..., Value]


class Helpers:
    """The helpers of one module, made when they are first called: here (`inside`), or only declared."""

    def __init__(self, module: Value, *, inside: bool) -> None:
        self._module = module
        self._inside = inside
        self._made: dict[str, Value] = {}

    def call(self, x: Emitter, helper: Helper, arguments: Sequence[Value]) -> Value:
        """The result of `helper`, called from the function that `x` emits."""
        return x.builder.call(self.function(helper), arguments)

    def function(self, helper: Helper) -> Value:
        """The function of `helper`."""
        function = self._made.get(helper.name)
        if function is None:
            signature = ir.FunctionType(I64, helper.types)
            function = ir.Function(self._module, signature, name=symbol(helper))
            function.attributes.add("noinline")
            function.attributes.add("nounwind")
            for argument in function.args:
                if argument.type == PTR:
                    argument.add_attribute("noalias")
            if self._inside:
                builder = ir.IRBuilder(function.append_basic_block("entry"))
                builder.ret(helper.emit(no_tables(builder), *function.args))
            self._made[helper.name] = function
        return function


def symbol(helper: Helper) -> str:
    """The name of a helper's function; hidden, so that each library has its own."""
    return f"cora_prelude_{helper.name}"


def _fill_rows(
    x: Emitter,
    out: Value,
    starts: Value,
    base: Value,
    count: Value,
    rows: Value,
    entries: Value,
    inner: Value,
) -> Value:
    """Fill `count` entries from `base` on, row r from `base + starts[r]` to `base + starts[r + 1]`.

    `inner` is 0 or 1. 0: each entry is r (`ffo`); 1: entries are 0, 1, 2... (`ffi`). What no row has is 0.
    Whole vectors are stored past the end of a row, where the next row then overwrites them; never past
    `entries`, the end of the table.
    """
    b = x.builder
    inner32 = b.trunc(inner, I32)
    ramp = b.mul(_splat(x, inner32), ir.Constant(_VECTOR, list(range(_LANES))))
    stride = _splat(x, b.mul(inner32, ir.Constant(I32, _LANES)))
    is_inner = b.icmp_signed("!=", inner, const(0))
    last_vector = b.sub(entries, const(_LANES - 1))
    end_of_loop = b.add(base, count)
    begin = Cell(x, base)
    with x.loop(rows) as r:
        start, end = begin.get(), b.add(base, x.load(I64, starts, b.add(r, const(1))))
        # starts that decrease or pass the end are refused by their own check; here they must do no harm
        end = x.larger(x.smaller(end, end_of_loop), start)
        row = b.select(is_inner, const(0), r)
        first = b.add(_splat(x, b.trunc(row, I32)), ramp)
        at, vector = Cell(x, start), Cell(x, first)
        # whole vectors start before `stop`: in the row, and at least one vector before the end of the table
        stop = x.smaller(end, last_vector)
        with b.if_then(b.icmp_signed("<", start, stop)):
            x.store_vector(out, start, first)
            # go on at a multiple of a vector: tables are aligned, so no store then crosses a cache line
            at.set(b.add(b.or_(start, const(_LANES - 1)), const(1)))
            skipped = b.mul(b.trunc(b.sub(at.get(), start), I32), inner32)
            vector.set(b.add(first, _splat(x, skipped)))
        with x.while_(lambda: b.icmp_signed("<", at.get(), stop)):
            x.store_vector(out, at.get(), vector.get())
            at.set(b.add(at.get(), const(_LANES)))
            vector.set(b.add(vector.get(), stride))
        with x.while_(lambda: b.icmp_signed("<", at.get(), end)):
            x.store(I32, out, at.get(), b.select(is_inner, b.sub(at.get(), start), r))
            at.set(b.add(at.get(), const(1)))
        begin.set(end)
    with x.loop(b.sub(end_of_loop, begin.get())) as i:
        x.store(I32, out, b.add(begin.get(), i), const(0))
    return const(0)


def _check_rows(
    x: Emitter, data: Value, starts: Value, base: Value, count: Value, rows: Value, inner: Value
) -> Value:
    """The first or last entry of a fused loop if it is not in its row, else -1; see `_fill_rows`.

    ffo: 0 <= r < rows, and the iteration is in row r; ffi: from 0 to the iteration.
    """
    b = x.builder
    bad = Cell(x, const(-1))
    with b.if_then(b.icmp_signed(">", rows, const(0))):
        used = x.smaller(x.load(I64, starts, rows), count)
        ends = b.select(b.icmp_signed(">", used, const(0)), const(2), const(0))
        with x.loop(ends) as which:
            f = b.mul(which, b.sub(used, const(1)))  # 0, then the last iteration
            position = b.add(base, f)
            value = x.load(I32, data, position)
            is_inner = b.icmp_signed("!=", inner, const(0))
            limit = b.select(is_inner, b.add(f, const(1)), rows)
            in_range = b.and_(b.icmp_signed(">=", value, const(0)), b.icmp_signed("<", value, limit))
            row = b.select(b.or_(is_inner, b.not_(in_range)), const(0), value)
            after_start = b.icmp_signed("<=", x.load(I64, starts, row), f)
            before_end = b.icmp_signed(">", x.load(I64, starts, b.add(row, const(1))), f)
            in_row = b.or_(is_inner, b.and_(after_start, before_end))
            bad.set(b.select(b.and_(in_range, in_row), bad.get(), position))
    return bad.get()


def _admit(x: Emitter, status: Value, entries: Value, room: Value) -> Value:
    """What forbids to fill or to use a table: the status of counting its entries, or these; 0 if nothing does.

    room: as in the frame (`cora.prelude.native`).
    """
    b = x.builder
    other = b.icmp_signed("!=", entries, b.not_(room))
    filled = b.select(other, const(WRONG_COUNT), const(0))
    empty = b.select(b.icmp_signed("<", room, entries), const(NO_ROOM), const(0))
    fault = b.select(b.icmp_signed("<", room, const(0)), filled, empty)
    fault = b.select(b.icmp_signed(">", entries, const(MAX_ENTRIES)), const(TOO_LARGE), fault)
    return b.select(b.icmp_signed("!=", status, const(0)), status, fault)


def _check_sums(x: Emitter, data: Value, base: Value, count: Value) -> Value:
    """The first of `count` sums from `base` on that is below the one before, or not 0 first; else -1."""
    b = x.builder
    bad, previous = Cell(x, const(-1)), Cell(x, const(0))
    with x.loop(count) as i:
        position = b.add(base, i)
        value = x.load(I64, data, position)
        wrong = b.icmp_signed("!=", value, const(0))
        wrong = b.select(b.icmp_signed("==", i, const(0)), wrong, b.icmp_signed("<", value, previous.get()))
        note_first(x, bad, wrong, position)
        previous.set(value)
    return bad.get()


def _check_lengths(x: Emitter, data: Value, count: Value) -> Value:
    """The first negative one of `count` lengths, else -1."""
    b = x.builder
    bad = Cell(x, const(-1))
    with x.loop(count) as i:
        note_first(x, bad, b.icmp_signed("<", x.load(I32, data, i), const(0)), i)
    return bad.get()


def _check_cuts(x: Emitter, data: Value, count: Value, rows: Value) -> Value:
    """The first of `count` cuts that is wrong, else -1: from 0 to `rows`, not decreasing."""
    b = x.builder
    bad, previous = Cell(x, const(-1)), Cell(x, const(0))
    with x.loop(count) as i:
        value = x.load(I32, data, i)
        first = b.icmp_signed("==", i, const(0))
        last = b.and_(b.not_(first), b.icmp_signed("==", i, b.sub(count, const(1))))
        lower = b.select(last, rows, previous.get())
        upper = b.select(first, const(0), rows)
        wrong = b.or_(b.icmp_signed("<", value, lower), b.icmp_signed(">", value, upper))
        note_first(x, bad, wrong, i)
        previous.set(value)
    return bad.get()


def note_first(x: Emitter, bad: Cell, wrong: Value, position: Value) -> None:
    """Keep the first position at which something is wrong."""
    b = x.builder
    first = b.and_(wrong, b.icmp_signed("<", bad.get(), const(0)))
    bad.set(b.select(first, position, bad.get()))


def _splat(x: Emitter, value: Value) -> Value:
    b = x.builder
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = b.insert_element(undefined, value, ir.Constant(I32, 0))
    return b.shuffle_vector(first, undefined, ir.Constant(_VECTOR, [0] * _LANES))


ADMIT = Helper("admit", (I64, I64, I64), _admit)
FILL_ROWS = Helper("fill_rows", (PTR, PTR, I64, I64, I64, I64, I64), _fill_rows)
CHECK_ROWS = Helper("check_rows", (PTR, PTR, I64, I64, I64, I64), _check_rows)
CHECK_SUMS = Helper("check_sums", (PTR, I64, I64), _check_sums)
CHECK_LENGTHS = Helper("check_lengths", (PTR, I64), _check_lengths)
CHECK_CUTS = Helper("check_cuts", (PTR, I64, I64), _check_cuts)
HELPERS = (ADMIT, FILL_ROWS, CHECK_ROWS, CHECK_SUMS, CHECK_LENGTHS, CHECK_CUTS)
