"""Schedules of products for CPUs: tiles of micro-kernels along panels of the right operand, shared by cost.

The loops, outermost first (names as in the BLIS papers): blocks of columns `jc`, which with the batch are shared by
the workers; blocks of rows `ic`, whose part of the left operand stays in the cache; panels `jr` and tiles `ir`, of as
many columns and rows as a micro-kernel has; and inside of that rows, columns and the reduction.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import cora
from cora.kernels.blocking import BLOCKING, FINE, Blocking
from cora.kernels.gemm.storage import Storage

PACKED = Storage()
TileKernel: TypeAlias = 'Literal["openblas"] | None'
#: Rows and columns of a product that OpenBLAS computes at once, and of its tiles in the paper's variants.
LARGE = 1536
OFFLOADED = (384, 512)
#: Tokens of a linear layer that a worker takes at a time: few, so that small batches are shared evenly.
TOKENS = 48


def tiled(C: cora.Tensor, *, storage: Storage = PACKED, blocking: Blocking = BLOCKING) -> cora.Schedule:
    """The schedule to use: nothing is padded, no loop inside has a condition.

    The part of the operand that is read in vectors is copied into panels, in memory of the worker's own, while it is
    first used: rows of a panel are adjacent then, whatever the size of the matrix. An operand whose vectors do not
    lie together is turned before it is used.
    """
    s = _blocks(C, storage, blocking)
    _, columns = _roles(storage)
    s = s.cache_read(C, "A" if storage.swapped else "B", "pc", "panels")
    s = s.split_dim("panels", columns, blocking.columns, names=("pb", "pl"))
    s = s.reorder_dims("panels", "batch", "pb", "p", "pl")
    if storage.vectors_adjacent:
        return s.fill_at_use("panels").parallel(C, "block")
    s = s.split("panels", columns, blocking.columns, names=("pb", "pl"))
    s = s.reorder("panels", "pb", "p", "pl").vectorize("panels", "pl", 16)
    return s.parallel(C, "block")


def openblas(C: cora.Tensor, *, storage: Storage = PACKED) -> cora.Schedule:
    """Inner tiles are calls of OpenBLAS (the paper's offload), which packs its operands itself; shared by cost.

    So tiles are large: near-equal parts of rows and columns, and the whole sum at once. An operand whose vectors do
    not lie together in memory is turned first, in memory of the worker's own.
    """
    rows, columns = _roles(storage)
    s = _vgemm(C, storage).split(C, columns, LARGE, names=("jc", "jv"), tail="balanced")
    s = s.split(C, rows, LARGE, names=("ic", "iv"), tail="balanced")
    s = s.reorder(C, "jc", "ic", "iv", "jv", "p").fuse(C, "batch", "jc", "ic", name="block")
    s = s.tensorize(C, "iv", "openblas")
    if not storage.vectors_adjacent:
        s = s.cache_read(C, "A" if storage.swapped else "B", "block", "turned")
        s = s.reorder_dims("turned", "batch", "p", columns)
        s = s.reorder("turned", "p", columns).vectorize("turned", columns, 16)
    return s.parallel(C, "block")


def tiled_fine(C: cora.Tensor, *, storage: Storage = PACKED) -> cora.Schedule:
    """`tiled` in smaller blocks: for few products on several workers."""
    return tiled(C, storage=storage, blocking=FINE)


def uncopied(C: cora.Tensor, *, storage: Storage = PACKED, blocking: Blocking = BLOCKING) -> cora.Schedule:
    """The same without copies: better for few rows, or where an operand fits a core's own cache.

    The vectors must lie together in memory: B by rows where C is, A by columns where C is. Otherwise it is `tiled`.
    """
    if not storage.vectors_adjacent:
        return tiled(C, storage=storage, blocking=blocking)
    return _blocks(C, storage, blocking).parallel(C, "block")


def _blocks(C: cora.Tensor, storage: Storage, blocking: Blocking) -> cora.Schedule:
    """Blocks in near-equal parts, which are one loop with the batch: `block`."""
    s = _vgemm(C, storage)
    rows, columns = _roles(storage)
    s = s.split(C, columns, blocking.columns, names=("panel", "jv"))
    s = s.split(C, "panel", blocking.column_block // blocking.columns, names=("jc", "jr"), tail="balanced")
    s = s.split(C, "p", blocking.depth_block, names=("pc", "pv"), tail="balanced")
    s = s.split(C, rows, blocking.row_block, names=("ic", "ii"), tail="balanced")
    s = s.split(C, "ii", blocking.rows, names=("ir", "iv"), tail="balanced")
    s = s.reorder(C, "jc", "ic", "pc", "ir", "jr", "iv", "jv", "pv")
    return s.fuse(C, "batch", "jc", "ic", name="block").tensorize(C, "iv")


def unsplit_unbalanced(
    C: cora.Tensor, *, storage: Storage = PACKED, kernel: TileKernel = None
) -> cora.Schedule:
    """The paper's first variant: tiles of the whole loop, the last one short; entries in equal numbers.

    kernel: what computes the tiles: our own micro-kernels, or "openblas", for which tiles are larger.
    """
    s = _paper(_vgemm(C, storage), "C", storage, kernel)
    return s.parallel(C, "batch", balance="count").tensorize(C, "iv", kernel)


def split_unbalanced(
    C: cora.Tensor, *, storage: Storage = PACKED, kernel: TileKernel = None
) -> cora.Schedule:
    """The second: full tiles and the rest are pieces of their own (operation splitting, horizontal fusion)."""
    return _split(C, storage, "count", kernel)


def split_balanced(C: cora.Tensor, *, storage: Storage = PACKED, kernel: TileKernel = None) -> cora.Schedule:
    """The third: shared among the workers by cost, as thread remapping does."""
    return _split(C, storage, "cost", kernel)


def generated(C: cora.Tensor, *, storage: Storage = PACKED) -> cora.Schedule:
    """No micro-kernels: the compiler's own vector code, for any epilogue and any processor.

    Full panels have code without masks; the rest of the columns is masked.
    """
    s = _vgemm(C, storage).split_op(C, _roles(storage)[0], multiple=BLOCKING.rows)
    pieces = {"C_main": BLOCKING.rows, "C_tail": 1}
    for piece, height in pieces.items():
        rows, columns = _roles(storage)
        s = s.split(piece, rows, height, names=("ir", "iv"))
        s = s.split(piece, columns, BLOCKING.columns, names=("jr", "jv"), tail="peel")
        s = (
            s.reorder(piece, "jr", "ir", "p", "iv", "jv")
            .unroll(piece, "iv")
            .vectorize(piece, "jv", BLOCKING.columns)
        )
        s = s.fuse(piece, "batch", "jr", name="block").parallel(piece, "block")
    return s.hfuse(*pieces)


def tokens(Y: cora.Tensor, *, blocking: Blocking = BLOCKING) -> cora.Schedule:
    """A linear layer: sequences and positions are one loop over tokens, in tiles whatever the sequences' lengths."""
    s = cora.schedule(Y).fuse(Y, "batch", "pos", name="token")
    s = s.split(Y, "j", blocking.columns, names=("panel", "jv"))
    s = s.split(Y, "panel", blocking.column_block // blocking.columns, names=("jc", "jr"), tail="balanced")
    s = s.split(Y, "p", blocking.depth_block, names=("pc", "pv"), tail="balanced")
    s = s.split(Y, "token", TOKENS, names=("ic", "ii"), tail="balanced")
    s = s.split(Y, "ii", blocking.rows, names=("ir", "iv"), tail="balanced")
    s = s.reorder(Y, "ic", "jc", "pc", "ir", "jr", "iv", "jv", "pv").tensorize(Y, "iv")
    return s.parallel(Y, "ic")


def tokens_prepacked(Y: cora.Tensor, *, blocking: Blocking = BLOCKING) -> cora.Schedule:
    """The same, with the weight stored in panels: convert it once, `cora.ragged(W, kernel.layout("W"))`."""
    s = tokens(Y, blocking=blocking)
    s = s.split_dim("W", "j", blocking.columns, names=("pb", "pl"))
    return s.reorder_dims("W", "pb", "p", "pl")


def tokens_generated(Y: cora.Tensor) -> cora.Schedule:
    """A linear layer without micro-kernels."""
    s = cora.schedule(Y).fuse(Y, "batch", "pos", name="token").split_op(Y, "token", multiple=BLOCKING.rows)
    pieces = {f"{Y.name}_main": BLOCKING.rows, f"{Y.name}_tail": 1}
    for piece, height in pieces.items():
        s = s.split(piece, "token", height, names=("ir", "iv"))
        s = s.split(piece, "ir", TOKENS // BLOCKING.rows, names=("ic", "ii"), tail="balanced")
        s = s.split(piece, "j", BLOCKING.columns, names=("jr", "jv"), tail="peel")
        s = s.reorder(piece, "ic", "jr", "ii", "p", "iv", "jv").unroll(piece, "iv")
        s = s.vectorize(piece, "jv", BLOCKING.columns).parallel(piece, "ic")
    return s.hfuse(*pieces)


def _vgemm(C: cora.Tensor, storage: Storage) -> cora.Schedule:
    return storage.applied(cora.schedule(C))


def _roles(storage: Storage) -> tuple[str, str]:
    """The loop along the rows of tiles, and the one along their vectors."""
    return ("j", "i") if storage.swapped else ("i", "j")


def _paper(s: cora.Schedule, piece: str, storage: Storage, kernel: TileKernel) -> cora.Schedule:
    rows, columns = _roles(storage)
    height, width = _tile(kernel)
    s = s.split(piece, columns, width, names=("jr", "jv"))
    s = s.split(piece, rows, height, names=("ir", "iv"))
    return s.reorder(piece, "jr", "ir", "iv", "jv", "p")


def _split(
    C: cora.Tensor, storage: Storage, balance: Literal["cost", "count"], kernel: TileKernel
) -> cora.Schedule:
    pieces = ("C_main", "C_tail")
    s = _vgemm(C, storage).split_op(C, _roles(storage)[0], multiple=_tile(kernel)[0], names=pieces)
    for piece in pieces:
        s = _paper(s, piece, storage, kernel).parallel(piece, "batch", balance=balance)
        s = s.tensorize(piece, "iv", kernel)
    return s.hfuse(*pieces)


def _tile(kernel: TileKernel) -> tuple[int, int]:
    """Rows and columns of the tiles of the paper's variants."""
    return (BLOCKING.rows, BLOCKING.columns) if kernel is None else OFFLOADED
