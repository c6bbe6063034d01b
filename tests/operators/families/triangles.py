"""Triangles, bands, and dims that depend on two outer dims."""

from __future__ import annotations

import cora
from tests.operators.harness import Batch, Case
from tests.operators.lengths import pairs, rows

n = cora.size("n")
row = cora.Dim("row", n)
lower = cora.Dim("lower", row + 1)
upper = cora.Dim("upper", n - row)
w = cora.size("w")
band = cora.Dim("band", cora.minimum(row + 1, w))

L = cora.placeholder("L", [row, lower])
U = cora.placeholder("U", [row, upper])
full = cora.Dim("full", n)
D = cora.placeholder("D", [row, full])
X = cora.placeholder("X", [full])

SIDES = tuple(Batch({}, {"n": k}) for k in (0, 1, 2, 5, 15, 16, 17, 33))
BANDS = tuple(Batch({}, {"n": k, "w": b}) for k in (0, 1, 2, 15, 17, 33) for b in (0, 1, 3, 16, 40))

lower_product = Case(
    "triangle_times_vector",
    (
        cora.compute("O", [row], cora.sum(L[row, lower] * X[lower], over=lower)),
        cora.compute("T", [row, lower], L[row, lower] * 2.0 + D[row, lower]),
    ),
    SIDES,
    {
        "lanes": lambda s: (
            s.vectorize("O", "lower", 16).parallel("O", "row").vectorize("T", "lower", 8).parallel("T", "row")
        ),
        "fused": lambda s: (
            s.pad_dim("T", "lower", 4)
            .pad_loop("T", "lower", 4)
            .fuse("T", "row", "lower", name="f")
            .vectorize("T", "f", 4)
            .parallel("T", "f_o")
            .pad_dim("L", "lower", 4)
            .pad_loop("O", "lower", 4)
            .split("O", "lower", 4)
        ),
        "bulk": lambda s: (
            s.fuse("T", "row", "lower", name="f")
            .bulk_pad("T", "f", 32)
            .split("T", "f", 32, names=("fo", "fi"))
            .parallel("T", "fo")
            .vectorize("T", "fi", 16)
            .pad_dim("L", "lower", to_max=True)
        ),
        "outer_padded": lambda s: (
            s.pad_dim("T", "row", 4)
            .pad_loop("T", "row", 4)
            .pad_dim("T", "lower", 8)
            .pad_dim("D", "full", 8)
            .parallel("T", "row")
        ),
    },
    batch_dim=None,
)

upper_triangle = Case(
    "upper_triangle",
    (
        cora.compute("T", [row, upper], U[row, upper] + D[row, row + upper] - L[row + upper, row]),
        cora.compute("O", [row], cora.max(U[row, upper], over=upper)),
    ),
    SIDES,
    {
        "lanes": lambda s: s.vectorize("T", "upper", 16).parallel("T", "row").vectorize("O", "upper", 16),
        "fused": lambda s: (
            s.pad_dim("T", "upper", 2)
            .fuse("T", "row", "upper", name="f")
            .vectorize("T", "f", 16)
            .parallel("T", "f_o")
        ),
    },
    batch_dim=None,
)

B = cora.placeholder("B", [row, band])
bands = Case(
    "band",
    (
        cora.compute("T", [row, band], B[row, band] * 3.0 + D[row, row - band]),
        cora.compute("O", [row], cora.sum(B[row, band], over=band)),
    ),
    BANDS,
    {
        "lanes": lambda s: s.vectorize("T", "band", 16).parallel("T", "row").vectorize("O", "band", 16),
        "fused": lambda s: (
            s.pad_dim("T", "band", 4)
            .pad_loop("T", "band", 4)
            .fuse("T", "row", "band", name="f")
            .split("T", "f", 4, names=("fo", "fi"))
            .vectorize("T", "fi")
            .parallel("T", "fo")
        ),
        "to_max": lambda s: (
            s.pad_dim("B", "band", 8, to_max=True)
            .pad_loop("O", "band", 8)
            .vectorize("O", "band", 8)
            .parallel("O", "row")
        ),
    },
    batch_dim=None,
)

M = cora.size("M")
batch = cora.Dim("batch", M)
q, kv = cora.lengths("q", batch), cora.lengths("kv", batch)
i = cora.Dim("i", q[batch])
keys = cora.Dim("keys", kv[batch] - q[batch] + i + 1)
j = cora.Dim("j", kv[batch])
S = cora.placeholder("S", [batch, i, keys])
V = cora.placeholder("V", [batch, j])
causal_cases = (
    *pairs("q", "kv", 8, giant=30),
    Batch({"q": (5, 9, 3), "kv": (2, 9, 0)}, {"M": 3}),
    Batch({"q": (9,), "kv": (3,)}, {"M": 1}),
    Batch({"q": (16, 1, 17), "kv": (31, 16, 17)}, {"M": 3}),
)
causal = Case(
    "causal_with_a_prefix",
    (
        cora.compute("O", [batch, i, keys], S[batch, i, keys] + V[batch, keys]),
        cora.compute("R", [batch, i], cora.sum(S[batch, i, keys] * V[batch, keys], over=keys)),
        cora.compute("E", [batch, i], cora.mean(S[batch, i, keys], over=keys)),
    ),
    causal_cases,
    {
        "lanes": lambda s: (
            s.vectorize("O", "keys", 8)
            .parallel("O", "batch")
            .fuse("R", "batch", "i", name="f")
            .vectorize("R", "keys", 16)
            .parallel("R", "f")
        ),
        "fused": lambda s: (
            s.pad_dim("O", "keys", 4)
            .pad_loop("O", "keys", 4)
            .fuse("O", "batch", "i", "keys", name="f")
            .vectorize("O", "f", 4)
            .parallel("O", "f_o")
            .pad_dim("S", "keys", 2)
            .pad_dim("R", "i", 4)
        ),
        "to_max": lambda s: (
            s.pad_dim("S", "keys", to_max=True)
            .pad_dim("O", "keys", 8, to_max=True)
            .pad_dim("O", "i", 2)
            .pad_loop("O", "i", 2)
            .pad_loop("O", "keys", 8)
            .vectorize("O", "keys", 8)
            .parallel("O", "batch")
        ),
    },
)

a, b = cora.lengths("a", batch), cora.lengths("b", batch)
x = cora.Dim("x", a[batch] - b[batch])
N = cora.placeholder("N", [batch, x])
negative = Case(
    "negative_extents",
    (
        cora.compute("O", [batch, x], N[batch, x] * 2.0),
        cora.compute("P", [batch], cora.prod(N[batch, x], over=x)),
        cora.compute("E", [batch], cora.mean(N[batch, x], over=x)),
        cora.compute("G", [batch], cora.argmax(N[batch, x], over=x)),
    ),
    (
        *pairs("a", "b", 16, giant=40),
        Batch({"a": (3, 0, 20, 16), "b": (7, 5, 3, 0)}, {"M": 4}),
        Batch({"a": (0, 0), "b": (9, 1)}, {"M": 2}),
    ),
    {
        "fused": lambda s: (
            s.pad_dim("O", "x", 8)
            .pad_loop("O", "x", 8)
            .fuse("O", "batch", "x", name="f")
            .vectorize("O", "f", 8)
            .parallel("O", "f_o")
            .vectorize("P", "x", 16)
        ),
        "padded": lambda s: s.pad_dim("N", "x", 4).pad_loop("P", "x", 4).pad_dim("O", "x", to_max=True),
    },
)

lens = cora.lengths("lens", batch)
i1 = cora.Dim("i1", lens[batch])
i2 = cora.Dim("i2", i1 + 1)
i3 = cora.Dim("i3", i1 - i2 + 1)
C = cora.placeholder("C", [batch, i1, i2, i3])
simplex = Case(
    "simplex",
    (
        cora.compute("O", [batch, i1, i2, i3], C[batch, i1, i2, i3] + 1.0),
        cora.compute("R", [batch], cora.sum(C[batch, i1, i2, i3], over=[i1, i2, i3])),
        cora.compute("E", [batch], cora.mean(C[batch, i1, i2, i3], over=[i1, i2, i3])),
    ),
    rows(4, giant=12),
    {
        "fused": lambda s: (
            s.fuse("O", "batch", "i1", "i2", "i3", name="f")
            .vectorize("O", "f", 16)
            .parallel("O", "f_o")
            .fuse("R", "i1", "i2", name="g")
            .vectorize("R", "i3", 4)
            .parallel("R", "batch")
        ),
        "padded": lambda s: (
            s.pad_dim("O", "i3", 2)
            .pad_dim("O", "i1", 3)
            .pad_dim("C", "i2", 4)
            .pad_loop("O", "i3", 2)
            .fuse("O", "batch", "i1", name="f")
            .parallel("O", "f")
        ),
    },
)

CASES = (lower_product, upper_triangle, bands, causal, negative, simplex)
