"""Integer polynomials over numbered atoms: the normal form in which inequalities are combined.

Numbers instead of expressions make the search of `cora.prove.interval` cheap; `cora.ir.poly` has the
polynomials that turn back into expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TypeAlias

from cora.ir import dtypes
from cora.ir.bounds import multiple_of
from cora.ir.expr import Binary, Call, Cast, Const, Expr, Unary
from cora.ir.facts import factor_of

Mono: TypeAlias = tuple[int, ...]  # atom numbers in ascending order; () is the constant
Poly: TypeAlias = dict[Mono, int]  # no zero coefficients
Frozen: TypeAlias = tuple[tuple[Mono, int], ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A variable, a size, an application, or a term about which nothing is known."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class Quotient:
    """`numerator // divisor`, divisor > 0."""

    numerator: Frozen
    divisor: int


@dataclass(frozen=True, slots=True)
class Extremum:
    """`min(a, b)` or `max(a, b)`."""

    op: str
    a: Frozen
    b: Frozen


Atom: TypeAlias = Leaf | Quotient | Extremum


def freeze(p: Poly) -> Frozen:
    """A hashable form, the same for equal polynomials."""
    return tuple(sorted(p.items()))


def combine(p: Poly, factor: int, q: Poly, times: Mono = (), scale: int = 1) -> Poly:
    """`scale * p + factor * times * q`."""
    result = dict(p) if scale == 1 else {m: scale * c for m, c in p.items()}
    for mono, c in q.items():
        key = tuple(sorted(mono + times)) if times else mono
        value = result.get(key, 0) + factor * c
        if value:
            result[key] = value
        else:
            result.pop(key, None)
    return result


class Terms:
    """The numbering of atoms, and the polynomials of expressions over them."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self._numbers: dict[Atom, int] = {}
        self._polys: dict[Expr, Poly] = {}
        self._factors: dict[int, int] = {}
        self._quotients: dict[int, list[int]] = {}

    def number(self, atom: Atom) -> int:
        """The number of `atom`; the next one if it is new."""
        found = self._numbers.get(atom)
        if found is None:
            found = self._numbers[atom] = len(self.atoms)
            self.atoms.append(atom)
            if isinstance(atom, Quotient):
                for part in {x for mono, _ in atom.numerator for x in mono}:
                    self._quotients.setdefault(part, []).append(found)
        return found

    def quotients_of(self, number: int) -> list[int]:
        """The quotients so far whose numerators contain an atom."""
        return self._quotients.get(number, [])

    def inside(self, numbers: list[int]) -> set[int]:
        """`numbers` and the atoms that those are made of."""
        found: set[int] = set()
        waiting = list(numbers)
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                match self.atoms[number]:
                    case Quotient(numerator=n):
                        waiting += [x for mono, _ in n for x in mono]
                    case Extremum(a=a, b=b):
                        waiting += [x for mono, _ in (*a, *b) for x in mono]
        return found

    def poly(self, e: Expr) -> Poly:
        """The polynomial of an integer expression. Do not change it."""
        found = self._polys.get(e)
        if found is None:
            found = self._polys[e] = self._build(e)
        return found

    def factor(self, p: Poly) -> int:
        """A positive integer that divides `p`; 0 for the zero polynomial."""
        result = 0
        for mono, c in p.items():
            factor = abs(c)
            for number in mono:
                factor *= self._atom_factor(number)
            result = gcd(result, factor)
        return result

    def _atom_factor(self, number: int) -> int:
        found = self._factors.get(number)
        if found is None:
            match self.atoms[number]:
                case Leaf(expr=Call() as call):
                    found = factor_of(call)
                case Leaf(expr=e):
                    found = multiple_of(e)
                case Quotient():
                    found = 1
                case Extremum(a=a, b=b):
                    found = gcd(self.factor(dict(a)), self.factor(dict(b)))
            self._factors[number] = found
        return found

    def _build(self, e: Expr) -> Poly:
        match e:
            case Const(value=v):
                return {(): int(v)} if v else {}
            case Binary(op="add", a=a, b=b):
                return combine(self.poly(a), 1, self.poly(b))
            case Binary(op="sub", a=a, b=b):
                return combine(self.poly(a), -1, self.poly(b))
            case Binary(op="mul", a=a, b=b):
                return self._product(self.poly(a), self.poly(b))
            case Unary(op="neg", a=a):
                return combine({}, -1, self.poly(a))
            case Cast(type="int64", a=a) if dtypes.is_int(a.dtype):
                return self.poly(a)
            case Binary(op="floordiv", a=a, b=Const(value=k)) if k > 0:
                return self.quotient(self.poly(a), int(k))
            case Binary(op="mod", a=a, b=Const(value=k)) if k > 0:
                p = self.poly(a)
                return combine(p, -int(k), self.quotient(p, int(k)))
            case Binary(op="min" | "max" as op, a=a, b=b):
                return self._extremum(op, self.poly(a), self.poly(b))
            case Unary(op="abs", a=a):
                p = self.poly(a)
                return self._extremum("max", p, combine({}, -1, p))
        return {(self.number(Leaf(e)),): 1}

    def _product(self, p: Poly, q: Poly) -> Poly:
        result: Poly = {}
        for mono, c in p.items():
            result = combine(result, c, q, mono)
        return result

    def _extremum(self, op: str, p: Poly, q: Poly) -> Poly:
        gap = combine(p, -1, q)
        if not gap or set(gap) == {()}:
            first_is_larger = gap.get((), 0) >= 0
            return p if first_is_larger == (op == "max") else q
        a, b = sorted((freeze(p), freeze(q)))
        return {(self.number(Extremum(op, a, b)),): 1}

    def quotient(self, p: Poly, k: int) -> Poly:
        """`p // k`: exact multiples come out, nested quotients join."""
        if k == 1:
            return p
        whole: Poly = {}
        rest: Poly = {}
        for mono, c in p.items():
            if not mono or c % k == 0:
                if c // k:
                    whole[mono] = c // k
                c %= k
            if c:
                rest[mono] = c
        if set(rest) <= {()}:
            return whole
        common = gcd(k, *(c for m, c in rest.items() if m))
        if common > 1:  # (g*x + c) // (g*k) = (x + c//g) // k
            reduced = {m: c // common for m, c in rest.items() if c // common}
            return combine(whole, 1, self.quotient(reduced, k // common))
        inner = [m for m in rest if m]
        if len(inner) == 1 and len(inner[0]) == 1 and rest[inner[0]] == 1:
            atom = self.atoms[inner[0][0]]
            if isinstance(atom, Quotient):  # (x // j + c) // k = (x + j*c) // (j*k)
                j = atom.divisor
                joined = combine(dict(atom.numerator), j, {(): rest[()]} if () in rest else {})
                return combine(whole, 1, self.quotient(joined, j * k))
        return combine(whole, 1, {(self.number(Quotient(freeze(rest), k)),): 1})
