"""The worker's side: builds, checks and times candidates, one request at a time."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, cast

import numpy as np

from cora.autotune.batches import Batch
from cora.autotune.check import Check, checks_of, fault_in
from cora.autotune.device import device_text
from cora.autotune.inputs import draw_inputs
from cora.autotune.protocol import (
    Failed,
    Measure,
    Measured,
    Prepare,
    Prepared,
    Ready,
    Rejected,
    Reply,
    Request,
    Setup,
)
from cora.autotune.spaces.candidate import Candidate
from cora.autotune.timer import measure
from cora.errors import CoraError, InternalError
from cora.ir import dtypes
from cora.ir.tensor import Tensor
from cora.runtime.build import build
from cora.runtime.kernel import Kernel
from cora.runtime.plan import Plan, plan
from cora.settings import Settings
from cora.storage.array import RaggedArray, allocate
from cora.storage.boxes import Batch as Bound
from cora.storage.boxes import stored_size
from cora.storage.layout import Layout
from cora.storage.lengths import bind

__all__ = ["Bench", "build_candidate"]

#: Kernels that stay loaded, besides the default one.
KEPT = 16
#: Runs at first sight, and seconds after which there is no other.
LOOKS, LOOK_S = 10, 0.05
#: Results on a measured shape may differ from the default schedule's by this much of the largest value.
TOLERANCE = 2e-3
#: The default schedule before and after all others; the lesser of both is the reference.
_BEFORE, _AFTER = "\0before", "\0after"


def build_candidate(
    candidate: Candidate, outputs: Sequence[Tensor], target: str, settings: Settings
) -> Kernel:
    """The kernel of a candidate."""
    return build(candidate.schedule(outputs), target, settings)


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    """A kernel with a plan and arguments for each shape that it was run on."""

    kernel: Kernel
    undefined: frozenset[str]
    calls: dict[str, tuple[Plan, Callable[[], Any], dict[str, RaggedArray]]]


class Bench:
    """Serves requests; the first one must be a Setup."""

    def __init__(self) -> None:
        self._setup: Setup | None = None
        self._checks: tuple[Check, ...] = ()
        self._default: _Loaded | None = None
        self._default_ms = 0.0
        self._expected: dict[str, np.ndarray[Any, Any]] = {}
        self._kept: OrderedDict[str, _Loaded] = OrderedDict()
        self._packed: dict[str, dict[str, RaggedArray]] = {}
        self._arrays: dict[tuple[str, str, Layout], RaggedArray] = {}

    def handle(self, request: Request) -> Reply:
        """The answer to a request. A CoraError becomes an answer; other exceptions mean a broken worker."""
        match request:
            case Setup():
                return self._start(request)
            case Prepare(candidate=candidate):
                return self._prepare(candidate)
            case Measure():
                return self._measure(request)

    @property
    def _task(self) -> Setup:
        if self._setup is None:
            raise InternalError("worker: expected a Setup first")
        return self._setup

    def _start(self, setup: Setup) -> Reply:
        self._setup = setup
        try:
            self._checks = checks_of(setup.outputs, setup.checks)
            self._default = self._load(setup.default, build_candidate)
        except CoraError as error:
            return Failed(str(error))
        fault = fault_in(self._default.kernel, self._checks, setup.threads, self._default.undefined)
        if fault is not None:
            return Failed(f"the default schedule is wrong: {fault}", setup.default.id)
        first = setup.shapes[0].name
        self._default_ms = self._first_look(self._default, first)
        outputs = self._call(self._default, first)[2]
        self._expected = {name: array.packed().copy() for name, array in outputs.items()}
        return Ready(device_text(), len(self._checks))

    def _prepare(self, candidate: Candidate) -> Reply:
        setup = self._task
        started = time.perf_counter()
        try:
            loaded = self._load(candidate, self._builder())
        except CoraError as error:
            return Rejected(candidate.id, "refused", _line(error))
        except Exception as error:  # noqa: BLE001  whatever a candidate raises is its reason
            return Rejected(candidate.id, "failed", f"building: {type(error).__name__}: {_line(error)}")
        build_ms = (time.perf_counter() - started) * 1e3
        try:
            fault = fault_in(loaded.kernel, self._checks, setup.threads, loaded.undefined)
            if fault is None:
                first = setup.shapes[0].name
                ms = self._first_look(loaded, first)
                fault = self._differs(loaded, first)
        except Exception as error:  # noqa: BLE001
            return Rejected(candidate.id, "failed", f"running: {type(error).__name__}: {_line(error)}")
        if fault is not None:
            return Rejected(candidate.id, "wrong", fault)
        slow = candidate.steps != setup.default.steps and ms > setup.slow_factor * self._default_ms
        if slow:
            times = ms / self._default_ms
            return Rejected(
                candidate.id, "slow", f"{times:.0f} times slower than the default at its first run"
            )
        self._keep(candidate.id, loaded)
        made = self._call(loaded, first)[0].prepared(loaded.kernel)
        slots = zip(loaded.kernel.artifact.slots, made.element_counts, strict=True)
        stored = sum(dtypes.itemsize(slot.tensor.dtype) * count for slot, count in slots)
        return Prepared(candidate.id, build_ms, stored, ms)

    def _measure(self, request: Measure) -> Reply:
        assert self._default is not None
        loaded: dict[str, _Loaded] = {}
        for candidate in request.candidates:
            try:
                loaded[candidate.id] = self._kept.get(candidate.id) or self._load(candidate, self._builder())
            except CoraError as error:
                return Failed(_line(error), candidate.id)
            self._keep(candidate.id, loaded[candidate.id])
        reference = self._call(self._default, request.shape)[1]
        calls: dict[str, Callable[[], object]] = {_BEFORE: reference}
        calls.update({id: self._call(one, request.shape)[1] for id, one in loaded.items()})
        calls[_AFTER] = reference
        timings = measure(
            calls,
            cache=request.cache,
            repeats=request.repeats,
            warmup_ms=request.warmup_ms,
            min_sample_ms=request.min_sample_ms,
        )
        pairs = zip(timings.pop(_BEFORE).samples, timings.pop(_AFTER).samples, strict=True)
        return Measured(
            {id: timing.samples for id, timing in timings.items()},
            tuple(float(np.fmin(*pair)) for pair in pairs),
            {id: timing.busy for id, timing in timings.items()},
        )

    def _builder(self) -> Callable[..., Kernel]:
        module, _, name = self._task.builder.partition(":")
        return cast(Callable[..., Kernel], getattr(import_module(module), name))

    def _load(self, candidate: Candidate, builder: Callable[..., Kernel]) -> _Loaded:
        setup = self._task
        kernel = builder(candidate, setup.outputs, setup.target, setup.settings)
        return _Loaded(kernel, candidate.schedule(setup.outputs).state.undefined_padding, {})

    def _keep(self, id: str, loaded: _Loaded) -> None:
        self._kept[id] = loaded
        self._kept.move_to_end(id)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def _call(self, loaded: _Loaded, shape: str) -> tuple[Plan, Callable[[], Any], dict[str, RaggedArray]]:
        """A plan for a shape, the run of the kernel on it, and its outputs. Kernels share their arrays."""
        if shape not in loaded.calls:
            kernel = loaded.kernel
            batch = next(s.batch for s in self._task.shapes if s.name == shape)
            wanted = {*kernel.size_names, *kernel.length_domains}
            named = {k: v for k, v in batch.named.items() if k in wanted}
            made = plan(kernel, threads=self._task.threads, **named)
            inputs = [self._input(shape, batch, n, kernel.layout(n)) for n in kernel.inputs]
            outputs = {n: self._output(shape, batch, n, kernel.layout(n)) for n in kernel.outputs}
            loaded.calls[shape] = (made, partial(kernel.run, made, *inputs, outputs=outputs), outputs)
        return loaded.calls[shape]

    def _first_look(self, loaded: _Loaded, shape: str) -> float:
        """Milliseconds of the fastest of a few runs: one that others disturbed must not look slow."""
        call = self._call(loaded, shape)[1]
        call()
        fastest = math.inf
        begun = time.perf_counter()
        for _ in range(LOOKS):
            started = time.perf_counter()
            call()
            fastest = min(fastest, time.perf_counter() - started)
            if time.perf_counter() - begun > LOOK_S:
                break
        return fastest * 1e3

    def _differs(self, loaded: _Loaded, shape: str) -> str | None:
        """What is wrong with the last results on a shape, compared with those of the default schedule."""
        for name, array in self._call(loaded, shape)[2].items():
            got, expected = array.packed(), self._expected[name]
            if not dtypes.is_float(array.dtype):
                wrong = np.asarray(got != expected)
            else:
                a, b = got.astype(np.float64), expected.astype(np.float64)
                largest = float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0))
                with np.errstate(invalid="ignore"):
                    near = np.abs(a - b) <= TOLERANCE * largest
                wrong = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
            if wrong.any():
                return (
                    f"on {shape}: {np.count_nonzero(wrong)} of {wrong.size} elements of {name} "
                    "are not those of the default schedule"
                )
        return None

    def _input(self, shape: str, batch: Batch, name: str, layout: Layout) -> RaggedArray:
        key = (shape, name, layout)
        if key not in self._arrays:
            if shape not in self._packed:
                self._packed[shape] = draw_inputs(self._task.outputs, batch)
            self._arrays[key] = self._packed[shape][name].to_layout(layout)
        return self._arrays[key]

    def _output(self, shape: str, batch: Batch, name: str, layout: Layout) -> RaggedArray:
        key = (shape, name, layout)
        if key not in self._arrays:
            dtype = next(t.dtype for t in self._task.outputs if t.name == name)
            sizes, lengths = bind(layout.dims, dict(batch.sizes), batch.arrays, f"output '{name}'")
            values = allocate(stored_size(layout, Bound(sizes, lengths)), dtype)
            self._arrays[key] = RaggedArray(values, layout, lengths, sizes, name, dtype)
        array = self._arrays[key]
        array.values.fill(0)
        return array


def _line(error: BaseException) -> str:
    """The message of an error, on one line."""
    return " ".join(str(error).split())[:500]
