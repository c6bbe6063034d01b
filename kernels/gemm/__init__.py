"""Products of dense matrices of many shapes: a batch of them, and linear layers on packed tokens."""

from __future__ import annotations

from types import MappingProxyType

from cora.kernels.blocking import Blocking
from cora.kernels.gemm import cuda, schedules
from cora.kernels.gemm.linear import linear
from cora.kernels.gemm.storage import Storage
from cora.kernels.gemm.suited import suited
from cora.kernels.gemm.vgemm import vgemm
from cora.kernels.registry import Recipe, Variant

VGEMM = Recipe(
    "vgemm",
    "a batch of matrix products, each of its own shape",
    vgemm,
    MappingProxyType(
        {
            "llvm": MappingProxyType(
                {
                    "tiled": Variant(
                        schedules.tiled, "balanced tiles of micro-kernels along copied panels, shared by cost"
                    ),
                    "tiled_fine": Variant(schedules.tiled_fine, "the same in smaller blocks"),
                    "uncopied": Variant(schedules.uncopied, "tiles along operands where they are"),
                    "openblas": Variant(schedules.openblas, "large tiles by OpenBLAS, shared by cost"),
                    "unsplit_unbalanced": Variant(schedules.unsplit_unbalanced, "tiles, the last one short"),
                    "split_unbalanced": Variant(schedules.split_unbalanced, "full tiles and the rest apart"),
                    "split_balanced": Variant(schedules.split_balanced, "the same, shared by cost"),
                    "generated": Variant(schedules.generated, "vector code of the compiler's own"),
                }
            ),
            "cuda": MappingProxyType(
                {"tiles": Variant(cuda.tiles, "tiles in shared memory, one grid for all products")}
            ),
        }
    ),
)

LINEAR = Recipe(
    "linear",
    "a linear layer on packed tokens",
    linear,
    MappingProxyType(
        {
            "llvm": MappingProxyType(
                {
                    "prepacked": Variant(
                        schedules.tokens_prepacked, "balanced tiles of micro-kernels, W in panels"
                    ),
                    "tiled": Variant(schedules.tokens, "the same, W by rows"),
                    "generated": Variant(schedules.tokens_generated, "vector code of the compiler's own"),
                }
            ),
            "cuda": MappingProxyType(
                {
                    "tiles": Variant(cuda.tokens, "tiles of the tokens of the batch in shared memory"),
                    "tensor_cores": Variant(cuda.tokens_by_tensor_cores, "the same for 16-bit features"),
                }
            ),
        }
    ),
)

__all__ = ["LINEAR", "VGEMM", "Blocking", "Storage", "linear", "suited", "vgemm"]
