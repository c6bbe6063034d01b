"""The passes from a schedule to flat loops, in order.

    definition   accesses stay inside their tensors on valid iterations, or become index checks     access
    operations   bodies over loop variables; guards of loops, stores, loads, reductions; proofs      operation
    loops        loop nests, accumulators, shares of the workers; flat offsets (Algorithm 1)         loops, flatten
    padding      zero filling of the outputs' storage padding                                        padding
    tables       calls of uninterpreted functions become guarded reads of the prelude's tables       tables
    hoisted      table reads move out of loops                                                       hoist
    lowered      guarded innermost loops are cut into a full part and a tail                         tails

Ordering restrictions: tables after loops, because the identities of the uninterpreted functions are applied to
whole offsets; hoist after tables, because what moves is a read; tails after hoist, because a bound must not
change inside the loop that is cut.
"""

from __future__ import annotations

from collections.abc import Mapping

from cora.errors import UserError
from cora.ir.expr import Access, Expr, Read, Size
from cora.ir.stmt import Buffer, Function, LoopKind, Stmt, block, map_stmt
from cora.ir.tensor import Tensor
from cora.ir.visit import walk
from cora.lower.access import IndexCheck, check_accesses, violations
from cora.lower.guards import Guards
from cora.lower.hoist import hoist
from cora.lower.loops import WORKERS, make_loops, worker_of
from cora.lower.operation import context_of, make_operation
from cora.lower.padding import zero_fill
from cora.lower.program import Lowered
from cora.lower.tables import TableReader, Tables
from cora.lower.tails import cut_tails
from cora.prove import Prover, Range
from cora.schedule.nest import LoopNest, initial_nest
from cora.schedule.schedule import Schedule
from cora.settings import Settings
from cora.storage.layout import Layout


def lower(schedule: Schedule, settings: Settings, name: str = "kernel") -> Lowered:
    """Lower a scheduled program. Raises UserError, ScheduleError or UnsupportedError for what cannot be."""
    prover = Prover(settings)
    guards = Guards(prover, settings)
    tensors = schedule.tensors
    layouts = dict(schedule.state.layouts)
    operators = [t for t in tensors if t.body is not None]

    inside: dict[str, frozenset[Access]] = {}
    checks: list[IndexCheck] = []
    for operator in operators:
        inside[operator.name], found = check_accesses(operator, prover)
        checks.extend(found)

    buffers = {t.name: _buffer(t, schedule.outputs, layouts) for t in tensors}
    tables = Tables()
    parts: list[_Part] = []
    for operator in operators:
        nest = schedule.state.nests[operator.name]
        parts.append(_operator(nest, layouts, inside[operator.name], guards, buffers, tables))
        if operator.name not in schedule.state.undefined_padding and operator in schedule.outputs:
            parts.extend(_padding(operator, layouts, guards, buffers, tables))
    loops = block([part.loops for part in parts])
    read = block([part.tables for part in parts])
    hoisted = hoist(read)
    lowered = cut_tails(hoisted)
    kernel = _function(name, lowered, [buffers[t.name] for t in tensors], tables)
    check = _check_function(f"{name}_check", checks, layouts, prover, settings, buffers, tables)
    return Lowered(
        name,
        kernel,
        check,
        tuple(checks),
        tuple(t for t in tensors if t.body is None),
        schedule.outputs,
        tuple(t for t in operators if t not in schedule.outputs),
        layouts,
        dict(schedule.state.nests),
        {buffer: fun for fun, buffer in tables.buffers.items()},
        tuple(guards.records.values()),
        {"loops": loops, "tables": read, "hoisted": hoisted, "lowered": lowered},
        schedule.state.undefined_padding,
    )


class _Part:
    """A piece of the program after `loops` and after `tables`."""

    def __init__(self, loops: Stmt, reader: TableReader) -> None:
        self.loops = loops
        self.tables = reader.stmt(loops)


def _operator(
    nest: LoopNest,
    layouts: Mapping[str, Layout],
    inside: frozenset[Access],
    guards: Guards,
    buffers: Mapping[str, Buffer],
    tables: Tables,
) -> _Part:
    operation = make_operation(nest, layouts, inside, guards)
    workers = [Range(worker_of(leaf), WORKERS) for leaf in nest.leaves if leaf.kind is LoopKind.PARALLEL]
    ranges = (*workers, *context_of(nest).ranges)
    reader = TableReader(tables, ranges, guards, nest.tensor.name)
    return _Part(make_loops(operation, layouts, buffers), reader)


def _padding(
    tensor: Tensor,
    layouts: Mapping[str, Layout],
    guards: Guards,
    buffers: Mapping[str, Buffer],
    tables: Tables,
) -> list[_Part]:
    return [
        _Part(fill, TableReader(tables, ranges, guards, f"padding of {tensor.name}"))
        for fill, ranges in zero_fill(layouts[tensor.name], buffers[tensor.name])
    ]


def _buffer(tensor: Tensor, outputs: tuple[Tensor, ...], layouts: Mapping[str, Layout]) -> Buffer:
    size = layouts[tensor.name].size()
    if tensor.body is None:
        return Buffer(tensor.name, tensor.dtype, size, "input")
    return Buffer(tensor.name, tensor.dtype, size, "output" if tensor in outputs else "workspace")


def _check_function(
    name: str,
    checks: list[IndexCheck],
    layouts: Mapping[str, Layout],
    prover: Prover,
    settings: Settings,
    buffers: Mapping[str, Buffer],
    tables: Tables,
) -> Function | None:
    """The function that counts, for each check, how often it is violated; it reads inputs alone."""
    if not checks or not settings.check_indices:
        return None
    guards = Guards(prover, settings)
    parts: list[Stmt] = []
    own: list[Buffer] = []
    for number, check in enumerate(checks):
        counter = violations(check, f"violations{number}")
        for source in (n.tensor for n in walk(counter.body) if isinstance(n, Access)):  # type: ignore[arg-type]
            if source.body is not None:
                raise UserError(
                    f"compute '{check.operator}': the index {check.index} into '{check.tensor}' is computed by "
                    f"'{source.name}' in the same program, so it cannot be checked before the launch; compute "
                    f"'{source.name}' in a program of its own, or build with Settings(check_indices=False)"
                )
        inside, _ = check_accesses(counter, prover)
        counters = {**layouts, counter.name: Layout.packed(())}
        out = Buffer(counter.name, "int64", counters[counter.name].size(), "output")
        own.append(out)
        part = _operator(
            initial_nest(counter), counters, inside, guards, {**buffers, counter.name: out}, tables
        )
        parts.append(part.tables)
    used = [b for b in buffers.values() if b.scope == "input"]
    return _function(name, hoist(block(parts)), [*used, *own], tables)


def _function(name: str, body: Stmt, buffers: list[Buffer], tables: Tables) -> Function:
    read: dict[Buffer, None] = {}
    sizes: dict[Size, None] = {}

    def expr(e: Expr) -> Expr:
        for node in walk(e):
            match node:
                case Size():
                    sizes.setdefault(node)
                case Read(buffer=buffer) if buffer.scope == "table":
                    read.setdefault(buffer)
        return e

    def stmt(s: Stmt) -> Stmt:
        return map_stmt(s, stmt, expr)

    stmt(body)
    used = tuple(b for b in tables.buffers.values() if b in read)
    return Function(name, (*buffers, *used), tuple(sorted(sizes, key=lambda s: s.name)), body)
