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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from cora.ir import dtypes
from cora.ir.expr import (
    ONE,
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Read,
    Select,
    Size,
    binary,
    constant,
    select,
)
from cora.ir.ufun import FusedInner, FusedOuter, Scan, UFun, fusion_maps, scan
from cora.ir.visit import children, rebuild, walk

Monomial = tuple[Expr, ...]
Bound = int | None
Ranges = Mapping[Expr, Expr]  # variable -> end (exclusive); every variable begins at 0

NO_RANGES: Ranges = {}


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


@lru_cache(maxsize=1 << 16)
def order_key(e: Expr) -> str:
    """A total, reproducible order on atoms: their text, with the definitions of the functions called."""
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


def grows(e: Expr, var: Expr) -> bool:
    """Whether `e` surely does not become smaller when `var` becomes larger (a division by 0 gives 0)."""
    if all(node != var for node in walk(e)) or e == var:
        return True
    match e:
        case Binary(op="floordiv", a=a, b=b) if all(node != var for node in walk(b)):
            return (bounds(b)[0] or 0) >= 0 and bounds(b)[0] is not None and grows(a, var)
        case Binary(op="min" | "max", a=a, b=b):
            return grows(a, var) and grows(b, var)
    terms = list(polynomial(e))
    if terms == [((e,), 1)]:
        return False
    for monomial, c in terms:
        moving = [atom for atom in monomial if any(node == var for node in walk(atom))]
        others = [atom for atom in monomial if atom not in moving]
        if not moving:
            continue
        positive = all((bounds(atom)[0] or 0) >= 0 and bounds(atom)[0] is not None for atom in others)
        if len(moving) > 1 or c < 0 or not positive or not grows(moving[0], var):
            return False
    return True


def bounds(e: Expr, ranges: Ranges = NO_RANGES) -> tuple[Bound, Bound]:
    """Constant lower and upper bounds (inclusive) of an index expression; None where there is none."""
    match e:
        case Const(value=v):
            return int(v), int(v)
        case Binary(op="add" | "sub" | "mul"):
            return _poly_bounds(polynomial(e), ranges)
        case _:
            return _atom_bounds(e, ranges)


def _poly_bounds(p: Poly, ranges: Ranges) -> tuple[Bound, Bound]:
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
            hi = bounds(b, ranges)[1]
            divisor = bounds(b, ranges)[0]
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
                case Binary(op="min" | "max", a=a, b=b):
                    factor *= gcd(multiple_of(a), multiple_of(b))
                case Select(then=a, other=b):
                    factor *= gcd(multiple_of(a), multiple_of(b))
                case _:
                    pass
        total = gcd(total, factor)
    return total


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
                low, high = _poly_bounds(polynomial(a) - polynomial(b), self.ranges)
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
        low, high = _poly_bounds(polynomial(b) - polynomial(a), self.ranges)
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
        low, high = _poly_bounds(rest, self.ranges)
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
        low, high = _poly_bounds(rest, self.ranges)
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
            low, high = _poly_bounds(within, self.ranges)
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
            low, high = _poly_bounds(within, self.ranges)
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
