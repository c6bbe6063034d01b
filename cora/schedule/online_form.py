"""The form of sums whose maximum may run along with them: each term has one factor exp(k * (score - top)).

If `top` grows, every term of the sum changes by the same factor, so that what is summed already can be corrected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cora.errors import ScheduleError
from cora.ir.expr import Access, Binary, Const, Expr, Reduce, Select, Unary, binary, constant, select, unary
from cora.ir.simplify import simplify
from cora.ir.tensor import Tensor
from cora.ir.visit import free_dims, substitute, transform, walk
from cora.lang.check import reductions_of


@dataclass(frozen=True, slots=True)
class Form:
    """What is common to the sums of one maximum: exponents are k * score - k * where(top > -inf, top, empty).

    scale: the constant k (None: 1).
    """

    scale: Const | None
    empty: Const


@dataclass(frozen=True, slots=True)
class Term:
    """A sum in this form: the maximum as its terms read it, at dims of the sum, and the operators in between."""

    top: Access
    form: Form
    between: frozenset[str]


def read_form(where: str, tensor: Tensor, top: Tensor, bodies: Mapping[str, Expr]) -> Term:
    """The form of the one reduction of `tensor`, a sum; ScheduleError, with the reason, if it has another.

    bodies: the bodies of all operators.
    """
    assert tensor.body is not None
    assert top.body is not None
    reductions = reductions_of(tensor.body)
    if len(reductions) != 1 or reductions[0].op != "sum":
        raise ScheduleError(f"{where}: '{tensor.name}' must have one reduction, a sum; it is {tensor.body}")
    (reduction,) = reductions
    between: set[str] = set()
    body = _expanded(where, reduction.body, top, bodies, between)
    factors = [factor for factor in _factors(body) if _reads(factor, top)]
    if len(factors) != 1:
        raise ScheduleError(
            f"{where}: the terms of '{tensor.name}' must have one factor that depends on '{top.name}', an "
            f"exponential; they have {len(factors)}: {body}"
        )
    seen, exponent = _exponential(where, factors[0], tensor, top)
    score, access, form = _difference(where, exponent, tensor, top)
    over = {d for r in reductions for d in r.over}
    if any(free_dims(index) & over for index in access.indices):
        raise ScheduleError(
            f"{where}: '{tensor.name}' reads '{top.name}' at other elements for each of its terms"
        )
    _check_same(where, tensor, reduction, access, (score, seen), top)
    return Term(access, form, frozenset(between))


def correction(form: Form, before: Expr, after: Expr) -> Expr:
    """The factor of what is summed already: exp(k * before - k * after); 0 where nothing but zeros is summed yet."""

    def scaled(value: Expr) -> Expr:
        return value if form.scale is None else value * form.scale

    some = binary("lt", constant(-math.inf, before.dtype), before)
    shifted = select(binary("lt", constant(-math.inf, after.dtype), after), after, form.empty)
    return select(some, unary("exp", scaled(before) - scaled(shifted)), constant(0, before.dtype))


def maximum_form(where: str, top: Tensor) -> tuple[Expr, Expr | None]:
    """The score of which `top` is the maximum, and where it is seen."""
    assert top.body is not None
    match top.body:
        case Reduce(op="max", body=Select(cond=seen, then=score, other=Const(value=value))) if (
            value == -math.inf
        ):
            return score, seen
        case Reduce(op="max", body=score):
            return score, None
    raise ScheduleError(f"{where}: '{top.name}' must be a maximum; it is {top.body}")


def _expanded(where: str, e: Expr, top: Tensor, bodies: Mapping[str, Expr], between: set[str]) -> Expr:
    """`e` with every operator in place that depends on the maximum."""

    def rule(inner: Expr) -> Expr | None:
        match inner:
            case Access(tensor=tensor, indices=indices) if (
                tensor.name != top.name and tensor.body is not None
            ):
                body = bodies[tensor.name]
                if not _depends(body, top, bodies):
                    return None
                if reductions_of(body):
                    raise ScheduleError(
                        f"{where}: '{tensor.name}' depends on '{top.name}' and reduces itself"
                    )
                if tensor.dtype != body.dtype:
                    raise ScheduleError(f"{where}: '{tensor.name}' is stored as {tensor.dtype}, which rounds")
                between.add(tensor.name)
                own = substitute(body, dict(zip(tensor.dims, indices, strict=True)))
                return _expanded(where, own, top, bodies, between)
        return None

    return transform(e, rule)


def _depends(e: Expr, top: Tensor, bodies: Mapping[str, Expr]) -> bool:
    read = {n.tensor.name for n in walk(e) if isinstance(n, Access)}
    return top.name in read or any(_depends(bodies[name], top, bodies) for name in read if name in bodies)


def _reads(e: Expr, top: Tensor) -> bool:
    return any(isinstance(n, Access) and n.tensor.name == top.name for n in walk(e))


def _factors(e: Expr) -> list[Expr]:
    match e:
        case Binary(op="mul", a=a, b=b):
            return [*_factors(a), *_factors(b)]
    return [e]


def _exponential(where: str, factor: Expr, tensor: Tensor, top: Tensor) -> tuple[Expr | None, Expr]:
    """Where the factor is not 0 (None: anywhere), and its exponent there."""
    match factor:
        case Unary(op="exp", a=exponent):
            return None, exponent
        case Select(cond=seen, then=Unary(op="exp", a=exponent), other=Const(value=0)) if not _reads(
            seen, top
        ):
            return seen, exponent
    raise ScheduleError(
        f"{where}: the factor of the terms of '{tensor.name}' that depends on '{top.name}' must be exp(..), or "
        f"where(seen, exp(..), 0); it is {factor}"
    )


def _difference(where: str, exponent: Expr, tensor: Tensor, top: Tensor) -> tuple[Expr, Access, Form]:
    """The score, the maximum, and the form of the exponent."""
    match exponent:
        case Binary(op="sub", a=a, b=b) if not _reads(a, top):
            scale, shift = _scaled(b)
            own, score = _scaled(a) if scale is not None else (None, a)
            match shift:
                case Select(
                    cond=Binary(op="lt", a=Const(value=low), b=Access() as first),
                    then=Access() as access,
                    other=Const(value=empty) as other,
                ) if access == first and access.tensor.name == top.name and low == -math.inf:
                    if own == scale and math.isfinite(empty):
                        return score, access, Form(scale, other)
    raise ScheduleError(
        f"{where}: the exponent of the terms of '{tensor.name}' must be score - shift, or score * k - shift * k with a "
        f"positive constant k, where shift is where({top.name} > -inf, {top.name}, 0); it is {exponent}"
    )


def _scaled(e: Expr) -> tuple[Const | None, Expr]:
    match e:
        case Binary(op="mul", a=Const(value=value) as scale, b=other) if value > 0:
            return scale, other
        case Binary(op="mul", a=other, b=Const(value=value) as scale) if value > 0:
            return scale, other
    return None, e


def _check_same(
    where: str,
    tensor: Tensor,
    reduction: Reduce,
    access: Access,
    found: tuple[Expr, Expr | None],
    top: Tensor,
) -> None:
    """The maximum must be that of the scores in the exponents, over the same terms, where they are seen."""
    score, seen = maximum_form(where, top)
    own_score, own_seen = found
    assert isinstance(top.body, Reduce)
    if len(top.body.over) != 1 or len(reduction.over) != 1:
        raise ScheduleError(f"{where}: '{top.name}' and '{tensor.name}' must reduce over one dim each")
    values: dict[Expr, Expr] = dict(zip(top.dims, access.indices, strict=True))
    (own,), (over,) = top.body.over, reduction.over

    def alike(a: Expr, b: Expr) -> bool:
        return a == b or simplify(a) == simplify(b)

    if not alike(substitute(own.extent, values), over.extent):
        raise ScheduleError(
            f"{where}: '{top.name}' reduces over {own.extent} values of '{own.name}', '{tensor.name}' over "
            f"{over.extent} of '{over.name}'"
        )
    values[own] = over
    if not alike(substitute(score, values), own_score):
        raise ScheduleError(
            f"{where}: '{top.name}' is the maximum of {substitute(score, values)}, and the exponents of "
            f"'{tensor.name}' have {own_score}"
        )
    if seen is not None and (own_seen is None or not alike(substitute(seen, values), own_seen)):
        raise ScheduleError(
            f"{where}: '{top.name}' sees {substitute(seen, values)}, and '{tensor.name}' sums what satisfies "
            f"{'anything' if own_seen is None else own_seen}"
        )
