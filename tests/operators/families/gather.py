"""Indices read from data, and lengths used as data."""

from __future__ import annotations

import numpy as np

import cora
from tests.operators.harness import Array, Batch, Case
from tests.operators.lengths import pairs, rows

M = cora.size("M")
batch = cora.Dim("batch", M)
lens, picks = cora.lengths("lens", batch), cora.lengths("picks", batch)
pos, p = cora.Dim("pos", lens[batch]), cora.Dim("p", picks[batch])
A = cora.placeholder("A", [batch, pos])
idx = cora.placeholder("idx", [batch, p], dtype="int32")


def within_row(rng: np.random.Generator, batch: Batch, at: Array) -> Array:
    """A valid position in the row of the same batch entry."""
    return (rng.random(len(at)) * np.array(batch.lengths["lens"])[at[:, 0]]).astype(np.int64)


def _filled(batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
    """No picks from an empty row."""
    return tuple(
        Batch(
            {
                "lens": b.lengths["lens"],
                "picks": [n if c else 0 for n, c in zip(b.lengths["picks"], b.lengths["lens"], strict=True)],
            },
            b.sizes,
        )
        for b in batches
    )


BATCHES = _filled(pairs("picks", "lens", 16, giant=100))

rows_gathered = Case(
    "gather",
    (cora.compute("O", [batch, p], A[batch, idx[batch, p]] * 2.0),),
    BATCHES,
    {
        "lanes": lambda s: s.vectorize("O", "p", 16).parallel("O", "batch"),
        "padded": lambda s: (
            s.pad_dim("idx", "p", 8)
            .pad_dim("O", "p", 8)
            .pad_loop("O", "p", 8)
            .pad_dim("A", "pos", 4)
            .fuse("O", "batch", "p", name="f")
            .vectorize("O", "f", 8)
            .parallel("O", "f_o")
        ),
        "fused": lambda s: s.fuse("O", "batch", "p", name="f").vectorize("O", "f", 16).parallel("O", "f_o"),
    },
    {"idx": within_row},
)

h = cora.Dim("h", 5)
N = cora.size("N")
E = cora.placeholder("E", [cora.Dim("entry", N), h])
token = cora.placeholder("token", [batch, pos], dtype="int64")
embedding = Case(
    "embedding",
    (cora.compute("O", [batch, pos, h], E[token[batch, pos], h]),),
    rows(16, N=7),
    {
        "fused": lambda s: s.pad_dim("O", "h", 8).fuse("O", "batch", "pos", name="f").parallel("O", "f"),
        "padded": lambda s: (
            s.pad_dim("token", "pos", 4)
            .pad_dim("O", "pos", 4)
            .pad_loop("O", "pos", 4)
            .pad_dim("E", "h", 8)
            .vectorize("O", "h", 8)
        ),
    },
    {"token": lambda rng, batch, at: rng.integers(0, batch.sizes["N"], len(at))},
)

sums = Case(
    "gathered_sum",
    (cora.compute("O", [batch], cora.sum(A[batch, idx[batch, p]], over=p)),),
    BATCHES,
    {
        "lanes": lambda s: s.vectorize("O", "p", 16).parallel("O", "batch"),
        "padded": lambda s: s.pad_dim("idx", "p", 8).pad_loop("O", "p", 8).parallel("O", "batch"),
    },
    {"idx": within_row},
)

maybe = cora.placeholder("maybe", [batch, p], dtype="int32")
chosen = maybe[batch, p]
masked = Case(
    "gather_under_a_condition",
    (
        cora.compute(
            "O", [batch, p], cora.where((chosen >= 0) & (chosen < lens[batch]), A[batch, chosen], -1.0)
        ),
    ),
    BATCHES,
    {"lanes": lambda s: s.vectorize("O", "p", 16).parallel("O", "batch")},
    {"maybe": lambda rng, batch, at: rng.integers(-5, 20, len(at)) * rng.choice([1, 10**8], len(at))},
)

row_of = cora.placeholder("row_of", [batch], dtype="int32")
two_level = Case(
    "gather_of_rows",
    (
        cora.compute(
            "O",
            [batch, p],
            cora.where(p < lens[row_of[batch]], A[row_of[batch], p], 0.0),
        ),
    ),
    BATCHES,
    {"lanes": lambda s: s.vectorize("O", "p", 16).parallel("O", "batch")},
    {"row_of": lambda rng, batch, at: rng.permutation(len(at))},
    batch_dim=None,
)

lengths_as_data = Case(
    "lengths_as_data",
    (
        cora.compute("O", [batch, pos], A[batch, pos] / cora.cast(lens[batch], "float32")),
        cora.compute("P", [batch], cora.cast(lens[batch] * lens[batch] - picks[batch], "int32")),
        cora.compute("Z", [batch, pos], cora.where(lens[0] > pos, A[batch, pos], 1.0)),
    ),
    pairs("lens", "picks", 16),
    {
        "lanes": lambda s: s.vectorize("O", "pos", 16).vectorize("P", "batch", 16).vectorize("Z", "pos", 16),
        "fused": lambda s: s.fuse("O", "batch", "pos", name="f").vectorize("O", "f", 16).parallel("O", "f_o"),
    },
    batch_dim=None,
)

cyclic = Case(
    "cyclic_index",
    (
        cora.compute(
            "O", [batch, p], cora.where(lens[batch] > 0, A[batch, p % cora.maximum(lens[batch], 1)], 0.0)
        ),
        cora.compute("D", [batch, p], cora.cast(p // cora.maximum(lens[batch], 1), "int64")),
    ),
    pairs("lens", "picks", 16),
    {"lanes": lambda s: s.vectorize("O", "p", 16).vectorize("D", "p", 8).parallel("O", "batch")},
)

CASES = (rows_gathered, embedding, sums, masked, two_level, lengths_as_data, cyclic)
