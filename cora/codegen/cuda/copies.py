"""Copies to shared memory that go on by themselves, with all that their addresses have in common computed once.

A loop over copies, with conditions, becomes: the addresses of the first one, and how far each condition on a loop
variable is from its end; then, for each copy, steps from there and a predicated instruction:

    for i: if row < rows: if i * 16 + x < columns: copy(i)
    =>  to, from, left = columns - x;  for i: copy(to + 64 * i, from + 64 * i, if row < rows and i * 16 < left)

A branch around each copy would have the compiler compute everything again behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tvm import tirx as T  # noqa: N812

from cora.codegen.cuda.expr import Context, Value, bound, evaluate, find
from cora.codegen.cuda.vector import LEAST_COPY, WideCopy, as_wide_copy, conjuncts
from cora.codegen.nodes import Tir, const
from cora.ir import dtypes
from cora.ir.expr import TRUE, Binary, Const, Expr, Read, Var, binary, conjunction
from cora.ir.simplify import simplify
from cora.ir.stmt import Buffer, CopyAsync, For, If, LoopKind, Stmt
from cora.ir.visit import free_vars, substitute, walk


@dataclass(frozen=True, slots=True)
class Copies:
    """Loops of constant extent around one copy, which is made where all `conditions` hold."""

    loops: tuple[For, ...]
    conditions: tuple[Expr, ...]
    copy: WideCopy

    @property
    def hardware(self) -> bool:
        """Whether such copies go on by themselves; narrow ones do not."""
        return self.copy.lanes * dtypes.itemsize(self.copy.to[0].dtype) >= LEAST_COPY


def as_copies(s: Stmt, definitions: Mapping[Expr, Expr]) -> Copies | None:
    """`s` as loops around one copy; None if it is anything else."""
    match s:
        case CopyAsync(buffer=buffer, offset=offset, source=source):
            return Copies((), (), WideCopy(1, TRUE, None, (buffer, offset), (source.buffer, source.offset)))
        case If(cond=cond, then=then, other=None):
            inner = as_copies(then, definitions)
            return inner and Copies(inner.loops, (*conjuncts(cond), *inner.conditions), inner.copy)
        case For(begin=Const(), end=Const(), kind=LoopKind.SERIAL | LoopKind.UNROLL | LoopKind.VECTOR):
            wide = as_wide_copy(s, definitions)
            if wide is not None:
                return Copies((), tuple(conjuncts(wide.condition)), wide)
            inner = as_copies(s.body, definitions)
            return inner and Copies((s, *inner.loops), inner.conditions, inner.copy)
    return None


def emit_copies(
    c: Context, copies: Copies, in_loop: Callable[[Context, For, Callable[[Context], None]], None]
) -> None:
    """Append the copies; in_loop: appends a loop around what a function appends to its body."""
    copy = copies.copy
    first: dict[Expr, Expr] = {loop.var: loop.begin for loop in copies.loops}
    to, source = (_address(c, buffer, substitute(offset, first)) for buffer, offset in (copy.to, copy.source))
    to, source = (
        c.scope.bind(T.call_extern(dtype, name, address), hint)
        for dtype, name, address, hint in (
            ("uint32", "cora_shared", to, "copied_to"),
            ("int64", "cora_address", source, "copied_from"),
        )
    )
    tests: list[Expr] = []
    for condition in copies.conditions:
        c, test = _test(c, condition, first)
        tests.append(test)

    def emit(c: Context) -> None:
        itemsize = dtypes.itemsize(copy.to[0].dtype)
        steps = [simplify(offset - substitute(offset, first)) for _, offset in (copy.to, copy.source)]
        arguments = [
            T.Add(base, T.Mul(T.Cast(dtype, evaluate(c, step).tir), const(itemsize, dtype)))
            for base, dtype, step in ((to, "uint32", steps[0]), (source, "int64", steps[1]))
        ]
        if copy.count is not None:
            arguments.append(T.Cast("int32", evaluate(c, copy.count * itemsize).tir))
        if tests:
            held = evaluate(c, conjunction(tests))
            arguments.append(T.Cast("int32", held.tir))
        name = "cora_copy_part_16" if copy.count is not None else f"cora_copy_async_{copy.lanes * itemsize}"
        c.scope.add(T.Evaluate(T.call_extern("int32", name, *arguments)))

    def nested(c: Context, loops: tuple[For, ...]) -> None:
        if loops:
            in_loop(c, loops[0], lambda inner: nested(inner, loops[1:]))
        else:
            emit(c)

    nested(c, copies.loops)


def _address(c: Context, buffer: Buffer, offset: Expr) -> Tir:
    return T.address_of(T.BufferLoad(find(c, buffer), [evaluate(c, offset).tir]))


def _test(c: Context, condition: Expr, first: Mapping[Expr, Expr]) -> tuple[Context, Expr]:
    """`condition` as one on the loops alone, how far they may go being computed here.

    Both sides must be known to be at least 0: then their difference has no more bits than they.
    """
    match condition:
        case Binary(op="lt" | "le" as op, a=a, b=b) if free_vars(a) & first.keys() and not (
            free_vars(b) & first.keys() or any(isinstance(n, Read) for n in walk(condition))
        ):
            here = substitute(a, first)
            begin, end = evaluate(c, here), evaluate(c, b)
            if begin.nonneg and end.nonneg and begin.dtype == end.dtype:
                left = Var(f"left{len(c.values)}")
                value = bound(c, Value(T.Sub(end.tir, begin.tir), end.dtype), "left")
                return c.with_value(left, value), binary(op, simplify(a - here), left)
    return c, condition
