"""Symbolic interval reasoning: goals are combined out of known inequalities.

A goal becomes `p >= 0` with p a polynomial. As long as p has a term that may be negative, a multiple
of a known inequality `g >= 0` that contains this term is subtracted: p = factor * g + p', and p' >= 0
is left to show. With the ranges of loop variables as inequalities this is the elimination of variables
by their bounds, innermost first. Inequalities also come from assumptions, from the facts about
uninterpreted functions (those whose guard is itself proved in this way), and from divisions, minima
and maxima. Sound; what it does not find may still be true.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from math import gcd
from typing import TypeAlias

from cora.ir import dtypes
from cora.ir.bounds import bounds
from cora.ir.expr import Binary, Call, Const, Dim, Expr, Select, Size, Unary, Var
from cora.ir.facts import facts, relations, values_nonnegative
from cora.ir.visit import substitute, walk
from cora.prove.context import Context, Range
from cora.prove.logic import conjuncts, negate
from cora.prove.terms import Extremum, Frozen, Leaf, Mono, Poly, Quotient, Terms, combine, freeze

_AGE = 3  # every so many times the oldest of them is next
_STEPS = (24, 12, 6)  # polynomials looked at for one goal `p >= 0`, by level of guards
_BUDGET = 200  # the same in total, over all parts of a goal
_TERMS = 24  # larger polynomials are not looked at
_GUARD_LEVELS = 2  # facts whose guards are proved with facts whose guards are proved
_SPLITS = 3  # case distinctions by a minimum, a maximum or a Select

_Key: TypeAlias = tuple[Frozen, int]


class _Budget:
    """How many polynomials may still be looked at for one goal, in all its cases and guards."""

    def __init__(self) -> None:
        self.left = _BUDGET


class _Frontier:
    """The polynomials that a search has yet to look at: best first, with the fewest terms that may be negative, and now
    and then the oldest, since all that a bad one leads to may look better than a good one.
    """

    def __init__(self) -> None:
        self._by_size: list[tuple[int, int, int]] = []
        self._by_age: deque[int] = deque()
        self._left: dict[int, Poly] = {}
        self._added = 0

    def __bool__(self) -> bool:
        return bool(self._left)

    def add(self, bad: int, p: Poly) -> None:
        """Add `p`, of whose terms `bad` may be negative."""
        heappush(self._by_size, (bad, len(p), self._added))
        self._by_age.append(self._added)
        self._left[self._added] = p
        self._added += 1

    def take(self, *, oldest: bool) -> Poly:
        """The best, or the oldest."""
        while True:
            number = self._by_age.popleft() if oldest else heappop(self._by_size)[-1]
            if number in self._left:
                return self._left.pop(number)


class Interval:
    """A proof in one context. Facts and partial results are remembered."""

    def __init__(self, context: Context, splits: int = _SPLITS, budget: _Budget | None = None) -> None:
        self._context = context
        self._budget = budget if budget is not None else _Budget()
        self._splits = splits
        self._terms = Terms()
        self._ends: dict[Expr, Expr] = {r.var: r.end for r in context.ranges}
        self._rank: dict[Expr, int] = {r.var: i for i, r in enumerate(context.ranges)}
        self._given: dict[Expr, None] = {}
        self._known: list[Poly] = []
        self._positive: set[int] = set()
        self._level = 0
        self._memo: dict[tuple[Expr, int], bool] = {}
        self._done: dict[_Key, bool] = {}
        self._about: dict[tuple[int, int], list[Poly]] = {}
        self._pairs: dict[tuple[int, int, int], list[Poly]] = {}
        for r in context.ranges:
            self._known.append(self._at_least(r.end - 1, r.var))
        for assumption in context.assumptions:
            self._assume(assumption)

    def holds(self, goal: Expr) -> bool:
        """Whether `goal` (a bool expression) is proved in this context."""
        key = goal, self._level
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._holds(goal) or self._by_cases(goal)
        return found

    def _holds(self, goal: Expr) -> bool:
        if goal in self._given:
            return True
        match goal:
            case Const(value=v):
                return bool(v)
            case Unary(op="not", a=a):
                positive = negate(a)
                return positive != goal and self.holds(positive)
            case Binary(op="and", a=a, b=b):
                return self.holds(a) and self.holds(b)
            case Binary(op="or", a=a, b=b):
                return self._either(a, b)
            case Binary(op=op, a=a, b=b) if dtypes.is_int(a.dtype):
                return self._compare(op, a, b)
        return False

    def _compare(self, op: str, a: Expr, b: Expr) -> bool:
        match op:
            case "lt":
                return self._nonnegative(self._at_least(b - 1, a))
            case "le":
                return self._nonnegative(self._at_least(b, a))
            case "eq":
                return self._compare("le", a, b) and self._compare("le", b, a)
            case "ne":
                return self._compare("lt", a, b) or self._compare("lt", b, a)
        return False

    def _either(self, a: Expr, b: Expr) -> bool:
        if self.holds(a) or self.holds(b):
            return True
        if self._splits == 0:
            return False
        return any(
            self._under(self._context, negate(first)).holds(second) for first, second in ((a, b), (b, a))
        )

    def _by_cases(self, goal: Expr) -> bool:
        """Distinguish the cases of the first minimum, maximum or Select in the goal, a range or an assumption."""
        if self._splits == 0 or self._level > 0:
            return False
        for e in (goal, *(r.end for r in self._context.ranges), *self._context.assumptions):
            for node in walk(e):
                match node:
                    case Select(cond=c, then=a, other=b) if dtypes.is_int(a.dtype):
                        return self._case(goal, node, c, a) and self._case(goal, node, negate(c), b)
                    case Binary(op="min", a=a, b=b):
                        return self._case(goal, node, a <= b, a) and self._case(goal, node, b < a, b)
                    case Binary(op="max", a=a, b=b):
                        return self._case(goal, node, b <= a, a) and self._case(goal, node, a < b, b)
        return False

    def _case(self, goal: Expr, node: Expr, condition: Expr, value: Expr) -> bool:
        def swap(e: Expr) -> Expr:
            return substitute(e, {node: value})

        context = Context(
            tuple(Range(r.var, swap(r.end)) for r in self._context.ranges),
            tuple(swap(a) for a in self._context.assumptions),
        )
        return self._under(context, swap(condition)).holds(swap(goal))

    def _under(self, context: Context, condition: Expr) -> Interval:
        narrower = Context(context.ranges, (*context.assumptions, condition))
        return Interval(narrower, self._splits - 1, self._budget)

    def _assume(self, assumption: Expr) -> None:
        for part in conjuncts(assumption):
            self._given.setdefault(part)
        for p in self._inequalities(assumption):
            self._known.append(p)
            monomials = [m for m in p if m]
            if len(monomials) == 1 and len(monomials[0]) == 1:
                (atom,) = monomials[0]
                if p[monomials[0]] > 0 and p.get((), 0) <= 0:  # x >= 0, x - 1 >= 0, ...
                    self._positive.add(atom)

    def _at_least(self, a: Expr, b: Expr) -> Poly:
        return combine(self._terms.poly(a), -1, self._terms.poly(b))

    def _inequalities(self, e: Expr) -> list[Poly]:
        """Polynomials that are >= 0 where `e` holds.

        A disjunction counts if its first part is refuted: facts are implications, guard first.
        """
        match e:
            case Unary(op="not", a=a):
                inner = negate(a)
                return [] if inner == e else self._inequalities(inner)
            case Binary(op="and", a=a, b=b):
                return [*self._inequalities(a), *self._inequalities(b)]
            case Binary(op="or", a=a, b=b):
                if self._level >= _GUARD_LEVELS:
                    return []
                self._level += 1
                refuted = self.holds(negate(a))
                self._level -= 1
                return self._inequalities(b) if refuted else []
            case Binary(op=op, a=a, b=b) if dtypes.is_int(a.dtype):
                match op:
                    case "lt":
                        return [self._at_least(b - 1, a)]
                    case "le":
                        return [self._at_least(b, a)]
                    case "eq":
                        return [self._at_least(a, b), self._at_least(b, a)]
        return []

    def _nonnegative(self, p: Poly) -> bool:
        key = freeze(p), self._level
        found = self._done.get(key)
        if found is None:
            found = self._done[key] = self._search(p)
        return found

    def _search(self, start: Poly) -> bool:
        seen: set[Frozen] = set()
        frontier = _Frontier()

        def add(p: Poly) -> bool:
            p = _reduced(p)
            bad = sum(not self._is_good(m, c) for m, c in p.items())
            key = freeze(p)
            if bad and key not in seen and len(p) <= _TERMS:
                frontier.add(bad, p)
                seen.add(key)
            return bad == 0

        if add(start):
            return True
        for step in range(_STEPS[self._level]):
            if not frontier or self._budget.left == 0:
                return False
            self._budget.left -= 1
            p = frontier.take(oldest=step % _AGE == _AGE - 1)
            known = self._facts_for(p)
            bad_terms = [m for m, c in p.items() if not self._is_good(m, c)]
            for mono in sorted(bad_terms, key=self._order, reverse=True):
                if any(add(rest) for rest in self._moves(p, mono, known)):
                    return True
        return False

    def _moves(self, p: Poly, mono: Mono, known: list[Poly]) -> Iterator[Poly]:
        """What remains of `p` without a multiple of a known inequality that cancels `mono`.

        If p has to be scaled for that, by k, then k*p > -k is enough: p is an integer.
        """
        c = p[mono]
        for g in known:
            for term, gc in g.items():
                if (gc > 0) != (c > 0) or bool(term) != bool(mono):
                    continue
                times = _divide(mono, term)
                if times is not None and all(self._is_positive(x) for x in times):
                    common = gcd(c, gc)
                    scale = abs(gc) // common
                    rest = combine(p, -abs(c) // common, g, times, scale)
                    yield combine(rest, 1, {(): scale - 1}) if scale > 1 else rest

    def _is_good(self, mono: Mono, c: int) -> bool:
        return c > 0 and all(self._is_positive(x) for x in mono)

    def _is_positive(self, number: int) -> bool:
        """Whether an atom is known to be >= 0."""
        if number in self._positive:
            return True
        match self._terms.atoms[number]:
            case Leaf(expr=Size()):
                known = True
            case Leaf(expr=Call(fun=fun)):
                known = values_nonnegative(fun)
            case Leaf(expr=Binary(op="floordiv" | "mod") as e):
                lowest, _ = bounds(e, self._ends)
                known = lowest is not None and lowest >= 0
            case Leaf(expr=e):
                known = e in self._ends
            case Quotient(numerator=n):
                known = all(self._is_good(m, c) for m, c in n)
            case Extremum(op=op, a=a, b=b):
                sides = [all(self._is_good(m, c) for m, c in side) for side in (a, b)]
                known = any(sides) if op == "max" else all(sides)
        if known:
            self._positive.add(number)
        return known

    def _order(self, mono: Mono) -> tuple[int, int, Mono]:
        """Innermost loop variables first, then young atoms (they are made of older ones), constants last."""
        rank = -1
        for number in mono:
            atom = self._terms.atoms[number]
            if isinstance(atom, Leaf) and isinstance(atom.expr, (Var, Dim)):
                rank = max(rank, self._rank.get(atom.expr, -1))
        return rank, max(mono, default=-1), mono

    def _facts_for(self, p: Poly) -> list[Poly]:
        mentioned = sorted({x for m in p for x in m})
        known = list(self._known)
        leaves = [self._terms.atoms[x] for x in sorted(self._terms.inside(mentioned))]
        calls = [e.expr for e in leaves if isinstance(e, Leaf) and isinstance(e.expr, Call)]
        if len(calls) > 1:
            for fact in relations(calls):
                known += self._inequalities(fact)
        numbers = sorted({*mentioned, *(q for x in mentioned for q in self._terms.quotients_of(x))})
        for number in numbers:
            known += self._facts_of(number)
        quotients = [x for x in numbers if isinstance(self._terms.atoms[x], Quotient)]
        for low in quotients:
            for high in quotients:
                if p.get((low,), 0) < 0 < p.get((high,), 0):
                    known += self._between(low, high)
        return known

    def _facts_of(self, number: int) -> list[Poly]:
        key = number, self._level
        found = self._about.get(key)
        if found is None:
            self._about[key] = []  # what is being derived may not rest on itself
            found = self._about[key] = self._derive(number)
        return found

    def _derive(self, number: int) -> list[Poly]:
        me: Poly = {(number,): 1}
        match self._terms.atoms[number]:
            case Leaf(expr=Call() as call):
                return [p for fact in facts(call) for p in self._inequalities(fact)]
            case Quotient(numerator=n, divisor=k):
                return self._division(dict(n), k, me)
            case Extremum(op=op, a=a, b=b):
                sign = 1 if op == "max" else -1
                return [combine({(number,): sign}, -sign, dict(side)) for side in (a, b)]
        return []

    def _division(self, n: Poly, k: int, me: Poly) -> list[Poly]:
        """n - k + 1 <= k * (n // k) <= n; exact where k divides n up to a constant; constant bounds."""
        exact = {m: c for m, c in n.items() if m and self._terms.factor({m: c}) % k == 0}
        rest = {m: c for m, c in n.items() if m not in exact}
        if set(rest) <= {()}:
            value = combine(exact, 1, {(): k * (rest.get((), 0) // k)} if rest else {})
            return [combine(value, -k, me), combine({}, -1, combine(value, -k, me))]
        step = gcd(k, self._terms.factor({m: c for m, c in n.items() if m}))
        low = n.get((), 0) % step  # n and k*q agree modulo `step` up to this
        upper = combine(combine(n, -1, {(): low} if low else {}), -k, me)
        lower = combine({}, -1, combine(upper, 1, {(): step - k} if step != k else {}))
        found = [upper, lower]
        smallest, largest = self._constant_bounds(n)
        if smallest is not None:
            found.append(combine(me, -1, {(): smallest // k} if smallest // k else {}))
        if largest is not None:
            found.append(combine({(): largest // k} if largest // k else {}, -1, me))
        return found

    def _constant_bounds(self, p: Poly) -> tuple[int | None, int | None]:
        low: int | None = 0
        high: int | None = 0
        for mono, c in p.items():
            smallest: int | None = 1
            largest: int | None = 1
            for number in mono:
                if not self._is_positive(number):
                    return None, None
                smallest = 0
                top = self._largest(number)
                largest = None if largest is None or top is None else largest * top
            if c < 0:
                smallest, largest = largest, smallest
            low = None if low is None or smallest is None else low + c * smallest
            high = None if high is None or largest is None else high + c * largest
        return low, high

    def _largest(self, number: int) -> int | None:
        atom = self._terms.atoms[number]
        if isinstance(atom, Leaf):
            end = self._ends.get(atom.expr)
            if isinstance(end, Const):
                return max(int(end.value) - 1, 0)
        return None

    def _side_condition(self, p: Poly) -> bool:
        """Whether `p >= 0`, by a search of its own one level down."""
        if self._level >= _GUARD_LEVELS:
            return all(self._is_good(m, c) for m, c in p.items())
        self._level += 1
        proved = self._nonnegative(p)
        self._level -= 1
        return proved

    def _between(self, low: int, high: int) -> list[Poly]:
        """`k*(n // k) >= j*(m // j) + shift` for the quotients n // k (high) and m // j (low).

        Let b be the larger divisor and a divide it. b*(x // b) is the largest multiple of b up to x,
        so also a multiple of a: at most a*(x // a), and at least a*((x - b + a) // a).
        Hence rounding up to 64 gives at least what rounding up to 32 gives.
        """
        key = low, high, self._level
        found = self._pairs.get(key)
        if found is None:
            self._pairs[key] = []
            found = self._pairs[key] = self._compare_quotients(low, high)
        return found

    def _compare_quotients(self, low: int, high: int) -> list[Poly]:
        first, second = self._terms.atoms[low], self._terms.atoms[high]
        assert isinstance(first, Quotient)
        assert isinstance(second, Quotient)
        j, k = first.divisor, second.divisor
        margin = combine(dict(second.numerator), -1, dict(first.numerator))
        if k % j == 0:
            a, margin = j, combine(margin, 1, {(): j - k} if j != k else {})
        elif j % k == 0:
            a = k
        else:
            return []
        steps = margin.get((), 0) // a
        for shift in (a * (steps + 1), a * steps):
            offset: Poly = {(): -shift} if shift else {}
            if self._side_condition(combine(margin, 1, offset)):
                return [combine({(high,): k, **offset}, -j, {(low,): 1})]
        return []


def _reduced(p: Poly) -> Poly:
    """A smaller polynomial that is >= 0 where `p` is: g*y + c >= 0 means y + floor(c/g) >= 0."""
    common = gcd(*(c for m, c in p.items() if m))
    if common <= 1:
        return p
    return {m: c // common for m, c in p.items() if c // common}


def _divide(mono: Mono, term: Mono) -> Mono | None:
    """`mono / term`, or None if that is not a monomial."""
    rest = list(mono)
    for number in term:
        if number not in rest:
            return None
        rest.remove(number)
    return tuple(rest)
