"""The passes from a schedule to flat loops, in order.

    definition   accesses stay inside their tensors on valid iterations, or become index checks   access
    operations   bodies over loop variables; guards of loops, stores, loads, reductions; proofs    operation
    loops        loop nests, shares of the workers; flat offsets (Algorithm 1)                     body, loops, flatten
    cases        loops that are cut, or have versions: what holds in each is decided there         cases
    reductions   accumulators; blocks that continue what is stored                                 reduction
    tensorize    the loops of a dense tile as one call of a micro-kernel, where a step asks for it tensorize
    hfuse        parallel loops of several nests as one, where a step asks for it                  hfuse
    padding      zero filling of the outputs' storage padding                                      padding
    tables       calls of uninterpreted functions become guarded reads of the prelude's tables     tables
    contracted   products that are added become fused multiply-adds                                contract
    hoisted      table reads move out of loops                                                     hoist
    lowered      guarded innermost loops are cut into a full part and a tail                     tails
                 on a GPU: shared memory is filled iterations ahead, where a step asks for it  double_buffer

Ordering restrictions: tables after loops, because the identities of the uninterpreted functions are applied to
whole offsets; hoist after tables, because what moves is a read; tails after hoist, because a bound must not
change inside the loop that is cut, and after contract, so that full part and tail round alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cora.errors import ScheduleError, UserError
from cora.ir.expr import Access, Expr, Read, Size
from cora.ir.stmt import Buffer, Function, LoopKind, Stmt, block, map_stmt
from cora.ir.tensor import Tensor
from cora.ir.visit import free_vars, walk
from cora.lower.access import check_accesses, violations
from cora.lower.body import make_loops
from cora.lower.contract import contract
from cora.lower.double_buffer import double_buffer
from cora.lower.first_use import filled_operation
from cora.lower.flatten import Place, place_of
from cora.lower.guards import Guards
from cora.lower.hfuse import Merge, check_group, side_by_side
from cora.lower.hoist import hoist
from cora.lower.online import Correction, check_running, factor_operation, start_nest
from cora.lower.operation import context_of, make_operation
from cora.lower.padding import zero_fill
from cora.lower.program import Lowered
from cora.lower.records import IndexCheck
from cora.lower.tables import TableReader, Tables
from cora.lower.tails import cut_tails
from cora.lower.threads import (
    Stage,
    check_device,
    check_read_later,
    counted_by_threads,
    in_register,
    keep_on_chip,
    on_chip,
    starting,
    with_barriers,
)
from cora.prove import Prover, Range
from cora.schedule.balance import WORKERS, worker_of
from cora.schedule.nest import Group, LoopNest, initial_nest
from cora.schedule.schedule import Schedule
from cora.schedule.stage_steps import check_attached, readers_elsewhere
from cora.settings import Settings
from cora.storage.layout import Layout


def lower(schedule: Schedule, settings: Settings, name: str = "kernel", *, gpu: bool = False) -> Lowered:
    """Lower a scheduled program for a CPU, or for a GPU, whose loops are bound to blocks and threads.

    Raises UserError, ScheduleError or UnsupportedError for what cannot be.
    """
    check_device(schedule.nests, gpu)
    check_read_later(schedule.nests, schedule.state)
    check_running(schedule.nests, schedule.state)
    work = _Lowering(schedule, settings, gpu)
    state = schedule.state
    for nest in schedule.nests:
        if nest.name not in state.attached:
            work.run(nest.name)
    for output in schedule.outputs:
        if output.name not in state.undefined_padding:
            work.fill_padding(output.name)
    loops = block([part.loops for part in work.parts])
    read = block([part.read for part in work.parts])
    contracted = contract(read)
    hoisted = hoist(contracted) if state.hoist else contracted
    masked = frozenset(leaf.var for nest in schedule.nests for leaf in nest.leaves if leaf.masked)
    # threads are masked, they have no tails
    lowered = double_buffer(hoisted) if gpu else cut_tails(hoisted, masked)
    stored = [b for b in work.buffers.values() if b.scope not in ("shared", "local")]
    kernel = _function(name, lowered, stored, work.tables)
    check = _check_function(f"{name}_check", work)
    computed = [t for t in work.operators if work.buffers[t.name].scope == "workspace"]
    used = {*kernel.buffers, *(check.buffers if check is not None else ())}
    return Lowered(
        name,
        kernel,
        check,
        tuple(work.checks),
        tuple(t for t in schedule.tensors if t.body is None),
        schedule.outputs,
        tuple(computed),
        {name: place.layout for name, place in work.places.items()},
        {nest.name: nest for nest in schedule.nests},
        {buffer: fun for fun, buffer in work.tables.buffers.items() if buffer in used},
        tuple(work.guards.records.values()),
        {"loops": loops, "tables": read, "hoisted": hoisted, "lowered": lowered},
        state.undefined_padding,
        work.prover.statistics,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the program after `loops`, and after `tables`."""

    loops: Stmt
    read: Stmt


class _Lowering:
    """What the passes share while one program is lowered."""

    def __init__(self, schedule: Schedule, settings: Settings, gpu: bool) -> None:
        self.settings = settings
        self.gpu = gpu
        self.state = schedule.state
        self.prover = Prover(settings)
        self.guards = Guards(self.prover, settings)
        self.tables = Tables()
        self.nests = schedule.nests
        self.operators = schedule.operators
        self.inside: dict[Tensor, frozenset[Access]] = {}
        self.checks: list[IndexCheck] = []
        for operator in self.operators:
            self.inside[operator], found = check_accesses(operator, self.prover)
            self.checks.extend(c for c in found if c not in self.checks)
        self.places = {name: Place(layout) for name, layout in schedule.state.layouts.items()}
        for nest in self.nests:
            self.places[nest.tensor.name] = place_of(nest, schedule.state.layouts[nest.tensor.name], gpu=gpu)
        inputs = [t for t in schedule.tensors if t.body is None]
        self.buffers = {
            t.name: _buffer(t, schedule.state.outputs, self.places) for t in (*inputs, *self.operators)
        }
        self.buffers.update(on_chip(self.nests, self.state, self.buffers, gpu=gpu))
        self.parts: list[_Part] = []

    def run(self, name: str) -> None:
        """Append a nest to the program; one that is fused horizontally waits for the last of its group."""
        group = next((g for g in self.state.together if name in g.nests), Group((name,)))
        members = [nest.name for nest in self.nests if nest.name in group.nests]
        if name != members[-1]:
            return
        parts = [self.in_registers(member, self.part(member)) for member in members]
        if len(parts) == 1:
            self.parts.append(parts[0])
            return
        check_group(members, self.nests)
        if group.depth:
            self.parts.append(self._merged(members, group.depth, parts))
            return
        self.parts.append(
            _Part(
                side_by_side(members, [part.loops for part in parts]),
                side_by_side(members, [part.read for part in parts]),
            )
        )

    def _merged(self, members: list[str], depth: int, parts: list[_Part]) -> _Part:
        """The nests with their outermost loops as one."""
        merge = Merge(tuple(self.state.nests[name] for name in members), depth)
        share = merge.share()
        workers = tuple(Range(worker_of(leaf), WORKERS) for leaf in merge.shared)
        reader = TableReader(self.tables, workers, self.guards, members[0])
        read = None if share is None else (reader.expr(share[0]), reader.expr(share[1]))
        return _Part(
            merge.loops([part.loops for part in parts], share),
            merge.loops([part.read for part in parts], read),
        )

    def part(self, root: str) -> _Part:
        """The loops of an operator that is attached to none, and of those inside it."""
        nest, made = self.state.nests[root], self.operator(root)
        inside = [n for n in self.inside_of(root) if not n.filled]
        attached = frozenset(leaf.var for n in inside for leaf in n.leaves)
        workers = [Range(worker_of(leaf), WORKERS) for leaf in nest.scope if leaf.kind is LoopKind.PARALLEL]
        ranges = (*workers, *context_of(nest).ranges)
        return _Part(made, TableReader(self.tables, ranges, self.guards, root, attached).stmt(made))

    def operator(self, name: str, outside: tuple[Expr, ...] = ()) -> Stmt:
        """The loops of an operator and, inside them, of those attached to it; `outside` holds around it."""
        nest = self.state.nests[name]
        operation = make_operation(nest, self.places, self.inside[nest.tensor], self.guards, outside)
        loops: dict[str, list[Stage]] = {}
        for attached in self.nests:
            consumer, loop = self.state.attached.get(attached.name, ("", ""))
            if consumer == name and not attached.filled:
                check_attached(attached, nest)
                known = {leaf.var for leaf in attached.around}
                holds = tuple(c for c in (*operation.conditions, *nest.facts) if free_vars(c) <= known)
                stage = self.operator(attached.name, (*outside, *holds))
                loops.setdefault(loop, []).append((attached, stage))
        copies = [a for a in self.nests if a.filled and self.state.attached[a.name][0] == name]
        if len(copies) > 1:
            raise ScheduleError(f"fill_at_use: '{name}' can fill one copy; it has {len(copies)}")
        filled = [filled_operation(c, nest, self.places, self.guards, outside) for c in copies]
        corrected = self._corrected(name, outside) if name in self.state.running else None
        attached_to = {loop: with_barriers(stages, nest) for loop, stages in loops.items()}
        copy = filled[0] if filled else None
        return make_loops(operation, self.places, self.buffers, self.guards, attached_to, copy, corrected)

    def inside_of(self, name: str) -> list[LoopNest]:
        """The nests that run inside loops of an operator."""
        return [nest for nest in self.nests if self.state.runs_inside(nest.name, name)]

    def _corrected(self, name: str, outside: tuple[Expr, ...]) -> Correction:
        """What a maximum, and sums, that run along a loop of an operator ask of it."""
        nest, running = self.state.nests[name], self.state.running[name]
        starts: list[Stage] = []
        for kept in (self.state.nests[kept] for kept in running.kept):
            operation = make_operation(start_nest(kept), self.places, frozenset(), self.guards, outside)
            starts.append((kept, make_loops(operation, self.places, self.buffers, self.guards)))
        factor = factor_operation(nest, running, self.places, self.guards, outside)
        return Correction(running.loop, starting(starts, nest), factor)

    def in_registers(self, root: str, part: _Part) -> _Part:
        """What is local is allocated where it is used; on a GPU all single elements that are attached are."""
        own = list(self.buffers.values())
        inside = [n for n in self.inside_of(root) if self.gpu and in_register(n, self.state)]
        elements = [self.buffers[n.tensor.name] for n in inside]
        later = [self.buffers[n.tensor.name] for n in inside if readers_elsewhere(n, self.state)]
        loops, read = (keep_on_chip(s, elements, own, later) for s in (part.loops, part.read))
        return _Part(loops, read)

    def fill_padding(self, name: str) -> None:
        """Append the zero fill of a tensor's storage padding."""
        for fill, ranges in zero_fill(self.places[name].layout, self.buffers[name], gpu=self.gpu):
            reader = TableReader(self.tables, ranges, self.guards, f"padding of {name}")
            self.parts.append(_Part(fill, reader.stmt(fill)))


def _buffer(tensor: Tensor, outputs: frozenset[str], places: Mapping[str, Place]) -> Buffer:
    size = places[tensor.name].layout.size()
    if tensor.body is None:
        return Buffer(tensor.name, tensor.dtype, size, "input")
    return Buffer(tensor.name, tensor.dtype, size, "output" if tensor.name in outputs else "workspace")


def _check_function(name: str, work: _Lowering) -> Function | None:
    """The function that counts, for each index check, how often it is violated; it reads inputs alone."""
    if not work.checks or not work.settings.check_indices:
        return None
    guards = Guards(work.prover, work.settings)
    parts: list[Stmt] = []
    own: list[Buffer] = []
    for number, check in enumerate(work.checks):
        counter = violations(check, f"%violations{number}")
        _check_sources(check, counter)
        inside, _ = check_accesses(counter, work.prover)
        places = {**work.places, counter.name: Place(Layout.packed(()))}
        out = Buffer(counter.name, "int64", places[counter.name].layout.size(), "output")
        own.append(out)
        nest = counted_by_threads(initial_nest(counter)) if work.gpu else initial_nest(counter)
        operation = make_operation(nest, places, inside, guards)
        reader = TableReader(work.tables, context_of(nest).ranges, guards, counter.name)
        parts.append(reader.stmt(make_loops(operation, places, {**work.buffers, counter.name: out}, guards)))
    used = [b for b in work.buffers.values() if b.scope == "input"]
    return _function(name, hoist(block(parts)), [*used, *own], work.tables)


def _check_sources(check: IndexCheck, counter: Tensor) -> None:
    """UserError if an index comes from a tensor that the same program computes."""
    assert counter.body is not None
    for source in (n.tensor for n in walk(counter.body) if isinstance(n, Access)):
        if source.body is not None:
            raise UserError(
                f"compute '{check.operator}': the index {check.index} into '{check.tensor}' is computed by "
                f"'{source.name}' in the same program, so it cannot be checked before the launch; compute "
                f"'{source.name}' in a program of its own, or build with Settings(check_indices=False)"
            )


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
