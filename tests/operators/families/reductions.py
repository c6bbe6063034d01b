"""Reductions over a ragged dim, a dense dim, two ragged dims, everything; NaN, infinities, ties, empty rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import cora
from cora import Schedule
from tests.operators.harness import Array, Batch, Case, Fill, Transform
from tests.operators.lengths import hostile, pairs, rows

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])
H = cora.size("H")
h = cora.Dim("h", H)
A = cora.placeholder("A", [batch, pos])
X = cora.placeholder("X", [batch, pos, h])

Reduction = Callable[..., cora.ir.expr.Expr]
OPS: dict[str, Reduction] = {
    "sum": cora.sum,
    "max": cora.max,
    "min": cora.min,
    "mean": cora.mean,
    "prod": cora.prod,
    "argmax": cora.argmax,
    "argmin": cora.argmin,
}
LANES = ("sum", "max", "min", "mean", "prod")


def near_one(rng: np.random.Generator, batch: Batch, at: Array) -> Array:
    """Factors whose products stay in range, of both signs."""
    return rng.choice([-1.0, 1.0], len(at)) * rng.uniform(0.9, 1.1, len(at))


def odd_values(rng: np.random.Generator, batch: Batch, at: Array) -> Array:
    """Few values, so many ties; with infinities, signed zeros and, in a third of the rows, NaN."""
    values = rng.choice(
        [-np.inf, -1.0, -0.0, 0.0, 1.0, 2.0, np.inf], len(at), p=[0.02, 0.3, 0.1, 0.1, 0.3, 0.16, 0.02]
    )
    nan = (rng.random(len(at)) < 0.2) & (at[:, 0] % 3 == 1)
    return np.where(nan, np.nan, values)


def over_rows(s: Schedule) -> Schedule:
    """Rows in parallel, one element after the other."""
    return s.parallel("O", "batch")


def lanes(s: Schedule) -> Schedule:
    """The reduced dim in lanes."""
    return s.vectorize("O", "pos", 16).parallel("O", "batch", balance="count")


def many_lanes(s: Schedule) -> Schedule:
    """The reduced dim in lanes of several registers, the input padded to another multiple."""
    return s.pad_dim("A", "pos", 8).pad_dim("O", "batch", 4).vectorize("O", "pos", 64)


def padded_reduction(s: Schedule) -> Schedule:
    """Loop and storage of the reduced dim padded: the padding holds no values."""
    return (
        s.pad_dim("A", "pos", 16)
        .pad_loop("O", "pos", 16)
        .split("O", "pos", 4, names=("po", "pi"))
        .unroll("O", "pi")
    )


def to_max(s: Schedule) -> Schedule:
    """The input stored fully padded; blocks of rows."""
    s = s.pad_dim("A", "pos", 4, to_max=True).split("O", "batch", 4, names=("bo", "bi"))
    return s.parallel("O", "bo")


def columns(s: Schedule) -> Schedule:
    """The dense dim in lanes inside the reduction."""
    s = s.split("O", "h", 16, names=("ho", "hi")).reorder("O", "ho", "pos", "hi").vectorize("O", "hi")
    return s.fuse("O", "batch", "ho", name="f").parallel("O", "f")


def columns_outside(s: Schedule) -> Schedule:
    """The dense dim outside; padded storage of the output in it."""
    return s.pad_dim("O", "h", 8).pad_loop("O", "h", 8).fuse("O", "batch", "h", name="f").parallel("O", "f")


def column_tiles(s: Schedule) -> Schedule:
    """A tile of 4 x 8 accumulators, the reduced dim split."""
    s = s.split("O", "h", 8, names=("ho", "hi")).split("O", "pos", 4, names=("po", "pi"))
    return s.reorder("O", "ho", "po", "pi", "hi").unroll("O", "hi").parallel("O", "batch")


def _ragged(op: str, fill: Fill | None = None) -> Case:
    schedules: dict[str, Transform] = {f.__name__: f for f in (over_rows, padded_reduction, to_max)}
    if op in LANES:
        schedules |= {f.__name__: f for f in (lanes, many_lanes)}
    name = f"{op}_over_ragged" + ("_odd_values" if fill else "")
    fills = {"A": fill or near_one} if fill or op == "prod" else {}
    output = cora.compute("O", [batch], OPS[op](A[batch, pos], over=pos))
    return Case(name, (output,), rows(16, 64), schedules, fills)


def _columns(op: str) -> Case:
    """Over the ragged dim, with a dense dim inside."""
    output = cora.compute("O", [batch, h], OPS[op](X[batch, pos, h], over=pos))
    batches = tuple(
        Batch({"lens": n}, {"M": len(n), "H": w}) for n in hostile(4, giant=60) for w in (1, 15, 16, 33)
    )
    schedules: dict[str, Transform] = {f.__name__: f for f in (columns, columns_outside, column_tiles)}
    if op == "prod":
        del schedules["columns_outside"]
    return Case(
        f"{op}_of_columns",
        (output,),
        (*batches, Batch({"lens": (2, 3)}, {"M": 2, "H": 0})),
        schedules,
        {"X": odd_values} if op != "prod" else {"X": near_one},
    )


def _dense(op: str) -> Case:
    """Over the dense dim, a ragged result."""
    output = cora.compute("O", [batch, pos], OPS[op](X[batch, pos, h], over=h))
    batches = tuple(
        Batch({"lens": n}, {"M": len(n), "H": w}) for n in hostile(4, giant=60) for w in (0, 1, 16, 17)
    )
    schedules: dict[str, Transform] = {
        "fused_rows": lambda s: s.fuse("O", "batch", "pos", name="f").parallel("O", "f"),
        "padded_rows": lambda s: (
            s.pad_dim("O", "pos", 8)
            .pad_loop("O", "pos", 4)
            .pad_dim("X", "h", 8)
            .split("O", "h", 4)
            .parallel("O", "batch")
        ),
    }
    if op in LANES:
        schedules["lanes"] = lambda s: (
            s.fuse("O", "batch", "pos", name="f").vectorize("O", "h", 16).parallel("O", "f")
        )
    return Case(
        f"{op}_over_dense",
        (output,),
        batches,
        schedules,
        {"X": odd_values} if op != "prod" else {"X": near_one},
    )


m, n = cora.lengths("m", batch), cora.lengths("n", batch)
i, j = cora.Dim("i", m[batch]), cora.Dim("j", n[batch])
T = cora.placeholder("T", [batch, i, j])


def _two(op: str) -> Case:
    """Over two ragged dims that depend on the same outer dim."""
    output = cora.compute("O", [batch], OPS[op](T[batch, i, j], over=[i, j]))
    schedules: dict[str, Transform] = {
        "fused": lambda s: s.fuse("O", "i", "j", name="f").parallel("O", "batch"),
        "swapped": lambda s: s.reorder("O", "j", "i").parallel("O", "batch"),
        "lanes": lambda s: s.pad_dim("T", "j", 4).vectorize("O", "j", 8).parallel("O", "batch"),
        "fused_lanes": lambda s: (
            s.fuse("O", "i", "j", name="f").vectorize("O", "f", 16).parallel("O", "batch")
        ),
    }
    return Case(
        f"{op}_over_two_ragged",
        (output,),
        pairs("m", "n", 8, giant=30),
        schedules,
        {"T": near_one} if op == "prod" else {},
    )


everything = Case(
    "sum_mean_max_of_everything",
    (
        cora.compute("S", [], cora.sum(A[batch, pos], over=[batch, pos])),
        cora.compute("E", [], cora.mean(A[batch, pos] * 2.0, over=[batch, pos])),
        cora.compute("G", [], cora.max(A[batch, pos], over=[batch, pos])),
        cora.compute("I", [], cora.sum(cora.cast(pos, "int64"), over=[batch, pos])),
    ),
    rows(16, 32),
    {
        "fused_lanes": lambda s: (
            s.fuse("S", "batch", "pos", name="f")
            .vectorize("S", "f", 32)
            .fuse("E", "batch", "pos", name="f")
            .bulk_pad("E", "f", 16)
            .vectorize("E", "f", 16)
            .vectorize("G", "pos", 16)
        ),
        "padded": lambda s: (
            s.pad_dim("A", "pos", 16)
            .pad_loop("S", "pos", 8)
            .fuse("S", "batch", "pos", name="f")
            .split("S", "f", 4)
            .pad_loop("G", "pos", 16)
            .fuse("G", "batch", "pos", name="f")
            .vectorize("G", "f", 16)
        ),
    },
    batch_dim=None,
)

statistics = Case(
    "several_reductions_in_one",
    (
        cora.compute(
            "O",
            [batch],
            cora.max(A[batch, pos], over=pos)
            - cora.min(A[batch, pos], over=pos)
            + cora.mean(A[batch, pos], over=pos),
        ),
        cora.compute(
            "P", [batch], cora.argmax(A[batch, pos], over=pos) - cora.argmin(A[batch, pos], over=pos)
        ),
    ),
    rows(16),
    {"lanes": lambda s: s.vectorize("O", "pos", 16).parallel("O", "batch").parallel("P", "batch")},
)

sub = cora.lengths("sub", batch, i)
w = cora.Dim("w", sub[batch, i])
U = cora.placeholder("U", [batch, i, w])
nested = Case(
    "nested_lengths",
    (
        cora.compute("O", [batch, i], cora.sum(U[batch, i, w], over=w)),
        cora.compute("R", [batch], cora.max(U[batch, i, w], over=[i, w])),
        cora.compute("D", [batch, i, w], U[batch, i, w] * 2.0),
    ),
    (
        Batch({"m": (), "sub": ()}, {"M": 0}),
        Batch({"m": (0,), "sub": ()}, {"M": 1}),
        Batch({"m": (0, 2, 0), "sub": (0, 0)}, {"M": 3}),
        Batch({"m": (1,), "sub": (1,)}, {"M": 1}),
        Batch({"m": (3, 0, 2), "sub": (15, 16, 17, 0, 5)}, {"M": 3}),
        Batch({"m": (1, 5, 1, 0), "sub": (2, 0, 31, 32, 33, 200, 1)}, {"M": 4}),
        Batch({"m": (4, 4), "sub": (7,) * 8}, {"M": 2}),
    ),
    {
        "fused": lambda s: (
            s.fuse("O", "batch", "i", name="f")
            .vectorize("O", "w", 16)
            .parallel("O", "f")
            .pad_dim("U", "w", 4)
            .fuse("R", "i", "w", name="g")
            .vectorize("R", "g", 8)
            .parallel("R", "batch")
            .pad_dim("D", "w", 8)
            .pad_loop("D", "w", 8)
            .fuse("D", "batch", "i", "w", name="f")
            .vectorize("D", "f", 8)
            .parallel("D", "f_o")
        ),
        "padded": lambda s: (
            s.pad_dim("U", "i", 2, to_max=True)
            .pad_dim("D", "i", 4)
            .pad_dim("D", "w", 4)
            .pad_loop("D", "i", 2)
            .pad_loop("D", "w", 4)
            .pad_dim("O", "i", 4)
            .parallel("D", "batch")
        ),
    },
)

CASES = (
    *(_ragged(op) for op in OPS),
    *(_ragged(op, odd_values) for op in ("sum", "max", "min", "argmax", "argmin")),
    *(_columns(op) for op in OPS),
    *(_dense(op) for op in ("sum", "max", "mean", "argmin")),
    *(_two(op) for op in ("sum", "max", "min", "mean", "prod")),
    everything,
    statistics,
    nested,
)
