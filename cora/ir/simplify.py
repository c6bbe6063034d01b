"""Normal forms of integer expressions, and the identities of the uninterpreted functions.

An integer expression is a polynomial with integer coefficients over *atoms* (variables, sizes, calls, divisions, ...).
Equal polynomials are equal expressions, so differences cancel and strides can be read off. On top of that:

    division:  (k*q + r) // k = q,  (k*q + r) % k = r                     for 0 <= r < k
               (g*q + r) // (g*m) = q // m,  (g*q + r) % (g*m) = g*(q % m) + r     for 0 <= r < g
               n*(x // n) + x % n = x
               k*(x // k) = x                                             where k divides x
    fusion:    offset(ffo(f)) + ffi(f) = f                                (axiom foif(ffo(f), ffi(f)) = f)
    tile lemma: if k divides every (padded) inner extent of the fused loop, then for 0 <= r < k
               ffo(k*q + r) = ffo(k*q)   and   ffi(k*q + r) = ffi(k*q) + r

The fusion identities hold for f inside the fused loop; every iteration that evaluates them has that as its condition.
Simplification needs only constant bounds; symbolic ones are the business of `cora.prove`.
"""

from __future__ import annotations

from math import gcd

from cora.ir import dtypes
from cora.ir.bounds import NO_RANGES, Ranges, multiple_of, poly_bounds
from cora.ir.expr import (
    ONE,
    Binary,
    Call,
    Const,
    Dim,
    Expr,
    Select,
    binary,
    constant,
    select,
)
from cora.ir.poly import Monomial, Poly, is_index, polynomial
from cora.ir.ufun import FusedInner, FusedOuter, Scan, UFun, fusion_maps, scan
from cora.ir.visit import children, rebuild, walk


def simplify(e: Expr, ranges: Ranges = NO_RANGES) -> Expr:
    """`e` rewritten by the identities above; `ranges` gives the ends of loop variables (which begin at 0)."""
    return Simplifier(ranges)(e)


class Simplifier:
    """Simplification under fixed ranges, memoised: one object serves a whole loop nest."""

    def __init__(self, ranges: Ranges = NO_RANGES) -> None:
        self.ranges = ranges
        self._memo: dict[Expr, Expr] = {}

    def __call__(self, e: Expr) -> Expr:
        done = self._memo.get(e)
        if done is None:
            done = self._memo[e] = self._rewrite(e)
        return done

    def _rewrite(self, e: Expr) -> Expr:
        old = children(e)
        if not old:
            return e
        if is_index(e) and isinstance(e, Binary) and e.op in ("add", "sub", "mul"):
            return self._identities(self._poly(e)).expr()
        new = tuple(self(c) for c in old)
        node = e if all(a is b for a, b in zip(old, new, strict=True)) else rebuild(e, new)
        match node:
            case Binary(op=op, a=a, b=b) if is_index(a):
                return self._binary(op, a, b, node)
            case Call():
                return self._call(node)
            case Select(cond=c, then=a, other=b):
                return a if a == b else select(c, a, b)
            case _:
                return node

    def _poly(self, e: Expr) -> Poly:
        match e:
            case Binary(op="add", a=a, b=b):
                return self._poly(a) + self._poly(b)
            case Binary(op="sub", a=a, b=b):
                return self._poly(a) - self._poly(b)
            case Binary(op="mul", a=a, b=b):
                return self._poly(a) * self._poly(b)
            case _:
                return polynomial(self(e))

    def _binary(self, op: str, a: Expr, b: Expr, node: Binary) -> Expr:
        match op:
            case "floordiv":
                return self._floordiv(a, b)
            case "mod":
                return self._mod(a, b)
            case "min" | "max":
                low, high = poly_bounds(polynomial(a) - polynomial(b), self.ranges)
                if low is not None and low >= 0:
                    return a if op == "max" else b
                if high is not None and high <= 0:
                    return b if op == "max" else a
                return node
            case "lt" | "le" | "eq" | "ne":
                return self._compare(op, a, b, node)
            case _:
                return node

    def _compare(self, op: str, a: Expr, b: Expr, node: Binary) -> Expr:
        low, high = poly_bounds(polynomial(b) - polynomial(a), self.ranges)
        never_less = high is not None and high < (1 if op == "lt" else 0)
        always_less = low is not None and low >= (1 if op == "lt" else 0)
        equal = low == 0 and high == 0
        apart = (low is not None and low > 0) or (high is not None and high < 0)
        match op:
            case "lt" | "le" if always_less:
                return Const(True, "bool")
            case "lt" | "le" if never_less:
                return Const(False, "bool")
            case "eq" | "ne" if equal or apart:
                return Const(equal == (op == "eq"), "bool")
        return node

    def _floordiv(self, a: Expr, b: Expr) -> Expr:
        if not isinstance(b, Const) or int(b.value) <= 0:
            return binary("floordiv", a, b)
        k = int(b.value)
        quotient, shared, rest = self._split(polynomial(a), k)
        low, high = poly_bounds(rest, self.ranges)
        if low is not None and high is not None and low // k == high // k:
            result = quotient + Poly({(): low // k} if low // k else {})
            if shared.terms:
                result = result + Poly({(binary("floordiv", shared.expr(), k),): 1})
            return result.expr()
        tile = self._tile(shared + rest, k)
        if tile is not None:
            g, part, _ = tile
            return (quotient + polynomial(self._floordiv(_scale(part, g).expr(), Const(k // g)))).expr()
        inner = (shared + rest).expr()
        nested = _nested_floordiv(inner, k)
        tail = nested if nested is not None else binary("floordiv", inner, k)
        return (quotient + polynomial(tail)).expr()

    def _mod(self, a: Expr, b: Expr) -> Expr:
        if not isinstance(b, Const) or int(b.value) <= 0:
            return binary("mod", a, b)
        k = int(b.value)
        _, _, rest = self._split(polynomial(a), k)
        low, high = poly_bounds(rest, self.ranges)
        if low is not None and high is not None and low // k == high // k:
            return (rest - Poly({(): (low // k) * k} if low // k else {})).expr()
        tile = self._tile(rest, k)
        if tile is not None:
            g, part, within = tile
            return (polynomial(self._mod(_scale(part, g).expr(), Const(k // g)) * g) + within).expr()
        return binary("mod", rest.expr(), k)

    def _tile(self, p: Poly, k: int) -> tuple[int, Poly, Poly] | None:
        """`(g, part, within)`: p = part + within, g divides k and all of part, 0 <= within < g; the largest g."""
        for g in sorted({gcd(k, c) for m, c in p if m}, reverse=True):
            if g == 1:
                break
            part = Poly({m: c // g * g for m, c in p if c % g == 0 or (not m and c >= g)})
            within = p - part
            low, high = poly_bounds(within, self.ranges)
            if within.terms and low is not None and low >= 0 and high is not None and high < g:
                return g, part, within
        return None

    def _split(self, p: Poly, k: int) -> tuple[Poly, Poly, Poly]:
        """`p = k*quotient + shared + rest`: exact multiples, terms that k divides for another reason, the rest."""
        quotient: dict[Monomial, int] = {}
        shared: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, c in p:
            if c % k == 0:
                quotient[monomial] = c // k
            elif monomial and multiple_of(Poly({monomial: c}).expr()) % k == 0:
                shared[monomial] = c
            elif not monomial:  # keep the constant in 0..k-1, the multiple goes out
                if c // k:
                    quotient[monomial] = c // k
                if c % k:
                    rest[monomial] = c % k
            else:
                rest[monomial] = c
        return Poly(quotient), Poly(shared), Poly(rest)

    def _call(self, call: Call) -> Expr:
        fun = call.fun
        match fun.definition:
            case Scan() as definition:
                if call.args[-1] == Const(0):
                    return Const(0)
                factor, rest = common_factor(definition.body, frozenset(fun.domain) | {definition.index})
                if factor == Const(1):
                    return call
                outer, index = fun.domain[:-1], definition.index
                return factor * self(scan(outer, index, rest, fun.name)(*call.args))
            case FusedOuter(offset=offset) | FusedInner(offset=offset):
                assert isinstance(offset.definition, Scan)
                return self._tile_lemma(call, multiple_of(offset.definition.body))
            case _:
                return call

    def _tile_lemma(self, call: Call, inner_multiple: int) -> Expr:
        *outer, f = call.args
        p = polynomial(f)
        for k in sorted({gcd(inner_multiple, abs(c)) for m, c in p if m}, reverse=True):
            if k <= 1:
                continue
            tile = Poly({m: c for m, c in p if c % k == 0})
            within = p - tile
            low, high = poly_bounds(within, self.ranges)
            if within.terms and low is not None and low >= 0 and high is not None and high < k:
                at_tile = Call(call.fun, (*outer, tile.expr()))
                is_inner = isinstance(call.fun.definition, FusedInner)
                return (Poly({(at_tile,): 1}) + within).expr() if is_inner else at_tile
        return call

    def _identities(self, p: Poly) -> Poly:
        """Pairs of terms that an identity joins into one."""
        changed = True
        while changed:
            changed = False
            for monomial, c in p:
                joined = self._join(p, monomial, c)
                if joined is not None:
                    p, changed = joined, True
                    break
        return p

    def _join(self, p: Poly, monomial: Monomial, c: int) -> Poly | None:
        for position, atom in enumerate(monomial):
            rest = Poly({(*monomial[:position], *monomial[position + 1 :]): c})
            match atom:
                case Call(fun=fun, args=(*outer, f)) if isinstance(fun.definition, FusedInner):
                    row = Call(_outer_of(fun.definition), (*outer, f))
                    partner = polynomial(self(Call(fun.definition.offset, (*outer, row)))) * rest
                    whole = polynomial(f)
                case Binary(op="mod", a=x, b=n):
                    partner = polynomial(n) * Poly({(binary("floordiv", x, n),): 1}) * rest
                    whole = polynomial(x)
                case Binary(op="floordiv", a=x, b=Const(value=k)) if (
                    c % int(k) == 0 and multiple_of(x) % int(k) == 0
                ):
                    return p - Poly({monomial: c}) + _scale(rest, int(k)) * polynomial(x)
                case _:
                    continue
            if all(p.terms.get(m) == v for m, v in partner) and partner.terms:
                return p - partner - Poly({monomial: c}) + whole * rest
        return None


def _scale(p: Poly, divisor: int) -> Poly:
    return Poly({m: c // divisor for m, c in p})


def common_factor(body: Expr, formals: frozenset[Dim]) -> tuple[Expr, Expr]:
    """`(c, rest)` with `body = c * rest` and c free of `formals`: what a scan of `body` can leave to its caller.

    The k of `k*(x//k)` stays, so that the scan of rounded lengths is one table, whatever stands around it.
    """
    p = polynomial(body)
    if not p.terms:
        return ONE, body
    shared: list[Expr] = []
    first = next(iter(p.terms))
    for atom in first:
        outside = not any(n in formals for n in walk(atom))
        count = min(m.count(atom) for m in p.terms)
        if outside and shared.count(atom) < count:
            shared.append(atom)
    coefficient = 0
    for monomial, c in p:
        for atom in monomial:
            match atom:
                case Binary(op="floordiv", b=Const(value=k)) if c % int(k) == 0:
                    c //= int(k)
        coefficient = gcd(coefficient, c)
    factor: Expr = Const(coefficient)
    for atom in shared:
        factor = factor * atom
    if factor == ONE:
        return ONE, body
    rest: dict[Monomial, int] = {}
    for monomial, c in p:
        left = list(monomial)
        for atom in shared:
            left.remove(atom)
        rest[tuple(left)] = c // coefficient
    return factor, Poly(rest).expr()


def _outer_of(definition: FusedInner) -> UFun:
    return fusion_maps(definition.offset)[0]


def _nested_floordiv(inner: Expr, k: int) -> Expr | None:
    """`(x // j) // k = x // (j*k)`."""
    match inner:
        case Binary(op="floordiv", a=x, b=Const(value=j)) if int(j) > 0:
            return binary("floordiv", x, constant(int(j) * k, dtypes.INDEX))
    return None
