"""Micro-kernels: the dense inner tile of a matrix product, written as LLVM IR and compiled by llvmlite.

A schedule keeps the ragged loops; the tile in the middle is a call of `cora_tile`. What it computes,
reads and writes is stated in `cora.tiles.contract`; which shapes exist for which CPU, in
`cora.tiles.family`. Beside them a tile may be computed by a micro-kernel that a user gives
(`cora.tiles.given`), or by OpenBLAS (`cora.tiles.openblas`).
"""

from cora.tiles.contract import ARGUMENTS, SYMBOL, Flags
from cora.tiles.family import TileFamily
from cora.tiles.given import MicroKernel
from cora.tiles.library import jit, object_code, select

__all__ = ["ARGUMENTS", "SYMBOL", "Flags", "MicroKernel", "TileFamily", "jit", "object_code", "select"]
