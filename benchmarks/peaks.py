"""What NumPy reaches on this machine: the yardstick of memory-bound kernels.

NumPy runs an element-wise operation on one thread. `NumpyStream` cuts the arrays
into one contiguous part per thread and runs the parts at once (NumPy releases the
interpreter's lock in them), so that a kernel is compared on the same threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import TracebackType

import numpy as np
import numpy.typing as npt

from benchmarks.timer import Timing, measure
from cora.errors import UserError

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Memory traffic of one operation.

    Attributes:
        moved_bytes: bytes read and written by one call, as the program states them
            (a store's read for ownership is not counted).
        timing: times per call.
    """

    moved_bytes: int
    timing: Timing

    @property
    def gigabytes_per_s(self) -> float:
        """Median traffic, in 1e9 bytes per second."""
        return self.moved_bytes / (self.timing.median_ms * 1e6)


class NumpyStream:
    """NumPy's copy and multiply over vectors, on a fixed number of threads.

    Use it as a context manager: leaving it ends the threads.

    Args:
        threads: at least 1; all cores that the process may use by default. With 1
            the operations run in the calling thread.

    Raises:
        UserError: fewer than one thread.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = len(os.sched_getaffinity(0)) if threads is None else threads
        if self.threads < 1:
            raise UserError(f"NumpyStream: threads must be at least 1, got {threads}")
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    def __enter__(self) -> NumpyStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def copy(self, source: Vector, out: Vector) -> None:
        """`np.copyto(out, source)`. Both have shape [n]."""
        self._run(np.copyto, out, source)

    def multiply(self, source: Vector, factor: float, out: Vector) -> None:
        """`np.multiply(source, factor, out=out)`. Both have shape [n]."""
        scalar = np.float32(factor)
        self._run(lambda out, source: np.multiply(source, scalar, out=out), out, source)

    def binary(self, function: np.ufunc, first: Vector, second: Vector, out: Vector) -> None:
        """`function(first, second, out=out)`. All have shape [n]."""
        self._run(lambda x, y, z: function(x, y, out=z), first, second, out)

    def _run(self, operation: Callable[..., object], *vectors: Vector) -> None:
        first = vectors[0]
        if any(v.shape != first.shape or v.ndim != 1 for v in vectors):
            shapes = ", ".join(str(v.shape) for v in vectors)
            raise UserError(f"NumpyStream: expected vectors of one length, got {shapes}")
        if self._pool is None:
            operation(*vectors)
            return
        bounds = [len(first) * part // self.threads for part in range(self.threads + 1)]
        parts = [slice(low, high) for low, high in pairwise(bounds)]
        for done in [self._pool.submit(operation, *(v[part] for v in vectors)) for part in parts]:
            done.result()


def numpy_bandwidth(
    buffer_bytes: int = 256 << 20, *, threads: int | None = None, repeats: int = 10
) -> dict[str, Bandwidth]:
    """Measure NumPy's "copy" and "multiply" from one buffer to another.

    Args:
        buffer_bytes: size of each of the two buffers; several times the last-level
            cache for the memory's bandwidth.
        threads: threads used; all cores that the process may use by default.
        repeats: samples of each operation.

    Raises:
        UserError: a buffer of less than one float32, or fewer than one thread.
    """
    elements = buffer_bytes // 4
    if elements < 1:
        raise UserError(f"numpy_bandwidth: buffer_bytes must be at least 4, got {buffer_bytes}")
    source = np.ones(elements, dtype=np.float32)
    out = np.zeros(elements, dtype=np.float32)
    with NumpyStream(threads) as stream:
        timings = measure(
            {
                "copy": partial(stream.copy, source, out),
                "multiply": partial(stream.multiply, source, 2.0, out),
            },
            repeats=repeats,
        )
    return {name: Bandwidth(2 * 4 * elements, timing) for name, timing in timings.items()}
