"""Lower triangles as sparse matrices: SciPy's CSR and BSR, and MKL's sparse routines."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks.peers.blas import Call, Matrix, mkl
from cora.errors import UserError

BLOCK: Final = 32
_OPERATION_PLAIN: Final = 10
_GENERAL: Final = 20
_ROW_MAJOR: Final = 101


@dataclass(frozen=True, slots=True)
class SparseTriangle:
    """What a sparse library does with triangles; each gives a call and a function that reads its last result.

    matmul: of a triangle and a dense matrix. add, multiply: of two triangles, element by element; multiply is
    None where there is no such routine.
    """

    name: str
    matmul: Callable[[Matrix, Matrix], tuple[Call, Callable[[], Matrix]]]
    add: Callable[[Matrix, Matrix], tuple[Call, Callable[[], Matrix]]]
    multiply: Callable[[Matrix, Matrix], tuple[Call, Callable[[], Matrix]]] | None


@cache
def scipy_sparse() -> tuple[SparseTriangle, SparseTriangle] | None:
    """CSR, and BSR in blocks of 32; None if SciPy is not installed. They run on one thread."""
    try:
        sparse = import_module("scipy.sparse")
    except ImportError:
        return None

    def bsr(matrix: Matrix) -> Any:
        return sparse.bsr_array(matrix, blocksize=(BLOCK, BLOCK))

    return _of_scipy("scipy_csr", sparse.csr_array), _of_scipy("scipy_bsr", bsr)


def _of_scipy(name: str, convert: Callable[[Matrix], Any]) -> SparseTriangle:
    def prepared(operation: Callable[[Any, Any], Any], x: Any, y: Any) -> tuple[Call, Callable[[], Matrix]]:
        last: list[Any] = [None]

        def call() -> None:
            last[0] = operation(x, y)

        def result() -> Matrix:
            dense = last[0].toarray() if hasattr(last[0], "toarray") else last[0]
            return np.asarray(dense, np.float32)

        return call, result

    return SparseTriangle(
        name,
        lambda T, B: prepared(lambda t, b: t @ b, convert(T), B),
        lambda X, Y: prepared(lambda x, y: x + y, convert(X), convert(Y)),
        lambda X, Y: prepared(lambda x, y: x.multiply(y), convert(X), convert(Y)),
    )


class _Descr(ctypes.Structure):
    """MKL's description of a sparse matrix."""

    _fields_ = (("type", ctypes.c_int), ("mode", ctypes.c_int), ("diag", ctypes.c_int))


class _Handle:
    """A CSR matrix of MKL, freed with this object."""

    def __init__(self, library: ctypes.CDLL, matrix: Matrix | None = None) -> None:
        self.library = library
        self.value = ctypes.c_void_p()
        self.arrays: tuple[npt.NDArray[Any], ...] = ()
        if matrix is not None:
            rows, columns = np.nonzero(matrix)
            starts = np.searchsorted(rows, np.arange(matrix.shape[0] + 1)).astype(np.int32)
            self.arrays = (starts, columns.astype(np.int32), np.ascontiguousarray(matrix[rows, columns]))
            at = [ctypes.c_void_p(int(a.ctypes.data)) for a in self.arrays]
            after = ctypes.c_void_p(int(starts.ctypes.data) + 4)
            _ok(
                library.mkl_sparse_s_create_csr(
                    ctypes.byref(self.value), 0, *matrix.shape, at[0], after, at[1], at[2]
                )
            )

    def __del__(self) -> None:
        if self.value:
            self.library.mkl_sparse_destroy(self.value)


@cache
def mkl_sparse() -> SparseTriangle | None:
    """MKL's inspector-executor routines on CSR matrices; None if MKL is not installed."""
    blas = mkl()
    if blas is None or not hasattr(blas.library, "mkl_sparse_s_mm"):
        return None
    library = blas.library

    def matmul(T: Matrix, B: Matrix) -> tuple[Call, Callable[[], Matrix]]:
        handle, out = _Handle(library, T), np.empty_like(B)
        width = B.shape[1]
        arguments = (
            _OPERATION_PLAIN, ctypes.c_float(1.0), handle.value, _Descr(_GENERAL, 0, 0), _ROW_MAJOR,
            ctypes.c_void_p(int(B.ctypes.data)), width, width,
            ctypes.c_float(0.0), ctypes.c_void_p(int(out.ctypes.data)), width,
        )  # fmt: skip

        def call() -> None:
            library.mkl_sparse_s_mm(*arguments)

        call.keep = (handle, B)  # type: ignore[attr-defined]
        return call, lambda: out

    def add(X: Matrix, Y: Matrix) -> tuple[Call, Callable[[], Matrix]]:
        x, y = _Handle(library, X), _Handle(library, Y)
        last: list[_Handle] = []

        def call() -> None:
            made = _Handle(library)
            _ok(
                library.mkl_sparse_s_add(
                    _OPERATION_PLAIN, x.value, ctypes.c_float(1.0), y.value, ctypes.byref(made.value)
                )
            )
            last[:] = [made]

        return call, lambda: _dense(last[0], X.shape[0])

    return SparseTriangle("mkl_csr", matmul, add, None)


def _dense(handle: _Handle, n: int) -> Matrix:
    """The n x n matrix of a handle, by a product with the identity."""
    identity, out = np.eye(n, dtype=np.float32), np.empty((n, n), np.float32)
    _ok(
        handle.library.mkl_sparse_s_mm(
            _OPERATION_PLAIN, ctypes.c_float(1.0), handle.value, _Descr(_GENERAL, 0, 0), _ROW_MAJOR,
            ctypes.c_void_p(int(identity.ctypes.data)), n, n,
            ctypes.c_float(0.0), ctypes.c_void_p(int(out.ctypes.data)), n,
        )
    )  # fmt: skip
    return out


def _ok(status: int) -> None:
    if status != 0:
        raise UserError(f"MKL: a sparse routine failed with status {status}")
