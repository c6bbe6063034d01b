"""What holds for the uninterpreted functions on *every* batch: the axioms that proofs may use.

Every fact is a ground bool expression about given applications. It is true whatever the arguments
are, because it is an implication whose guard puts them into the function's domain: the three fusion
axioms of the paper (section 5.1), unguarded, contradict one another, and everything would follow.

Facts that rest on the sign of a body (row starts grow, `ffo` and `ffi` invert them) are given
only where `is_nonnegative` sees that sign.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

from cora.ir import dtypes
from cora.ir.bounds import multiple_of
from cora.ir.expr import (
    TRUE,
    ZERO,
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Select,
    Size,
    Unary,
    binary,
    conjunction,
    unary,
)
from cora.ir.poly import Poly, polynomial
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
    fusion_maps,
    rows_of,
)
from cora.ir.visit import substitute, walk


def implies(guard: Expr, fact: Expr) -> Expr:
    """`fact` where `guard` holds."""
    return binary("or", unary("not", guard), fact)


def in_domain(call: Call) -> Expr:
    """That the arguments of `call` lie in the domain of its function."""
    return _inside(call.fun.domain, call.args)


def is_nonnegative(e: Expr) -> bool:
    """Whether `e` is seen to be >= 0 for dims in their ranges, as the formals of a body are."""
    match e:
        case Const(value=v):
            return v >= 0
        case Size() | Dim():
            return True
        case Call(fun=fun):
            return values_nonnegative(fun)
        case Binary(op="add" | "mul" | "min", a=a, b=b):
            return is_nonnegative(a) and is_nonnegative(b)
        case Binary(op="max", a=a, b=b):
            return is_nonnegative(a) or is_nonnegative(b)
        case Binary(op="floordiv", a=a, b=Const(value=k)) if k > 0:
            return is_nonnegative(a)
        case Binary(op="mod", b=Const(value=k)):
            return k > 0
        case Select(then=a, other=b):
            return is_nonnegative(a) and is_nonnegative(b)
        case Unary(op="abs"):
            return True
        case Cast(type="int64", a=a) if dtypes.is_int(a.dtype):
            return is_nonnegative(a)
    return False


def values_nonnegative(fun: UFun) -> bool:
    """Whether all values of `fun` are seen to be >= 0, from its definition."""
    match fun.definition:
        case Given() | FusedOuter() | Descending() | Owners() | Starts() | Lists():
            return True
        case Scan(body=body) | Maximum(body=body):
            return is_nonnegative(body)
        case FusedInner(offset=scan) | Cuts(cost=scan):
            return is_nonnegative(_scan(scan).body)


def facts(call: Call) -> list[Expr]:
    """Facts about one application; they may mention further applications."""
    found: list[Expr] = []
    if values_nonnegative(call.fun):
        found.append(call >= ZERO)
    match call.fun.definition:
        case Scan():
            found += _scan_facts(call)
        case FusedOuter(offset=offset) if is_nonnegative(_scan(offset).body):
            found += _outer_facts(call, offset)
        case FusedInner(offset=offset) if is_nonnegative(_scan(offset).body):
            found += _inner_facts(call, offset)
        case Cuts(cost=cost, parts=parts) if is_nonnegative(_scan(cost).body):
            found += _cut_facts(call, rows(cost, ()), parts)
        case Starts(owners=UFun(definition=Owners(parts=parts))):
            n = rows_of(call.fun)
            found += _cut_facts(call, n if is_nonnegative(n) else binary("max", n, 0), parts)
        case Given(permutation=True) | Descending() | Lists():
            found.append(implies(in_domain(call), call < rows_of(call.fun)))
    return [f for f in found if f != TRUE]


def factor_of(call: Call) -> int:
    """A positive integer that divides the value of `call` on every batch; 0 if that is always 0."""
    return multiple_of(call)


def pair_facts(a: Call, b: Call) -> list[Expr]:
    """Facts about two applications of one function.

    A Scan with the same outer arguments: parts of one sum. (Against the total, `facts` itself has the relation.)
    A permutation: different places hold different rows.
    """
    if a.fun == b.fun and is_permutation(a.fun):
        return [implies(conjunction([in_domain(a), in_domain(b), _eq(a, b)]), _eq(a.args[0], b.args[0]))]
    if a.fun != b.fun or not isinstance(a.fun.definition, Scan) or a.args[:-1] != b.args[:-1]:
        return []
    if rows(a.fun, a.args[:-1]) in (a.args[-1], b.args[-1]):
        return []
    gap = (polynomial(b.args[-1]) - polynomial(a.args[-1])).constant()
    if gap is not None and gap < 0:
        return pair_facts(b, a)
    found: list[Expr] = []
    for low, high in ((a, b), (b, a)):
        first, last = low.args[-1], high.args[-1]
        guard = conjunction([in_domain(high), first >= ZERO, first < last])
        next_start = low + row_length(low)
        if gap == 1:
            found.append(implies(guard, _eq(next_start, high)))
        elif is_nonnegative(a.fun.definition.body):
            found.append(implies(guard, next_start <= high))
        if gap is not None:
            break
    return found


def maximum_fact(call: Call, point: Sequence[Expr]) -> Expr:
    """That the maximum is at least the value of its body at `point`, where that lies in range."""
    assert isinstance(call.fun.definition, Maximum)
    over, body = call.fun.definition.over, call.fun.definition.body
    value = substitute(body, dict(zip(over, point, strict=True)))
    return implies(_inside(over, tuple(point)), value <= call)


def closure(exprs: Sequence[Expr], depth: int = 3) -> list[Expr]:
    """The facts about all applications in `exprs`, about those that these mention, and so on.

    `depth` rounds, in a reproducible order, without duplicates. Pairs of applications of one Scan,
    and instances of a Maximum at the arguments of the functions in its body, are taken among those
    in `exprs` and in the first round of facts.
    """
    known: dict[Call, None] = {}
    found: dict[Expr, None] = {}
    frontier = list(exprs)
    for level in range(depth):
        fresh = [c for c in calls_in(frontier) if c not in known]
        known.update(dict.fromkeys(fresh))
        frontier = [f for call in fresh for f in facts(call)]
        if level < 2:
            frontier += relations(list(known))
        frontier = [f for f in dict.fromkeys(frontier) if f not in found]
        found.update(dict.fromkeys(frontier))
    return list(found)


def calls_in(exprs: Sequence[Expr]) -> list[Call]:
    """The distinct applications in `exprs`, in order of first occurrence."""
    return list(dict.fromkeys(n for e in exprs for n in walk(e) if isinstance(n, Call)))


def rows(offset: UFun, outer: Sequence[Expr]) -> Expr:
    """How many rows a Scan sums up, given its outer arguments."""
    extent = substitute(_scan(offset).index.extent, dict(zip(offset.domain, outer, strict=False)))
    return extent if is_nonnegative(extent) else binary("max", extent, 0)


def row_length(call: Call) -> Expr:
    """The body of a Scan at the last argument of `call`: the length of the row starting there."""
    scan = _scan(call.fun)
    values: dict[Expr, Expr] = dict(zip(call.fun.domain[:-1], call.args, strict=False))
    return substitute(scan.body, {**values, scan.index: call.args[-1]})


def is_permutation(fun: UFun) -> bool:
    """Whether the values of `fun` are the integers of its domain, in some order."""
    match fun.definition:
        case Given(permutation=True) | Descending() | Lists():
            return True
    return False


def relations(calls: Sequence[Call]) -> list[Expr]:
    """Facts that join several of `calls`: pairs of sums, a maximum and the values it is over."""
    found: list[Expr] = []
    for position, call in enumerate(calls):
        match call.fun.definition:
            case Maximum():
                found += [maximum_fact(call, point) for point in _instances(call, calls)]
            case _:
                for other in calls[position + 1 :]:
                    found += pair_facts(call, other)
    return found


def _instances(call: Call, calls: Sequence[Call]) -> Iterator[tuple[Expr, ...]]:
    """Where to instantiate a Maximum: the calls in its body, matched with those at hand."""
    definition = call.fun.definition
    assert isinstance(definition, Maximum)
    for pattern in calls_in([definition.body]):
        places = {formal: i for i, formal in enumerate(pattern.args)}
        if all(dim in places for dim in definition.over):
            for other in calls:
                if other.fun == pattern.fun:
                    yield tuple(other.args[places[dim]] for dim in definition.over)


def _scan_facts(call: Call) -> list[Expr]:
    *outer, r = call.args
    definition = _scan(call.fun)
    n = rows(call.fun, outer)
    found: list[Expr] = [implies(_eq(r, ZERO), _eq(call, ZERO))]
    if is_nonnegative(definition.body) and r != n:
        row = conjunction([_inside(call.fun.domain[:-1], outer), r >= ZERO, r < n])
        found.append(implies(row, call + row_length(call) <= call.fun(*outer, n)))
    factor = multiple_of(definition.body)
    if factor != 1:
        found.append(_eq(call, ZERO) if factor == 0 else _eq(call % factor, ZERO))
    return found


def _outer_facts(call: Call, offset: UFun) -> list[Expr]:
    """`f` is in row `ffo(f)`; `offset(o) + i` is in row o; a tile is in one row (tile lemma)."""
    *outer, f = call.args
    inside = in_domain(call)
    start = offset(*outer, call)
    found = [
        implies(inside, call < rows(offset, outer)),
        implies(inside, start <= f),
        implies(inside, f < start + row_length(start)),
    ]
    found += [implies(guard, _eq(call, row)) for guard, row, _ in _positions(call, offset)]
    for guard, tile, _ in _tiles(call, offset):
        found.append(implies(guard, _eq(call, call.fun(*outer, tile))))
    return found


def _inner_facts(call: Call, offset: UFun) -> list[Expr]:
    """Range of `ffi`; `offset(ffo(f)) + ffi(f) = f`; its inverse, multiples, the tile lemma."""
    *outer, f = call.args
    inside = in_domain(call)
    ffo, _ = fusion_maps(offset)
    start = offset(*outer, ffo(*outer, f))
    length = row_length(start)
    found = [
        implies(inside, call < length),
        implies(inside, _eq(start + call, f)),
    ]
    step = factor_of(call)
    if step > 1:
        found += [_eq(call % step, ZERO), implies(inside, call + step <= length)]
    found += [implies(guard, _eq(call, within)) for guard, _, within in _positions(call, offset)]
    for guard, tile, within in _tiles(call, offset):
        found.append(implies(guard, _eq(call, call.fun(*outer, tile) + within)))
    return found


def _positions(call: Call, offset: UFun) -> list[tuple[Expr, Expr, Expr]]:
    """(guard, o, i) for every way to read the argument of a fusion map as `offset(o) + i`."""
    *outer, f = call.args
    whole = polynomial(f)
    found = []
    for monomial, coefficient in whole:
        match monomial:
            case (Call(fun=fun, args=args) as start,) if coefficient == 1:
                if fun == offset and args[:-1] == tuple(outer):
                    row = args[-1]
                    within = (whole - Poly({monomial: 1})).expr()
                    guard = conjunction(
                        [
                            _inside(offset.domain[:-1], outer),
                            *(row >= ZERO, row < rows(offset, outer)),
                            *(within >= ZERO, within < row_length(start)),
                        ]
                    )
                    found.append((guard, row, within))
    return found


def _tiles(call: Call, offset: UFun) -> list[tuple[Expr, Expr, Expr]]:
    """(guard, t, r) for every way to read the argument as `t + r`, t a multiple of k, 0 <= r < k.

    k divides every inner extent, so rows start at multiples of k, and t is in the row of t + r.
    """
    whole = polynomial(call.args[-1])
    extent = multiple_of(_scan(offset).body)
    factors = {m: multiple_of(Poly({m: c}).expr()) for m, c in whole if m}
    found = []
    for k in sorted({gcd(extent, factor) for factor in factors.values()}, reverse=True):
        tile = Poly({m: c for m, c in whole if factors.get(m, c) % k == 0}) if k > 1 else whole
        within = whole - tile
        if within.terms:
            r = within.expr()
            guard = conjunction([in_domain(call), r >= ZERO, r < k])
            found.append((guard, tile.expr(), r))
    return found


def _cut_facts(call: Call, n: Expr, parts: Expr) -> list[Expr]:
    (w,) = call.args
    after = call.fun((polynomial(w) + polynomial(Const(1))).expr())
    last = conjunction([_eq(w, parts), w > ZERO])
    return [
        implies(in_domain(call), call <= n),
        implies(_eq(w, ZERO), _eq(call, ZERO)),
        implies(last, _eq(call, n)),
        implies(conjunction([w >= ZERO, w < parts]), call <= after),
    ]


def _inside(dims: Sequence[Dim], args: Sequence[Expr]) -> Expr:
    values: dict[Expr, Expr] = {}
    terms: list[Expr] = []
    for dim, arg in zip(dims, args, strict=True):
        terms += [arg >= ZERO, arg < substitute(dim.extent, values)]
        values[dim] = arg
    return conjunction(terms)


def _scan(fun: UFun) -> Scan:
    assert isinstance(fun.definition, Scan)
    return fun.definition


def _eq(a: Expr, b: Expr) -> Expr:
    return binary("eq", a, b)
