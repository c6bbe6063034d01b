"""What a device holds for a plan: its tables, copied at once, and for each kernel workspace and launches."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cora.codegen.cuda.ranges import host_value, too_wide
from cora.errors import UnsupportedError
from cora.ir import dtypes
from cora.ir.stmt import BLOCK_AXES, Buffer
from cora.runtime.cuda.artifact import Call, CudaArtifact
from cora.runtime.cuda.driver import Driver
from cora.runtime.cuda.memory import DeviceMemory
from cora.runtime.memory import address_of
from cora.schedule.threads import LIMITS

if TYPE_CHECKING:
    from cora.runtime.plan import Plan, Prepared

Array = npt.NDArray[Any]


class DeviceTables:
    """A copy of a plan's auxiliary arrays, in one transfer."""

    def __init__(self, driver: Driver, plan: Plan) -> None:
        arena = plan.arena
        self._first = arena.address
        used = arena.buffer[: arena.used_bytes]
        self.memory = DeviceMemory(driver, used.nbytes)
        driver.upload(self.memory.pointer, used, 0)

    def pointer(self, table: Array) -> int:
        """Where a table of the plan lies on the device."""
        if not table.size:
            return self.memory.pointer
        return self.memory.pointer + address_of(table) - self._first


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A launch with its arguments in place: `cells` may be written between launches, `arguments` is passed."""

    function: ctypes.c_void_p
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cells: Any
    arguments: Any
    tensors: tuple[tuple[int, int], ...]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to launch: the driver refuses a grid without blocks."""
        return 0 in self.grid


class OnDevice:
    """What one kernel needs on the device for one plan; arguments of a call are still open."""

    def __init__(
        self,
        driver: Driver,
        artifact: CudaArtifact,
        module: ctypes.c_void_p,
        plan: Plan,
        prepared: Prepared,
        tables: DeviceTables,
    ) -> None:
        """Raises UnsupportedError for a batch whose offsets or grids are larger than the kernel can handle."""
        self._tables = tables
        counts = prepared.element_counts
        self.workspace = {
            position: DeviceMemory(driver, counts[position] * dtypes.itemsize(slot.tensor.dtype))
            for position, slot in enumerate(artifact.slots)
            if slot.role == "workspace" and _uses(artifact.calls, position)
        }
        self.counters = DeviceMemory(driver, 8 * max(len(artifact.checks), 1))
        fixed: dict[tuple[str, int], int] = {}
        fixed.update({("table", n): tables.pointer(table) for n, table in enumerate(prepared.tables)})
        fixed.update({("tensor", n): memory.pointer for n, memory in self.workspace.items()})
        fixed.update({("counter", n): self.counters.pointer + 8 * n for n in range(len(artifact.checks))})
        sizes = dict(plan.sizes)
        named = {name: prepared.tables[n] for name, n in artifact.table_positions.items()}
        for count, slot in zip(counts, artifact.slots, strict=True):
            if artifact.index_bits == 32 and count >= 2**31:
                raise UnsupportedError(
                    f"kernel '{artifact.name}': '{slot.tensor.name}' has {count:,} elements on this batch; "
                    "build with target {'kind': 'cuda', ..., 'index_bits': 64}"
                )

        def ready(call: Call) -> Ready:
            return _ready(driver, artifact, module, call, fixed, sizes, named)

        self.calls = tuple(ready(call) for call in artifact.calls)
        self.checks = tuple(ready(call) for call in artifact.check_calls)


def _uses(calls: Sequence[Call], position: int) -> bool:
    return any(("tensor", position) in call.signature.buffers for call in calls)


def _ready(
    driver: Driver,
    artifact: CudaArtifact,
    module: ctypes.c_void_p,
    call: Call,
    fixed: Mapping[tuple[str, int], int],
    sizes: Mapping[str, int],
    tables: Mapping[str, Array],
) -> Ready:
    launch, signature = call.launch, call.signature
    grid = tuple(max(host_value(extent, sizes, tables), 0) for extent in launch.grid)
    for kind, blocks in zip(BLOCK_AXES, grid, strict=True):
        if blocks > LIMITS[kind]:
            raise UnsupportedError(
                f"kernel '{artifact.name}': {blocks:,} blocks along {kind.value} on this batch; at most "
                f"{LIMITS[kind]:,} are possible: bind the longest loop to blockIdx.x"
            )
    if artifact.index_bits == 32 and 0 not in grid:
        _check_width(artifact, call, grid, sizes, tables)
    words = len(signature.buffers) + len(signature.sizes)
    cells = (ctypes.c_int64 * max(words, 1))()
    for place, origin in enumerate(signature.buffers):
        cells[place] = fixed.get(origin, 0)
    for place, name in enumerate(signature.sizes, len(signature.buffers)):
        cells[place] = sizes[name]  # little-endian: an int32 argument is the first half of its cell
    first = ctypes.addressof(cells)
    arguments = (ctypes.c_void_p * max(words, 1))(*(first + 8 * n for n in range(words)))
    open_places = tuple(
        (place, position)
        for place, (kind, position) in enumerate(signature.buffers)
        if kind == "tensor" and ("tensor", position) not in fixed
    )
    return Ready(driver.function(module, launch.name), grid, launch.block, cells, arguments, open_places)


def _check_width(
    artifact: CudaArtifact,
    call: Call,
    grid: tuple[int, ...],
    sizes: Mapping[str, int],
    tables: Mapping[str, Array],
) -> None:
    def extremes(buffer: Buffer) -> tuple[int, int]:
        table = tables[buffer.name]
        return (int(np.min(table)), int(np.max(table))) if table.size else (0, 0)

    wide = too_wide(call.launch, grid, sizes, extremes)
    if wide is not None:
        expression, (low, high) = wide
        raise UnsupportedError(
            f"kernel '{artifact.name}': on this batch the index {expression} may lie in {low:,}..{high:,}, which needs "
            "more than 32 bits; build with target {'kind': 'cuda', ..., 'index_bits': 64}"
        )
