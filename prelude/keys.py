"""Names for uninterpreted functions that agree between processes: a hash of what a function means.

Two functions have one key if they are the same up to the names of functions and of formal dims: such names
are for people. Names of sizes and of Given functions count, because the run time binds values by them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from cora.errors import InternalError, UnsupportedError
from cora.ir import dtypes
from cora.ir.expr import Binary, Call, Cast, Const, Dim, Expr, Select, Size, Unary
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
    formal,
)
from cora.ir.visit import walk

_HEX_DIGITS = 16


class Keys:
    """Computes keys, each function's once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[UFun, str] = {}

    def of(self, fun: UFun) -> str:
        """The key of `fun`: its kind and 16 hexadecimal digits (`scan_0f3a...`), a C identifier.

        Raises UnsupportedError if the definition holds something that a table cannot be computed from
        (floats, tensor accesses, reductions), InternalError if it uses a dim that it does not bind.
        """
        known = self._known.get(fun)
        if known is None:
            digest = hashlib.sha256(self._text(fun).encode()).hexdigest()
            known = self._known[fun] = f"{kind(fun)}_{digest[:_HEX_DIGITS]}"
        return known

    def _text(self, fun: UFun) -> str:
        names: dict[Dim, str] = {}
        domain = [self._bind(fun, dim, names) for dim in fun.domain]
        body = " ".join(self._definition(fun, names))
        return f"{kind(fun)} [{', '.join(domain)}] {body}"

    def _bind(self, fun: UFun, dim: Dim, names: dict[Dim, str]) -> str:
        """The extent of `dim` as text; from here on `dim` is known by a number."""
        extent = self._expr(fun, dim.extent, names)
        names[dim] = f"%{len(names)}"
        return extent

    def _definition(self, fun: UFun, names: dict[Dim, str]) -> Iterator[str]:
        match fun.definition:
            case Given():
                yield fun.name
            case Scan(index=index, body=body):
                outer = dict(list(names.items())[:-1])
                yield self._bind(fun, index, outer)
                yield self._expr(fun, body, outer)
            case FusedOuter(offset=direct) | FusedInner(offset=direct) | Descending(cost=direct):
                yield self.of(direct)
            case Starts(owners=direct) | Lists(owners=direct):
                yield self.of(direct)
            case Maximum(over=over, body=body):
                inner = dict(names)
                yield from [self._bind(fun, dim, inner) for dim in over]
                yield self._expr(fun, body, inner)
            case Cuts(cost=direct, parts=parts) | Owners(order=direct, parts=parts):
                yield self.of(direct)
                yield self._expr(fun, parts, {})

    def _expr(self, fun: UFun, e: Expr, names: Mapping[Dim, str]) -> str:
        if e.dtype != "bool" and not dtypes.is_int(e.dtype):
            raise UnsupportedError(
                f"prelude: the definition of '{fun}' must be made of integers; got {e} of type {e.dtype}"
            )
        match e:
            case Const(value=value):
                return str(int(value)) if e.dtype != "bool" else str(value)
            case Size(name=name):
                return f"${name}"
            case Dim():
                if e not in names:
                    raise InternalError(f"prelude: the definition of '{fun}' does not bind dim '{e}'")
                return names[e]
            case Binary(op=op, a=a, b=b):
                return f"({op} {self._expr(fun, a, names)} {self._expr(fun, b, names)})"
            case Unary(op=("neg" | "abs" | "not") as op, a=a):
                return f"({op} {self._expr(fun, a, names)})"
            case Cast(type=to, a=a) if to == dtypes.INDEX:
                return f"({to} {self._expr(fun, a, names)})"
            case Select(cond=c, then=a, other=b):
                return f"(select {' '.join(self._expr(fun, part, names) for part in (c, a, b))})"
            case Call(fun=called, args=args):
                return f"({self.of(called)} {' '.join(self._expr(fun, a, names) for a in args)})"
        raise UnsupportedError(
            f"prelude: the definition of '{fun}' must be integer arithmetic of sizes, lengths and dims; "
            f"got {e} ({type(e).__name__})"
        )


def kind(fun: UFun) -> str:
    """The kind of definition, in one word: given, scan, ffo, ffi, cuts..."""
    match fun.definition:
        case Given(permutation=True):
            return "permutation"
        case Given():
            return "given"
        case Scan():
            return "scan"
        case FusedOuter():
            return "ffo"
        case FusedInner():
            return "ffi"
        case Maximum():
            return "maximum"
        case Cuts():
            return "cuts"
        case Descending():
            return "order"
        case Owners():
            return "owners"
        case Starts():
            return "starts"
        case Lists():
            return "lists"


def expressions(fun: UFun) -> Iterator[Expr]:
    """Every expression that the table of `fun` is computed from, those of other functions not included."""
    for dim in fun.domain:
        yield dim.extent
    match fun.definition:
        case Scan(index=index, body=body):
            yield index.extent
            yield body
        case Maximum(over=over, body=body):
            yield from (dim.extent for dim in over)
            yield body
        case Cuts(parts=parts) | Owners(parts=parts):
            yield parts
        case _:
            pass


def functions(fun: UFun) -> Iterator[UFun]:
    """The functions that the table of `fun` is computed from, in the order in which they stand."""
    match fun.definition:
        case FusedOuter(offset=direct) | FusedInner(offset=direct):
            yield direct
        case Cuts(cost=direct) | Descending(cost=direct):
            yield direct
        case Owners(order=UFun(definition=Descending(cost=cost)) as order):
            yield cost
            yield order
        case Starts(owners=owners):
            yield owners
        case Lists(owners=UFun(definition=Owners(parts=parts)) as owners):
            yield owners
            yield UFun("starts", (formal(0, parts + 1),), Starts(owners))
        case _:
            pass
    for expression in expressions(fun):
        yield from called(expression)


def called(e: Expr) -> Iterator[UFun]:
    """The functions called in `e`."""
    return (node.fun for node in walk(e) if isinstance(node, Call))


def sizes(e: Expr) -> Iterator[str]:
    """The names of the run-time sizes in `e`."""
    return (node.name for node in walk(e) if isinstance(node, Size))
