"""The schedule: a list of frozen steps over a program; every primitive returns a new schedule."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cora.errors import ScheduleError, UserError
from cora.ir.expr import Dim
from cora.ir.tensor import Tensor
from cora.lang.check import program
from cora.schedule.apply import apply
from cora.schedule.balance import Balance
from cora.schedule.nest import LoopNest, State, initial_nest
from cora.schedule.online_step import Online
from cora.schedule.online_steps import readers_last
from cora.schedule.step_data import from_data, to_data
from cora.schedule.steps import (
    LIBRARIES,
    Bind,
    BulkPad,
    CacheRead,
    CacheWrite,
    ComputeAt,
    FillAtUse,
    Fuse,
    FuseDims,
    HFuse,
    HoistLoads,
    Inline,
    Offload,
    Outline,
    PadDim,
    PadLoop,
    Parallel,
    Peel,
    Pipeline,
    Recompute,
    Remap,
    Reorder,
    ReorderDims,
    RFactor,
    Scope,
    SetScope,
    Split,
    SplitDim,
    SplitOp,
    SplitParts,
    Step,
    Tail,
    TensorCore,
    Tensorize,
    TensorizeBy,
    Unroll,
    Vectorize,
)
from cora.storage.layout import Layout
from cora.tiles.given import MicroKernel

LoopRef: TypeAlias = Dim | str
TensorRef: TypeAlias = Tensor | str


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """How the operators that `outputs` need are run: `steps`, and the loops and layouts that they made.

    Loops are named by a dim or by a string; operators by their tensor or its name. Schedules compare and hash
    by program and steps. Every primitive raises ScheduleError, with the reason, when it is illegal.
    """

    outputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    state: State

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and (self.outputs, self.steps) == (other.outputs, other.steps)

    def __hash__(self) -> int:
        return hash((self.outputs, self.steps))

    def __repr__(self) -> str:
        lines = [f"schedule({', '.join(t.name for t in self.outputs)})"]
        return "\n    ".join([*lines, *(repr(step) for step in self.steps)])

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Inputs and computed tensors, those that steps made among them, each after what it reads."""
        return tuple(t for made in program(self.outputs) for t in self._with_stages(made))

    def _with_stages(self, tensor: Tensor) -> Iterator[Tensor]:
        for stage in self.state.stages.get(tensor.name, ()):
            yield from self._with_stages(stage)
        yield tensor

    @property
    def operators(self) -> tuple[Tensor, ...]:
        """The operators with loops of their own, each after what it reads; bodies include what was inlined."""
        return tuple(dict.fromkeys(nest.tensor for nest in self.nests))

    @property
    def nests(self) -> tuple[LoopNest, ...]:
        """The loop nests in the order in which they run: an operator's after those it reads, its pieces in order."""
        state = self.state
        names = [
            piece
            for t in self.tensors
            if t.body is not None and t.name not in state.inlined
            for piece in state.pieces.get(t.name, (t.name,))
        ]
        return tuple(state.nests[name] for name in readers_last(names, state))

    def nest(self, op: TensorRef) -> LoopNest:
        """The loops of an operator as they stand now."""
        return self.state.nest(_tensor(op), "nest")

    def layout(self, tensor: TensorRef) -> Layout:
        """The storage layout of a tensor as it stands now."""
        name = _tensor(tensor)
        if name not in self.state.layouts:
            raise UserError(f"layout: no tensor '{name}'; the tensors are {', '.join(self.state.layouts)}")
        return self.state.layouts[name]

    def then(self, step: Step) -> Schedule:
        """The schedule with `step` added."""
        return Schedule(self.outputs, (*self.steps, step), apply(step, self.state))

    def replay(self, steps: Sequence[Step]) -> Schedule:
        """The schedule with all of `steps` added in order."""
        result = self
        for step in steps:
            result = result.then(step)
        return result

    def split(
        self,
        op: TensorRef,
        loop: LoopRef,
        factor: int | None = None,
        names: tuple[str, str] | None = None,
        *,
        parts: int | None = None,
        tail: Tail = "guard",
    ) -> Schedule:
        """Split `loop` by `factor`, or into `parts`; the new loops are `names`, by default `<loop>_o`, `<loop>_i`.

        See steps.Split and steps.SplitParts.
        """
        name = _loop(loop)
        outer, inner = names or (f"{name}_o", f"{name}_i")
        if (factor is None) == (parts is None):
            raise ScheduleError(f"split of '{name}': expected either a factor or parts=")
        if parts is not None:
            return self.then(SplitParts(_tensor(op), name, _int(parts, "split: parts"), outer, inner))
        return self.then(Split(_tensor(op), name, _int(factor, "split: factor"), outer, inner, tail))

    def tile(self, op: TensorRef, loops: tuple[LoopRef, LoopRef], factors: tuple[int, int]) -> Schedule:
        """Split two loops that stand side by side and put the outer parts outside: `x_o, y_o, x_i, y_i`."""
        (x, y) = (_loop(loop) for loop in loops)
        split = self.split(op, x, factors[0]).split(op, y, factors[1])
        return split.reorder(op, f"{x}_o", f"{y}_o", f"{x}_i", f"{y}_i")

    def fuse(self, op: TensorRef, *loops: LoopRef, name: str | None = None) -> Schedule:
        """Fuse nested loops, given outermost first, into `name`. See steps.Fuse."""
        names = tuple(_loop(loop) for loop in loops)
        return self.then(Fuse(_tensor(op), names, name or "_".join(names)))

    def reorder(self, op: TensorRef, *order: LoopRef) -> Schedule:
        """Put the given loops into the given order. See steps.Reorder."""
        return self.then(Reorder(_tensor(op), tuple(_loop(loop) for loop in order)))

    def peel(
        self, op: TensorRef, loop: LoopRef, *, first: int | None = None, last: int | None = None
    ) -> Schedule:
        """Cut the first or the last iterations of a loop off, with code of their own. See steps.Peel."""
        name = _loop(loop)
        if (first is None) == (last is None):
            raise ScheduleError(f"peel of '{name}': expected either first= or last=")
        if last is None:
            return self.then(Peel(_tensor(op), name, _int(first, "peel: first"), "first"))
        return self.then(Peel(_tensor(op), name, _int(last, "peel: last"), "last"))

    def pad_loop(self, op: TensorRef, loop: LoopRef, multiple: int) -> Schedule:
        """Pad an original loop to a multiple. See steps.PadLoop."""
        return self.then(PadLoop(_tensor(op), _loop(loop), _int(multiple, "pad_loop: multiple")))

    def bulk_pad(self, op: TensorRef, loop: LoopRef, multiple: int) -> Schedule:
        """Pad a fused loop to a multiple. See steps.BulkPad."""
        return self.then(BulkPad(_tensor(op), _loop(loop), _int(multiple, "bulk_pad: multiple")))

    def pad_dim(
        self,
        tensor: TensorRef,
        dim: LoopRef,
        multiple: int = 1,
        *,
        to_max: bool = False,
        contents: Literal["zero", "undefined"] = "zero",
    ) -> Schedule:
        """Pad the storage of a dim to a multiple, or to the longest slice. See steps.PadDim."""
        step = PadDim(_tensor(tensor), _loop(dim), _int(multiple, "pad_dim: multiple"), to_max, contents)
        return self.then(step)

    def reorder_dims(self, tensor: TensorRef, *order: LoopRef) -> Schedule:
        """Store the dims of a tensor in another order, outermost first. See steps.ReorderDims."""
        return self.then(ReorderDims(_tensor(tensor), tuple(_loop(dim) for dim in order)))

    def split_dim(
        self, tensor: TensorRef, dim: LoopRef, factor: int, names: tuple[str, str] | None = None
    ) -> Schedule:
        """Store a dim as its blocks and the places in them, `names`, by default `<dim>_o`, `<dim>_i`.

        See steps.SplitDim.
        """
        name = _loop(dim)
        outer, inner = names or (f"{name}_o", f"{name}_i")
        return self.then(SplitDim(_tensor(tensor), name, _int(factor, "split_dim: factor"), outer, inner))

    def fuse_dims(self, tensor: TensorRef, *dims: LoopRef, name: str | None = None) -> Schedule:
        """Store dims, given outermost first, as one, `name`. See steps.FuseDims."""
        names = tuple(_loop(dim) for dim in dims)
        return self.then(FuseDims(_tensor(tensor), names, name or "_".join(names)))

    def hoist_loads(self, on: bool = True) -> Schedule:
        """Whether reads of auxiliary arrays leave the loops that do not change them. See steps.HoistLoads."""
        return self.then(HoistLoads(bool(on)))

    def remap(
        self,
        op: TensorRef,
        loop: LoopRef,
        policy: Literal["descending", "reversed"] | None = None,
        *,
        table: str = "",
    ) -> Schedule:
        """Run a loop's iterations in another order: the costliest first, the last first, or as a permutation says that
        is given at run time by the name `table`. See steps.Remap."""
        if (policy is None) == (not table):
            raise ScheduleError(f"remap of '{_loop(loop)}': expected either a policy or table=")
        return self.then(Remap(_tensor(op), _loop(loop), policy or "given", table))

    def parallel(self, op: TensorRef, loop: LoopRef, balance: Balance = "cost") -> Schedule:
        """Run a loop on the workers of the plan. See steps.Parallel."""
        return self.then(Parallel(_tensor(op), _loop(loop), balance))

    def vectorize(self, op: TensorRef, loop: LoopRef, lanes: int | None = None) -> Schedule:
        """Run the innermost loop in vector lanes. See steps.Vectorize."""
        return self.then(
            Vectorize(_tensor(op), _loop(loop), 0 if lanes is None else _int(lanes, "vectorize: lanes"))
        )

    def bind(
        self,
        op: TensorRef,
        loop: LoopRef,
        axis: Literal["blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z"],
    ) -> Schedule:
        """Run a loop on the blocks of a GPU's grid or the threads of a block. See steps.Bind."""
        return self.then(Bind(_tensor(op), _loop(loop), axis))

    def tensor_core(
        self, op: TensorRef, row: LoopRef, column: LoopRef, over: LoopRef, *, tf32: bool = False
    ) -> Schedule:
        """Compute the three innermost loops by the tensor cores of a GPU, a warp together. See steps.TensorCore."""
        return self.then(TensorCore(_tensor(op), _loop(row), _loop(column), _loop(over), bool(tf32)))

    def pipeline(self, op: TensorRef, loop: LoopRef, stages: int = 2) -> Schedule:
        """Stage in shared memory what the next iterations of a loop read while one runs. See steps.Pipeline."""
        return self.then(Pipeline(_tensor(op), _loop(loop), _int(stages, "pipeline: stages")))

    def rfactor(
        self,
        op: TensorRef,
        loop: LoopRef,
        factor: int | None = None,
        *,
        parts: int | None = None,
        name: str | None = None,
    ) -> Schedule:
        """Reduce chunks of `factor` iterations, or so many parts, in an operator of their own, by default
        `<op>_partial`, and then their results. See steps.RFactor."""
        operator = _tensor(op)
        if (factor is None) == (parts is None):
            raise ScheduleError(f"rfactor of '{operator}': expected either a factor or parts=")
        stage = f"{operator}_partial" if name is None else name
        if parts is not None:
            return self.then(RFactor(operator, _loop(loop), _int(parts, "rfactor: parts"), "parts", stage))
        return self.then(RFactor(operator, _loop(loop), _int(factor, "rfactor: factor"), "factor", stage))

    def outline(self, op: TensorRef, name: str | None = None) -> Schedule:
        """Make the reduction of an operator an operator of its own, by default `<op>_reduced`. See steps.Outline."""
        operator = _tensor(op)
        return self.then(Outline(operator, f"{operator}_reduced" if name is None else name))

    def online(self, op: TensorRef, loop: LoopRef, maximum: TensorRef, *sums: TensorRef) -> Schedule:
        """Let a maximum, and sums of exponentials of what is below it, run along a block loop of `op`, the last of
        these sums. See steps.Online."""
        return self.then(Online(_tensor(op), _loop(loop), _tensor(maximum), tuple(map(_tensor, sums))))

    def split_op(
        self,
        op: TensorRef,
        loop: LoopRef,
        *,
        multiple: int | None = None,
        index: int | None = None,
        names: tuple[str, str] | None = None,
    ) -> Schedule:
        """Split an operator at a multiple of the extent of a loop (full tiles and the rest), or at an index.

        The pieces are `names`, by default `<op>_main`, `<op>_tail`. See steps.SplitOp.
        """
        name = _tensor(op)
        if (multiple is None) == (index is None):
            raise ScheduleError(f"split_op of '{name}': expected either multiple= or index=")
        at, unit = (index, "index") if multiple is None else (multiple, "multiple")
        pieces = names or (f"{name}_main", f"{name}_tail")
        return self.then(SplitOp(name, _loop(loop), _int(at, f"split_op: {unit}"), unit, pieces))  # type: ignore[arg-type]

    def hfuse(self, *nests: TensorRef, depth: int = 0) -> Schedule:
        """Run independent nests (operators or pieces) in one parallel loop, or in `depth` shared loops.

        See steps.HFuse.
        """
        return self.then(HFuse(tuple(_tensor(nest) for nest in nests), _int(depth, "hfuse: depth")))

    def cache_write(self, op: TensorRef, loop: LoopRef) -> Schedule:
        """Keep the accumulators of a reduction inside a loop; reduction loops outside continue what is stored.

        See steps.CacheWrite.
        """
        return self.then(CacheWrite(_tensor(op), _loop(loop)))

    def tensorize(
        self, op: TensorRef, loop: LoopRef, kernel: MicroKernel | Literal["openblas"] | None = None
    ) -> Schedule:
        """Compute the innermost loops, from `loop` inwards, by a micro-kernel: a generated one, the user's own, or
        OpenBLAS. See steps.Tensorize, steps.TensorizeBy and steps.Offload."""
        match kernel:
            case None:
                return self.then(Tensorize(_tensor(op), _loop(loop)))
            case MicroKernel():
                shape = kernel.rows, kernel.columns, kernel.edges
                return self.then(TensorizeBy(_tensor(op), _loop(loop), kernel.name, kernel.ir, *shape))
            case str():
                return self.then(Offload(_tensor(op), _loop(loop), kernel))
        raise UserError(
            f"tensorize: kernel must be a cora.MicroKernel or one of {', '.join(LIBRARIES)}; "
            f"got {type(kernel).__name__}: {kernel!r}"
        )

    def unroll(self, op: TensorRef, loop: LoopRef) -> Schedule:
        """Unroll a loop of constant extent. See steps.Unroll."""
        return self.then(Unroll(_tensor(op), _loop(loop)))

    def inline(self, op: TensorRef) -> Schedule:
        """Compute an operator where it is read; before any of the two is scheduled. See steps.Inline."""
        return self.then(Inline(_tensor(op)))

    def compute_at(self, op: TensorRef, consumer: TensorRef, loop: LoopRef) -> Schedule:
        """Compute an operator inside a loop of its consumer; the consumer's loops down to it are then fixed, those
        of the operator are scheduled afterwards. See steps.ComputeAt."""
        return self.then(ComputeAt(_tensor(op), _tensor(consumer), _loop(loop)))

    def set_scope(self, op: TensorRef, scope: Scope) -> Schedule:
        """Where an operator that is computed inside a loop of its consumer is stored. See steps.SetScope."""
        return self.then(SetScope(_tensor(op), scope))

    def cache_read(
        self, op: TensorRef, tensor: TensorRef, loop: LoopRef, name: str | None = None
    ) -> Schedule:
        """Copy what an iteration of a loop of `op` reads of a tensor; the copy is the operator `name`, by default
        `<tensor>_copy`. See steps.CacheRead."""
        return self.then(
            CacheRead(_tensor(op), _tensor(tensor), _loop(loop), name or f"{_tensor(tensor)}_copy")
        )

    def recompute(self, op: TensorRef, reader: TensorRef, name: str | None = None) -> Schedule:
        """Give a reader of an operator a copy of the operator of its own, by default `<op>_again`. See
        steps.Recompute."""
        return self.then(Recompute(_tensor(op), _tensor(reader), name or f"{_tensor(op)}_again"))

    def fill_at_use(self, op: TensorRef) -> Schedule:
        """Let the micro-kernel that reads a copy, made by cache_read, first also write it. See steps.FillAtUse."""
        return self.then(FillAtUse(_tensor(op)))

    def to_json(self) -> str:
        """The steps as JSON text; `from_json` reads it."""
        return json.dumps([to_data(step) for step in self.steps])


def schedule(*outputs: Tensor) -> Schedule:
    """The untransformed schedule of the program that computes `outputs`: the loops of the definition."""
    if not outputs:
        raise UserError("schedule: expected at least one computed tensor")
    for output in outputs:
        if not isinstance(output, Tensor) or output.body is None:
            raise UserError(f"schedule: expected computed tensors; got {output!r}")
    if len(set(outputs)) != len(outputs):
        raise UserError("schedule: an output stands twice")
    tensors = program(outputs)
    nests = {t.name: initial_nest(t) for t in tensors if t.body is not None}
    layouts = {t.name: Layout.packed(t.dims) for t in tensors}
    return Schedule(tuple(outputs), (), State(frozenset(t.name for t in outputs), nests, layouts))


def from_json(outputs: Sequence[Tensor], text: str) -> Schedule:
    """The schedule of `outputs` with the steps that `Schedule.to_json` wrote, replayed and checked."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"schedule: not JSON: {error}") from error
    if not isinstance(data, list) or not all(isinstance(d, dict) for d in data):
        raise UserError("schedule: expected a JSON list of steps")
    return schedule(*outputs).replay([from_data(d) for d in data])


def _tensor(ref: TensorRef) -> str:
    if isinstance(ref, Tensor):
        return ref.name
    if isinstance(ref, str):
        return ref
    raise UserError(f"expected a tensor or its name; got {type(ref).__name__}: {ref!r}")


def _loop(ref: LoopRef) -> str:
    if isinstance(ref, Dim):
        return ref.name
    if isinstance(ref, str):
        return ref
    raise UserError(f"expected a loop: a Dim or a name; got {type(ref).__name__}: {ref!r}")


def _int(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(f"{what} must be an integer; got {value!r}")
    return value
