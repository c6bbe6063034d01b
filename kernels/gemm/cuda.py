"""Schedules of products for GPUs: tiles of both operands in shared memory, 8 x 8 sums in the registers of a thread."""

from __future__ import annotations

import cora
from cora.kernels.cuda_tiles import LANES, LARGE, Tile, constant, copy_deep, copy_long, finish, product
from cora.kernels.gemm.storage import Storage

PACKED = Storage()
#: Of products by tensor cores: 128 x 128 elements a block, 64 x 32 a warp, 32 steps at a time.
WARP_ROWS, WARP_COLUMNS, WARP_DEPTH = 64, 32, 32
#: 16-bit elements of a wide access, and what rows of 32 and of 128 are padded to, so that eight of them lie in eight
#: different groups of the banks of shared memory.
HALVES, SHORT_ROW, LONG_ROW = 8, 40, 136


def tiles(C: cora.Tensor, *, storage: Storage = PACKED, tile: Tile = LARGE) -> cora.Schedule:
    """A batch of products: one grid of tiles, of all matrices, exactly as many as there are.

    Accesses are wide where rows are padded to a multiple of 4 numbers.
    """
    wide = storage.multiple % LANES == 0 and storage.a == storage.b == "row"
    s = storage.applied(cora.schedule(C))
    s = s.split(C, "i", tile.rows, names=("it", "row")).split(C, "j", tile.columns, names=("jt", "column"))
    s = s.reorder(C, "batch", "it", "jt", "row", "column", "p").fuse(C, "batch", "it", "jt", name="tile")
    s = product(s, C.name, "row", "column", "p", tile).peel(C, "po", last=1)  # full steps have no condition
    s = s.cache_read(C, "A", "po", name="a_tile").cache_read(C, "B", "po", name="b_tile")
    s = copy_deep(s, "a_tile", "i", "p", tile.rows, tile, wide=wide)
    s = copy_long(s, "b_tile", "p", "j", tile.columns, tile, wide=wide)
    return finish(s, C.name).bind(C, "tile", "blockIdx.x")


def tokens(Y: cora.Tensor, *, tile: Tile = LARGE) -> cora.Schedule:
    """A linear layer: tiles of the tokens of the batch; all accesses are wide if the features fill whole tiles."""
    s = cora.schedule(Y).fuse(Y, "batch", "pos", name="token")
    wide = constant(s, Y, "p") % tile.depth == 0 and constant(s, Y, "j") % tile.columns == 0
    s = s.split(Y, "token", tile.rows, names=("it", "row")).split(
        Y, "j", tile.columns, names=("jt", "column")
    )
    s = product(s.reorder(Y, "it", "jt", "row", "column", "p"), Y.name, "row", "column", "p", tile)
    s = s.cache_read(Y, "X", "po", name="a_tile").cache_read(Y, "W", "po", name="b_tile")
    s = copy_deep(s, "a_tile", "batch_pos", "p", tile.rows, tile, wide=wide)
    s = copy_long(s, "b_tile", "p", "j", tile.columns, tile, wide=wide)
    return finish(s, Y.name).bind(Y, "it", "blockIdx.x").bind(Y, "jt", "blockIdx.y")


def tokens_by_tensor_cores(Y: cora.Tensor) -> cora.Schedule:
    """`tokens` for 16-bit features, in multiples of 32 going in and of 128 coming out.

    Raises UserError for features of other types, and for another number of them: sums must be of whole steps.
    """
    s = cora.schedule(Y).fuse(Y, "batch", "pos", name="token")
    types = {t.dtype for t in s.tensors if t.name in ("X", "W")}
    into, out = constant(s, Y, "p"), constant(s, Y, "j")
    if types not in ({"float16"}, {"bfloat16"}) or into % WARP_DEPTH or out % LARGE.columns:
        raise cora.UserError(
            f"linear: tensor cores: expected float16 or bfloat16, a multiple of {WARP_DEPTH} features going in and of "
            f"{LARGE.columns} coming out; got {', '.join(sorted(types))}, {into} and {out}"
        )
    s = s.split(Y, "token", LARGE.rows, names=("it", "row")).split(
        Y, "j", LARGE.columns, names=("jt", "column")
    )
    s = s.split(Y, "row", WARP_ROWS, names=("wy", "wrow")).split(
        Y, "column", WARP_COLUMNS, names=("wx", "wcolumn")
    )
    s = s.split(Y, "p", WARP_DEPTH, names=("po", "pi"))
    s = s.reorder(Y, "it", "jt", "po", "wy", "wx", "wrow", "wcolumn", "pi")
    s = s.cache_read(Y, "X", "po", name="a_tile").cache_read(Y, "W", "po", name="b_tile")
    s = s.tensor_core(Y, "wrow", "wcolumn", "pi")
    s = s.pad_dim("a_tile", "p", SHORT_ROW).pad_dim("b_tile", "j", LONG_ROW)
    s = s.split("a_tile", "batch_pos", LARGE.rows, names=("part", "ow"), tail="cover")
    s = _halves(s, "a_tile", "ow", "p", WARP_DEPTH // HALVES)
    s = _halves(s, "b_tile", "p", "j", LARGE.columns // HALVES).pipeline(Y, "po")
    s = s.bind(Y, "it", "blockIdx.x").bind(Y, "jt", "blockIdx.y")
    return s.bind(Y, "wx", "threadIdx.y").bind(Y, "wy", "threadIdx.z")


def _halves(s: cora.Schedule, stage: str, outer: str, inner: str, vectors: int) -> cora.Schedule:
    """A copy by 32 x 4 x 2 threads, each 8 elements at a time: `vectors` of them are a row."""
    across = 32 // vectors
    s = s.split(stage, inner, HALVES, names=("vx", "lane")).vectorize(stage, "lane", HALVES)
    s = s.split(stage, outer, 8 * across, names=("turn", "oz")).split(
        stage, "oz", 4 * across, names=("tz", "oy")
    )
    s = (
        s.split(stage, "oy", across, names=("ty", "ox"))
        .fuse(stage, "ox", "vx", name="tx")
        .unroll(stage, "turn")
    )
    return (
        s.bind(stage, "tx", "threadIdx.x").bind(stage, "ty", "threadIdx.y").bind(stage, "tz", "threadIdx.z")
    )
