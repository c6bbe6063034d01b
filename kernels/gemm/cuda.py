"""Schedules of products for GPUs: tiles of both operands in shared memory, 8 x 8 sums in the registers of a thread.

A block has 16 x 16 threads and computes 128 x 128 elements, 16 steps of the reduction at a time. A thread's elements
lie 16 rows, and two groups of 4 columns 64 apart, from one another: so threads side by side read side by side, from
memory and from shared memory alike.
"""

from __future__ import annotations

import cora
from cora.kernels.gemm.storage import Storage

PACKED = Storage()
TILE = 128
THREADS = 16
DEPTH = 16
LANES = 4


def tiles(C: cora.Tensor, *, storage: Storage = PACKED) -> cora.Schedule:
    """A batch of products: one grid of tiles, of all matrices, exactly as many as there are."""
    s = storage.applied(cora.schedule(C))
    s = s.split(C, "i", TILE, names=("it", "row")).split(C, "j", TILE, names=("jt", "column"))
    s = s.reorder(C, "batch", "it", "jt", "row", "column", "p").fuse(C, "batch", "it", "jt", name="tile")
    s = _narrow(_product(s, C), "i", "j").bind(C, "tile", "blockIdx.x")
    return s.vectorize(C, "jv", LANES)


def tokens(Y: cora.Tensor) -> cora.Schedule:
    """A linear layer: tiles of the tokens of each sequence; all accesses are wide if the features fill whole tiles."""
    s = cora.schedule(Y)
    features_in, features_out = (_constant(s, Y, loop) for loop in ("p", "j"))
    s = s.split(Y, "pos", TILE, names=("it", "row")).fuse(Y, "batch", "it", name="tile")
    s = s.split(Y, "j", TILE, names=("jt", "column")).reorder(Y, "tile", "jt", "row", "column", "p")
    s = _product(s, Y, "X", "W")
    wide = features_in % DEPTH == 0 and features_out % TILE == 0
    s = _wide(s, "pos", "j") if wide else _narrow(s, "pos", "j")
    return s.bind(Y, "tile", "blockIdx.x").bind(Y, "jt", "blockIdx.y").vectorize(Y, "jv", LANES)


def _constant(s: cora.Schedule, op: cora.Tensor, loop: str) -> int:
    """The number of iterations of a loop of constant extent."""
    (extent,) = (leaf.extent for leaf in s.nest(op).leaves if leaf.name == loop)
    return int(str(extent))


def _product(s: cora.Schedule, C: cora.Tensor, a: str = "A", b: str = "B") -> cora.Schedule:
    """The loops of a tile, from "row", "column" and "p" inwards, with copies of the operands' tiles."""
    s = s.split(C, "row", THREADS, names=("ri", "ry"))
    s = s.split(C, "column", THREADS * LANES, names=("jg", "jq")).split(C, "jq", LANES, names=("jx", "jv"))
    s = s.split(C, "p", DEPTH, names=("po", "pi")).split(C, "pi", LANES, names=("pm", "pv"))
    s = s.reorder(C, "po", "ry", "jx", "pm", "pv", "ri", "jg", "jv").unroll(C, "pv")
    s = s.cache_read(C, a, "po", name="a_tile").cache_read(C, b, "po", name="b_tile")
    return s.bind(C, "ry", "threadIdx.y").bind(C, "jx", "threadIdx.x")


def _wide(s: cora.Schedule, rows: str, columns: str) -> cora.Schedule:
    """Copies in accesses of four elements."""
    s = s.split("a_tile", "p", LANES, names=("px", "pv"))
    s = s.split("a_tile", rows, THREADS * LANES, names=("ro", "rr")).split(
        "a_tile", "rr", LANES, names=("ry", "rx")
    )
    s = s.fuse("a_tile", "rx", "px", name="x").vectorize("a_tile", "pv", LANES)
    s = s.bind("a_tile", "ry", "threadIdx.y").bind("a_tile", "x", "threadIdx.x")
    s = s.split("b_tile", columns, LANES, names=("jq", "jv")).split(
        "b_tile", "jq", THREADS, names=("jo", "jx")
    )
    return (
        s.vectorize("b_tile", "jv", LANES)
        .bind("b_tile", "jx", "threadIdx.x")
        .bind("b_tile", "p", "threadIdx.y")
    )


def _narrow(s: cora.Schedule, rows: str, columns: str) -> cora.Schedule:
    """Copies element by element, for rows that begin anywhere."""
    s = s.split("a_tile", "p", DEPTH, names=("ak", "ax")).split("a_tile", rows, THREADS, names=("ao", "ay"))
    s = s.bind("a_tile", "ay", "threadIdx.y").bind("a_tile", "ax", "threadIdx.x")
    s = s.split("b_tile", columns, THREADS, names=("bo", "bx")).split(
        "b_tile", "p", DEPTH, names=("bk", "by")
    )
    return s.bind("b_tile", "bx", "threadIdx.x").bind("b_tile", "by", "threadIdx.y")
