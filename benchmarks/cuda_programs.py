"""Ragged programs with schedules for a GPU, whose resources `cuda_resources` reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cora

HEADS = 8
HEAD_SIZE = 64
WIDTH = 512


@dataclass(frozen=True, slots=True)
class Program:
    """A name and a schedule; None: the default one of the outputs."""

    name: str
    outputs: tuple[cora.Tensor, ...]
    schedule: cora.Schedule | None = None

    @property
    def built_from(self) -> Any:
        """What `cora.build` takes."""
        return self.outputs if self.schedule is None else self.schedule


def _rows() -> tuple[cora.Dim, cora.Dim, Callable[[str], cora.Dim]]:
    """batch, pos < lens[batch], and further dims of the same extent."""
    batch = cora.Dim("batch", cora.size("M"))
    lens = cora.lengths("lens", batch)
    return batch, cora.Dim("pos", lens[batch]), lambda name: cora.Dim(name, lens[batch])


def elementwise() -> Program:
    """Bias and gelu of packed tokens."""
    batch, pos, _ = _rows()
    d = cora.Dim("d", WIDTH)
    X, bias = cora.placeholder("X", [batch, pos, d]), cora.placeholder("bias", [d])
    Y = cora.compute("Y", [batch, pos, d], cora.gelu(X[batch, pos, d] + bias[d]))
    return Program("bias_gelu", (Y,))


def row_softmax() -> Program:
    """Softmax of attention scores: a warp for each row, in one kernel."""
    batch, i, dim = _rows()
    j, h = dim("j"), cora.Dim("h", HEADS)
    X = cora.placeholder("X", [batch, i, h, j])
    top = cora.compute("top", [batch, i, h], cora.max(X[batch, i, h, j], over=j))
    total = cora.compute(
        "total", [batch, i, h], cora.sum(cora.exp(X[batch, i, h, j] - top[batch, i, h]), over=j)
    )
    Y = cora.compute(
        "Y", [batch, i, h, j], cora.exp(X[batch, i, h, j] - top[batch, i, h]) / total[batch, i, h]
    )
    s = cora.schedule(Y).fuse(Y, batch, i, h, name="row").split(Y, "row", 4, names=("block", "warp"))
    s = s.compute_at(total, Y, "warp").compute_at(top, Y, "warp")
    for t in (top, total, Y):
        s = s.split(t, j, 32, names=("turn", "lane")).bind(t, "lane", "threadIdx.x")
    return Program("softmax", (Y,), s.bind(Y, "block", "blockIdx.x").bind(Y, "warp", "threadIdx.y"))


def layer_norm() -> Program:
    """Layer norm of packed tokens: a warp for each, in one kernel."""
    batch, pos, _ = _rows()
    d = cora.Dim("d", WIDTH)
    X = cora.placeholder("X", [batch, pos, d])
    scale, shift = cora.placeholder("scale", [d]), cora.placeholder("shift", [d])
    mean = cora.compute("mean", [batch, pos], cora.mean(X[batch, pos, d], over=d))
    centred = X[batch, pos, d] - mean[batch, pos]
    variance = cora.compute("variance", [batch, pos], cora.mean(centred * centred, over=d))
    normed = centred * cora.rsqrt(variance[batch, pos] + 1e-5)
    Y = cora.compute("Y", [batch, pos, d], normed * scale[d] + shift[d])
    s = cora.schedule(Y).fuse(Y, batch, pos, name="row").split(Y, "row", 4, names=("block", "warp"))
    s = s.compute_at(variance, Y, "warp").compute_at(mean, Y, "warp")
    for t in (mean, variance, Y):
        s = s.split(t, d, 32, names=("turn", "lane")).bind(t, "lane", "threadIdx.x")
    return Program("layer_norm", (Y,), s.bind(Y, "block", "blockIdx.x").bind(Y, "warp", "threadIdx.y"))


def triangle_times_vector() -> Program:
    """A lower triangle times a vector: a warp for each row."""
    row = cora.Dim("row", cora.size("N"))
    column = cora.Dim("column", row + 1)
    L, x = cora.placeholder("L", [row, column]), cora.placeholder("x", [row])
    Y = cora.compute("Y", [row], cora.sum(L[row, column] * x[column], over=column))
    return Program("trmv", (Y,))


def _tiled(
    s: cora.Schedule, C: cora.Tensor, rows: cora.Dim, columns: cora.Dim, over: cora.Dim, a: str, b: str
) -> cora.Schedule:
    """128 x 128 elements a block, 8 x 8 a thread, 16 steps of the reduction at a time, all wide accesses.

    The loop `rows` has been split and fused with those outside it before, into "t", "row"; `columns` and `over` are
    whole. a, b: the operands, whose tiles go to shared memory.
    """
    s = s.split(C, "row", 16, names=("ri", "ry"))
    s = (
        s.split(C, columns, 128, names=("no", "nr"))
        .split(C, "nr", 64, names=("ng", "nq"))
        .split(C, "nq", 4, names=("nx", "nv"))
    )
    s = s.split(C, over, 16, names=("ko", "ki")).split(C, "ki", 4, names=("km", "kv"))
    s = s.reorder(C, "t", "no", "ko", "ry", "nx", "km", "kv", "ri", "ng", "nv").unroll(C, "kv")
    s = s.cache_read(C, a, "ko", name="As").cache_read(C, b, "ko", name="Bs")
    s = s.split("As", over, 4, names=("kx", "kq")).split("As", rows, 64, names=("ao", "ar"))
    s = s.split("As", "ar", 4, names=("ay", "az")).fuse("As", "az", "kx", name="ax").vectorize("As", "kq", 4)
    s = s.bind("As", "ay", "threadIdx.y").bind("As", "ax", "threadIdx.x")
    s = (
        s.split("Bs", columns, 4, names=("bn", "bq"))
        .split("Bs", "bn", 16, names=("bo", "bx"))
        .vectorize("Bs", "bq", 4)
    )
    s = s.bind("Bs", "bx", "threadIdx.x").bind("Bs", over, "threadIdx.y")
    s = s.bind(C, "t", "blockIdx.x").bind(C, "no", "blockIdx.y")
    return s.bind(C, "ry", "threadIdx.y").bind(C, "nx", "threadIdx.x").vectorize(C, "nv", 4)


def projection(width: int = WIDTH) -> Program:
    """Packed tokens times a square matrix: tiles within each sequence."""
    batch, pos, _ = _rows()
    k, n = cora.Dim("k", width), cora.Dim("n", width)
    A, B = cora.placeholder("A", [batch, pos, k]), cora.placeholder("B", [k, n])
    C = cora.compute("C", [batch, pos, n], cora.sum(A[batch, pos, k] * B[k, n], over=k))
    s = cora.schedule(C).split(C, pos, 128, names=("tile", "row")).fuse(C, batch, "tile", name="t")
    return Program("projection", (C,), _tiled(s, C, pos, n, k, "A", "B"))


def vgemm() -> Program:
    """Products of matrices of different sizes, all three extents variable: a grid of useful tiles alone."""
    b = cora.Dim("b", cora.size("G"))
    m, n, k = (cora.lengths(name, b) for name in "mnk")
    i, j, kk = cora.Dim("i", m[b]), cora.Dim("j", n[b]), cora.Dim("kk", k[b])
    A, B = cora.placeholder("A", [b, i, kk]), cora.placeholder("B", [b, kk, j])
    C = cora.compute("C", [b, i, j], cora.sum(A[b, i, kk] * B[b, kk, j], over=kk))
    s = cora.schedule(C).split(C, i, 128, names=("it", "row")).split(C, j, 128, names=("jt", "nr"))
    s = s.reorder(C, b, "it", "jt", "row", "nr", kk).fuse(C, b, "it", "jt", name="t")
    s = s.split(C, "row", 16, names=("ri", "ry"))
    s = s.split(C, "nr", 64, names=("ng", "nq")).split(C, "nq", 4, names=("nx", "nv"))
    s = s.split(C, kk, 16, names=("ko", "ki")).split(C, "ki", 4, names=("km", "kv"))
    s = s.reorder(C, "t", "ko", "ry", "nx", "km", "kv", "ri", "ng", "nv").unroll(C, "kv")
    s = s.cache_read(C, A, "ko", name="As").cache_read(C, B, "ko", name="Bs")
    s = s.split("As", kk, 16, names=("kx", "kq")).split("As", i, 16, names=("ao", "ay"))
    s = s.bind("As", "ay", "threadIdx.y").bind("As", "kq", "threadIdx.x")
    s = s.split("Bs", j, 16, names=("bo", "bx")).split("Bs", kk, 16, names=("kb", "by"))
    s = s.bind("Bs", "bx", "threadIdx.x").bind("Bs", "by", "threadIdx.y")
    s = s.bind(C, "t", "blockIdx.x").bind(C, "ry", "threadIdx.y").bind(C, "nx", "threadIdx.x")
    return Program("vgemm", (C,), s.vectorize(C, "nv", 4))


def attention() -> Program:
    """Scores, softmax and the weighted sum of values, by the default schedule: a kernel for each."""
    batch, i, dim = _rows()
    j, h, d = dim("j"), cora.Dim("h", HEADS), cora.Dim("d", HEAD_SIZE)
    key = dim("key")
    Q, K, V = (cora.placeholder(name, [batch, i, h, d]) for name in "QKV")
    S = cora.compute("S", [batch, h, i, j], cora.sum(Q[batch, i, h, d] * K[batch, j, h, d], over=d) / 8)
    top = cora.compute("top", [batch, h, i], cora.max(S[batch, h, i, j], over=j))
    P = cora.compute("P", [batch, h, i, j], cora.exp(S[batch, h, i, j] - top[batch, h, i]))
    total = cora.compute("total", [batch, h, i], cora.sum(P[batch, h, i, j], over=j))
    weighted = cora.sum(P[batch, h, i, key] * V[batch, key, h, d], over=key)
    O = cora.compute("O", [batch, i, h, d], weighted / total[batch, h, i])  # noqa: E741
    return Program("attention", (O,))


PROGRAMS: Mapping[str, Callable[[], Program]] = {
    "bias_gelu": elementwise,
    "softmax": row_softmax,
    "layer_norm": layer_norm,
    "trmv": triangle_times_vector,
    "projection": projection,
    "vgemm": vgemm,
    "attention": attention,
}
