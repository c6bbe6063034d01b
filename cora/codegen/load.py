"""Loads shared libraries with the TVM run time alone: `import tvm` takes longer than a whole cached start.

The number of threads is fixed when TVM's pool starts, and is half the processors by TVM's own choice. So
before the run time is loaded, TVM_NUM_THREADS is set to the number of processors that this process may run on
(`os.sched_getaffinity`), unless TVM_NUM_THREADS or OMP_NUM_THREADS is set already. TVM would pin its workers
to processors 0, 1, ... and let the calling thread run on all, whatever the affinity; so TVM_BIND_THREADS is
set to 0, unless it is set already. And workers would spin for 150 ms behind a call, on processors that others may
want; so TVM_THREAD_POOL_SPIN_COUNT is set, unless it is already. All stay in the environment of the process.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from cora.errors import CoraError, InternalError, UserError

#: How often an idle worker looks for work before it sleeps: for about 10 ms on a Zen 4. Calls of a program follow each
#: other in less.
SPIN_COUNT: Final = "20000"


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """A loaded shared library; it stays loaded for the life of the process."""

    path: Path
    _module: Any

    def function(self, name: str) -> Callable[..., None]:
        """The function `name`; InternalError if the library does not have it."""
        found: Callable[..., None] | None = None
        if self._module.implements_function(name):
            found = self._module.get_function(name)
        if found is None:
            raise InternalError(f"{self.path} has no function '{name}'")
        return found


@cache
def start_runtime() -> None:
    """Load the TVM run time, once, with the threads set; UserError if TVM is not installed."""
    configure_threads()
    with without_torch():
        import tvm_ffi  # noqa: F401  (its library must come first)

    ctypes.CDLL(str(runtime_path()), ctypes.RTLD_GLOBAL)


class _Pool(threading.local):
    """TVM has a pool for each thread that launches; this is how many workers that of the current thread uses."""

    workers = 0


_POOL = _Pool()


def use_workers(count: int) -> None:
    """Parallel loops that the calling thread launches run on `count` workers, or all there are.

    TVM wakes every worker of its pool for each loop, and waits for them, also for those without work: on a busy
    machine for milliseconds. With one worker the loop runs in the calling thread, without the pool.
    """
    if _POOL.workers != count:
        _configure_pool()(1, count)
        _POOL.workers = count


@cache
def _configure_pool() -> Callable[[int, int], None]:
    start_runtime()
    import tvm_ffi

    found: Callable[[int, int], None] = tvm_ffi.get_global_func("runtime.config_threadpool")
    return found


@contextmanager
def without_torch() -> Iterator[None]:
    """Imports of TVM in the body do not import PyTorch.

    Where PyTorch is installed, TVM imports it, which takes longer than all else here, to accept its tensors; cora
    hands TVM plain addresses. A program that has imported PyTorch already keeps it.
    """
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes `import torch` fail, which TVM expects
    try:
        yield
    finally:
        del sys.modules["torch"]


def configure_threads() -> None:
    """Set the environment variables that TVM's thread pool reads, as the module says."""
    if "TVM_NUM_THREADS" not in os.environ and "OMP_NUM_THREADS" not in os.environ:
        os.environ["TVM_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", SPIN_COUNT)


def runtime_path() -> Path:
    """Where libtvm_runtime.so lies; UserError if TVM is not installed."""
    spec = importlib.util.find_spec("tvm")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        path = Path(folder, "lib", "libtvm_runtime.so")
        if path.exists():
            return path
    raise UserError(
        f"the TVM run time was not found: expected lib/libtvm_runtime.so in {folders or 'package tvm'}"
    )


def load(path: Path) -> Library:
    """The library at `path`; UserError if it cannot be loaded here (no such file, a missing symbol)."""
    start_runtime()
    import tvm_ffi

    try:
        module = tvm_ffi.load_module(str(path))
    except (RuntimeError, OSError) as error:
        if isinstance(error, CoraError):
            raise
        raise UserError(f"cannot load {path}: {error}") from error
    return Library(path, module)
