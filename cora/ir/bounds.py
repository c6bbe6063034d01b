"""Constant bounds of integer expressions, what divides them on every batch, and whether they grow."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from cora.ir import dtypes
from cora.ir.expr import ONE, Binary, Call, Cast, Const, Dim, Expr, Read, Select, Size, binary
from cora.ir.poly import Poly, polynomial
from cora.ir.ufun import FusedInner, Scan, UFun
from cora.ir.visit import walk

Bound = int | None
Ranges = Mapping[Expr, Expr]  # variable -> end (exclusive); every variable begins at 0

NO_RANGES: Ranges = {}


def bounds(e: Expr, ranges: Ranges = NO_RANGES) -> tuple[Bound, Bound]:
    """Constant lower and upper bounds (inclusive) of an index expression; None where there is none."""
    match e:
        case Const(value=v):
            return int(v), int(v)
        case Binary(op="add" | "sub" | "mul"):
            return poly_bounds(polynomial(e), ranges)
        case _:
            return _atom_bounds(e, ranges)


def poly_bounds(p: Poly, ranges: Ranges) -> tuple[Bound, Bound]:
    """`bounds` of a polynomial: the sum of those of its terms."""
    p = _with_remainders(p)
    low: Bound = 0
    high: Bound = 0
    for monomial, c in p:
        first, *rest = monomial or (ONE,)
        lo, hi = _atom_bounds(first, ranges)
        for atom in rest:
            lo, hi = _product((lo, hi), _atom_bounds(atom, ranges))
        if c < 0:
            lo, hi = hi, lo
        low = None if low is None or lo is None else low + c * lo
        high = None if high is None or hi is None else high + c * hi
    return low, high


def _with_remainders(p: Poly) -> Poly:
    """`p` with `x - k*(x // k)` as `x % k`, whose bounds are known: the extent of what is left of full parts."""
    for monomial, c in p:
        match monomial:
            case (Binary(op="floordiv", a=x, b=Const(value=int(k))),) if k > 0 and c % k == 0:
                whole = polynomial(x) * Poly({(): -c // k})
                if all(p.terms.get(m) == v for m, v in whole):
                    rest = p - whole - Poly({monomial: c})
                    return _with_remainders(rest + Poly({(binary("mod", x, k),): -c // k}))
    return p


def _product(a: tuple[Bound, Bound], b: tuple[Bound, Bound]) -> tuple[Bound, Bound]:
    (a0, a1), (b0, b1) = a, b
    if a0 is not None and a1 is not None and b0 is not None and b1 is not None:
        corners = (a0 * b0, a0 * b1, a1 * b0, a1 * b1)
        return min(corners), max(corners)
    if a0 is not None and b0 is not None and a0 >= 0 and b0 >= 0:
        return a0 * b0, None if a1 is None or b1 is None else a1 * b1
    return None, None


def _atom_bounds(e: Expr, ranges: Ranges) -> tuple[Bound, Bound]:
    if e in ranges:
        high = bounds(ranges[e], {k: v for k, v in ranges.items() if k != e})[1]
        return 0, None if high is None else max(high - 1, 0)
    match e:
        case Const(value=v):
            return int(v), int(v)
        case Size() | Dim() | Call():
            return 0, None
        case Read(buffer=buffer) if buffer.scope == "table":
            return 0, None
        case Cast(type=dtypes.INDEX, a=a) if a.dtype == "int32":
            return _atom_bounds(a, ranges)
        case Binary(op="floordiv", a=a, b=Const(value=int(k))) if k > 0:
            lo, hi = bounds(a, ranges)
            return None if lo is None else lo // k, None if hi is None else hi // k
        case Binary(op="floordiv", a=a, b=b):
            lo, hi = bounds(a, ranges)
            positive = bounds(b, ranges)[0]
            return (
                (0, hi)
                if lo is not None and lo >= 0 and positive is not None and positive >= 0
                else (None, None)
            )
        case Binary(op="mod", a=a, b=b):
            divisor, hi = bounds(b, ranges)
            known = divisor is not None and divisor >= 0
            return (0, None if hi is None else max(hi - 1, 0)) if known else (None, None)
        case Binary(op="min", a=a, b=b):
            (a0, a1), (b0, b1) = bounds(a, ranges), bounds(b, ranges)
            lo = None if a0 is None or b0 is None else min(a0, b0)
            return lo, a1 if b1 is None else b1 if a1 is None else min(a1, b1)
        case Binary(op="max", a=a, b=b):
            (a0, a1), (b0, b1) = bounds(a, ranges), bounds(b, ranges)
            hi = None if a1 is None or b1 is None else max(a1, b1)
            return a0 if b0 is None else b0 if a0 is None else max(a0, b0), hi
        case Select(then=a, other=b):
            (a0, a1), (b0, b1) = bounds(a, ranges), bounds(b, ranges)
            lo = None if a0 is None or b0 is None else min(a0, b0)
            return lo, None if a1 is None or b1 is None else max(a1, b1)
        case _:
            return None, None


def multiple_of(e: Expr) -> int:
    """A positive integer that divides `e` on every batch; 0 if `e` is the constant 0."""
    total = 0
    for monomial, c in polynomial(e):
        factor = abs(c)
        for atom in monomial:
            match atom:
                case Call(fun=fun) if isinstance(fun.definition, Scan):
                    factor *= multiple_of(fun.definition.body)
                case Call(fun=UFun(definition=FusedInner(offset=offset)), args=(*_, f)):
                    assert isinstance(
                        offset.definition, Scan
                    )  # row starts and f are multiples: so is their difference
                    factor *= gcd(multiple_of(offset.definition.body), multiple_of(f))
                case Read(buffer=buffer) | Cast(a=Read(buffer=buffer)) if buffer.scope == "table":
                    factor *= buffer.multiple
                case Binary(op="min" | "max", a=a, b=b):
                    factor *= gcd(multiple_of(a), multiple_of(b))
                case Select(then=a, other=b):
                    factor *= gcd(multiple_of(a), multiple_of(b))
                case _:
                    pass
        total = gcd(total, factor)
    return total


def grows(e: Expr, var: Expr) -> bool:
    """Whether `e` surely does not become smaller when `var` becomes larger (a division by 0 gives 0)."""
    return _moves(e, var, 1)


def shrinks(e: Expr, var: Expr) -> bool:
    """Whether `e` surely does not become larger when `var` becomes larger."""
    return _moves(e, var, -1)


def _moves(e: Expr, var: Expr, sign: int) -> bool:
    """Whether `sign * e` surely does not become smaller when `var` becomes larger."""
    if all(node != var for node in walk(e)):
        return True
    if e == var:
        return sign > 0
    match e:
        case Binary(op="floordiv", a=a, b=b) if all(node != var for node in walk(b)):
            return (bounds(b)[0] or 0) >= 0 and bounds(b)[0] is not None and _moves(a, var, sign)
        case Binary(op="min" | "max", a=a, b=b):
            return _moves(a, var, sign) and _moves(b, var, sign)
    terms = list(polynomial(e))
    if terms == [((e,), 1)]:
        return False
    for monomial, c in terms:
        moving = [atom for atom in monomial if any(node == var for node in walk(atom))]
        others = [atom for atom in monomial if atom not in moving]
        if not moving:
            continue
        positive = all((bounds(atom)[0] or 0) >= 0 and bounds(atom)[0] is not None for atom in others)
        if len(moving) > 1 or not positive or not _moves(moving[0], var, sign if c > 0 else -sign):
            return False
    return True
