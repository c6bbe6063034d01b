"""Orders of rows, and rows given to workers: sorting, and longest processing time first."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from cora.prelude.emit import I1, I32, I64, PTR, Cell, Emitter, Value, const
from cora.prelude.rows import Helper, note_first


def _cost(x: Emitter, starts: Value, row: Value) -> Value:
    """The cost of a row: the difference of two sums."""
    b = x.builder
    return b.sub(x.load(I64, starts, b.add(row, const(1))), x.load(I64, starts, row))


def _sift(
    x: Emitter,
    root: Value,
    end: Value,
    above: Callable[[Value], Value],
    better: Callable[[Value], Value],
    move: Callable[[Value, Value], None],
) -> Value:
    """Where an item belongs in the heap `0..end` whose root is free; items on the way move up.

    better(left): the child to look at, given that both are there; above(child): whether the item belongs below it.
    """
    b = x.builder
    place = Cell(x, root)
    child = Cell(x, const(0))

    def goes_on() -> Value:
        left = b.add(b.shl(place.get(), const(1)), const(1))
        child.set(left)
        both = b.icmp_signed("<", b.add(left, const(1)), end)
        with b.if_then(both):
            child.set(better(left))
        there = b.icmp_signed("<", left, end)
        return x.lazily(there, lambda: above(child.get()), lambda: ir.Constant(I1, 0))

    with x.while_(goes_on):
        move(place.get(), child.get())
        place.set(child.get())
    return place.get()


def _sort_descending(x: Emitter, out: Value, starts: Value, count: Value) -> Value:
    """The rows 0..count by descending cost, equal ones by index: heap sort, whose heap has the last one on top."""
    b = x.builder

    def after(p: Value, q: Value) -> Value:
        """Whether row p comes after row q."""
        cost_p, cost_q = _cost(x, starts, p), _cost(x, starts, q)
        tie = b.and_(b.icmp_signed("==", cost_p, cost_q), b.icmp_signed(">", p, q))
        return b.or_(b.icmp_signed("<", cost_p, cost_q), tie)

    def at(place: Value) -> Value:
        return x.load(I32, out, place)

    def put_down(root: Value, end: Value, item: Value) -> None:
        def better(left: Value) -> Value:
            right = b.add(left, const(1))
            return b.select(after(at(right), at(left)), right, left)

        place = _sift(
            x,
            root,
            end,
            lambda child: after(at(child), item),
            better,
            lambda to, child: x.store(I32, out, to, at(child)),
        )
        x.store(I32, out, place, item)

    with x.loop(count) as i:
        x.store(I32, out, i, i)
    half = b.sdiv(count, const(2))
    # two phases in one loop, so that the heap is written once: heapify from the last parent, then take the top off
    with x.loop(b.add(half, x.larger(b.sub(count, const(1)), const(0)))) as step:
        building = b.icmp_signed("<", step, half)
        root = b.select(building, b.sub(b.sub(half, step), const(1)), const(0))
        end = b.select(building, count, b.sub(b.sub(b.add(count, half), step), const(1)))
        item = at(b.select(building, root, end))
        with b.if_then(b.not_(building)):
            x.store(I32, out, end, at(const(0)))
        put_down(root, end, item)
    return const(0)


def _fill_owners(x: Emitter, out: Value, order: Value, starts: Value, count: Value, workers: Value) -> Value:
    """Each row, in `order`, to the worker with the least work; a heap of workers by (work, number)."""
    b = x.builder
    some = x.larger(workers, const(1))
    work = b.alloca(I64, size=some)
    name = b.alloca(I64, size=some)
    with x.loop(some) as w:
        x.store(I64, work, w, const(0))
        x.store(I64, name, w, w)

    def first(a_work: Value, a_name: Value, place: Value) -> Value:
        """Whether worker a has less work than the one at `place`, or as much and a lower number."""
        other = x.load(I64, work, place)
        tie = b.and_(b.icmp_signed("==", a_work, other), b.icmp_signed("<", a_name, x.load(I64, name, place)))
        return b.or_(b.icmp_signed("<", a_work, other), tie)

    with x.loop(count) as k:
        row = x.load(I32, order, k)
        owner = x.load(I64, name, const(0))
        x.store(I32, out, row, owner)
        more = b.add(x.load(I64, work, const(0)), b.add(_cost(x, starts, row), const(1)))

        def better(left: Value) -> Value:
            right = b.add(left, const(1))
            return b.select(first(x.load(I64, work, right), x.load(I64, name, right), left), right, left)

        def move(to: Value, child: Value) -> None:
            x.store(I64, work, to, x.load(I64, work, child))
            x.store(I64, name, to, x.load(I64, name, child))

        def above(child: Value, more: Value = more, owner: Value = owner) -> Value:
            return b.not_(first(more, owner, child))

        place = _sift(x, const(0), some, above, better, move)
        x.store(I64, work, place, more)
        x.store(I64, name, place, owner)
    return const(0)


def _fill_starts(x: Emitter, out: Value, owners: Value, count: Value, entries: Value) -> Value:
    """How many of the `count` rows belong to workers before each; `entries` is one more than there are workers."""
    b = x.builder
    with x.loop(entries) as w:
        x.store(I32, out, w, const(0))
    with b.if_then(b.icmp_signed(">", entries, const(1))):
        with x.loop(count) as r:
            place = b.add(x.load(I32, owners, r), const(1))
            x.store(I32, out, place, b.add(x.load(I32, out, place), const(1)))
        with x.loop(b.sub(entries, const(1))) as w:
            after = b.add(w, const(1))
            x.store(I32, out, after, b.add(x.load(I32, out, after), x.load(I32, out, w)))
    return const(0)


def _fill_lists(x: Emitter, out: Value, owners: Value, starts: Value, count: Value, workers: Value) -> Value:
    """The `count` rows by owner, then by index."""
    b = x.builder
    some = x.larger(workers, const(1))
    next_place = b.alloca(I64, size=some)
    with x.loop(some) as w:
        x.store(I64, next_place, w, x.load(I32, starts, w))
    with x.loop(count) as r:
        owner = x.load(I32, owners, r)
        place = x.load(I64, next_place, owner)
        x.store(I32, out, place, r)
        x.store(I64, next_place, owner, b.add(place, const(1)))
    return const(0)


def _check_order(x: Emitter, data: Value, count: Value) -> Value:
    """The first of `count` entries that is not in 0..count-1, else -1."""
    b = x.builder
    bad = Cell(x, const(-1))
    with x.loop(count) as i:
        value = x.load(I32, data, i)
        wrong = b.or_(b.icmp_signed("<", value, const(0)), b.icmp_signed(">=", value, count))
        note_first(x, bad, wrong, i)
    return bad.get()


DESCENDING = Helper("descending", (PTR, PTR, I64), _sort_descending)
OWNERS = Helper("owners", (PTR, PTR, PTR, I64, I64), _fill_owners)
STARTS = Helper("starts", (PTR, PTR, I64, I64), _fill_starts)
LISTS = Helper("lists", (PTR, PTR, PTR, I64, I64), _fill_lists)
CHECK_ORDER = Helper("check_order", (PTR, I64), _check_order)
HELPERS = (DESCENDING, OWNERS, STARTS, LISTS, CHECK_ORDER)
