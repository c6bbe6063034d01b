"""Extents and indices of other forms: concatenation, prefix sums, products of lengths, reshaping."""

from __future__ import annotations

import cora
from tests.operators.harness import Batch, Case
from tests.operators.lengths import hostile, pairs, rows

M = cora.size("M")
batch = cora.Dim("batch", M)
lens, more = cora.lengths("lens", batch), cora.lengths("more", batch)
pos, extra = cora.Dim("pos", lens[batch]), cora.Dim("extra", more[batch])
A = cora.placeholder("A", [batch, pos])
B = cora.placeholder("B", [batch, extra])
H = cora.size("H")
h = cora.Dim("h", H)
X = cora.placeholder("X", [batch, pos, h])

both = cora.Dim("both", lens[batch] + more[batch])
C = cora.placeholder("C", [batch, both])
joined = Case(
    "concatenation",
    (
        cora.compute(
            "O", [batch, both], cora.where(both < lens[batch], A[batch, both], B[batch, both - lens[batch]])
        ),
        cora.compute("L", [batch, pos], C[batch, pos] * 2.0),
        cora.compute("R", [batch, extra], C[batch, lens[batch] + extra] - 1.0),
    ),
    pairs("lens", "more", 16, giant=100),
    {
        "lanes": lambda s: (
            s.vectorize("O", "both", 16)
            .parallel("O", "batch")
            .vectorize("L", "pos", 16)
            .split("R", "extra", 8, tail="balanced")
            .parallel("R", "batch")
        ),
        "fused": lambda s: (
            s.pad_dim("O", "both", 4)
            .pad_loop("O", "both", 4)
            .fuse("O", "batch", "both", name="f")
            .vectorize("O", "f", 4)
            .parallel("O", "f_o")
            .pad_dim("R", "extra", 8, contents="zero")
            .pad_loop("R", "extra", 8)
            .pad_dim("C", "both", to_max=True)
        ),
    },
)

upto = cora.Dim("upto", pos + 1)
prefix = Case(
    "prefix_sums",
    (
        cora.compute("O", [batch, pos], cora.sum(A[batch, upto], over=upto)),
        cora.compute("G", [batch, pos], cora.max(A[batch, upto] * A[batch, pos], over=upto)),
        cora.compute("I", [batch, pos], cora.argmax(A[batch, upto], over=upto)),
    ),
    rows(16, giant=90),
    {
        "lanes": lambda s: (
            s.vectorize("O", "upto", 16)
            .parallel("O", "batch")
            .split("G", "upto", 8, tail="balanced")
            .fuse("I", "batch", "pos", name="f")
            .parallel("I", "f")
        ),
        "padded": lambda s: (
            s.pad_dim("A", "pos", 8)
            .pad_dim("O", "pos", 8)
            .pad_loop("O", "pos", 8)
            .pad_loop("G", "upto", 4)
            .fuse("O", "batch", "pos", name="f")
            .parallel("O", "f")
        ),
    },
)

area = cora.Dim("area", lens[batch] * more[batch])
S = cora.placeholder("S", [batch, area])
T = cora.placeholder("T", [batch, pos, extra])
products = Case(
    "product_of_lengths",
    (
        cora.compute("O", [batch, area], S[batch, area] * 2.0),
        cora.compute("R", [batch], cora.mean(S[batch, area], over=area)),
        cora.compute("P", [batch, pos, extra], S[batch, pos * more[batch] + extra] + A[batch, pos]),
    ),
    pairs("lens", "more", 8, giant=20),
    {
        "lanes": lambda s: (
            s.vectorize("O", "area", 16)
            .parallel("O", "batch")
            .vectorize("R", "area", 16)
            .vectorize("P", "extra", 8)
            .parallel("P", "batch")
        ),
        "fused": lambda s: (
            s.fuse("O", "batch", "area", name="f")
            .vectorize("O", "f", 16)
            .parallel("O", "f_o")
            .fuse("P", "batch", "pos", "extra", name="f")
            .vectorize("P", "f", 8)
            .parallel("P", "f_o")
        ),
    },
)

D = cora.placeholder("D", [batch, h])
flat = cora.Dim("flat", M * H)
F = cora.placeholder("F", [flat])
DENSE = tuple(Batch({}, {"M": m, "H": w}) for m in (0, 1, 3, 17) for w in (0, 1, 16, 17))
reshaped = Case(
    "reshape",
    (cora.compute("O", [batch, h], F[batch * H + h] + D[batch, h]),),
    DENSE,
    {
        "fused": lambda s: s.fuse("O", "batch", "h", name="f").vectorize("O", "f", 16).parallel("O", "f_o"),
        "padded": lambda s: s.pad_dim("O", "h", 8).pad_loop("O", "h", 8).parallel("O", "batch"),
    },
    batch_dim=None,
)

ordered = Case(
    "dense_dim_outside",
    (
        cora.compute("O", [h, batch, pos], X[batch, pos, h]),
        cora.compute("P", [batch, h, pos], X[batch, pos, h] * 2.0),
    ),
    tuple(Batch({"lens": n}, {"M": len(n), "H": w}) for n in hostile(8, giant=50) for w in (1, 5, 16)),
    {
        "lanes": lambda s: s.vectorize("O", "pos", 8).parallel("O", "h").vectorize("P", "pos", 16),
        "fused": lambda s: (
            s.pad_dim("O", "pos", 4)
            .pad_loop("O", "pos", 4)
            .fuse("O", "h", "batch", "pos", name="f")
            .parallel("O", "f")
            .pad_dim("O", "batch", 2)
            .reorder("P", "pos", "h")
            .parallel("P", "batch")
        ),
        "stored_otherwise": lambda s: (
            s.reorder_dims("O", "batch", "pos", "h")
            .reorder_dims("P", "batch", "pos", "h")
            .reorder("P", "pos", "h")
            .vectorize("P", "h", 8)
            .parallel("P", "batch")
        ),
    },
    batch_dim=None,
)

column_sums = Case(
    "columns_of_everything",
    (
        cora.compute("O", [h], cora.sum(X[batch, pos, h], over=[batch, pos])),
        cora.compute("G", [h], cora.max(X[batch, pos, h], over=[batch, pos])),
        cora.compute("E", [h], cora.mean(X[batch, pos, h], over=[batch, pos])),
    ),
    tuple(Batch({"lens": n}, {"M": len(n), "H": w}) for n in hostile(8, giant=50) for w in (0, 1, 16, 17)),
    {
        "lanes": lambda s: (
            s.split("O", "h", 16, names=("ho", "hi"))
            .reorder("O", "ho", "batch", "pos", "hi")
            .vectorize("O", "hi")
            .parallel("O", "ho")
            .fuse("G", "batch", "pos", name="f")
            .parallel("G", "h")
        ),
        "split": lambda s: (
            s.pad_dim("X", "pos", 4)
            .pad_loop("O", "pos", 4)
            .fuse("O", "batch", "pos", name="f")
            .split("O", "f", 4, names=("fo", "fi"))
            .split("O", "h", 4, names=("ho", "hi"))
            .reorder("O", "ho", "fo", "fi", "hi")
            .unroll("O", "hi")
        ),
    },
    batch_dim=None,
)

before = lens[batch - 1]
neighbours = Case(
    "lengths_of_neighbours",
    (
        cora.compute("O", [batch], cora.cast(lens[batch + 1] - lens[batch - 1], "int64")),
        cora.compute("P", [batch, pos], A[batch, pos] + cora.cast(lens[pos], "float32")),
        cora.compute(
            "Q",
            [batch, pos],
            cora.where(pos < before, A[batch - 1, cora.minimum(pos, before - 1)], 7.0),
        ),
    ),
    rows(16),
    {
        "lanes": lambda s: (
            s.vectorize("O", "batch", 16)
            .vectorize("P", "pos", 16)
            .parallel("P", "batch")
            .vectorize("Q", "pos", 16)
        ),
        "fused": lambda s: s.fuse("P", "batch", "pos", name="f").vectorize("P", "f", 16).parallel("P", "f_o"),
    },
    batch_dim=None,
)

none, unit = cora.Dim("none", 0), cora.Dim("unit", 1)
Z = cora.placeholder("Z", [batch, unit, pos, none])
U = cora.placeholder("U", [unit, batch, pos])
constant = Case(
    "extents_zero_and_one",
    (
        cora.compute("O", [batch, unit, pos, none], Z[batch, unit, pos, none] * 2.0),
        cora.compute("R", [batch, pos], cora.sum(Z[batch, 0, pos, none], over=none)),
        cora.compute("P", [batch, pos, unit], U[unit, batch, pos] + 1.0),
        cora.compute("Q", [batch], cora.prod(U[unit, batch, pos], over=[unit, pos])),
    ),
    rows(16),
    {
        "fused": lambda s: (
            s.fuse("O", "batch", "unit", "pos", "none", name="f")
            .parallel("O", "f")
            .fuse("P", "batch", "pos", "unit", name="f")
            .vectorize("P", "f", 16)
            .parallel("P", "f_o")
            .fuse("Q", "unit", "pos", name="f")
            .vectorize("Q", "f", 8)
        ),
        "padded": lambda s: (
            s.pad_dim("O", "none", 4)
            .pad_loop("O", "none", 4)
            .pad_dim("P", "unit", 4)
            .pad_loop("P", "unit", 4)
            .pad_dim("Z", "none", 4)
            .pad_dim("U", "unit", 2)
        ),
    },
)

CASES = (
    joined,
    prefix,
    products,
    reshaped,
    ordered,
    column_sums,
    neighbours,
    constant,
)
