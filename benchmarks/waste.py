"""What full padding costs an encoder layer, in operations: the paper's Figure 2. Nothing is run.

Each batch is padded to its longest sequence; the ratio of the layer's operations to the useful ones is a mean over
batches that have any.
"""

from __future__ import annotations

import numpy as np
from rich.console import Console

from benchmarks.lengths import DATASETS
from benchmarks.options import Options
from benchmarks.plots import by_batch_size
from benchmarks.results import Row, write_results
from benchmarks.transformer import LAYER, Case, layer_flops, row, table

EXPERIMENT = "waste"
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def run(options: Options, console: Console) -> bool:
    """A table on `console`, rows and a plot in `options.out`."""
    count = 512 if options.quick else 8192
    found: list[Row] = []
    for dataset in DATASETS:
        lengths = options.batch(dataset, count)
        for size in BATCH_SIZES:
            ratios = []
            for at in range(0, count - size + 1, size):
                own = lengths[at : at + size]
                padded = np.full(size, own.max(), np.int32)
                useful = layer_flops(own, LAYER)
                if useful:
                    ratios.append(layer_flops(padded, LAYER) / useful)
            case = Case(dataset, size, lengths[:size])
            found.append(
                row(
                    EXPERIMENT,
                    dataset,
                    case,
                    options,
                    "padded_over_useful_flops",
                    float(np.mean(ratios)) if ratios else 1.0,
                    "",
                )
            )
    _, csv_path = write_results(options.out, found)
    picture = by_batch_size(
        csv_path,
        csv_path.with_suffix(".png"),
        metrics=["padded_over_useful_flops"],
        ylabel="operations when padded over useful",
    )
    value = {(r.dataset, r.batch_size): r.value for r in found}
    shown = table("operations of a padded encoder layer over useful ones", "dataset", *map(str, BATCH_SIZES))
    for dataset in DATASETS:
        shown.add_row(dataset, *(f"{value[dataset, size]:.2f}" for size in BATCH_SIZES))
    console.print(shown)
    console.print(f"wrote {csv_path} and {picture}")
    return True
