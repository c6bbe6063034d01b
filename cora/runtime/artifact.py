"""What the run time knows about a built kernel: plain frozen data, stored beside its code."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cora.errors import InternalError
from cora.ir.printer import show_stmt
from cora.ir.stmt import Function
from cora.ir.tensor import Tensor
from cora.ir.ufun import UFun, constant_function
from cora.lower.hot import hot_guards
from cora.lower.records import Guard, IndexCheck
from cora.prelude import PreludeSpec, specify
from cora.schedule.nest import LoopNest
from cora.storage.layout import Layout
from cora.storage.offsets import table_offset, table_size

if TYPE_CHECKING:
    from cora.lower.program import Lowered

Role = Literal["input", "output", "workspace"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor of the kernel: its definition, layout, role, and the prelude table that holds its size."""

    tensor: Tensor
    layout: Layout
    role: Role
    size_table: int


@dataclass(frozen=True, slots=True)
class Signature:
    """A compiled function: for each buffer parameter ("tensor" | "table" | "counter", position), then the sizes."""

    name: str
    buffers: tuple[tuple[str, int], ...]
    sizes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Artifact:
    """Everything about a kernel but its code.

    table_names: how the loops call the tables of the prelude that they read, by position.
    hot_guards: the conditions left in hot loops, as "loop: condition".
    stages: the program at each stage, as text.
    """

    name: str
    slots: tuple[Slot, ...]
    table_names: Mapping[int, str]
    outputs: tuple[int, ...]
    kernel: Signature
    check: Signature | None
    checks: tuple[IndexCheck, ...]
    prelude: PreludeSpec
    nests: Mapping[str, LoopNest]
    guards: tuple[Guard, ...]
    hot_guards: tuple[str, ...]
    stages: Mapping[str, str]
    schedule: str
    target: str

    @property
    def inputs(self) -> tuple[Slot, ...]:
        """The input tensors, in order of first use."""
        return tuple(s for s in self.slots if s.role == "input")

    def to_bytes(self) -> bytes:
        """For the cache and for exported libraries."""
        return pickle.dumps(self, protocol=5)

    @staticmethod
    def from_bytes(data: bytes) -> Artifact:
        """What `to_bytes` wrote, by this version of cora."""
        artifact = pickle.loads(data)
        if not isinstance(artifact, Artifact):
            raise InternalError(f"artifact: expected an Artifact; got {type(artifact).__name__}")
        return artifact


def make_artifact(lowered: Lowered, schedule: str, definition: str, target: str) -> Artifact:
    """The artifact of a lowered program; `schedule` and `definition` are texts for people."""
    tensors = (*lowered.inputs, *lowered.outputs, *lowered.intermediates)
    roles: dict[str, Role] = {t.name: "input" for t in lowered.inputs}
    roles.update({t.name: "output" for t in lowered.outputs})
    roles.update({t.name: "workspace" for t in lowered.intermediates})
    size_of = {t.name: constant_function(f"size_{t.name}", lowered.layouts[t.name].size()) for t in tensors}
    spec = specify([*lowered.tables.values(), *size_of.values()], table_offset, table_size)
    slots = tuple(
        Slot(t, lowered.layouts[t.name], roles[t.name], spec.position(size_of[t.name])) for t in tensors
    )
    place = {t.name: position for position, t in enumerate(tensors)}
    texts = {name: show_stmt(stage) for name, stage in lowered.stages.items()}
    return Artifact(
        lowered.name,
        slots,
        {spec.position(fun): buffer.name for buffer, fun in lowered.tables.items()},
        tuple(place[t.name] for t in lowered.outputs),
        _signature(lowered.kernel, place, lowered, spec),
        None if lowered.check is None else _signature(lowered.check, place, lowered, spec),
        lowered.checks,
        spec,
        lowered.nests,
        lowered.guards,
        hot_guards(lowered.kernel.body),
        {"definition": definition, "schedule": schedule, **texts},
        schedule,
        target,
    )


def _signature(
    function: Function, place: Mapping[str, int], lowered: Lowered, spec: PreludeSpec
) -> Signature:
    buffers: list[tuple[str, int]] = []
    counters = 0
    for buffer in function.buffers:
        if buffer.scope == "table":
            fun: UFun = lowered.tables[buffer]
            buffers.append(("table", spec.position(fun)))
        elif buffer.name in place:
            buffers.append(("tensor", place[buffer.name]))
        else:
            buffers.append(("counter", counters))
            counters += 1
    return Signature(function.name, tuple(buffers), tuple(s.name for s in function.sizes))
