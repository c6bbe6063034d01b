"""Kernels: native code with its prelude, called on ragged arrays."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy.typing as npt

from cora.codegen.load import use_workers
from cora.errors import UserError
from cora.ir.expr import Dim
from cora.prelude import NativePrelude
from cora.runtime.arguments import imported, memory_of, new_array
from cora.runtime.artifact import Artifact, Signature, Slot
from cora.runtime.balance import Shares, shares_of
from cora.runtime.binding import Binder
from cora.runtime.code import Code
from cora.runtime.count import Waste
from cora.runtime.explain import explain, waste
from cora.runtime.memory import address_of, refuse_overlap
from cora.runtime.plan import WORKERS, Call, Plan, Prepared, worker_count
from cora.runtime.routines import launched
from cora.storage.array import RaggedArray
from cora.storage.dlpack import is_foreign
from cora.storage.layout import Layout

Array = npt.NDArray[Any]
PLANS_KEPT = 8


class Kernel:
    """A compiled program. Calling it on arrays runs it; `run` on a plan is the fast way.

    Inputs are taken in order of first use in the definition, or by name. An input is a RaggedArray, a NumPy
    array, or another array with `__dlpack__` in CPU memory: of the tensor's shape where that is dense, else
    its packed values; only a RaggedArray where the layout is not in the order of the dims. One kernel serves
    every batch.
    """

    def __init__(self, artifact: Artifact, code: Code) -> None:
        self.artifact = artifact
        self.code = code
        self.name = artifact.name
        self.prelude: NativePrelude = code.prelude(artifact.prelude)
        self._run = launched(artifact.nests, code.function(artifact.kernel.name))
        self._check = None if artifact.check is None else code.function(artifact.check.name)
        self.input_slots = tuple(n for n, s in enumerate(artifact.slots) if s.role == "input")
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
        slots = self.artifact.slots
        given = self._in_order(arrays, named)
        values = [self.imported(slots[n], v) for n, v in zip(self.input_slots, given, strict=True)]
        binder = Binder()
        for position, value in zip(self.input_slots, values, strict=True):
            binder.argument(slots[position], value)
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

    def imported(self, slot: Slot, value: Any) -> Any:
        """An array of another library as a NumPy array on the same memory; anything else as it is."""
        return imported(slot, value)

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
        prepared = self.begin(plan, outputs)
        try:
            return self._launch(plan, prepared, arrays, outputs)
        finally:
            plan.lock.release()

    def begin(self, plan: Plan, outputs: Mapping[str, Any] | None) -> Prepared:
        """Check the plan and take its lock, which the caller releases."""
        if not isinstance(plan, Plan):
            raise UserError(
                f"kernel '{self.name}': run expects a plan first, from cora.plan(kernel, ...); "
                f"got {type(plan).__name__}"
            )
        if outputs is not None and not isinstance(outputs, (dict, Mapping)):
            raise UserError(
                f"kernel '{self.name}': outputs must be arrays by name, {{'{self.outputs[0]}': array}}; "
                f"got {type(outputs).__name__}"
            )
        prepared = plan.prepared(self)
        if not plan.lock.acquire(blocking=False):
            raise UserError(f"kernel '{self.name}': the plan is running already; one run at a time per plan")
        return prepared

    def _launch(
        self, plan: Plan, prepared: Prepared, arrays: tuple[Any, ...], outputs: Mapping[str, Any] | None
    ) -> Any:
        last = prepared.last
        if last is None or outputs is None or not last.same(arrays, outputs):
            last = self._bind(plan, prepared, arrays, outputs or {})
            complete = outputs and len(outputs) == len(self.outputs)
            given = (*arrays, *(outputs or {}).values())  # a foreign array's memory may change
            foreign = any(is_foreign(v) and not isinstance(v, RaggedArray) for v in given)
            prepared.last = last if complete and not foreign else None
        use_workers(plan.threads)
        if self._check is not None:
            self._check_indices(prepared)
        self._run(prepared.kernel.pointer)
        return last.result

    def check_arguments(self, arrays: tuple[Any, ...], outputs: Mapping[str, Any]) -> None:
        """UserError if there are not as many inputs as there should be, or outputs of other names."""
        if len(arrays) != len(self.input_slots):
            raise UserError(
                f"kernel '{self.name}': expected {len(self.input_slots)} inputs ({', '.join(self.inputs)}); "
                f"got {len(arrays)}"
            )
        unknown = [name for name in outputs if name not in self.outputs]
        if unknown:
            raise UserError(
                f"kernel '{self.name}': no output '{unknown[0]}'; the outputs are {', '.join(self.outputs)}"
            )

    def _bind(
        self, plan: Plan, prepared: Prepared, arrays: tuple[Any, ...], outputs: Mapping[str, Any]
    ) -> Call:
        """Check the arguments and write their addresses into the frames."""
        slots = self.artifact.slots
        self.check_arguments(arrays, outputs)
        counts = prepared.element_counts
        memory: dict[int, Array] = {}
        for position, value in zip(self.input_slots, arrays, strict=True):
            memory[position] = memory_of(slots[position], value, plan, counts[position])
        results: list[Any] = []
        for position in self.artifact.outputs:
            slot = slots[position]
            value = outputs.get(slot.tensor.name)
            if value is None:
                value = new_array(slot, counts[position], plan)
            memory[position] = memory_of(slot, value, plan, counts[position], writable=True)
            results.append(value)
        if outputs:
            refuse_overlap(
                [(slots[n].tensor.name, memory[n]) for n in self.input_slots],
                [(slots[n].tensor.name, memory[n]) for n in self.artifact.outputs],
            )
        addresses = {position: address_of(array) for position, array in memory.items()}
        for frame, places in ((prepared.kernel, self._places), (prepared.check, self._check_places)):
            for place, position in places:
                frame.words[place] = addresses[position]
        result = results[0] if len(results) == 1 else tuple(results)
        return Call(arrays, tuple(outputs.items()), tuple(memory.values()), result)

    def _check_indices(self, prepared: Prepared) -> None:
        assert self._check is not None
        self._check(prepared.check.pointer)
        self.report_indices(prepared)

    def report_indices(self, prepared: Prepared) -> None:
        """UserError if the check function has counted indices out of range."""
        for check, bad in zip(self.artifact.checks, prepared.counters, strict=True):
            if bad:
                raise UserError(check.message(int(bad)))

    def explain(self, plan: Plan | None = None) -> str:
        """Loops, guards kept and removed (and why), auxiliary arrays; with a plan also sizes and waste."""
        return explain(self.artifact, plan, None if plan is None else plan.prepared(self))

    def waste(self, plan: Plan) -> Waste:
        """Executed and useful FLOPs, stored and useful bytes, on the batch of a plan."""
        return waste(self.artifact, plan, plan.prepared(self))

    @property
    def hot_guards(self) -> tuple[str, ...]:
        """The conditions that are left in the innermost loops, tails aside, as "loop: condition"."""
        return self.artifact.hot_guards

    def balance(self, plan: Plan, workers: int | None = None) -> tuple[Shares, ...]:
        """How evenly each parallel loop shares its work on the batch of a plan: with the plan's workers, or so many.

        Counted, not measured: `print(kernel.balance(plan, 64)[0].ratio)` needs no machine with 64 processors.
        """
        plan.prepared(self)
        count = plan.threads if workers is None else worker_count(workers)
        return shares_of(tuple(self.artifact.nests.values()), plan.sizes, plan.lengths, count)

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
