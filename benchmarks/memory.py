"""Memory of the forward activations of an encoder layer: the paper's Figure 19. Nothing is run.

All intermediate tensors of the layer's operators (scores and weights of attention among them), stored ragged, over
the same stored padded: to the dataset's maximum, as the paper does, and to the longest of the batch. And what a plan
of ours holds, whose kernels use one memory in turn and do not store scores as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console

from benchmarks.lengths import DATASETS, PADDED_MAXIMUM
from benchmarks.options import Options
from benchmarks.plots import by_case
from benchmarks.results import Row, write_results
from benchmarks.transformer import LAYER, OWN, Lengths, cases, geomean, row, table
from cora.kernels import EncoderLayer, LayerWeights

EXPERIMENT = "memory"
BATCH_SIZE = 64
PAPER = 1.78
TO_MAXIMUM, TO_LONGEST = "padded to the maximum", "padded to the longest"


def activation_bytes(lengths: Lengths) -> float:
    """All intermediate tensors of a layer at these lengths, in float32.

    Queries, keys, values; scores and weights; attention; its projection and norm; the two feed-forward products and
    the last norm.
    """
    n = lengths.astype(np.float64)
    by_token = 3 * LAYER.hidden + 3 * LAYER.hidden + LAYER.inner + 2 * LAYER.hidden
    return float(4 * (by_token * n.sum() + 2 * LAYER.heads * (n * n).sum()))


def run(options: Options, console: Console) -> bool:
    """A table on `console`, rows and a plot in `options.out`."""
    layer = EncoderLayer(LAYER, LayerWeights.random(LAYER))
    found: list[Row] = []
    for case in cases(options, quick=DATASETS, batch_sizes=(BATCH_SIZE,)):
        own = activation_bytes(case.lengths)
        others = {
            TO_MAXIMUM: np.full(case.batch_size, max(PADDED_MAXIMUM[case.dataset], case.lengths.max())),
            TO_LONGEST: np.full(case.batch_size, case.lengths.max()),
        }
        plan = layer.plan(case.lengths, options.threads).memory()
        found += [
            row(EXPERIMENT, OWN, case, options, "activations", own, "bytes"),
            row(EXPERIMENT, OWN, case, options, "plan", plan.total_bytes, "bytes"),
            row(EXPERIMENT, OWN, case, options, "plan_workspace", plan.workspace_bytes, "bytes"),
        ]
        for variant, lengths in others.items():
            stored = activation_bytes(lengths)
            found += [
                row(EXPERIMENT, variant, case, options, "activations", stored, "bytes"),
                row(EXPERIMENT, variant, case, options, "activations_over_cora", stored / own, ""),
            ]
    _, csv_path = write_results(options.out, found)
    picture = by_case(
        csv_path, csv_path.with_suffix(".png"), metric="activations_over_cora", ylabel="memory over cora"
    )
    _show(found, console)
    console.print(f"wrote {csv_path} and {picture}")
    return True


def _show(found: Sequence[Row], console: Console) -> None:
    value = {(r.variant, r.dataset, r.metric): r.value for r in found}
    shown = table(
        f"forward activations at batch size {BATCH_SIZE}",
        "dataset",
        "ragged, MB",
        f"{TO_MAXIMUM}, times",
        f"{TO_LONGEST}, times",
        "plan, MB",
    )
    for dataset in dict.fromkeys(r.dataset for r in found):
        shown.add_row(
            dataset,
            f"{value[OWN, dataset, 'activations'] / 1e6:.1f}",
            *(f"{value[v, dataset, 'activations_over_cora']:.2f}" for v in (TO_MAXIMUM, TO_LONGEST)),
            f"{value[OWN, dataset, 'plan'] / 1e6:.1f}",
        )
    means = [
        geomean(r.value for r in found if r.variant == v and r.metric == "activations_over_cora")
        for v in (TO_MAXIMUM, TO_LONGEST)
    ]
    shown.add_row("geomean", "", *(f"{m:.2f}" for m in means), "")
    shown.add_row("paper", "", f"{PAPER:.2f}", "", "")
    console.print(shown)
