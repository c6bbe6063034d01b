"""Products of ragged matrices, four-dimensional attention tensors, softmax, layer norm, and whole attention."""

from __future__ import annotations

import numpy as np

import cora
from cora import Schedule
from cora.codegen.target import detect
from cora.tiles import select
from tests.operators.harness import Array, Batch, Case
from tests.operators.lengths import hostile, rows

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
i = cora.Dim("i", lens[batch])
j = cora.Dim("j", lens[batch])
head = cora.Dim("head", 3)
d = cora.Dim("d", 8)

Q = cora.placeholder("Q", [batch, i, head, d])
K = cora.placeholder("K", [batch, j, head, d])
V = cora.placeholder("V", [batch, j, head, d])
X = cora.compute("X", [batch, i, head, j], cora.sum(Q[batch, i, head, d] * K[batch, j, head, d], over=d))
XI = cora.placeholder("XI", [batch, i, head, j])


def scores_padded(s: Schedule) -> Schedule:
    """Both ragged dims padded in storage and loop; columns in lanes."""
    s = s.pad_dim("X", "i", 4).pad_dim("X", "j", 16).pad_loop("X", "i", 4).pad_loop("X", "j", 16)
    s = (
        s.pad_dim("K", "j", 8)
        .split("X", "j", 16, names=("jo", "ji"))
        .reorder("X", "i", "head", "jo", "d", "ji")
    )
    return s.vectorize("X", "ji").fuse("X", "batch", "i", name="f").parallel("X", "f")


def scores_tiles(s: Schedule) -> Schedule:
    """A tile of rows and columns accumulated side by side, heads outside."""
    s = s.split("X", "i", 3, names=("it", "ir")).split("X", "j", 8, names=("jt", "jr"))
    s = s.reorder("X", "head", "it", "jt", "d", "ir", "jr")
    return s.unroll("X", "ir").vectorize("X", "jr").parallel("X", "batch")


def scores_dot(s: Schedule) -> Schedule:
    """The reduced dim in lanes."""
    return s.vectorize("X", "d").fuse("X", "batch", "i", "head", name="f").parallel("X", "f")


scores = Case(
    "attention_scores",
    (X,),
    rows(3, 8, giant=40),
    {f.__name__: f for f in (scores_padded, scores_tiles, scores_dot)},
)

elementwise = Case(
    "attention_elementwise",
    (cora.compute("O", [batch, i, head, j], XI[batch, i, head, j] * 0.5 + XI[batch, j, head, i]),),
    rows(16, giant=60),
    {
        "fused": lambda s: (
            s.pad_dim("O", "j", 8)
            .pad_loop("O", "j", 8)
            .fuse("O", "batch", "i", "head", "j", name="f")
            .vectorize("O", "f", 8)
            .parallel("O", "f_o")
        ),
        "padded": lambda s: (
            s.pad_dim("XI", "i", 2)
            .pad_dim("XI", "j", 4, to_max=True)
            .pad_dim("O", "i", 4)
            .vectorize("O", "j", 16)
            .parallel("O", "batch")
        ),
    },
)


def huge(rng: np.random.Generator, batch: Batch, at: Array) -> Array:
    """Scores beyond the range of exp and of float16, of both signs, with -inf, in some rows nothing else."""
    values = np.where(at[:, 0] % 3 == 1, -3e38, 70000.0) + rng.standard_normal(len(at)) * 5
    return np.where((rng.random(len(at)) < 0.2) | (at[:, 0] % 4 == 3), -np.inf, values)


pos = cora.Dim("pos", lens[batch])
A = cora.placeholder("A", [batch, pos])
top = cora.compute("top", [batch], cora.max(A[batch, pos], over=pos))
# a row of -inf alone has no entry: its weights are 0, not NaN
shift = cora.where(top[batch] > -float("inf"), top[batch], 0.0)
weight = cora.compute("weight", [batch, pos], cora.exp(A[batch, pos] - shift))
total = cora.compute("total", [batch], cora.sum(weight[batch, pos], over=pos))
softmax_out = cora.compute(
    "S", [batch, pos], cora.where(total[batch] > 0.0, weight[batch, pos] / total[batch], 0.0)
)


def softmax_lanes(s: Schedule) -> Schedule:
    """Every stage in lanes over rows, the intermediate padded."""
    s = s.pad_dim("weight", "pos", 16).pad_loop("weight", "pos", 16)
    for op in ("top", "weight", "total", "S"):
        s = s.vectorize(op, "pos", 16).parallel(op, "batch")
    return s


def softmax_padded(s: Schedule) -> Schedule:
    """Everything padded, to different multiples."""
    s = s.pad_dim("A", "pos", 4).pad_loop("top", "pos", 4).pad_dim("weight", "pos", to_max=True)
    s = (
        s.pad_dim("total", "batch", 4)
        .pad_dim("S", "pos", 8)
        .pad_loop("S", "pos", 8)
        .pad_loop("total", "pos", 32)
    )
    s = s.vectorize("total", "pos", 32)
    return s.fuse("S", "batch", "pos", name="f").vectorize("S", "f", 8).parallel("S", "f_o")


def softmax_of_rows(s: Schedule) -> Schedule:
    """All stages for one row, in lanes."""
    for op in ("total", "weight", "top"):
        s = s.compute_at(op, "S", "batch")
    for op in ("top", "weight", "total", "S"):
        s = s.vectorize(op, "pos", 16)
    return s.parallel("S", "batch")


softmax = Case(
    "softmax",
    (softmax_out,),
    rows(16, 32),
    {f.__name__: f for f in (softmax_lanes, softmax_padded, softmax_of_rows)},
    {"A": huge},
    ulps=8,
)
softmax_of_normal = Case(
    "softmax_of_normal_scores", (softmax_out,), rows(16), {"softmax_lanes": softmax_lanes}, ulps=8
)

H = cora.size("H")
h = cora.Dim("h", H)
Y = cora.placeholder("Y", [batch, pos, h])
gamma, beta = cora.placeholder("gamma", [h]), cora.placeholder("beta", [h])
average = cora.compute("average", [batch, pos], cora.mean(Y[batch, pos, h], over=h))
centred = Y[batch, pos, h] - average[batch, pos]
variance = cora.compute("variance", [batch, pos], cora.mean(centred * centred, over=h))
norm_out = cora.compute(
    "N", [batch, pos, h], centred * cora.rsqrt(variance[batch, pos] + 1e-5) * gamma[h] + beta[h]
)
layer_norm = Case(
    "layer_norm",
    (norm_out,),
    tuple(Batch({"lens": n}, {"M": len(n), "H": w}) for n in hostile(4, giant=50) for w in (1, 16, 31, 64)),
    {
        "lanes": lambda s: (
            s.vectorize("average", "h", 16)
            .fuse("average", "batch", "pos", name="f")
            .parallel("average", "f")
            .vectorize("variance", "h", 8)
            .parallel("variance", "batch")
            .pad_dim("N", "h", 16)
            .pad_loop("N", "h", 16)
            .vectorize("N", "h", 16)
            .fuse("N", "batch", "pos", name="f")
            .parallel("N", "f")
        ),
        "padded": lambda s: (
            s.pad_dim("Y", "pos", 4)
            .pad_dim("average", "pos", 4)
            .pad_loop("average", "pos", 4)
            .pad_dim("variance", "pos", to_max=True)
            .pad_dim("N", "pos", 2)
            .parallel("N", "batch")
        ),
    },
    {"Y": lambda rng, batch, at: 1000.0 + rng.standard_normal(len(at)) * (1 + at[:, 1] % 3)},
    ulps=8,
)
row_norm = Case(
    "norm_over_the_ragged_dim",
    (
        cora.compute(
            "N",
            [batch, pos],
            A[batch, pos]
            / cora.sqrt(
                cora.compute("squares", [batch], cora.sum(A[batch, pos] * A[batch, pos], over=pos))[batch]
                + 1e-6
            ),
        ),
    ),
    rows(16),
    {"lanes": lambda s: s.vectorize("squares", "pos", 16).vectorize("N", "pos", 16).parallel("N", "batch")},
)


def _at_rows(s: Schedule) -> Schedule:
    """All of attention for one row of one head, in parallel over sequences."""
    for op in ("mixed", "mass", "ex", "peak", "Xs", "X"):
        s = s.compute_at(op, "out", "head")
    for op in ("Xs", "ex", "peak", "mass"):
        s = s.vectorize(op, "j", 16)
    s = s.reorder("mixed", "j", "d").vectorize("mixed", "d").vectorize("X", "d")
    return s.parallel("out", "batch")


Xs = cora.compute("Xs", [batch, i, head, j], X[batch, i, head, j] * 0.35)
peak = cora.compute("peak", [batch, i, head], cora.max(Xs[batch, i, head, j], over=j))
ex = cora.compute("ex", [batch, i, head, j], cora.exp(Xs[batch, i, head, j] - peak[batch, i, head]))
mass = cora.compute("mass", [batch, i, head], cora.sum(ex[batch, i, head, j], over=j))
mixed = cora.compute(
    "mixed", [batch, i, head, d], cora.sum(ex[batch, i, head, j] * V[batch, j, head, d], over=j)
)
attended = cora.compute("out", [batch, i, head, d], mixed[batch, i, head, d] / mass[batch, i, head])
attention = Case(
    "attention",
    (attended,),
    rows(8, giant=40),
    {
        "tiles": lambda s: (
            scores_padded(s)
            .vectorize("Xs", "j", 16)
            .vectorize("peak", "j", 16)
            .pad_dim("ex", "j", 4)
            .vectorize("ex", "j", 8)
            .parallel("ex", "batch")
            .vectorize("mass", "j", 16)
            .reorder("mixed", "j", "d")
            .vectorize("mixed", "d")
            .fuse("mixed", "batch", "i", "head", name="f")
            .parallel("mixed", "f")
            .pad_dim("out", "i", 4)
        ),
        "stages_of_a_row": _at_rows,
    },
    ulps=16,
)

m, n, k = (cora.lengths(name, batch) for name in ("m", "n", "k"))
r, c, t = cora.Dim("r", m[batch]), cora.Dim("c", n[batch]), cora.Dim("t", k[batch])
F, G = cora.placeholder("F", [batch, r, t]), cora.placeholder("G", [batch, t, c])
matmul_out = cora.compute("O", [batch, r, c], cora.sum(F[batch, r, t] * G[batch, t, c], over=t))


def micro_kernel(s: Schedule) -> Schedule:
    """Rows of balanced tiles, computed by micro-kernels (on processors that have them)."""
    s = s.split("O", "r", 6, names=("ro", "ri"), tail="balanced").split("O", "c", 64, names=("co", "ci"))
    return s.reorder("O", "ro", "co", "ri", "ci", "t").parallel("O", "batch").tensorize("O", "ri")


matmul = Case(
    "batched_ragged_matmul",
    (matmul_out,),
    (
        Batch({"m": (), "n": (), "k": ()}, {"M": 0}),
        Batch({"m": (3,), "n": (0,), "k": (2,)}, {"M": 1}),
        Batch({"m": (3, 0), "n": (4, 5), "k": (0, 7)}, {"M": 2}),
        Batch({"m": (1,), "n": (1,), "k": (1,)}, {"M": 1}),
        Batch({"m": (5, 6, 7, 0, 1), "n": (15, 16, 17, 9, 33), "k": (3, 4, 5, 8, 16)}, {"M": 5}),
        Batch({"m": (40, 1, 1), "n": (37, 2, 1), "k": (50, 1, 3)}, {"M": 3}),
        Batch({"m": (6,) * 3, "n": (16,) * 3, "k": (4,) * 3}, {"M": 3}),
    ),
    {
        "tiles": lambda s: (
            s.split("O", "r", 6, names=("ro", "ri"))
            .split("O", "c", 16, names=("co", "ci"))
            .split("O", "t", 4, names=("to", "ti"))
            .reorder("O", "ro", "co", "to", "ti", "ri", "ci")
            .unroll("O", "ri")
            .vectorize("O", "ci")
            .parallel("O", "batch")
        ),
        "padded": lambda s: (
            s.pad_dim("F", "t", 4)
            .pad_dim("G", "t", 2)
            .pad_dim("G", "c", 16)
            .pad_dim("O", "r", 4)
            .pad_dim("O", "c", 16)
            .pad_loop("O", "r", 4)
            .pad_loop("O", "c", 16)
            .pad_loop("O", "t", 4)
            .split("O", "c", 16, names=("co", "ci"))
            .reorder("O", "co", "t", "ci")
            .vectorize("O", "ci")
            .fuse("O", "batch", "r", name="f")
            .parallel("O", "f")
        ),
        "balanced": lambda s: (
            s.split("O", "r", 6, names=("ro", "ri"), tail="balanced")
            .split("O", "c", 16, names=("co", "ci"), tail="balanced")
            .split("O", "t", parts=3)
            .parallel("O", "batch")
        ),
        **({"micro_kernel": micro_kernel} if select(detect().features) else {}),
        "stored_otherwise": lambda s: (
            s.reorder_dims("F", "batch", "t", "r")
            .reorder_dims("O", "batch", "c", "r")
            .reorder("O", "c", "r")
            .parallel("O", "batch")
            .hoist_loads(False)
        ),
        "dot": lambda s: s.vectorize("O", "t", 16).fuse("O", "batch", "r", "c", name="f").parallel("O", "f"),
    },
)

CASES = (
    scores,
    elementwise,
    softmax,
    softmax_of_normal,
    layer_norm,
    row_norm,
    attention,
    matmul,
)
