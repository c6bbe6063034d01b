"""What a build is asked for: a program, whose schedule is made only if its kernel is not in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cora.codegen.cache import Cache, Entry
from cora.errors import UserError
from cora.ir.fingerprint import fingerprint, is_plain
from cora.ir.tensor import Tensor
from cora.schedule.default import default_schedule
from cora.schedule.default_gpu import default_gpu_schedule
from cora.schedule.schedule import Schedule, schedule


@dataclass(frozen=True, slots=True, eq=False)
class Deferred:
    """A schedule that `build` makes only where the cache does not have its kernel: most of a cached build's time.

    key: data that decides all that `make` returns, besides cora's own files, which are part of every key: other files
    are not. Where it holds anything but numbers, text, enums, and tuples, mappings or frozen dataclasses of them (a
    function, for example), there is no telling, and the schedule is made.
    """

    key: tuple[object, ...]
    make: Callable[[], Schedule]


class Wanted:
    """A program to build, and the keys under which the cache may have its kernel.

    The first that is cheap to know: of a deferred schedule its own, of tensors their structure; then that of the
    program and its steps. Raises UserError for what is no program.
    """

    def __init__(
        self,
        program: Schedule | Tensor | Sequence[Tensor] | Deferred,
        *,
        gpu: bool,
        about: tuple[object, ...],
    ) -> None:
        """gpu: whose default schedule tensors get. about: whatever else decides what the code is."""
        self._about = about
        self._early: str | None = None
        self._make: Callable[[], Schedule]
        match program:
            case Schedule():
                self._make = lambda: program
            case Deferred():
                self._make = program.make
                if is_plain(program.key):
                    self._early = fingerprint("deferred", program.key, about)
            case Tensor() | list() | tuple():
                tensors = (program,) if isinstance(program, Tensor) else tuple(program)
                start = schedule(*tensors)  # refuses what is no program
                self._make = lambda: (default_gpu_schedule if gpu else default_schedule)(start)
                self._early = fingerprint("default", tensors, about)
            case _:
                raise UserError(
                    f"build: expected a schedule or computed tensors; got {type(program).__name__}: {program!r}"
                )

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule. Raises UserError if what should make one made something else."""
        made = self._make()
        if not isinstance(made, Schedule):
            raise UserError(f"build: expected a deferred schedule; got {type(made).__name__}: {made!r}")
        return made

    def find(self, cache: Cache) -> Entry | None:
        """The kernel, if the cache has it: under the early key from then on, too."""
        entry = None if self._early is None else cache.load(self._early)
        if entry is None:
            entry = cache.load(self._late)
            if entry is not None and self._early is not None:
                cache.store(self._early, entry.path.read_bytes(), entry.metadata)
        return entry

    def store(self, cache: Cache, library: bytes, metadata: bytes) -> Path:
        """Keep the kernel; gives the path of its library."""
        if self._early is not None:
            cache.store(self._early, library, metadata)
        return cache.store(self._late, library, metadata).path

    @cached_property
    def _late(self) -> str:
        return fingerprint(self.schedule.outputs, self.schedule.steps, self._about)
