"""Schedules of products for GPUs: tiles of both operands in shared memory, 8 x 8 sums in the registers of a thread."""

from __future__ import annotations

import cora
from cora.kernels.cuda_tiles import LANES, LARGE, Tile, constant, copy_deep, copy_long, finish, product
from cora.kernels.gemm.storage import Storage

PACKED = Storage()
#: Of products by tensor cores: 128 x 128 elements a block, 64 x 32 a warp, 64 bytes of steps at a time.
WARP_ROWS, WARP_COLUMNS, STEP_BYTES = 64, 32, 64
#: Bytes of a wide access. Rows along the depth are padded by one, those along the columns by 8 elements: what a warp
#: reads together, rows of 16 bytes, or single elements of tf32 in 4 rows, lies in different banks of shared memory.
ACCESS_BYTES = 16


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


def tokens_by_tensor_cores(Y: cora.Tensor, *, tf32: bool = False) -> cora.Schedule:
    """`tokens` for 16-bit features, in multiples of 32 going in and of 128 coming out.

    tf32: for float32 features, multiples of 16 going in, which are rounded to 11 bits as they are multiplied.

    Raises UserError for features of other types, and for another number of them: sums must be of whole steps.
    """
    s = cora.schedule(Y).fuse(Y, "batch", "pos", name="token")
    types = {t.dtype for t in s.tensors if t.name in ("X", "W")}
    into, out = constant(s, Y, "p"), constant(s, Y, "j")
    itemsize = 4 if tf32 else 2
    depth, lanes = STEP_BYTES // itemsize, ACCESS_BYTES // itemsize
    known = [{"float32"}] if tf32 else [{"float16"}, {"bfloat16"}]
    if types not in known or into % depth or out % LARGE.columns:
        expected = "float32" if tf32 else "float16 or bfloat16"
        raise cora.UserError(
            f"linear: tensor cores: expected {expected}, a multiple of {depth} features going in and of "
            f"{LARGE.columns} coming out; got {', '.join(sorted(types))}, {into} and {out}"
        )
    s = s.split(Y, "token", LARGE.rows, names=("it", "row")).split(
        Y, "j", LARGE.columns, names=("jt", "column")
    )
    s = s.split(Y, "row", WARP_ROWS, names=("wy", "wrow")).split(
        Y, "column", WARP_COLUMNS, names=("wx", "wcolumn")
    )
    s = s.split(Y, "p", depth, names=("po", "pi"))
    s = s.reorder(Y, "it", "jt", "po", "wy", "wx", "wrow", "wcolumn", "pi")
    s = s.cache_read(Y, "X", "po", name="a_tile").cache_read(Y, "W", "po", name="b_tile")
    s = s.tensor_core(Y, "wrow", "wcolumn", "pi", tf32=tf32)
    s = s.pad_dim("a_tile", "p", depth + lanes).pad_dim("b_tile", "j", LARGE.columns + 8)
    s = s.split("a_tile", "batch_pos", LARGE.rows, names=("part", "ow"), tail="cover")
    s = _accesses(s, "a_tile", "ow", "p", depth // lanes, lanes)
    s = _accesses(s, "b_tile", "p", "j", LARGE.columns // lanes, lanes).pipeline(Y, "po")
    s = s.bind(Y, "it", "blockIdx.x").bind(Y, "jt", "blockIdx.y")
    return s.bind(Y, "wx", "threadIdx.y").bind(Y, "wy", "threadIdx.z")


def _accesses(
    s: cora.Schedule, stage: str, outer: str, inner: str, vectors: int, lanes: int
) -> cora.Schedule:
    """A copy by 32 x 4 x 2 threads, each `lanes` elements at a time: `vectors` of them are a row."""
    across = 32 // vectors
    s = s.split(stage, inner, lanes, names=("vx", "lane")).vectorize(stage, "lane", lanes)
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
