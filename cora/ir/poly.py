"""Integer expressions as polynomials over atoms: equal polynomials are equal expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from cora.ir import dtypes
from cora.ir.expr import Binary, Call, Const, Expr, binary
from cora.ir.visit import walk

Monomial = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Poly:
    """An integer polynomial: coefficient by monomial (sorted atoms; the empty monomial is the constant)."""

    terms: Mapping[Monomial, int]

    def __iter__(self) -> Iterator[tuple[Monomial, int]]:
        return iter(self.terms.items())

    def __add__(self, other: Poly) -> Poly:
        return self.plus(other, 1)

    def __sub__(self, other: Poly) -> Poly:
        return self.plus(other, -1)

    def plus(self, other: Poly, factor: int) -> Poly:
        """`self + factor * other`."""
        terms = dict(self.terms)
        for monomial, coefficient in other:
            terms[monomial] = terms.get(monomial, 0) + factor * coefficient
        return Poly({m: c for m, c in terms.items() if c})

    def __mul__(self, other: Poly) -> Poly:
        terms: dict[Monomial, int] = {}
        for m1, c1 in self:
            for m2, c2 in other:
                monomial = tuple(sorted((*m1, *m2), key=order_key))
                terms[monomial] = terms.get(monomial, 0) + c1 * c2
        return Poly({m: c for m, c in terms.items() if c})

    def constant(self) -> int | None:
        """The value, if the polynomial is a constant."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and () in self.terms:
            return self.terms[()]
        return None

    def expr(self) -> Expr:
        """The expression: positive terms first, the constant last."""
        ordered = sorted(self.terms.items(), key=lambda t: (t[1] < 0, not t[0], -len(t[0])))
        result: Expr | None = None
        for monomial, coefficient in ordered:
            size = abs(coefficient)
            factors = list(monomial)
            term: Expr = factors.pop(0) if factors else Const(size)
            for factor in factors:
                term = term * factor
            if monomial and size != 1:
                term = term * size
            if result is None:
                result = term if coefficient > 0 else binary("sub", 0, term)
            else:
                result = result + term if coefficient > 0 else result - term
        return Const(0) if result is None else result


def order_key(e: Expr) -> str:
    """A total, reproducible order on atoms: their text, with the definitions of the functions called."""
    try:
        return e._order
    except AttributeError:
        key = _order_key(e)
        object.__setattr__(e, "_order", key)
        return key


@lru_cache(maxsize=1 << 16)
def _order_key(e: Expr) -> str:
    funs = [repr_fun(n) for n in walk(e) if isinstance(n, Call)]
    return f"{e}|{funs}" if funs else str(e)


def repr_fun(call: Call) -> str:
    """The function of a call in full: name, domain and definition."""
    return f"{call.fun.name}{[str(d.extent) for d in call.fun.domain]}{call.fun.definition}"


def is_index(e: Expr) -> bool:
    """Whether `e` belongs to index arithmetic, the only kind that this module rewrites."""
    return e.dtype == dtypes.INDEX


def polynomial(e: Expr) -> Poly:
    """`e` (of index type) as a polynomial; what is not +, -, *, or a literal is an atom."""
    try:
        known = e._polynomial
    except AttributeError:
        known = _polynomial(e)
        object.__setattr__(e, "_polynomial", known)
    assert isinstance(known, Poly)
    return known


def _polynomial(e: Expr) -> Poly:
    match e:
        case Const(value=v):
            return Poly({(): int(v)} if v else {})
        case Binary(op="add", a=a, b=b):
            return polynomial(a) + polynomial(b)
        case Binary(op="sub", a=a, b=b):
            return polynomial(a) - polynomial(b)
        case Binary(op="mul", a=a, b=b):
            return polynomial(a) * polynomial(b)
        case _:
            return Poly({(e,): 1})


def linear_in(e: Expr, var: Expr) -> tuple[int, Expr] | None:
    """`(c, rest)` with `e = c * var + rest` and var not in rest; None if `e` is not so."""
    coefficient = 0
    rest: dict[Monomial, int] = {}
    for monomial, c in polynomial(e):
        if monomial == (var,):
            coefficient = c
        elif any(node == var for atom in monomial for node in walk(atom)):
            return None
        else:
            rest[monomial] = c
    return coefficient, Poly(rest).expr()


def stride_in(e: Expr, var: Expr) -> Expr | None:
    """The change of `e` when `var` grows by one, an expression without `var`; None if it is not even."""
    stride: dict[Monomial, int] = {}
    for monomial, c in polynomial(e):
        inside = [atom for atom in monomial if any(node == var for node in walk(atom))]
        if not inside:
            continue
        if inside != [var]:
            return None
        rest = tuple(atom for atom in monomial if atom != var)
        stride[rest] = stride.get(rest, 0) + c
    return Poly(stride).expr()
