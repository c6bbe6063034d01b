"""What ragged loops, ragged storage and unhoisted loads cost where nothing is gained: equal lengths (Fig. 23).

The five operators of multi-head attention on a batch of sequences of one length, so that all variants do the same
work on the same flat arrays, by the same loop schedule:

    dense       all extents are constants
    vloops      ragged loops; storage padded to the longest sequence
    vdims       ragged loops and ragged storage; auxiliary arrays are read where they are used
    loadhoist   the same, these reads moved out of loops as far as they go

Plans are made beforehand: the prelude is not part of any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Column, Table

import cora
from benchmarks.options import TARGET, Options
from benchmarks.plots import grouped_bars
from benchmarks.results import Row, write_results
from benchmarks.timer import Timing, measure, ratio

EXPERIMENT = "loadhoist"
HIDDEN = 512
HEADS = 8
HEAD = HIDDEN // HEADS
#: Rows of a tile, and the multiple to which loops over positions and their storage are padded.
ROWS = 4
PAD = 64
VARIANTS = ("dense", "vloops", "vdims", "loadhoist")
UNCACHED = cora.Settings(cache=False)
#: Largest difference from NumPy's result of one sequence, relative to the largest value.
TOLERANCE = 1e-4

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: a batch of sequences of one length, a multiple of PAD; samples of each variant."""

    batch: int
    length: int
    repeats: int


FULL = Scale(batch=64, length=512, repeats=10)
QUICK = Scale(batch=4, length=512, repeats=5)


@dataclass(frozen=True, slots=True)
class Dims:
    """The dims of one variant: sequences, query positions, key positions."""

    batch: cora.Dim
    i: cora.Dim
    j: cora.Dim

    @staticmethod
    def of(variant: str, scale: Scale) -> Dims:
        """Constant extents for the dense variant, run-time lengths for the others."""
        if variant == "dense":
            batch = cora.Dim("batch", scale.batch)
            return Dims(batch, cora.Dim("i", scale.length), cora.Dim("j", scale.length))
        batch = cora.Dim("batch", cora.size("M"))
        lens = cora.lengths("lens", batch)
        return Dims(batch, cora.Dim("i", lens[batch]), cora.Dim("j", lens[batch]))


HEAD_DIM, FEATURE = cora.Dim("head", HEADS), cora.Dim("d", HEAD)


def projection(dims: Dims, columns: int) -> cora.Schedule:
    """Y[batch, i, o]: the sum over k of X[batch, i, k] * W[k, o]; sequences and positions are one loop."""
    k, o = cora.Dim("k", HIDDEN), cora.Dim("o", columns)
    X = cora.placeholder("X", [dims.batch, dims.i, k])
    W = cora.placeholder("W", [k, o])
    Y = cora.compute("Y", [dims.batch, dims.i, o], cora.sum(X[dims.batch, dims.i, k] * W[k, o], over=k))
    s = _row_tiles(cora.schedule(Y), Y, dims).split(Y, o, PAD)
    s = s.reorder(Y, "o_o", "row_o", k, "row_i", "o_i")
    return s.unroll(Y, "row_i").vectorize(Y, "o_i").parallel(Y, "o_o", balance="count")


def scores(dims: Dims) -> cora.Schedule:
    """S[batch, i, head, j]: the sum over d of Q[batch, i, head, d] * K[batch, head, d, j]."""
    b, i, j, h, d = dims.batch, dims.i, dims.j, HEAD_DIM, FEATURE
    Q = cora.placeholder("Q", [b, i, h, d])
    K = cora.placeholder("K", [b, h, d, j])
    S = cora.compute("S", [b, i, h, j], cora.sum(Q[b, i, h, d] * K[b, h, d, j], over=d))
    s = _row_tiles(cora.schedule(S).pad_loop(S, j, PAD), S, dims).split(S, j, PAD)
    s = s.reorder(S, "row_o", h, "j_o", d, "row_i", "j_i")
    return s.unroll(S, "row_i").vectorize(S, "j_i").parallel(S, "row_o")


def softmax(dims: Dims) -> cora.Schedule:
    """P[batch, i, head, j]: softmax over j of X[batch, i, head, j]; a row is computed at once."""
    b, i, j, h = dims.batch, dims.i, dims.j, HEAD_DIM
    X = cora.placeholder("X", [b, i, h, j])
    top = cora.compute("top", [b, i, h], cora.max(X[b, i, h, j], over=j))
    shifted = cora.compute("shifted", [b, i, h, j], cora.exp(X[b, i, h, j] - top[b, i, h]))
    total = cora.compute("total", [b, i, h], cora.sum(shifted[b, i, h, j], over=j))
    P = cora.compute("P", [b, i, h, j], shifted[b, i, h, j] / total[b, i, h])
    s = cora.schedule(P).fuse(P, b, i, name="row")
    for stage in (total, shifted, top):
        s = s.compute_at(stage, P, h)
    for stage in (top, shifted, total, P):
        s = s.vectorize(stage, j, lanes=16)
    return s.parallel(P, "row")


def weighted_values(dims: Dims) -> cora.Schedule:
    """O[batch, i, head, d]: the sum over j of P[batch, i, head, j] * V[batch, j, head, d]."""
    b, i, j, h, d = dims.batch, dims.i, dims.j, HEAD_DIM, FEATURE
    P = cora.placeholder("P", [b, i, h, j])
    V = cora.placeholder("V", [b, j, h, d])
    O = cora.compute("O", [b, i, h, d], cora.sum(P[b, i, h, j] * V[b, j, h, d], over=j))  # noqa: E741
    s = _row_tiles(cora.schedule(O), O, dims).reorder(O, "row_o", h, j, "row_i", d)
    return s.unroll(O, "row_i").vectorize(O, d, lanes=HEAD).parallel(O, "row_o")


def _row_tiles(s: cora.Schedule, op: cora.Tensor, dims: Dims) -> cora.Schedule:
    """Sequences and positions as one loop, in tiles of ROWS positions of one sequence."""
    return s.pad_loop(op, dims.i, ROWS).fuse(op, dims.batch, dims.i, name="row").split(op, "row", ROWS)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator: its schedule over given dims, and NumPy's result for the first sequence from its inputs' parts."""

    name: str
    schedule: Callable[[Dims], cora.Schedule]
    numpy: Callable[..., Array]


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True), np.float32)


OPERATORS = (
    Operator("proj1", partial(projection, columns=3 * HIDDEN), lambda x, w: x @ w),
    Operator("qkt", scores, lambda q, k: np.einsum("ihd,hdj->ihj", q, k)),
    Operator("softmax", softmax, _softmax),
    Operator("attnv", weighted_values, lambda p, v: np.einsum("ihj,jhd->ihd", p, v)),
    Operator("proj2", partial(projection, columns=HIDDEN), lambda x, w: x @ w),
)


def run(options: Options, console: Console) -> bool:
    """Measure all operators: a table on `console`, rows and a plot in `options.out`. False if a result is wrong."""
    scale = QUICK if options.quick else FULL
    console.print(f"{scale.batch} sequences of length {scale.length}; times relative to dense")
    rows: list[Row] = []
    table = Table("operator", *(Column(v, justify="right") for v in ("dense, ms", *VARIANTS[1:])), "check")
    for operator in OPERATORS:
        timings, wrong = _measured(operator, scale, options)
        dense = timings["dense"]
        relative = {variant: ratio(timing, dense) for variant, timing in timings.items()}
        verdict = "[red]WRONG[/red]" if any(wrong.values()) else "ok"
        shown = [f"{relative[v]:.3f}" for v in VARIANTS[1:]]
        table.add_row(operator.name, f"{dense.median_ms:.3f}", *shown, verdict)
        for variant, timing in timings.items():
            values = (
                (operator.name, timing.median_ms, "ms"),
                (f"{operator.name}_min", timing.min_ms, "ms"),
                (f"{operator.name}_over_dense", relative[variant], ""),
                (f"{operator.name}_wrong_elements", float(wrong[variant]), ""),
            )
            rows += [
                Row(EXPERIMENT, variant, "equal", scale.batch, TARGET, options.threads, *value)
                for value in values
            ]
    json_path, csv_path = write_results(options.out, rows)
    picture = grouped_bars(
        csv_path,
        csv_path.with_suffix(".png"),
        metrics=[f"{operator.name}_over_dense" for operator in OPERATORS],
        title=f"Ragged tensors at equal lengths: {scale.batch} sequences of {scale.length}, time over dense",
        unit="",
        logarithmic=False,
    )
    console.print(table)
    console.print(f"wrote {json_path}, {csv_path} and {picture}")
    return all(row.value == 0 for row in rows if row.metric.endswith("_wrong_elements"))


def kernel_of(operator: Operator, variant: str, scale: Scale) -> cora.Kernel:
    """The operator's kernel in one variant: the same loops, and storage as the variant has it."""
    s = operator.schedule(Dims.of(variant, scale))
    for tensor in s.tensors:
        for dim in tensor.dims:
            if dim.name in ("i", "j"):
                s = s.pad_dim(tensor, dim, PAD, to_max=variant == "vloops", contents="undefined")
    return cora.build(s.hoist_loads(variant != "vdims"), settings=UNCACHED)


def _measured(operator: Operator, scale: Scale, options: Options) -> tuple[dict[str, Timing], dict[str, int]]:
    """Times by variant; and how many elements are wrong: against NumPy for the dense one, against it for the others."""
    calls: dict[str, Callable[[], object]] = {}
    results: dict[str, cora.RaggedArray] = {}
    arrays: dict[str, list[cora.RaggedArray]] = {}
    for variant in VARIANTS:
        kernel = kernel_of(operator, variant, scale)
        lengths, sizes = ({}, {}) if variant == "dense" else _batch(scale)
        arrays[variant] = [_random(kernel.layout(name), lengths, sizes) for name in kernel.inputs]
        plan = cora.plan(kernel, threads=options.threads, **lengths)  # type: ignore[arg-type]
        (output,) = kernel.outputs
        results[variant] = kernel.run(plan, *arrays[variant])
        calls[variant] = partial(kernel.run, plan, *arrays[variant], outputs={output: results[variant]})
    dense = results["dense"]
    first = [a.to_padded()[0] if a.layout.dims[0].name == "batch" else a.to_padded() for a in arrays["dense"]]
    wrong = {v: _differing(result.values, dense.values) for v, result in results.items()}
    wrong["dense"] = _differing(dense.to_padded()[0], operator.numpy(*first))
    return measure(calls, repeats=scale.repeats), wrong


def _batch(scale: Scale) -> tuple[dict[str, npt.NDArray[np.int32]], dict[str, int]]:
    return {"lens": np.full(scale.batch, scale.length, np.int32)}, {"M": scale.batch}


def _random(
    layout: cora.Layout, lengths: Mapping[str, npt.NDArray[np.int32]], sizes: Mapping[str, int]
) -> cora.RaggedArray:
    """Values that depend on their number alone: the same for all variants."""
    array = cora.RaggedArray.empty(layout, lengths, sizes)
    array.values[:] = np.random.default_rng(array.values.size).standard_normal(array.values.size, np.float32)
    return array


def _differing(values: Array, expected: Array) -> int:
    limit = TOLERANCE * np.abs(expected).max()
    return int(np.count_nonzero(~(np.abs(values - expected) <= limit)))
