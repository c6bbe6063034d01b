"""Kernels for a GPU: called like those for CPUs, on arrays of the host or of the device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from cora.codegen.cuda.resources import Resources
from cora.errors import InternalError, UserError
from cora.ir import dtypes
from cora.prelude import NativePrelude, PreludeSpec
from cora.prelude import load as load_prelude
from cora.runtime.arguments import memory_of, new_array
from cora.runtime.artifact import Artifact, Slot
from cora.runtime.code import LibraryCode, export_library
from cora.runtime.cuda.artifact import CudaArtifact
from cora.runtime.cuda.driver import Driver, open_device
from cora.runtime.cuda.memory import DeviceArray, DeviceMemory, on_device, pointer_of, refuse_overlap
from cora.runtime.cuda.plan import DeviceTables, OnDevice, Ready
from cora.runtime.explain import section
from cora.runtime.kernel import Kernel
from cora.runtime.plan import Plan, Prepared

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class CudaCode:
    """The code of a kernel for a GPU: a library of the host with its prelude, and the machine code in the artifact.

    tir: makes the TIR again when it is asked for; None for a kernel that came without its program.
    """

    path: Path
    artifact: CudaArtifact
    metadata: bytes
    tir: Callable[[str], str] | None

    def function(self, name: str) -> Callable[..., None]:
        """What runs a function of the host; a GPU's kernel has none."""

        def refuse(*_: object) -> None:
            raise InternalError(f"'{name}' runs on a GPU")

        return refuse

    def prelude(self, spec: PreludeSpec) -> NativePrelude:
        """The prelude in the library."""
        return load_prelude(spec, ctypes.CDLL(str(self.path)))

    def source(self, kind: str) -> str:
        """ "cuda": the CUDA C++; "tir": what it was printed from."""
        if kind == "cuda":
            return self.artifact.source
        if self.tir is None:
            raise UserError("source: an exported kernel carries its CUDA C++ alone")
        return self.tir(kind)

    def export(self, path: Path) -> Path:
        """The library with its metadata, the GPU's code among it."""
        return export_library(self.path, self.metadata, path)


class CudaKernel(Kernel):
    """A program compiled for a GPU. Building and looking at it needs no GPU; running it does.

    Inputs may be what kernels for CPUs take, which are copied to the device, or arrays on the device (with
    `__cuda_array_interface__`, such as PyTorch's or a DeviceArray): the packed values. Outputs that are not given lie
    where the inputs do: on the device if one of them does.
    """

    artifact: CudaArtifact

    def __init__(self, artifact: CudaArtifact, code: CudaCode) -> None:
        super().__init__(artifact, code)
        self.artifact = artifact
        self._module: tuple[Driver, ctypes.c_void_p] | None = None

    @property
    def resources(self) -> tuple[Resources, ...]:
        """Registers, shared memory, spills and occupancy of each launch."""
        return self.artifact.cubin.resources

    def source(self, kind: str = "cuda") -> str:
        """The generated code: "cuda" (CUDA C++)."""
        if kind != "cuda":
            raise UserError(f"source: kind must be 'cuda'; got {kind!r}")
        return self.code.source(kind)

    def explain(self, plan: Plan | None = None) -> str:
        """As for CPUs; and the launches, with what each takes of a multiprocessor."""
        taken = {r.kernel: r for r in self.resources}
        lines = []
        for call in self.artifact.calls:
            launch = call.launch
            grid = " x ".join(str(e) for e in launch.grid if str(e) != "1") or "1"
            threads = " x ".join(str(n) for n in launch.block)
            lines.append(f"{launch.name}: grid {grid}, block {threads}")
            if launch.name in taken:
                lines.append(f"  {taken[launch.name]}")
        return "\n\n".join((super().explain(plan), section("launches", "\n".join(lines))))

    def run(self, plan: Plan, *arrays: Any, outputs: Mapping[str, Any] | None = None, stream: int = 0) -> Any:
        """Run on the arrays of a plan's batch; see `Kernel.run`.

        stream: the handle of a CUDA stream (PyTorch: `stream.cuda_stream`); work is queued there. Without outputs in
        the memory of the host, nothing is waited for.
        """
        prepared = self.begin(plan, outputs)
        try:
            return self._on_stream(plan, prepared, arrays, outputs or {}, stream)
        finally:
            plan.lock.release()

    def imported(self, slot: Slot, value: Any) -> Any:
        """Arrays on the device stay as they are."""
        return value if on_device(value) else super().imported(slot, value)

    def _on_stream(
        self,
        plan: Plan,
        prepared: Prepared,
        arrays: tuple[Any, ...],
        outputs: Mapping[str, Any],
        stream: int,
    ) -> Any:
        driver, state = self._state(plan, prepared)
        driver.enter()
        call = _Arguments(self, plan, prepared, driver, stream)
        call.take(arrays, outputs)
        for ready in (*state.checks, *state.calls):
            for place, position in ready.tensors:
                ready.cells[place] = call.pointers[position]
        if state.checks:
            self._check_on_device(driver, state, prepared, stream)
        for ready in state.calls:
            _launch(driver, ready, stream)
        return call.finish()

    def _check_on_device(self, driver: Driver, state: OnDevice, prepared: Prepared, stream: int) -> None:
        """Count the indices out of range, and raise UserError if there are any, before anything is computed."""
        for ready in state.checks:
            _launch(driver, ready, stream)
        driver.download(prepared.counters, state.counters.pointer, stream)
        self.report_indices(prepared)

    def _state(self, plan: Plan, prepared: Prepared) -> tuple[Driver, OnDevice]:
        """The device and what it holds for this kernel and plan, made on the first run."""
        if self._module is None:
            driver = open_device()
            driver.enter()
            self._module = driver, driver.load(self.artifact.cubin.code)
        driver, module = self._module
        tables: DeviceTables | None = plan.on_device.get("tables")
        if tables is None:
            tables = plan.on_device["tables"] = DeviceTables(driver, plan)
        state: OnDevice | None = plan.on_device.get(id(self))
        if state is None:
            driver.enter()
            state = OnDevice(driver, self.artifact, module, plan, prepared, tables)
            plan.on_device[id(self)] = state
        return driver, state


def _launch(driver: Driver, ready: Ready, stream: int) -> None:
    if not ready.empty:
        driver.launch(ready.function, ready.grid, ready.block, ready.arguments, stream)


class _Arguments:
    """The arrays of one call on the device: those that lie there, and copies of the others."""

    def __init__(
        self, kernel: CudaKernel, plan: Plan, prepared: Prepared, driver: Driver, stream: int
    ) -> None:
        self._kernel = kernel
        self._plan = plan
        self._counts = prepared.element_counts
        self._driver = driver
        self._stream = stream
        self.pointers: dict[int, int] = {}
        self._kept: list[DeviceMemory] = []
        self._downloads: list[tuple[Array, int]] = []
        self._results: list[Any] = []

    def take(self, arrays: tuple[Any, ...], outputs: Mapping[str, Any]) -> None:
        """Check the arguments; copy what lies on the host. Raises UserError before anything is written."""
        kernel = self._kernel
        slots = kernel.artifact.slots
        kernel.check_arguments(arrays, outputs)
        hosts: list[tuple[int, Array]] = []
        inputs: list[tuple[str, int, int]] = []
        for position, value in zip(kernel.input_slots, arrays, strict=True):
            slot = slots[position]
            if on_device(value):
                self.pointers[position] = self._pointer(slot, position, value, writable=False)
                inputs.append(self._span(slot, position))
            else:
                hosts.append((position, memory_of(slot, value, self._plan, self._counts[position])))
        device_results = bool(inputs)
        spans: list[tuple[str, int, int]] = []
        for position in kernel.artifact.outputs:
            slot = slots[position]
            value = outputs.get(slot.tensor.name)
            if value is None:
                count = self._counts[position]
                value = (
                    DeviceArray(count, slot.tensor.dtype, self._driver)
                    if device_results
                    else new_array(slot, count, self._plan)
                )
            if on_device(value):
                self.pointers[position] = self._pointer(slot, position, value, writable=True)
                spans.append(self._span(slot, position))
            else:
                host = memory_of(slot, value, self._plan, self._counts[position], writable=True)
                self._downloads.append((host, self._new(slot, position)))
            self._results.append(value)
        refuse_overlap(inputs, spans)
        for position, host in hosts:
            self._driver.upload(self._new(slots[position], position), host, self._stream)

    def _pointer(self, slot: Slot, position: int, value: Any, *, writable: bool) -> int:
        count = self._counts[position]
        return pointer_of(value, slot.tensor.dtype, count, f"'{slot.tensor.name}'", writable=writable)

    def _span(self, slot: Slot, position: int) -> tuple[str, int, int]:
        size = self._counts[position] * dtypes.itemsize(slot.tensor.dtype)
        return slot.tensor.name, self.pointers[position], size

    def _new(self, slot: Slot, position: int) -> int:
        memory = DeviceMemory(self._driver, self._counts[position] * dtypes.itemsize(slot.tensor.dtype))
        self._kept.append(memory)
        self.pointers[position] = memory.pointer
        return memory.pointer

    def finish(self) -> Any:
        """Copy back what belongs on the host, and give the results."""
        for host, pointer in self._downloads:
            self._driver.download(host, pointer, self._stream)
        if self._kept and not self._downloads:
            self._driver.synchronize(self._stream)  # copies of inputs must outlive the launches
        return self._results[0] if len(self._results) == 1 else tuple(self._results)


def exported(artifact: Artifact, code: LibraryCode) -> CudaKernel:
    """The kernel of an exported library."""
    assert isinstance(artifact, CudaArtifact)
    return CudaKernel(artifact, CudaCode(code.library.path, artifact, code.metadata, None))
