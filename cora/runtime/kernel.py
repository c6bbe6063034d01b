"""Kernels: native code with its prelude, called on ragged arrays."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cora.errors import UserError
from cora.ir import dtypes
from cora.ir.expr import Dim
from cora.prelude import NativePrelude
from cora.runtime.artifact import Artifact, Signature, Slot
from cora.runtime.binding import Binder, is_dense
from cora.runtime.code import Code
from cora.runtime.count import Waste
from cora.runtime.explain import explain, waste
from cora.runtime.memory import address_of, refuse_overlap
from cora.runtime.plan import WORKERS, Plan, Prepared, worker_count
from cora.storage.array import RaggedArray, allocate
from cora.storage.layout import Layout

Array = npt.NDArray[Any]
PLANS_KEPT = 8


class Kernel:
    """A compiled program. Calling it on arrays runs it; `run` on a plan is the fast way.

    Inputs are taken in order of first use in the definition, or by name. An input is a RaggedArray, or a NumPy
    array: of the tensor's shape where that is dense, else its packed values. One kernel serves every batch.
    """

    def __init__(self, artifact: Artifact, code: Code) -> None:
        self.artifact = artifact
        self.code = code
        self.name = artifact.name
        self.prelude: NativePrelude = code.prelude(artifact.prelude)
        self._run = code.function(artifact.kernel.name)
        self._check = None if artifact.check is None else code.function(artifact.check.name)
        self._inputs = tuple(n for n, s in enumerate(artifact.slots) if s.role == "input")
        call_time = {n for n, s in enumerate(artifact.slots) if s.role != "workspace"}
        self._places = _places(artifact.kernel, call_time)
        self._check_places = _places(artifact.check, call_time)
        self._plans = threading.local()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in the order in which `run` takes them."""
        return tuple(s.tensor.name for s in self.artifact.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(self.artifact.slots[n].tensor.name for n in self.artifact.outputs)

    @cached_property
    def size_names(self) -> tuple[str, ...]:
        """The run-time sizes that a batch must have."""
        signatures = [s for s in (self.artifact.kernel, self.artifact.check) if s is not None]
        names = dict.fromkeys(self.artifact.prelude.sizes)
        for signature in signatures:
            names.update(dict.fromkeys(signature.sizes))
        return tuple(n for n in names if n != WORKERS)

    @cached_property
    def length_domains(self) -> dict[str, tuple[Dim, ...]]:
        """The length functions that a batch must have, and the domain of each."""
        return {f.name: f.domain for f in self.artifact.prelude.lengths}

    def layout(self, tensor: str) -> Layout:
        """The storage layout of an input or output."""
        for slot in self.artifact.slots:
            if slot.tensor.name == tensor:
                return slot.layout
        raise UserError(f"kernel '{self.name}' has no tensor '{tensor}'")

    def __call__(self, *arrays: Any, threads: int | None = None, **named: Any) -> Any:
        """Run on arrays: the prelude (or a recent plan with the same lengths), then the code.

        Keyword arguments are inputs, lengths and sizes by name: `kernel(x, lens=[3, 0, 5])`. Gives a new
        RaggedArray, or a tuple of them where there are several outputs. Raises UserError for arguments that are
        missing, unknown, invalid or in disagreement, before anything is computed.
        """
        values = self._in_order(arrays, named)
        binder = Binder()
        for position, value in zip(self._inputs, values, strict=True):
            binder.argument(self.artifact.slots[position], value)
        for name, value in named.items():
            if name in self.length_domains:
                binder.length(name, value, "the argument of that name")
            elif name in self.size_names:
                binder.size(name, value, "the argument of that name")
            else:
                raise UserError(
                    f"kernel '{self.name}': unknown argument '{name}'; inputs are {', '.join(self.inputs)}, "
                    f"lengths {', '.join(self.length_domains) or '(none)'}, "
                    f"sizes {', '.join(self.size_names) or '(none)'}"
                )
        batch = binder.batch(self.size_names, tuple(self.length_domains.items()))
        workers = worker_count(threads)
        plan = self._plan_for(batch, workers)
        return self.run(plan, *values)

    def _plan_for(self, batch: Any, workers: int) -> Plan:
        """A plan of this thread for the batch: one of the last few, or a new one."""
        plans: OrderedDict[object, Plan] | None = getattr(self._plans, "kept", None)
        if plans is None:
            plans = self._plans.kept = OrderedDict()
        sizes = tuple((n, batch.sizes[n]) for n in self.size_names)
        lengths = tuple(batch.lengths[n].tobytes() for n in self.length_domains)
        key = (workers, sizes, lengths)
        plan = plans.pop(key, None)
        if plan is None:
            plan = Plan([self], batch, workers)
        plans[key] = plan
        if len(plans) > PLANS_KEPT:
            plans.popitem(last=False)
        return plan

    def _in_order(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        names = self.inputs
        if len(arrays) > len(names):
            raise UserError(
                f"kernel '{self.name}': expected {len(names)} inputs ({', '.join(names)}); got {len(arrays)}"
            )
        values = dict(zip(names, arrays, strict=False))
        for name in names:
            if name in named:
                if name in values:
                    raise UserError(f"kernel '{self.name}': input '{name}' is given twice")
                values[name] = named.pop(name)
        missing = [n for n in names if n not in values]
        if missing:
            raise UserError(f"kernel '{self.name}': input(s) {', '.join(missing)} are missing")
        return [values[n] for n in names]

    def run(self, plan: Plan, *arrays: Any, outputs: Mapping[str, Any] | None = None) -> Any:
        """Run on the arrays of a plan's batch: no prelude, and no allocation where `outputs` are given.

        outputs: arrays to write, by name; others are allocated. Raises UserError for a plan that was made for
        another kernel or batch, a plan that is running, and arrays that do not fit or overlap.
        """
        prepared = plan.prepared(self)
        if not plan.lock.acquire(blocking=False):
            raise UserError(f"kernel '{self.name}': the plan is running already; one run at a time per plan")
        try:
            return self._launch(plan, prepared, arrays, outputs)
        finally:
            plan.lock.release()

    def _launch(
        self, plan: Plan, prepared: Prepared, arrays: tuple[Any, ...], outputs: Mapping[str, Any] | None
    ) -> Any:
        slots = self.artifact.slots
        if len(arrays) != len(self._inputs):
            raise UserError(
                f"kernel '{self.name}': expected {len(self._inputs)} inputs ({', '.join(self.inputs)}); "
                f"got {len(arrays)}"
            )
        memory: dict[int, Array] = {}
        for position, value in zip(self._inputs, arrays, strict=True):
            memory[position] = _values(slots[position], value, plan, prepared.element_counts[position])
        results: list[RaggedArray] = []
        given = outputs or {}
        for position in self.artifact.outputs:
            slot = slots[position]
            count = prepared.element_counts[position]
            value = given.get(slot.tensor.name)
            if value is None:
                value = _new_array(slot, count, plan)
            memory[position] = _values(slot, value, plan, count, writable=True)
            results.append(value)
        if given:
            self._check_outputs(given, memory)
        addresses = {position: address_of(array) for position, array in memory.items()}
        if self._check is not None:
            self._check_indices(prepared, addresses)
        words = prepared.kernel.words
        for place, position in self._places:
            words[place] = addresses[position]
        self._run(prepared.kernel.pointer)
        return results[0] if len(results) == 1 else tuple(results)

    def _check_outputs(self, given: Mapping[str, Any], memory: Mapping[int, Array]) -> None:
        unknown = set(given) - set(self.outputs)
        if unknown:
            raise UserError(
                f"kernel '{self.name}': no output '{sorted(unknown)[0]}'; the outputs are {', '.join(self.outputs)}"
            )
        slots = self.artifact.slots
        refuse_overlap(
            [(slots[n].tensor.name, memory[n]) for n in self._inputs],
            [(slots[n].tensor.name, memory[n]) for n in self.artifact.outputs],
        )

    def _check_indices(self, prepared: Prepared, addresses: Mapping[int, int]) -> None:
        assert self._check is not None
        for place, position in self._check_places:
            prepared.check.words[place] = addresses[position]
        self._check(prepared.check.pointer)
        for check, bad in zip(self.artifact.checks, prepared.counters, strict=True):
            if bad:
                raise UserError(
                    f"compute '{check.operator}': the index {check.index} into dim '{check.dim}' of "
                    f"'{check.tensor}' must be at least 0 and below {check.extent}; it is not for {bad} of the "
                    f"indices [{', '.join(d.name for d in check.dims)}]"
                )

    def explain(self, plan: Plan | None = None) -> str:
        """Loops, guards kept and removed (and why), auxiliary arrays; with a plan also sizes and waste."""
        return explain(self.artifact, plan, None if plan is None else plan.prepared(self))

    def waste(self, plan: Plan) -> Waste:
        """Executed and useful FLOPs, stored and useful bytes, on the batch of a plan."""
        return waste(self.artifact, plan, plan.prepared(self))

    def source(self, kind: str = "ll") -> str:
        """The generated code: "ll" (LLVM IR after optimisation) or "asm" (assembly)."""
        if kind not in ("ll", "asm"):
            raise UserError(f"source: kind must be 'll' or 'asm'; got {kind!r}")
        return self.code.source(kind)

    def ir(self, stage: str) -> str:
        """The program at a stage: definition, schedule, loops, tables, hoisted, lowered, tir."""
        if stage == "tir":
            return self.code.source("tir")
        if stage not in self.artifact.stages:
            known = ", ".join([*self.artifact.stages, "tir"])
            raise UserError(f"ir: the stages are {known}; got {stage!r}")
        return self.artifact.stages[stage]

    def export(self, path: str | Path) -> Path:
        """Write one shared library with kernel, prelude and metadata; `cora.load` reads it."""
        return self.code.export(Path(path))

    def __repr__(self) -> str:
        return f"Kernel {self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"


def _places(signature: Signature | None, slots: set[int]) -> tuple[tuple[int, int], ...]:
    """Where in the frame of a function the addresses of `slots` go: (place, slot)."""
    if signature is None:
        return ()
    return tuple(
        (place, position)
        for place, (kind, position) in enumerate(signature.buffers)
        if kind == "tensor" and position in slots
    )


def _new_array(slot: Slot, count: int, plan: Plan) -> RaggedArray:
    values = allocate(count, slot.tensor.dtype)
    return RaggedArray(
        values, slot.layout, plan.lengths, plan.sizes, slot.tensor.name, slot.tensor.dtype
    )


def _values(slot: Slot, value: Any, plan: Plan, count: int, writable: bool = False) -> Array:
    """The flat memory of an argument, checked against the slot and the batch of the plan."""
    name = slot.tensor.name
    match value:
        case RaggedArray():
            if value.layout is not slot.layout and not _equal_layouts(value.layout, slot.layout):
                raise UserError(
                    f"'{name}': expected the layout {slot.layout.describe()}; got {value.layout.describe()}: "
                    f"convert it with array.to_layout(kernel.layout('{name}'))"
                )
            _same_batch(name, value, plan)
            array = value.values
        case np.ndarray():
            if is_dense(slot) and value.ndim == slot.tensor.ndim:
                _check_shape(slot, value, plan)
            array = value
        case _:
            raise UserError(
                f"'{name}': expected a RaggedArray or a NumPy array; got {type(value).__name__}"
            )
    if array.dtype != dtypes.to_numpy(slot.tensor.dtype):
        raise UserError(f"'{name}': expected values of type {slot.tensor.dtype}; got {array.dtype}")
    flags = array.flags
    if not flags.c_contiguous or not flags.aligned:
        raise UserError(f"'{name}': the values must be C-contiguous and aligned; got strides {array.strides}")
    if writable and not flags.writeable:
        raise UserError(f"'{name}': the values of an output must be writable")
    if array.size != count:
        raise UserError(
            f"'{name}': the layout {slot.layout.describe()} stores {count} elements on this batch; "
            f"got {array.size}"
        )
    return array if array.ndim == 1 else array.reshape(-1)


@lru_cache(maxsize=256)
def _equal_layouts(a: Layout, b: Layout) -> bool:
    return a == b


def _same_batch(name: str, array: RaggedArray, plan: Plan) -> None:
    if array.lengths is plan.lengths and array.sizes is plan.sizes:
        return
    for key, lengths in array.lengths.items():
        mine = plan.lengths.get(key)
        if mine is None or mine is lengths:
            continue
        if len(mine) != len(lengths) or (mine != lengths).any():
            bad = f"{len(lengths)} entries, not {len(mine)}"
            if len(mine) == len(lengths):
                at = int(np.argmax(mine != lengths))
                bad = f"entry {at} is {lengths[at]}, not {mine[at]}"
            raise UserError(f"'{name}': its lengths '{key}' are not those of the plan: {bad}")
    for key, size in array.sizes.items():
        if plan.sizes.get(key, size) != size:
            raise UserError(f"'{name}': its size '{key}' is {size}, that of the plan {plan.sizes[key]}")


def _check_shape(slot: Slot, array: Array, plan: Plan) -> None:
    from cora.ir.evaluate import Evaluator
    from cora.storage.extents import clamp

    evaluator = Evaluator(plan.sizes, plan.lengths)
    shape = tuple(int(evaluator.value(clamp(d.extent), {})) for d in slot.tensor.dims)
    if array.shape != shape:
        raise UserError(f"'{slot.tensor.name}': expected the shape {shape}; got {array.shape}")
