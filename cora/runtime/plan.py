"""Plans: the prelude of one batch, run once for several kernels."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cora.codegen.abi import Frame
from cora.codegen.load import configure_threads
from cora.errors import UnsupportedError, UserError
from cora.prelude import Arena
from cora.runtime.artifact import Signature
from cora.runtime.binding import Batch, Binder
from cora.runtime.memory import address_of
from cora.storage.array import allocate
from cora.storage.lengths import Lengths

if TYPE_CHECKING:
    from cora.runtime.kernel import Kernel

Array = npt.NDArray[Any]
WORKERS = "%workers"
MAX_WORKERS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Arguments that were checked and whose addresses are in the frames; `memory` keeps them alive."""

    arrays: tuple[Any, ...]
    outputs: tuple[tuple[str, Any], ...]
    memory: tuple[Array, ...]
    result: Any

    def same(self, arrays: tuple[Any, ...], outputs: Mapping[str, Any]) -> bool:
        """Whether these are the very objects of this call."""
        return (
            len(arrays) == len(self.arrays)
            and len(outputs) == len(self.outputs)
            and all(map(is_, arrays, self.arrays))
            and all(outputs.get(name) is value for name, value in self.outputs)
        )


@dataclass(slots=True, eq=False)
class Prepared:
    """What a plan holds for one kernel.

    tables: the auxiliary arrays. element_counts: for each tensor slot, the number of elements stored.
    kernel, check: the frames of the functions, filled but for the tensors of a call.
    counters: what the check function writes. workspace: intermediate tensors, by slot.
    last: the arguments in the frames, if they came with outputs: a loop over the same arrays checks them once.
    """

    tables: tuple[Array, ...]
    element_counts: tuple[int, ...]
    kernel: Frame
    check: Frame
    counters: Array
    workspace: Mapping[int, Array]
    last: Call | None = None

    @property
    def workspace_bytes(self) -> int:
        """Memory of the intermediate tensors."""
        return sum(array.nbytes for array in self.workspace.values())


class Plan:
    """The auxiliary arrays and the workspace of one batch, for the kernels that it was made for.

    One run at a time (a second is an error); any number of plans may be used from different threads. A kernel
    refuses arguments whose sizes or lengths are not the plan's. Tables that several kernels read are computed once.
    """

    def __init__(self, kernels: Sequence[Kernel], batch: Batch, threads: int) -> None:
        self.batch = batch
        self.threads = threads
        self.arena = Arena()
        self.lock = threading.Lock()
        self.on_device: dict[object, Any] = {}  # what a GPU holds for this plan, made when it is first needed
        self._prepared: dict[int, Prepared] = {}
        self._kernels = tuple(kernels)
        sizes = {**batch.sizes, WORKERS: threads}
        filled: dict[str, Array] = {}
        for kernel in self._kernels:
            native = kernel.prelude
            tables = native.compute(sizes, batch.lengths, self.arena, filled=filled)
            for table, array in zip(native.spec.tables, tables, strict=True):
                if not table.given:
                    filled[table.key] = array
            self._prepared[id(kernel)] = _prepare(kernel, sizes, tables)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The run-time sizes, by name."""
        return self.batch.sizes

    @property
    def lengths(self) -> Mapping[str, Lengths]:
        """The lengths, by name."""
        return self.batch.lengths

    def prepared(self, kernel: Kernel) -> Prepared:
        """What the plan holds for `kernel`; UserError if it was not made for it."""
        found = self._prepared.get(id(kernel))
        if found is None:
            names = ", ".join(k.name for k in self._kernels)
            raise UserError(f"kernel '{kernel.name}': the plan was made for other kernels ({names})")
        return found

    def __repr__(self) -> str:
        sizes = ", ".join(f"{k}={v}" for k, v in self.sizes.items())
        return f"Plan({', '.join(k.name for k in self._kernels)}; {sizes}; threads={self.threads})"


def plan(
    kernels: Kernel | Sequence[Kernel],
    *,
    threads: int | None = None,
    device: str = "cpu",
    **named: Any,
) -> Plan:
    """Run the prelude for `kernels` on one batch, given by name: `cora.plan([k1, k2], lens=[3, 0, 5])`.

    Keyword arguments are lengths (integer arrays) and sizes (integers) of the kernels; a size that is the extent
    of a length function's domain follows from it. threads: workers that share parallel loops, by default every
    processor that the process may run on. Raises UserError for what is missing, unknown or invalid.
    """
    several = list(kernels) if isinstance(kernels, Sequence) else [kernels]
    if not several:
        raise UserError("plan: expected at least one kernel")
    for kernel in several:
        if not hasattr(kernel, "length_domains"):  # importing the class would be a circle
            raise UserError(f"plan: expected a kernel or several; got {type(kernel).__name__}: {kernel!r}")
    if device != "cpu":
        raise UnsupportedError(f"plan: device {device!r}; kernels of this version run on 'cpu'")
    binder = Binder()
    sizes: dict[str, None] = {}
    given: dict[str, Any] = {}
    for kernel in several:
        sizes.update(dict.fromkeys(kernel.size_names))
        given.update(kernel.length_domains)
    for name, value in named.items():
        if name in given:
            binder.length(name, value, "the argument of that name")
        elif name in sizes:
            binder.size(name, value, "the argument of that name")
        else:
            known = ", ".join([*given, *sizes]) or "(none)"
            raise UserError(f"plan: no kernel has lengths or a size named '{name}'; they have {known}")
    return Plan(several, binder.batch(tuple(sizes), tuple(given.items())), worker_count(threads))


def worker_count(threads: int | None) -> int:
    """The number of workers for `threads` (None: as many as TVM's pool has); UserError outside 1..MAX_WORKERS."""
    if threads is None:
        configure_threads()
        pool = os.environ.get("TVM_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS", "")
        first = re.match(r"\s*\d+", pool)  # as TVM reads it: OpenMP also allows "4,2"
        return min(max(int(first[0]) if first else 1, 1), MAX_WORKERS)
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)):
        raise UserError(f"threads: expected an integer; got {threads!r}")
    if not 1 <= threads <= MAX_WORKERS:
        raise UserError(f"threads: expected an integer from 1 to {MAX_WORKERS}; got {threads}")
    return int(threads)


def _prepare(kernel: Kernel, sizes: Mapping[str, int], tables: Sequence[Array]) -> Prepared:
    artifact = kernel.artifact
    counts = tuple(int(tables[slot.size_table][0]) for slot in artifact.slots)
    workspace = {
        position: allocate(counts[position], slot.tensor.dtype)
        for position, slot in enumerate(artifact.slots)
        if slot.role == "workspace"
    }
    counters = np.zeros(max(len(artifact.checks), 1), np.int64)
    arrays: dict[tuple[str, int], Array] = {("tensor", n): array for n, array in workspace.items()}
    arrays.update({("table", n): array for n, array in enumerate(tables)})
    arrays.update({("counter", n): counters[n : n + 1] for n in range(len(artifact.checks))})

    def frame(signature: Signature | None) -> Frame:
        if signature is None:
            return Frame(())
        addresses = [address_of(arrays[b]) if b in arrays else 0 for b in signature.buffers]
        return Frame((*addresses, *(sizes[s] for s in signature.sizes)))

    return Prepared(tuple(tables), counts, frame(artifact.kernel), frame(artifact.check), counters, workspace)
