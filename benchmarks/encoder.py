"""A transformer encoder layer on batches of unequal lengths: the paper's Table 4, on this machine.

Ours computes on packed tokens. PyTorch's ways are those of `benchmarks.peers.torch_encoder`; of the micro-batches the
best size counts. Every result is compared with ours before anything is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from rich.console import Console

from benchmarks.options import Options
from benchmarks.peers import torch_encoder
from benchmarks.plots import by_case
from benchmarks.results import Row, write_results
from benchmarks.transformer import (
    LAYER,
    OWN,
    Call,
    Case,
    best_micro_batches,
    cases,
    check,
    geomean,
    layer_flops,
    measured,
    paper,
    peak_gflops,
    random_tokens,
    row,
    rows,
    table,
    times,
)
from cora.kernels import EncoderLayer, LayerWeights

EXPERIMENT = "encoder"


def run(options: Options, console: Console) -> bool:
    """Run it: a table on `console`; rows and a plot in `options.out`. False if a result is wrong."""
    torch_encoder.keep_memory()
    layer = EncoderLayer(LAYER, LayerWeights.random(LAYER))
    peak = peak_gflops(options.threads)
    found, right = measured(cases(options), lambda case: _measure(case, layer, options, peak), console)
    _, csv_path = write_results(options.out, found)
    compared = any(r.metric == "layer_over_cora" for r in found)
    metric, ylabel = ("layer_over_cora", "time over cora") if compared else ("layer", "ms")
    picture = by_case(csv_path, csv_path.with_suffix(".png"), metric=metric, ylabel=ylabel)
    _show(found, peak, options, console)
    console.print(f"wrote {csv_path} and {picture}")
    return right


def _measure(case: Case, layer: EncoderLayer, options: Options, peak: float) -> tuple[list[Row], list[str]]:
    """The rows of a batch, and the names of what gave another result than ours."""
    x = random_tokens(case, LAYER.hidden)
    plan, out = layer.plan(case.lengths, options.threads), np.empty_like(x)
    calls: dict[str, Call] = {OWN: partial(layer.run, plan, x, out)}
    calls[OWN]()
    wrong = []
    for name, way in torch_encoder.ways(LAYER, layer.layers[0], x, case.lengths, options.threads).items():
        way.call()
        if check(name, way.result(), out):
            calls[name] = way.call
        else:
            wrong.append(name)
    timings = best_micro_batches(times(calls, options))
    reached = layer_flops(case.lengths, LAYER) / (timings[OWN].median_ms * 1e6) / peak
    memory = plan.memory()
    return [
        *rows(EXPERIMENT, case, "layer", timings, options),
        row(EXPERIMENT, OWN, case, options, "share_of_fma_peak", reached, ""),
        row(EXPERIMENT, OWN, case, options, "plan_memory", memory.total_bytes, "bytes"),
        row(EXPERIMENT, OWN, case, options, "tokens", case.tokens, ""),
    ], wrong


def _show(found: Sequence[Row], peak: float, options: Options, console: Console) -> None:
    value = {(r.dataset, r.batch_size, r.variant, r.metric): r.value for r in found}
    variants = list(dict.fromkeys(r.variant for r in found if r.variant != OWN))
    theirs = {(line["dataset"], int(line["batch_size"])): line for line in paper("table4_encoder_v100_ms")}
    own = table(
        f"encoder layer, {options.threads} thread(s), FMA peak {peak:.0f} GFLOP/s; others: times ours",
        "batch",
        "tokens",
        "ms",
        "% of peak",
        *variants,
        "paper: PyTorch",
        "FT-Eff",
    )
    batches = list(dict.fromkeys((r.dataset, r.batch_size) for r in found))
    for dataset, size in batches:
        line = theirs[dataset, size]
        cora_ms = float(line["cora_ms"])
        own.add_row(
            f"{dataset} {size}",
            f"{value[dataset, size, OWN, 'tokens']:.0f}",
            f"{value[dataset, size, OWN, 'layer']:.1f}",
            f"{100 * value[dataset, size, OWN, 'share_of_fma_peak']:.0f}",
            *(f"{value.get((dataset, size, v, 'layer_over_cora'), float('nan')):.2f}" for v in variants),
            f"{float(line['pytorch_ms']) / cora_ms:.2f}",
            f"{float(line['ft_eff_ms']) / cora_ms:.2f}",
        )
    means = [
        geomean(r.value for r in found if r.variant == v and r.metric == "layer_over_cora") for v in variants
    ]
    own.add_row("geomean", "", "", "", *(f"{m:.2f}" for m in means), "", "")
    console.print(own)
