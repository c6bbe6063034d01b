"""Element-wise operators: Listing 1, ragged with ragged, broadcasting, index arithmetic, chains, several outputs."""

from __future__ import annotations

import cora
from cora import Schedule
from tests.operators.harness import Batch, Case
from tests.operators.lengths import pairs, rows

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])
H = cora.size("H")
h = cora.Dim("h", H)

A = cora.placeholder("A", [batch, pos])
B = cora.placeholder("B", [batch, pos])
X = cora.placeholder("X", [batch, pos, h])
O = cora.compute("O", [batch, pos], 2 * A[batch, pos])  # noqa: E741  (the name in the README)


def design(s: Schedule) -> Schedule:
    """The schedule of the README."""
    s = s.pad_loop("O", "pos", 32).pad_dim("O", "pos", 64).fuse("O", "batch", "pos", name="f")
    return s.split("O", "f", 32, names=("fo", "fi")).parallel("O", "fo").vectorize("O", "fi")


def fused_storage(s: Schedule) -> Schedule:
    """Loop and storage fused and padded alike: the offset is the loop variable."""
    for name in ("A", "B", "O"):
        if name in s.state.layouts:
            s = s.pad_dim(name, "pos", 16)
    s = s.pad_loop("O", "pos", 16).fuse("O", "batch", "pos", name="f")
    return s.vectorize("O", "f", 16).parallel("O", "f_o", balance="count")


def fused_unpadded(s: Schedule) -> Schedule:
    """Lanes that cross rows: row and position come from the maps, lane by lane."""
    return (
        s.pad_dim("O", "pos", 4)
        .fuse("O", "batch", "pos", name="f")
        .vectorize("O", "f", 32)
        .parallel("O", "f_o")
    )


def bulk(s: Schedule) -> Schedule:
    """The fused loop padded as a whole."""
    s = s.fuse("O", "batch", "pos", name="f").bulk_pad("O", "f", 64).split("O", "f", 64, names=("fo", "fi"))
    return s.parallel("O", "fo").vectorize("O", "fi", 16)


def row_vectors(s: Schedule) -> Schedule:
    """A loop over rows, and lanes within a row."""
    return s.vectorize("O", "pos", 8).parallel("O", "batch")


def odd_split(s: Schedule) -> Schedule:
    """A factor that is no power of two, unrolled."""
    s = s.split("O", "pos", 7, names=("po", "pi")).split("O", "pi", 3, names=("pio", "pii"))
    return s.unroll("O", "pii").parallel("O", "batch", balance="count")


def to_max(s: Schedule) -> Schedule:
    """Fully padded dense storage of input and output, of different multiples."""
    return s.pad_dim("A", "pos", 8, to_max=True).pad_dim("O", "pos", to_max=True).vectorize("O", "pos", 64)


def outer_padded(s: Schedule) -> Schedule:
    """Storage padded in the batch dim too; loops padded in both."""
    s = s.pad_dim("A", "batch", 4).pad_dim("O", "batch", 4).pad_dim("O", "pos", 16)
    return s.pad_loop("O", "batch", 4).pad_loop("O", "pos", 8).vectorize("O", "pos", 8).parallel("O", "batch")


def undefined(s: Schedule) -> Schedule:
    """Padding that nobody zeroes."""
    s = s.pad_dim("O", "pos", 32, contents="undefined").pad_loop("O", "pos", 32)
    return s.vectorize("O", "pos", 32)


def columns_first(s: Schedule) -> Schedule:
    """The dense dim outside the ragged ones."""
    return s.reorder("O", "h", "batch", "pos").fuse("O", "h", "batch", name="hb").parallel("O", "hb")


def three_fused(s: Schedule) -> Schedule:
    """All three loops as one, in lanes that cross rows."""
    return s.fuse("O", "batch", "pos", "h", name="f").vectorize("O", "f", 16).parallel("O", "f_o")


def rows_and_columns(s: Schedule) -> Schedule:
    """Fused rows, the dense dim in lanes and padded."""
    s = s.pad_dim("O", "h", 8).pad_loop("O", "h", 8).fuse("O", "batch", "pos", name="f")
    return s.vectorize("O", "h", 8).parallel("O", "f")


listing = Case(
    "listing1",
    (O,),
    rows(16, 32, 64),
    {
        f.__name__: f
        for f in (design, fused_storage, fused_unpadded, bulk, row_vectors, odd_split, to_max, outer_padded)
    },
)

listing_undefined = Case(
    "listing1_undefined", (O,), rows(32), {"undefined": undefined}, undefined_padding=frozenset({"O"})
)

ragged_sum = Case(
    "ragged_plus_ragged",
    (cora.compute("O", [batch, pos], A[batch, pos] + B[batch, pos] * A[batch, pos]),),
    rows(16),
    {f.__name__: f for f in (fused_storage, fused_unpadded, bulk, row_vectors)},
)

W = cora.placeholder("W", [h])
V = cora.placeholder("V", [batch])
broadcast = Case(
    "dense_over_ragged",
    (cora.compute("O", [batch, pos, h], X[batch, pos, h] * W[h] + V[batch] - A[batch, pos]),),
    tuple(b for n in (1, 16, 17) for b in rows(8, H=n)) + rows(8, H=0)[3:5],
    {f.__name__: f for f in (columns_first, three_fused, rows_and_columns)},
)

N = cora.size("N")
P = cora.placeholder("P", [cora.Dim("n", N)])
table = Case(
    "positions_under_a_condition",
    (cora.compute("O", [batch, pos], cora.where(pos < N, A[batch, pos] + P[pos], A[batch, pos])),),
    tuple(b for n in (0, 1, 15, 16, 17, 100) for b in rows(16, N=n)),
    {f.__name__: f for f in (fused_storage, row_vectors)},
)

k = cora.Dim("k", 3)
K = cora.placeholder("K", [k])
at = pos + k - 1
convolution = Case(
    "convolution",
    (
        cora.compute(
            "O",
            [batch, pos],
            cora.sum(cora.where((at >= 0) & (at < lens[batch]), A[batch, at] * K[k], 0.0), over=k),
        ),
    ),
    rows(16),
    {
        "taps_inside": lambda s: (
            s.split("O", "pos", 16, names=("po", "pi"))
            .reorder("O", "po", "k", "pi")
            .vectorize("O", "pi")
            .parallel("O", "batch")
        ),
        "taps_unrolled": lambda s: s.pad_dim("A", "pos", 4).unroll("O", "k").parallel("O", "batch"),
    },
)

conditional_product = Case(
    "conditional_product",
    (
        cora.compute(
            "O",
            [batch, pos],
            cora.where(pos + 1 < lens[batch], A[batch, pos] * B[batch, pos], 1.0) + A[batch, pos],
        ),
    ),
    rows(16),
    {f.__name__: f for f in (fused_storage, fused_unpadded, bulk, row_vectors, odd_split)},
)

shift = Case(
    "shift",
    (cora.compute("O", [batch, pos], cora.where(pos < 1, -1.0, A[batch, cora.maximum(pos - 1, 0)])),),
    rows(16),
    {"lanes": lambda s: s.vectorize("O", "pos", 16).parallel("O", "batch")},
)

reverse = Case(
    "reverse",
    (cora.compute("O", [batch, pos], A[batch, lens[batch] - 1 - pos]),),
    rows(16),
    {f.__name__: f for f in (fused_storage, fused_unpadded, row_vectors, to_max)},
)

affine = Case(
    "index_arithmetic",
    (
        cora.compute(
            "O",
            [batch, pos],
            cora.cast(1000 * batch + pos * pos - pos // 3 + (pos - 5) % 4 + (pos - 7) // 4, "int64"),
        ),
    ),
    rows(16),
    {f.__name__: f for f in (fused_unpadded, row_vectors, odd_split)},
    batch_dim=None,
)

first = cora.compute("first", [batch, pos], A[batch, pos] * 2.0 + 1.0)
second = cora.compute("second", [batch, pos], first[batch, pos] * B[batch, pos])
third = cora.compute("third", [batch, pos], second[batch, lens[batch] - 1 - pos] - first[batch, pos])
chain = Case(
    "chain",
    (third,),
    rows(16),
    {
        "padded_workspace": lambda s: (
            s.pad_dim("first", "pos", 16)
            .pad_loop("first", "pos", 16)
            .vectorize("first", "pos", 16)
            .pad_dim("second", "pos", to_max=True)
            .vectorize("second", "pos", 8)
            .vectorize("third", "pos", 8)
            .parallel("third", "batch")
        ),
    },
)
several = Case(
    "several_outputs",
    (third, first, second),
    rows(16),
    {
        "different_layouts": lambda s: (
            s.pad_dim("first", "pos", 8)
            .pad_dim("second", "batch", 4)
            .pad_dim("third", "pos", 5, to_max=True)
            .parallel("third", "batch")
            .vectorize("second", "pos", 16)
        ),
    },
)

m, n = cora.lengths("m", batch), cora.lengths("n", batch)
i, j = cora.Dim("i", m[batch]), cora.Dim("j", n[batch])
T = cora.placeholder("T", [batch, i, j])
transposition = Case(
    "transposition",
    (cora.compute("O", [batch, j, i], T[batch, i, j]),),
    pairs("m", "n", 16),
    {
        "tiles": lambda s: (
            s.split("O", "j", 4, names=("jo", "ji"))
            .split("O", "i", 16, names=("io", "ii"))
            .reorder("O", "jo", "io", "ji", "ii")
            .vectorize("O", "ii")
            .parallel("O", "batch")
        ),
        "fused": lambda s: s.fuse("O", "batch", "j", name="f").vectorize("O", "i", 8).parallel("O", "f"),
        "padded": lambda s: (
            s.pad_dim("T", "i", 4)
            .pad_dim("T", "j", 8)
            .pad_dim("O", "j", 2)
            .pad_dim("O", "i", 16)
            .pad_loop("O", "i", 16)
            .pad_loop("O", "j", 2)
            .fuse("O", "batch", "j", name="f")
            .vectorize("O", "i", 16)
            .parallel("O", "f")
        ),
        "all_fused": lambda s: (
            s.fuse("O", "batch", "j", "i", name="f").vectorize("O", "f", 16).parallel("O", "f_o")
        ),
    },
)

heads, depth = cora.Dim("head", 3), cora.Dim("depth", 4)
b2 = cora.lengths("b2", batch, i)
q = cora.Dim("q", b2[batch, i])
D6 = (batch, i, heads, q, depth, j)
S = cora.placeholder("S", [batch, i, heads, q, depth, j])
six = Case(
    "six_dims",
    (cora.compute("O", D6, S[batch, i, heads, q, depth, j] * 2.0 + T[batch, i, j]),),
    (
        Batch({"m": (), "n": (), "b2": ()}),
        Batch({"m": (0,), "n": (4,), "b2": ()}),
        Batch({"m": (2,), "n": (0,), "b2": (1, 2)}),
        Batch({"m": (1,), "n": (1,), "b2": (1,)}),
        Batch({"m": (2, 0, 3), "n": (15, 2, 17), "b2": (2, 0, 1, 0, 3)}),
        Batch({"m": (0, 1, 1, 4), "n": (3, 16, 1, 2), "b2": (5, 0, 4, 0, 0, 1)}),
    ),
    {
        "lanes": lambda s: s.vectorize("O", "j", 16).fuse("O", "batch", "i", name="f").parallel("O", "f"),
        "padded": lambda s: (
            s.pad_dim("O", "j", 4)
            .pad_dim("S", "q", 2)
            .pad_dim("S", "i", 2, to_max=True)
            .fuse("O", "q", "depth", name="qd")
            .parallel("O", "batch")
        ),
    },
)

dense = Case(
    "dense",
    (cora.compute("O", [batch, h], V[batch] * W[h]),),
    tuple(Batch({}, {"M": a, "H": b}) for a in (0, 1, 3, 17) for b in (0, 1, 15, 16, 17)),
    {
        "fused": lambda s: s.fuse("O", "batch", "h", name="f").vectorize("O", "f", 16).parallel("O", "f_o"),
        "tiles": lambda s: (
            s.split("O", "batch", 4, names=("bo", "bi"))
            .split("O", "h", 16, names=("ho", "hi"))
            .reorder("O", "bo", "ho", "bi", "hi")
            .vectorize("O", "hi")
            .parallel("O", "bo")
        ),
    },
)

one = cora.placeholder("one", [])
scalars = Case(
    "scalar_elementwise",
    (cora.compute("O", [], one[()] * 3.0), cora.compute("R", [batch, pos], A[batch, pos] + one[()])),
    rows(16),
    batch_dim=None,
)

rate = cora.Dim("rate", lens[batch] * 2)
upsampled = Case(
    "upsampled_and_halved",
    (
        cora.compute("U", [batch, rate], A[batch, rate // 2]),
        cora.compute(
            "L",
            [batch, cora.Dim("half", (lens[batch] + 1) // 2)],
            A[batch, 2 * cora.Dim("half", (lens[batch] + 1) // 2)],
        ),
    ),
    rows(16),
    {
        "lanes": lambda s: s.vectorize("U", "rate", 16).vectorize("L", "half", 16).parallel("U", "batch"),
        "fused": lambda s: (
            s.fuse("U", "batch", "rate", name="f").vectorize("U", "f", 16).parallel("U", "f_o")
        ),
    },
)

CASES = (
    listing,
    listing_undefined,
    ragged_sum,
    broadcast,
    table,
    convolution,
    conditional_product,
    shift,
    reverse,
    affine,
    chain,
    several,
    transposition,
    six,
    dense,
    scalars,
    upsampled,
)
