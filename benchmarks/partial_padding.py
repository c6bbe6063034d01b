"""Operations that an encoder layer executes over the useful ones: the paper's Figure 22. Nothing is run.

"cora" counts what our kernels execute (masked lanes, rows of blocks beyond a triangle). "paper" is its scheme:
sequences padded to 32 where attention wants it, tokens of a batch to 64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console

from benchmarks.lengths import DATASETS
from benchmarks.options import Options
from benchmarks.plots import by_case
from benchmarks.results import Row, write_results
from benchmarks.transformer import (
    LAYER,
    OWN,
    Lengths,
    attention_flops,
    cases,
    geomean,
    layer_flops,
    row,
    table,
)
from cora.kernels import EncoderLayer, LayerWeights
from cora.kernels.encoder import EncoderPlan

EXPERIMENT = "partial_padding"
SCHEME = "paper's scheme"
BATCH_SIZES = (32, 128)
#: What the paper reports, over all datasets.
PAPER = {32: 1.035, 128: 1.023}
SEQUENCE_MULTIPLE, TOKENS_MULTIPLE = 32, 64


def run(options: Options, console: Console) -> bool:
    """A table on `console`, rows and a plot in `options.out`."""
    layer = EncoderLayer(LAYER, LayerWeights.random(LAYER))
    found: list[Row] = []
    for case in cases(options, quick=DATASETS, batch_sizes=BATCH_SIZES):
        values = {
            OWN: executed_over_useful(layer.plan(case.lengths, options.threads)),
            SCHEME: _scheme(case.lengths),
        }
        found += [
            row(EXPERIMENT, variant, case, options, "executed_over_useful_flops", value, "")
            for variant, value in values.items()
        ]
    _, csv_path = write_results(options.out, found)
    picture = by_case(
        csv_path,
        csv_path.with_suffix(".png"),
        metric="executed_over_useful_flops",
        ylabel="executed over useful",
    )
    _show(found, console)
    console.print(f"wrote {csv_path} and {picture}")
    return True


def executed_over_useful(plan: EncoderPlan) -> float:
    """Of the kernels of a layer as often as it runs them: the norm runs twice."""
    executed, useful = 0.0, 0.0
    for name, waste in plan.waste().items():
        times = 2 if name == "normed" else 1
        executed += times * waste.executed_flops
        useful += times * waste.useful_flops
    return executed / useful if useful else 1.0


def _scheme(lengths: Lengths) -> float:
    """The paper's partial padding of the same layer."""
    padded = -(-lengths // SEQUENCE_MULTIPLE) * SEQUENCE_MULTIPLE
    tokens = int(lengths.sum())
    bulk = -(-tokens // TOKENS_MULTIPLE) * TOKENS_MULTIPLE
    products = layer_flops(np.array([tokens]), LAYER) - attention_flops(np.array([tokens]), LAYER)
    useful = layer_flops(lengths, LAYER)
    return (products * bulk / tokens + attention_flops(padded, LAYER)) / useful


def _show(found: Sequence[Row], console: Console) -> None:
    value = {(r.variant, r.dataset, r.batch_size): r.value for r in found}
    sizes = sorted({r.batch_size for r in found})
    headings = [f"{variant}, {size}" for size in sizes for variant in (OWN, SCHEME)]
    shown = table("executed over useful operations of an encoder layer", "dataset", *headings)
    for dataset in dict.fromkeys(r.dataset for r in found):
        shown.add_row(dataset, *(f"{value[v, dataset, n]:.3f}" for n in sizes for v in (OWN, SCHEME)))
    means = [
        geomean(r.value for r in found if r.variant == v and r.batch_size == n)
        for n in sizes
        for v in (OWN, SCHEME)
    ]
    shown.add_row("geomean", *(f"{m:.3f}" for m in means))
    shown.add_row("reported by the paper", *(t for n in sizes for t in ("", f"{PAPER.get(n, 1.0):.3f}")))
    console.print(shown)
