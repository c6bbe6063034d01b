"""Walking and rewriting expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TypeVar

from cora.ir.expr import (
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Fma,
    LaneReduce,
    Read,
    Reduce,
    Select,
    Size,
    Unary,
    Var,
    binary,
    cast,
    select,
    unary,
)

_Key = TypeVar("_Key", bound=Expr)


def children(e: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions. The extent of a Dim and the dims of a Reduce are not among them."""
    match e:
        case Binary(a=a, b=b):
            return a, b
        case Unary(a=a) | Cast(a=a):
            return (a,)
        case Select(cond=c, then=a, other=b):
            return c, a, b
        case Fma(a=a, b=b, c=c):
            return a, b, c
        case Call(args=args):
            return args
        case Access(indices=indices):
            return indices
        case Reduce(body=body):
            return (body,)
        case Read(offset=offset) | LaneReduce(offset=offset):
            return (offset,)
        case _:
            return ()


def rebuild(e: Expr, parts: tuple[Expr, ...]) -> Expr:
    """`e` with its direct sub-expressions replaced; trivial cases fold again."""
    match e:
        case Binary(op="floordiv" | "mod") if parts[1] == Const(0, parts[1].dtype):
            return Const(0, parts[1].dtype)  # nothing valid runs this; generated code gives 0 too
        case Binary(op=op):
            return binary(op, *parts)
        case Unary(op=op):
            return unary(op, *parts)
        case Cast(type=t):
            return cast(t, *parts)
        case Select():
            return select(*parts)
        case Fma():
            return Fma(*parts)
        case Call(fun=fun):
            return Call(fun, parts)
        case Access(tensor=tensor):
            return Access(tensor, parts)
        case Reduce(op=op, over=over):
            return Reduce(op, parts[0], over)
        case Read(buffer=buffer):
            return Read(buffer, parts[0])
        case LaneReduce(op=op, buffer=buffer, lanes=lanes):
            return LaneReduce(op, buffer, parts[0], lanes)
        case _:
            return e


def walk(e: Expr) -> Iterator[Expr]:
    """The distinct sub-expressions, outermost first."""
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(reversed(children(node)))


def repeated(root: Expr) -> frozenset[Expr]:
    """The compound sub-expressions with more than one occurrence."""
    seen: set[Expr] = set()
    found: set[Expr] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if not children(node):
            continue
        if node in seen:
            found.add(node)
            continue
        seen.add(node)
        stack.extend(children(node))
    return frozenset(found)


def transform(e: Expr, rule: Callable[[Expr], Expr | None]) -> Expr:
    """Rewrite bottom-up: `rule` sees each node with rewritten children and may return a replacement."""
    memo: dict[Expr, Expr] = {}

    def go(node: Expr) -> Expr:
        done = memo.get(node)
        if done is not None:
            return done
        old = children(node)
        new = tuple(go(c) for c in old)
        same = all(a is b for a, b in zip(old, new, strict=True))
        candidate = node if same else rebuild(node, new)
        replaced = rule(candidate)
        result = candidate if replaced is None else replaced
        memo[node] = result
        return result

    return go(e)


def substitute(e: Expr, values: Mapping[_Key, Expr]) -> Expr:
    """`e` with every node that is a key of `values` replaced; the dims of a Reduce stay bound."""
    if not values:
        return e
    replacements: dict[Expr, Expr] = {}
    replacements.update(values.items())
    memo: dict[Expr, Expr] = {}

    def go(node: Expr) -> Expr:
        if node in replacements:
            return replacements[node]
        if isinstance(node, (Const, Size, Dim, Var)):
            return node
        done = memo.get(node)
        if done is None:
            old = children(node)
            new = tuple(go(c) for c in old)
            same = all(a is b for a, b in zip(old, new, strict=True))
            done = memo[node] = node if same else rebuild(node, new)
        return done

    return go(e)


@lru_cache(maxsize=1 << 14)
def free_dims(e: Expr) -> frozenset[Dim]:
    """The dims that the value of `e` depends on: those in it, less those a Reduce binds."""
    match e:
        case Dim():
            return frozenset((e,))
        case Reduce(body=body, over=over):
            inner = free_dims(body)
            for dim in over:
                inner |= free_dims(dim.extent)
            return inner - frozenset(over)
        case _:
            result: frozenset[Dim] = frozenset()
            for child in children(e):
                result |= free_dims(child)
            return result


@lru_cache(maxsize=1 << 14)
def free_vars(e: Expr) -> frozenset[Var]:
    """The loop variables in `e`."""
    return frozenset(n for n in walk(e) if isinstance(n, Var))


def sizes_of(e: Expr) -> frozenset[Size]:
    """The run-time sizes in `e`, those inside extents and function domains not included."""
    return frozenset(n for n in walk(e) if isinstance(n, Size))
