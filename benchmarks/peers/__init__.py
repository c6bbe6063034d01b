"""Libraries that kernels are compared with, in the same process; those that are not installed are left out.

They come with `pip install cora-ragged[peers]`: MKL and OpenBLAS by ctypes, PyTorch, SciPy's sparse matrices; for
sentence encoders ONNX Runtime and CTranslate2.
"""

from __future__ import annotations

from benchmarks.peers.blas import Blas, Gemm, Trmm, mkl, openblas
from benchmarks.peers.sparse import SparseTriangle, mkl_sparse, scipy_sparse
from benchmarks.peers.torch_padded import PaddedBmm, padded_bmm

__all__ = [
    "Blas",
    "Gemm",
    "PaddedBmm",
    "SparseTriangle",
    "Trmm",
    "absent",
    "mkl",
    "mkl_sparse",
    "openblas",
    "padded_bmm",
    "scipy_sparse",
]


def absent() -> list[str]:
    """A line for each library that is not there."""
    loaded = {
        "MKL (the mkl wheel)": mkl() is not None,
        "OpenBLAS (scipy-openblas32)": openblas() is not None,
        "PyTorch": padded_bmm() is not None,
        "SciPy's sparse matrices": scipy_sparse() is not None,
    }
    return [f"left out: {name} is not installed" for name, there in loaded.items() if not there]
