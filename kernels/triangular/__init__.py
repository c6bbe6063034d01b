"""Triangles and bands: products and element-wise operations that touch what is stored, and nothing else."""

from __future__ import annotations

from types import MappingProxyType

from cora.kernels.registry import Recipe, Variant
from cora.kernels.triangular import cuda, schedules
from cora.kernels.triangular.banded import banded_matmul
from cora.kernels.triangular.elementwise import tradd, triangle_elementwise, trmul
from cora.kernels.triangular.schedules import suited
from cora.kernels.triangular.trmm import Triangle, trmm

_FLAT = MappingProxyType(
    {
        "llvm": MappingProxyType(
            {"flat": Variant(schedules.flat, "one loop over the packed numbers, in vectors")}
        ),
        "cuda": MappingProxyType(
            {"flat": Variant(cuda.flat, "one loop over the packed numbers, four a thread")}
        ),
    }
)
_ROWS = MappingProxyType(
    {
        "llvm": MappingProxyType(
            {
                "rows": Variant(schedules.rows, "rows in panels of vectors, shared by cost"),
                "rows_unbalanced": Variant(schedules.rows_unbalanced, "the same, rows in equal numbers"),
            }
        ),
        "cuda": MappingProxyType({"rows": Variant(cuda.rows, "a thread for each element")}),
    }
)

TRMM = Recipe(
    "trmm",
    "a triangular matrix times a dense one",
    trmm,
    MappingProxyType(
        {
            "llvm": MappingProxyType(
                {
                    "tiled": Variant(schedules.tiled, "balanced tiles of micro-kernels, shared by cost"),
                    "tiled_wide": Variant(schedules.tiled_wide, "the same in wider blocks, for one worker"),
                    "tiled_fine": Variant(schedules.tiled_fine, "the same in smaller blocks"),
                    "uncopied": Variant(schedules.uncopied, "tiles along B where it is"),
                    "openblas": Variant(
                        schedules.openblas, "tiles by OpenBLAS up to the diagonal, micro-kernels near it"
                    ),
                    "tiled_unbalanced": Variant(
                        schedules.tiled_unbalanced, "smaller blocks in equal numbers"
                    ),
                    **_ROWS["llvm"],
                }
            ),
            "cuda": MappingProxyType(
                {
                    "tiled": Variant(cuda.tiled, "tiles in shared memory whose sums end at the diagonal"),
                    "tiled_small": Variant(cuda.tiled_small, "the same in smaller tiles"),
                    **_ROWS["cuda"],
                }
            ),
        }
    ),
)
BANDED = Recipe("banded_matmul", "a banded matrix times a dense one", banded_matmul, _ROWS)
TRADD = Recipe("tradd", "the sum of two packed triangles", tradd, _FLAT)
TRMUL = Recipe("trmul", "the element-wise product of two packed triangles", trmul, _FLAT)
ELEMENTWISE = Recipe(
    "triangle_elementwise",
    "an operation on two packed triangles, element by element",
    triangle_elementwise,
    _FLAT,
)

__all__ = [
    "BANDED",
    "ELEMENTWISE",
    "TRADD",
    "TRMM",
    "TRMUL",
    "Triangle",
    "banded_matmul",
    "suited",
    "tradd",
    "triangle_elementwise",
    "trmm",
    "trmul",
]
