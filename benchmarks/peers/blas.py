"""MKL and OpenBLAS through their C interface.

A call is prepared once: its arguments are converted and its arrays kept alive, so that what is timed is the
library and the foreign call (about a microsecond). Matrices are float32, two-dimensional and C-contiguous.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cora.errors import UserError

Matrix = npt.NDArray[np.float32]
Call = Callable[[], object]

_ROW_MAJOR: Final = 101
_NO_TRANS, _TRANS = 111, 112
_UPPER, _LOWER = 121, 122
_NON_UNIT, _UNIT = 131, 132
_LEFT, _RIGHT = 141, 142
#: How long idle workers spin, in milliseconds (MKL) and in two to the so many cycles (OpenBLAS): less than the pause
#: between samples (`benchmarks.timer`), more than that between calls of one sample.
_SPIN_MS, _SPIN_LOG2_CYCLES = 20, 24
_f = ctypes.c_float
_i = ctypes.c_int


@dataclass(frozen=True, slots=True)
class Gemm:
    """C = A @ B of one shape: A [m, k], B [k, n], C [m, n]."""

    A: Matrix
    B: Matrix
    C: Matrix

    def __post_init__(self) -> None:
        (m, k), (k2, n) = self.A.shape, self.B.shape
        if k != k2 or self.C.shape != (m, n):
            raise UserError(f"Gemm: expected [m, k], [k, n], [m, n]; got {self.shapes}")
        for matrix in (self.A, self.B, self.C):
            _check(matrix)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of A, B and C."""
        return self.A.shape, self.B.shape, self.C.shape


@dataclass(frozen=True, slots=True)
class Trmm:
    """B becomes op(T) @ B, or B @ op(T) from the right."""

    T: Matrix
    B: Matrix
    side: str = "left"
    uplo: str = "lower"
    transposed: bool = False
    unit: bool = False

    def __post_init__(self) -> None:
        n = self.B.shape[0 if self.side == "left" else 1]
        if self.T.shape != (n, n):
            raise UserError(f"Trmm: expected T of shape {(n, n)}; got {self.T.shape}")
        _check(self.T)
        _check(self.B)


class Blas:
    """A library with the C interface of BLAS.

    Args:
        name: what it is called in results.
        library: the loaded library.
        prefix: of its functions' names.
        set_threads: the name of its function that sets the number of threads.
    """

    def __init__(self, name: str, library: ctypes.CDLL, prefix: str, set_threads: str) -> None:
        self.name = name
        self.library = library
        self._prefix = prefix
        self._set_threads = set_threads

    def function(self, name: str) -> Any:
        """The function `name` of BLAS, e.g. "cblas_sgemm"."""
        return getattr(self.library, f"{self._prefix}{name}")

    def set_threads(self, threads: int) -> None:
        """Use this many threads from now on."""
        getattr(self.library, self._set_threads)(_i(threads))

    def gemm(self, problems: Sequence[Gemm]) -> Call:
        """A call that computes the products, one after the other. Empty ones cost nothing."""
        function = self.function("cblas_sgemm")
        given = [_gemm_arguments(p) for p in problems if p.C.size and p.A.size]
        empty = [p.C for p in problems if p.C.size and not p.A.size]

        def call() -> None:
            for arguments in given:
                function(*arguments)
            for C in empty:
                C[...] = 0

        call.keep = problems  # type: ignore[attr-defined]
        return call

    def gemm_batch(self, problems: Sequence[Gemm]) -> Call:
        """A call of `cblas_sgemm_batch`, every product a group of its own. Empty ones cost nothing."""
        function = self.function("cblas_sgemm_batch")
        given = [p for p in problems if p.C.size and p.A.size]
        empty = [p.C for p in problems if p.C.size and not p.A.size]
        count = len(given)
        shapes = [(p.A.shape[0], p.B.shape[1], p.A.shape[1]) for p in given]
        m, n, k = (_numbers(_i, [shape[axis] for shape in shapes]) for axis in range(3))
        transposed = _numbers(_i, [_NO_TRANS] * count)
        one, zero = _numbers(_f, [1.0] * count), _numbers(_f, [0.0] * count)
        A, B, C = (_numbers(ctypes.c_void_p, [_at(getattr(p, x)) for p in given]) for x in "ABC")
        arguments = (
            _i(_ROW_MAJOR), transposed, transposed, m, n, k, one, A, k, B, n, zero, C, n,
            _i(count), _numbers(_i, [1] * count),
        )  # fmt: skip

        def call() -> None:
            if count:
                function(*arguments)
            for matrix in empty:
                matrix[...] = 0

        call.keep = problems  # type: ignore[attr-defined]
        return call

    def trmm(self, problem: Trmm) -> Call:
        """A call of `cblas_strmm`, in place: B is overwritten, so its numbers grow or vanish in time."""
        function = self.function("cblas_strmm")
        arguments = (
            _i(_ROW_MAJOR),
            _i(_LEFT if problem.side == "left" else _RIGHT),
            _i(_LOWER if problem.uplo == "lower" else _UPPER),
            _i(_TRANS if problem.transposed else _NO_TRANS),
            _i(_UNIT if problem.unit else _NON_UNIT),
            _i(problem.B.shape[0]),
            _i(problem.B.shape[1]),
            _f(1.0),
            ctypes.c_void_p(_at(problem.T)),
            _i(problem.T.shape[1]),
            ctypes.c_void_p(_at(problem.B)),
            _i(problem.B.shape[1]),
        )

        def call() -> None:
            function(*arguments)

        call.keep = problem  # type: ignore[attr-defined]
        return call


@cache
def openblas() -> Blas | None:
    """OpenBLAS of the wheel scipy-openblas32; None if that is not installed."""
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", str(_SPIN_LOG2_CYCLES))  # read when it is imported
    try:
        folder = import_module("scipy_openblas32").get_lib_dir()
        library = ctypes.CDLL(str(Path(folder) / "libscipy_openblas.so"))
    except (ImportError, OSError):
        return None
    return Blas("openblas", library, "scipy_", "scipy_openblas_set_num_threads")


@cache
def mkl() -> Blas | None:
    """MKL of the wheel mkl, with Intel's threads; None if that is not installed."""
    folder = Path(sys.prefix) / "lib"
    try:
        threads = ctypes.CDLL(str(folder / "libiomp5.so"), mode=ctypes.RTLD_GLOBAL)
        # It binds its threads, and whoever calls it, to the cores that the process had when it was first asked for
        # anything: not to the one on which one thread is measured. And it lets its threads spin for 200 ms.
        threads.omp_get_num_procs()
        threads.kmp_set_blocktime(_SPIN_MS)
        (name,) = sorted(folder.glob("libmkl_rt.so*"))[:1] or [folder / "libmkl_rt.so"]
        library = ctypes.CDLL(str(name), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None
    return Blas("mkl", library, "", "MKL_Set_Num_Threads")


def _gemm_arguments(p: Gemm) -> tuple[Any, ...]:
    (m, k), n = p.A.shape, p.B.shape[1]
    return (
        _i(_ROW_MAJOR), _i(_NO_TRANS), _i(_NO_TRANS), _i(m), _i(n), _i(k),
        _f(1.0), ctypes.c_void_p(_at(p.A)), _i(k), ctypes.c_void_p(_at(p.B)), _i(n),
        _f(0.0), ctypes.c_void_p(_at(p.C)), _i(n),
    )  # fmt: skip


def _numbers(kind: Any, values: Sequence[Any]) -> Any:
    return (kind * len(values))(*values)


def _at(array: Matrix) -> int:
    return int(array.ctypes.data)


def _check(matrix: Matrix) -> None:
    if matrix.dtype != np.float32 or matrix.ndim != 2 or not matrix.flags.c_contiguous:
        raise UserError(
            f"BLAS: expected C-contiguous float32 matrices; got {matrix.dtype} of shape {matrix.shape}, "
            f"strides {matrix.strides}"
        )
