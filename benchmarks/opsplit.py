"""Operation splitting and horizontal fusion of the products of attention, at the lengths of MNLI (Figs. 13, 20, 21).

    nosplit         loops over rows (and columns) are padded to full tiles
    split           split_op: full tiles of rows, and the rest in blocks of its own
    split_hfused    both pieces in one parallel loop
    split2_hfused   the other vloop split too; all four pieces in one parallel loop

The other vloop is the columns of QK^T, and the reduction of AttnV. Of a reduction the second piece adds to what the
first has stored: these pieces share the loop over heads too, so that a worker has both. Storage is the same for all
variants.
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
from benchmarks.plots import by_batch_size
from benchmarks.results import Row, write_results
from benchmarks.timer import measure, ratio

EXPERIMENT = "opsplit"
DATASET = "mnli"
HEADS, HEAD = 8, 64
#: Rows and columns of a full tile; rows that share what they load; one vector.
TILE, BLOCK, LANES = 32, 8, 16
VARIANTS = ("nosplit", "split", "split_hfused", "split2_hfused")
UNCACHED = cora.Settings(cache=False)
#: Largest difference between results, relative to the largest value.
TOLERANCE = 1e-4

Array = npt.NDArray[np.float32]
Lengths = npt.NDArray[np.int32]

BATCH = cora.Dim("batch", cora.size("M"))
LENS = cora.lengths("lens", BATCH)
ROW, KEY = cora.Dim("i", LENS[BATCH]), cora.Dim("j", LENS[BATCH])
H, D = cora.Dim("head", HEADS), cora.Dim("d", HEAD)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: batch sizes, samples of each variant."""

    batches: tuple[int, ...]
    repeats: int


FULL = Scale(tuple(8 << n for n in range(8)), repeats=10)
QUICK = Scale((8, 32, 128), repeats=5)


def scores(variant: str) -> cora.Schedule:
    """S[batch, i, head, j]: the sum over d of Q[batch, i, head, d] * K[batch, head, d, j]."""
    Q = cora.placeholder("Q", [BATCH, ROW, H, D])
    K = cora.placeholder("K", [BATCH, H, D, KEY])
    S = cora.compute("S", [BATCH, ROW, H, KEY], cora.sum(Q[BATCH, ROW, H, D] * K[BATCH, H, D, KEY], over=D))
    s = cora.schedule(S).pad_loop(S, ROW, TILE if variant == "nosplit" else BLOCK)
    s = s.pad_loop(S, KEY, LANES if variant == "split2_hfused" else TILE)
    widths = {"S": TILE}
    if variant != "nosplit":
        s = s.split_op(S, ROW, multiple=TILE)
        widths = {"S_main": TILE, "S_tail": TILE}
    if variant == "split2_hfused":
        for rows in widths:
            s = s.split_op(rows, KEY, multiple=TILE)
        widths = {
            f"{rows}_{columns}": w for rows in widths for columns, w in (("main", TILE), ("tail", LANES))
        }
    for piece, width in widths.items():
        s = (
            s.split(piece, ROW, BLOCK)
            .split(piece, KEY, width)
            .reorder(piece, H, "i_o", "j_o", D, "i_i", "j_i")
        )
        s = s.unroll(piece, "i_i").vectorize(piece, "j_i").parallel(piece, BATCH)
    return _stored(s.hfuse(*widths) if variant.endswith("hfused") else s)


def weighted_values(variant: str) -> cora.Schedule:
    """O[batch, i, head, d]: the sum over j of P[batch, i, head, j] * V[batch, j, head, d]."""
    P = cora.placeholder("P", [BATCH, ROW, H, KEY])
    V = cora.placeholder("V", [BATCH, KEY, H, D])
    O = cora.compute("O", [BATCH, ROW, H, D], cora.sum(P[BATCH, ROW, H, KEY] * V[BATCH, KEY, H, D], over=KEY))  # noqa: E741
    s = cora.schedule(O).pad_loop(O, ROW, TILE if variant == "nosplit" else BLOCK)
    pieces = ["O"]
    if variant == "split2_hfused":
        s = s.split_op(O, KEY, multiple=TILE)
        pieces = ["O_main", "O_tail"]
    if variant != "nosplit":
        for whole in pieces:
            s = s.split_op(whole, ROW, multiple=TILE)
        pieces = [f"{whole}_{rows}" for whole in pieces for rows in ("main", "tail")]
    for piece in pieces:
        s = (
            s.split(piece, ROW, BLOCK)
            .split(piece, D, TILE)
            .reorder(piece, H, "i_o", "d_o", KEY, "i_i", "d_i")
        )
        s = s.unroll(piece, "i_i").vectorize(piece, "d_i").parallel(piece, BATCH)
    if variant == "split2_hfused":
        s = s.hfuse(*pieces, depth=2)
    elif variant == "split_hfused":
        s = s.hfuse(*pieces)
    return _stored(s)


def _stored(s: cora.Schedule) -> cora.Schedule:
    """Storage with room for full tiles; its padding is nobody's."""
    for tensor in s.tensors:
        for dim in tensor.dims:
            if dim in (ROW, KEY):
                s = s.pad_dim(tensor, dim, TILE, contents="undefined")
    return s


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator: its schedule by variant, and NumPy's result for a sequence from the parts of its inputs."""

    name: str
    schedule: Callable[[str], cora.Schedule]
    numpy: Callable[[Array, Array], Array]


OPERATORS = (
    Operator("attnv", weighted_values, lambda p, v: np.einsum("ihj,jhd->ihd", p, v)),
    Operator("qkt", scores, lambda q, k: np.einsum("ihd,hdj->ihj", q, k)),
)


def run(options: Options, console: Console) -> bool:
    """Measure both operators: a table on `console`, rows and a plot in `options.out`. False if a result is wrong.

    Raises:
        UserError: lengths that cannot be read.
    """
    scale = QUICK if options.quick else FULL
    console.print("sequences as in MNLI; times relative to nosplit, whose loops are padded to full tiles")
    rows: list[Row] = []
    headings = ("batch", "nosplit, ms", *(v.replace("_", " + ") for v in VARIANTS[1:]))
    table = Table("operator", *(Column(h, justify="right") for h in headings), "check")
    for operator in OPERATORS:
        kernels = {v: cora.build(operator.schedule(v), settings=UNCACHED) for v in VARIANTS}
        for size in scale.batches:
            measured = _measured(operator, kernels, options.batch(DATASET, size), scale, options)
            rows += measured
            value = {(row.variant, row.metric): row.value for row in measured}
            wrong = any(value[v, f"{operator.name}_wrong_elements"] for v in VARIANTS)
            table.add_row(
                operator.name if size == scale.batches[0] else "",
                str(size),
                f"{value['nosplit', operator.name]:.3f}",
                *(f"{value[v, f'{operator.name}_over_nosplit']:.3f}" for v in VARIANTS[1:]),
                "[red]WRONG[/red]" if wrong else "ok",
            )
        table.add_section()
    json_path, csv_path = write_results(options.out, rows)
    picture = by_batch_size(
        csv_path,
        csv_path.with_suffix(".png"),
        metrics=[f"{operator.name}_over_nosplit" for operator in OPERATORS],
        ylabel="time over nosplit",
    )
    console.print(table)
    console.print(f"wrote {json_path}, {csv_path} and {picture}")
    return all(row.value == 0 for row in rows if row.metric.endswith("_wrong_elements"))


def _measured(
    operator: Operator,
    kernels: Mapping[str, cora.Kernel],
    lengths: Lengths,
    scale: Scale,
    options: Options,
) -> list[Row]:
    """The rows of one batch. All results are compared with NumPy's, sequence by sequence, in the smallest batch,
    and with the first variant's in the others."""
    rng = np.random.default_rng(0)
    first = kernels[VARIANTS[0]]
    arrays = []
    for name in first.inputs:
        array = cora.RaggedArray.empty(first.layout(name), {"lens": lengths}, name=name)
        array.values[:] = rng.standard_normal(array.values.size, np.float32)
        arrays.append(array)
    calls: dict[str, Callable[[], object]] = {}
    results: dict[str, Array] = {}
    work: dict[str, float] = {}
    for variant, kernel in kernels.items():
        plan = cora.plan(kernel, lens=lengths, threads=options.threads)
        (output,) = kernel.outputs
        outputs = {output: kernel.run(plan, *arrays)}
        results[variant] = outputs[output].packed()
        work[variant] = kernel.waste(plan).flops_ratio
        calls[variant] = partial(kernel.run, plan, *arrays, outputs=outputs)
    expected = results[VARIANTS[0]]
    if len(lengths) == scale.batches[0]:
        parts = zip(*(array.to_rows() for array in arrays), strict=True)
        expected = np.concatenate([operator.numpy(a, b).reshape(-1) for a, b in parts])
    timings = measure(calls, repeats=scale.repeats)
    rows: list[Row] = []
    for variant, timing in timings.items():
        over = ratio(timing, timings[VARIANTS[0]])
        values = (
            ("", timing.median_ms, "ms"),
            ("_min", timing.min_ms, "ms"),
            ("_over_nosplit", over, ""),
            ("_executed_over_useful_flops", work[variant], ""),
            ("_wrong_elements", float(_differing(results[variant], expected)), ""),
        )
        rows += [
            Row(
                EXPERIMENT,
                variant,
                DATASET,
                len(lengths),
                TARGET,
                options.threads,
                f"{operator.name}{m}",
                v,
                u,
            )
            for m, v, u in values
        ]
    return rows


def _differing(values: Array, expected: Array) -> int:
    limit = TOLERANCE * np.abs(expected).max(initial=0.0)
    return int(np.count_nonzero(~(np.abs(values - expected) <= limit)))
