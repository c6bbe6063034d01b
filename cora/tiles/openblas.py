"""OpenBLAS of the wheel `scipy-openblas32`, whose `cblas_sgemm` may compute tiles: where it is, how it is loaded.

Code that calls it is linked against it by name alone (its soname), so that a kernel finds it wherever it is
installed; it must be in the process before the kernel is loaded. A C program that loads an exported kernel has
`libscipy_openblas.so` on its library path, or loads it first.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from cora.errors import UnsupportedError

#: The wheel's name of `cblas_sgemm`; its integers have 32 bits.
SGEMM: Final = "scipy_cblas_sgemm"

_PACKAGE: Final = "scipy_openblas32"
_FILE: Final = "libscipy_openblas.so"


def library_path() -> Path:
    """The shared library; UnsupportedError where the wheel is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)  # importing the package would load the library for everybody
    for folder in () if spec is None else spec.submodule_search_locations or ():
        path = Path(folder, "lib", _FILE)
        if path.exists():
            return path
    raise UnsupportedError(
        "tensorize: kernel 'openblas' needs the package scipy-openblas32, which is not installed "
        "(pip install 'cora-ragged[openblas]')"
    )


@cache
def openblas() -> OpenBlas:
    """The library, loaded into this process; UnsupportedError where it is not installed or cannot be loaded."""
    path = library_path()
    try:
        return OpenBlas(ctypes.CDLL(str(path)))
    except OSError as error:
        raise UnsupportedError(f"tensorize: kernel 'openblas': cannot load {path}: {error}") from error


class OpenBlas:
    """The loaded library. Its own threads rest while kernels run that call it: they have workers themselves."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._get = library.scipy_openblas_get_num_threads
        self._set = library.scipy_openblas_set_num_threads
        self._lock = threading.Lock()
        self._running = 0
        self._threads = 1

    @contextmanager
    def on_one_thread(self) -> Iterator[None]:
        """Every call in the body, of any thread, runs in the thread that makes it. The number of threads is the whole
        process's; it is as it was once the last such body is left."""
        with self._lock:
            if self._running == 0:
                self._threads = self._get()
                self._set(1)
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    self._set(self._threads)
