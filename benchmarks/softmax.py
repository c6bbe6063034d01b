"""Softmax over the rows of ragged attention scores: one loop nest, against NumPy and PyTorch.

Scores are X[batch, i, head, j] with the lengths of RACE: for each sequence as many rows as it has tokens, each as long.
The schedule is the default one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from rich.console import Console

import cora
from benchmarks.options import Options
from benchmarks.peers.rows import softmax_ways
from benchmarks.peers.torch_encoder import keep_memory
from benchmarks.plots import by_case
from benchmarks.results import Row, write_results
from benchmarks.transformer import LAYER, OWN, Call, Case, cases, check, measured, row, rows, table, times

EXPERIMENT = "softmax"
BATCH_SIZES = (4, 16)
#: What the time of the others over ours is to be at least.
WANTED = {"numpy by sequence": 3.0, "torch padded": 1.0}


def run(options: Options, console: Console) -> bool:
    """Run it: a table on `console`; rows and a plot in `options.out`. False if a result is wrong."""
    keep_memory()
    kernel = cora.build(softmax())
    found, right = measured(
        cases(options, quick=("race",), datasets=("race",), batch_sizes=BATCH_SIZES),
        lambda case: _measure(case, kernel, options),
        console,
    )
    _, csv_path = write_results(options.out, found)
    picture = by_case(
        csv_path, csv_path.with_suffix(".png"), metric="softmax_over_cora", ylabel="time over cora"
    )
    _show(found, options, console)
    console.print(f"wrote {csv_path} and {picture}")
    return right


def softmax() -> cora.Tensor:
    """P[batch, i, head, j]: softmax over j of X, of which row i of sequence `batch` has lens[batch] elements."""
    batch = cora.Dim("batch", cora.size("M"))
    lens = cora.lengths("lens", batch)
    i, j, head = cora.Dim("i", lens[batch]), cora.Dim("j", lens[batch]), cora.Dim("head", LAYER.heads)
    X = cora.placeholder("X", [batch, i, head, j])
    top = cora.compute("top", [batch, i, head], cora.max(X[batch, i, head, j], over=j))
    e = cora.compute("e", [batch, i, head, j], cora.exp(X[batch, i, head, j] - top[batch, i, head]))
    total = cora.compute("total", [batch, i, head], cora.sum(e[batch, i, head, j], over=j))
    return cora.compute("P", [batch, i, head, j], e[batch, i, head, j] / total[batch, i, head])


def _measure(case: Case, kernel: cora.Kernel, options: Options) -> tuple[list[Row], list[str]]:
    lens = {"lens": case.lengths}
    x = cora.RaggedArray.empty(kernel.layout("X"), lens)
    x.values[:] = np.random.default_rng(0).standard_normal(x.values.size, np.float32)
    plan = cora.plan(kernel, threads=options.threads, lens=case.lengths)
    result = kernel.run(plan, x)
    calls: dict[str, Call] = {OWN: partial(kernel.run, plan, x, outputs={"P": result})}
    wrong = []
    for name, way in softmax_ways(list(x.to_rows()), options.threads).items():
        way.call()
        if check(name, way.result(), result.packed().ravel()):
            calls[name] = way.call
        else:
            wrong.append(name)
    timings = times(calls, options)
    rate = 2 * x.values.nbytes / (timings[OWN].median_ms * 1e6)
    return [
        *rows(EXPERIMENT, case, "softmax", timings, options),
        row(EXPERIMENT, OWN, case, options, "rate", rate, "GB/s"),
    ], wrong


def _show(found: Sequence[Row], options: Options, console: Console) -> None:
    value = {(r.batch_size, r.variant, r.metric): r.value for r in found}
    variants = list(dict.fromkeys(r.variant for r in found if r.variant != OWN))
    shown = table(
        f"softmax of scores, {options.threads} thread(s); others: times ours",
        "batch",
        "ms",
        "GB/s",
        *variants,
    )
    for size in dict.fromkeys(r.batch_size for r in found):
        shown.add_row(
            f"race {size}",
            f"{value[size, OWN, 'softmax']:.2f}",
            f"{value[size, OWN, 'rate']:.1f}",
            *(f"{value[size, v, 'softmax_over_cora']:.2f}" for v in variants),
        )
    shown.add_row("wanted", "", "", *(f"{WANTED[v]:.2f}" if v in WANTED else "" for v in variants))
    console.print(shown)
