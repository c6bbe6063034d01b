"""Counting iterations of loop nests on concrete lengths: how much of the work a schedule does is useful."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from cora.ir import dtypes
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Binary, Expr, Unary, Var, binary
from cora.ir.visit import substitute, walk
from cora.lang.check import reductions_of
from cora.schedule.nest import LoopNest, initial_nest


@dataclass(frozen=True, slots=True)
class Waste:
    """What a kernel executes and stores on one batch, against what the definition asks for.

    flops: floating-point operations, masked lanes and padded iterations counted as executed; bytes: of inputs,
    outputs and intermediates.
    """

    executed_flops: int
    useful_flops: int
    stored_bytes: int
    useful_bytes: int

    @property
    def flops_ratio(self) -> float:
        """Executed over useful FLOPs; 1 where there are none."""
        return self.executed_flops / self.useful_flops if self.useful_flops else 1.0

    @property
    def bytes_ratio(self) -> float:
        """Stored over useful bytes; 1 where there are none."""
        return self.stored_bytes / self.useful_bytes if self.useful_bytes else 1.0

    def __str__(self) -> str:
        return (
            f"FLOPs executed {self.executed_flops:,} / useful {self.useful_flops:,} = {self.flops_ratio:.3f}; "
            f"bytes stored {self.stored_bytes:,} / useful {self.useful_bytes:,} = {self.bytes_ratio:.3f}"
        )


def iterations(
    loops: Sequence[tuple[Expr, Expr]],
    evaluator: Evaluator,
    around: Mapping[Expr, int] = MappingProxyType({}),
) -> int:
    """How often the body of `loops` (variable, extent; outermost first) runs, given the variables around them."""

    def run(place: int, env: dict[Expr, int]) -> int:
        if place == len(loops):
            return 1
        var, extent = loops[place]
        count = max(int(evaluator.value(extent, env)), 0)
        uses_var = any(node == var for _, inner in loops[place + 1 :] for node in walk(inner))
        if not uses_var:
            return count * run(place + 1, env) if count else 0
        return sum(run(place + 1, {**env, var: i}) for i in range(count))

    return run(0, dict(around))


def executed_iterations(nest: LoopNest, evaluator: Evaluator) -> int:
    """Iterations of the scheduled loops and those around them, padding and masked lanes included."""
    return iterations([(leaf.var, leaf.extent) for leaf in nest.scope], evaluator)


def useful_iterations(nest: LoopNest, evaluator: Evaluator) -> int:
    """Iterations of the loops of the definition."""
    return iterations([(leaf.var, leaf.extent) for leaf in initial_nest(nest.tensor).leaves], evaluator)


def elements(dims: Sequence[Expr], extents: Sequence[Expr], evaluator: Evaluator) -> int:
    """The number of index tuples of a tensor with these dims and extents."""
    names: dict[Expr, Expr] = {d: Var(f"d{k}") for k, d in enumerate(dims)}
    loops = [(names[d], binary("max", substitute(e, names), 0)) for d, e in zip(dims, extents, strict=True)]
    return iterations(loops, evaluator)


def flops_per_iteration(body: Expr) -> int:
    """Floating-point operations in one evaluation of a body, each function as one; a reduction combines once."""
    count = sum(1 for r in reductions_of(body) if dtypes.is_float(r.dtype) or r.op in ("argmax", "argmin"))
    inner = [r.body for r in reductions_of(body)] or [body]
    for e in inner:
        for node in walk(e):
            match node:
                case Binary(a=a) if dtypes.is_float(a.dtype):
                    count += 1
                case Unary(a=a) if dtypes.is_float(a.dtype):
                    count += 1
    return count
