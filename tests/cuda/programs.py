"""Programs scheduled for a GPU by hand: what the default schedule does not do."""

from __future__ import annotations

from dataclasses import replace

import cora
from tests.operators.harness import Batch, Case
from tests.operators.lengths import hostile

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])


def _batches(*tiles: int, giant: int = 150) -> tuple[Batch, ...]:
    return tuple(Batch({"lens": n}, {"M": len(n)}) for n in hostile(*tiles, giant=giant))


def softmax(name: str, width: int) -> Case:
    """A row's softmax by one warp, its maximum and sum in registers."""
    d = cora.Dim("d", width)
    X = cora.placeholder("X", [batch, pos, d])
    mx = cora.compute("mx", [batch, pos], cora.max(X[batch, pos, d], over=d))
    total = cora.compute("total", [batch, pos], cora.sum(cora.exp(X[batch, pos, d] - mx[batch, pos]), over=d))
    Y = cora.compute("Y", [batch, pos, d], cora.exp(X[batch, pos, d] - mx[batch, pos]) / total[batch, pos])

    def warps(s: cora.Schedule) -> cora.Schedule:
        s = s.fuse(Y, batch, pos, name="row").split(Y, "row", 4, names=("block", "warp"))
        s = s.compute_at(total, Y, "warp").compute_at(mx, Y, "warp")
        for t in (mx, total, Y):
            s = s.split(t, d, 32, names=("turn", "lane")).bind(t, "lane", "threadIdx.x")
        return s.bind(Y, "block", "blockIdx.x").bind(Y, "warp", "threadIdx.y")

    return Case(name, (Y,), _batches(4, giant=40), {"warps": warps})


def running_softmax() -> Case:
    """Weighted sums in one pass: by a warp for each row, its maximum in registers, or by a block with shared memory."""
    r, c, e = cora.Dim("r", 6), cora.Dim("c", lens[batch]), cora.Dim("e", 4)
    X, V = cora.placeholder("X", [batch, r, c]), cora.placeholder("V", [batch, pos, e])
    top = cora.compute("top", [batch, r], cora.max(X[batch, r, c], over=c))
    shift = cora.where(top[batch, r] > -float("inf"), top[batch, r], 0.0)
    weight = cora.exp(X[batch, r, c] - shift)
    total = cora.compute("total", [batch, r], cora.sum(weight, over=c))
    mixed = cora.sum(weight * V[batch, c, e], over=c) / cora.maximum(total[batch, r], 0.5)
    Y = cora.compute("Y", [batch, r, e], mixed)

    def warps(s: cora.Schedule) -> cora.Schedule:
        s = s.split(Y, r, 3, names=("ro", "warp")).split(Y, c, 64, names=("co", "ci")).split(Y, "ci", 32)
        s = s.reorder(Y, batch, "ro", "warp", "co", "ci_o", "ci_i", e).online(Y, "co", top, total)
        for t in (top, total):
            s = s.split(t, c, 32, names=("turn", "lane")).bind(t, "lane", "threadIdx.x")
        s = s.bind(Y, "ci_i", "threadIdx.x").bind(Y, "warp", "threadIdx.y")
        return s.bind(Y, batch, "blockIdx.x").bind(Y, "ro", "blockIdx.y")

    def blocks(s: cora.Schedule) -> cora.Schedule:
        s = s.split(Y, r, 3, names=("ro", "row")).split(Y, c, 16, names=("co", "ci"))
        s = s.reorder(Y, batch, "ro", "co", "row", e, "ci").online(Y, "co", top, total)
        for t in (top, total):
            s = s.reorder(t, r, c).set_scope(t, "shared").bind(t, r, "threadIdx.y")
        for name in ("top_before", "total_before", "top_factor"):
            s = s.set_scope(name, "shared").bind(name, r, "threadIdx.y")
        s = s.bind(Y, "row", "threadIdx.y").bind(Y, e, "threadIdx.x")
        return s.bind(Y, batch, "blockIdx.x")

    return Case("running_softmax", (Y,), _batches(16, 64), {"warps": warps, "blocks": blocks})


def ragged_softmax(threads: int) -> Case:
    """Softmax along a ragged row by one block, through memory that the block's threads share by barriers."""
    X = cora.placeholder("X", [batch, pos])
    mx = cora.compute("mx", [batch], cora.max(X[batch, pos], over=pos))
    E = cora.compute("E", [batch, pos], cora.exp(X[batch, pos] - mx[batch]))
    key = cora.Dim("key", lens[batch])
    total = cora.compute("total", [batch], cora.sum(E[batch, key], over=key))
    Y = cora.compute("Y", [batch, pos], E[batch, pos] / total[batch])

    def blocks(s: cora.Schedule) -> cora.Schedule:
        s = s.compute_at(total, Y, batch).compute_at(E, Y, batch).compute_at(mx, Y, batch)
        for t, loop in ((mx, pos), (E, pos), (total, key), (Y, pos)):
            s = s.split(t, loop, threads, names=("turn", "lane")).bind(t, "lane", "threadIdx.x")
        return s.bind(Y, batch, "blockIdx.x")

    return Case(f"ragged_softmax_{threads}", (Y,), _batches(threads), {"blocks": blocks})


def mirror(threads: int = 64) -> Case:
    """Each thread reads what others of its block have stored: rows, then rows of a part, end to front."""
    X = cora.placeholder("X", [batch, pos])
    E = cora.compute("E", [batch, pos], X[batch, pos] * 2)
    Y = cora.compute("Y", [batch, pos], E[batch, lens[batch] - 1 - pos] + 1)

    def blocks(s: cora.Schedule) -> cora.Schedule:
        s = s.compute_at(E, Y, batch)
        for t in (E, Y):
            s = s.split(t, pos, threads, names=("turn", "lane")).bind(t, "lane", "threadIdx.x")
        return s.bind(Y, batch, "blockIdx.x")

    def rows(s: cora.Schedule) -> cora.Schedule:
        s = s.split(Y, batch, 4, names=("part", "row")).compute_at(E, Y, "row")
        for t in (E, Y):
            s = s.split(t, pos, threads, names=("turn", "lane")).bind(t, "lane", "threadIdx.x")
        return s.bind(Y, "part", "blockIdx.x")

    return Case("mirror", (Y,), _batches(threads), {"blocks": blocks, "rows": rows})


def row_sums(threads: int, op: str = "sum") -> Case:
    """One reduction over a ragged row by the threads of a block, or of half a warp."""
    X = cora.placeholder("X", [batch, pos])
    reduce = getattr(cora, op)
    R = cora.compute("R", [batch], reduce(X[batch, pos], over=pos))

    def blocks(s: cora.Schedule) -> cora.Schedule:
        s = s.split(R, pos, threads, names=("turn", "lane"))
        return s.bind(R, batch, "blockIdx.x").bind(R, "lane", "threadIdx.x")

    return Case(f"row_{op}_{threads}", (R,), _batches(threads), {"blocks": blocks})


def matmul(name: str = "matmul") -> Case:
    """Products of ragged rows with one matrix: a grid of tiles, 2 x 4 elements in a thread's registers."""
    k, n = cora.Dim("k", 20), cora.Dim("n", 24)
    A = cora.placeholder("A", [batch, pos, k])
    B = cora.placeholder("B", [k, n])
    C = cora.compute("C", [batch, pos, n], cora.sum(A[batch, pos, k] * B[k, n], over=k))

    def tiles(s: cora.Schedule) -> cora.Schedule:
        s = s.split(C, pos, 16, names=("tile", "row")).fuse(C, batch, "tile", name="t")
        s = s.split(C, "row", 2, names=("ry", "ri")).split(C, n, 4, names=("nx", "ni"))
        s = s.reorder(C, "t", "ry", "nx", k, "ri", "ni").unroll(C, "ri").unroll(C, "ni")
        return s.bind(C, "t", "blockIdx.x").bind(C, "ry", "threadIdx.y").bind(C, "nx", "threadIdx.x")

    def grid(s: cora.Schedule) -> cora.Schedule:
        s = s.split(C, n, 8, names=("no", "ni")).fuse(C, batch, pos, name="f").split(C, "f", 16)
        s = s.reorder(C, "f_o", "no", "f_i", "ni")
        s = s.bind(C, "f_o", "blockIdx.x").bind(C, "no", "blockIdx.y")
        return s.bind(C, "f_i", "threadIdx.y").bind(C, "ni", "threadIdx.x")

    return Case(name, (C,), _batches(16, giant=50), {"tiles": tiles, "grid": grid})


def tiled_matmul(width: int) -> Case:
    """Products of ragged rows with one matrix: tiles of both in the block's shared memory, 2 x 3 sums in registers."""
    k, n = cora.Dim("k", width), cora.Dim("n", 20)
    A = cora.placeholder("A", [batch, pos, k])
    B = cora.placeholder("B", [k, n])
    C = cora.compute("C", [batch, pos, n], cora.sum(A[batch, pos, k] * B[k, n], over=k) + 1)

    def vectors(s: cora.Schedule) -> cora.Schedule:
        s = s.split(C, pos, 16, names=("tile", "row")).fuse(C, batch, "tile", name="t")
        s = s.split(C, "row", 8, names=("ri", "ry")).split(C, n, 4, names=("nx", "nv"))
        s = s.split(C, k, 8, names=("ko", "ki")).reorder(C, "t", "ko", "ry", "nx", "ki", "ri", "nv")
        s = s.cache_read(C, A, "ko", name="As").cache_read(C, B, "ko", name="Bs")
        s = s.split("As", pos, 8).bind("As", "pos_i", "threadIdx.y").vectorize("As", k, 4)
        s = (
            s.split("Bs", k, 8)
            .bind("Bs", "k_i", "threadIdx.y")
            .vectorize("Bs", n, 4)
            .bind("Bs", "n_o", "threadIdx.x")
        )
        s = s.bind(C, "ry", "threadIdx.y").bind(C, "nx", "threadIdx.x").vectorize(C, "nv", 4)
        return s.bind(C, "t", "blockIdx.x")

    def ahead(s: cora.Schedule) -> cora.Schedule:
        return vectors(s).peel(C, "ko", last=1).pipeline(C, "ko")

    def shared(s: cora.Schedule) -> cora.Schedule:
        s = s.split(C, pos, 16, names=("tile", "row")).fuse(C, batch, "tile", name="t")
        s = s.split(C, "row", 8, names=("ri", "ry")).split(C, n, 4, names=("ni", "nx"))
        s = s.split(C, k, 8, names=("ko", "ki")).reorder(C, "t", "ko", "ry", "nx", "ki", "ri", "ni")
        s = s.cache_read(C, A, "ko", name="As").cache_read(C, B, "ko", name="Bs")
        s = (
            s.split("As", pos, 8)
            .split("As", k, 4)
            .bind("As", "pos_i", "threadIdx.y")
            .bind("As", "k_i", "threadIdx.x")
        )
        s = (
            s.split("Bs", k, 8)
            .split("Bs", n, 4)
            .bind("Bs", "k_i", "threadIdx.y")
            .bind("Bs", "n_i", "threadIdx.x")
        )
        return s.bind(C, "t", "blockIdx.x").bind(C, "ry", "threadIdx.y").bind(C, "nx", "threadIdx.x")

    schedules = {"shared": shared, "vectors": vectors, "ahead": ahead}
    return Case(f"tiled_matmul_{width}", (C,), _batches(16, giant=50), schedules)


def two_outputs() -> Case:
    """Two operators in one grid, side by side; the storage of one is padded, and the padding filled."""
    X = cora.placeholder("X", [batch, pos])
    P = cora.compute("P", [batch, pos], X[batch, pos] * 2)
    Q = cora.compute("Q", [batch, pos], X[batch, pos] + 1)

    def one_grid(s: cora.Schedule) -> cora.Schedule:
        s = s.pad_dim(Q, pos, 8)
        for t, name in ((P, "p"), (Q, "q")):
            s = s.fuse(t, batch, pos, name=name).split(t, name, 32)
            s = s.bind(t, f"{name}_o", "blockIdx.x").bind(t, f"{name}_i", "threadIdx.x")
        return s.hfuse(P, Q)

    return Case("two_outputs", (P, Q), _batches(8, 32), {"one_grid": one_grid})


def lanes() -> Case:
    """Vector loops: of elements, and of a reduction."""
    X = cora.placeholder("X", [batch, pos])
    Y = cora.compute("Y", [batch, pos], X[batch, pos] * 3)
    S = cora.compute("S", [batch], cora.sum(X[batch, pos], over=pos))

    def vectors(s: cora.Schedule) -> cora.Schedule:
        s = s.fuse(Y, batch, pos, name="f").split(Y, "f", 64).vectorize(Y, "f_i", 4)
        s = s.bind(Y, "f_o", "blockIdx.x").bind(Y, "f_i_o", "threadIdx.x")
        return s.vectorize(S, pos, 8).bind(S, batch, "blockIdx.x")

    return Case("lanes", (Y, S), _batches(4, 64), {"vectors": vectors})


def split_pieces() -> Case:
    """A reduction in two pieces, the second of which adds to what the first has stored: two kernels."""
    X = cora.placeholder("X", [batch, pos])
    R = cora.compute("R", [batch], cora.sum(X[batch, pos], over=pos))

    def pieces(s: cora.Schedule) -> cora.Schedule:
        s = s.split_op(R, pos, multiple=32).split("R_main", pos, 32)
        s = s.bind("R_main", batch, "blockIdx.x").bind("R_main", "pos_i", "threadIdx.x")
        s = s.split("R_tail", batch, 16)
        return s.bind("R_tail", "batch_o", "blockIdx.x").bind("R_tail", "batch_i", "threadIdx.x")

    return Case("split_pieces", (R,), _batches(32), {"pieces": pieces})


CASES: tuple[Case, ...] = (
    softmax("softmax_64", 64),
    softmax("softmax_40", 40),
    running_softmax(),
    ragged_softmax(32),
    replace(ragged_softmax(128), ulps=8),
    mirror(),
    row_sums(16),
    row_sums(32),
    row_sums(128),
    row_sums(128, "argmax"),
    row_sums(32, "argmin"),
    row_sums(64, "max"),
    matmul(),
    tiled_matmul(24),
    tiled_matmul(19),
    two_outputs(),
    lanes(),
    split_pieces(),
)
