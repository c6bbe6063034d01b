"""Where the time of an encoder layer goes, kernel by kernel: the paper's Table 10 and Figures 24 and 25."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from rich.console import Console

from benchmarks.options import Options
from benchmarks.plots import by_case
from benchmarks.results import Row, write_results
from benchmarks.transformer import (
    LAYER,
    OWN,
    Call,
    Case,
    attention_flops,
    cases,
    paper,
    peak_gflops,
    random_tokens,
    row,
    table,
    times,
)
from cora.kernels import EncoderLayer, LayerWeights

EXPERIMENT = "breakdown"
#: Which rows of the paper's table a kernel of ours does; the norm stands for both.
PAPER_KERNELS = {
    "qkv": ("proj1",),
    "attended": ("qkt", "softmax", "attnv"),
    "projected": ("proj2",),
    "normed": ("layernorm (residual already added)", "layernorm"),
    "inner": ("ff1",),
    "outer": ("ff2",),
}
TWICE = "normed"


def run(options: Options, console: Console) -> bool:
    """A table on `console`, rows and a plot in `options.out`."""
    layer = EncoderLayer(LAYER, LayerWeights.random(LAYER))
    peak = peak_gflops(options.threads)
    found: list[Row] = []
    for case in cases(options, quick=("cola", "mnli"), datasets=("race", "cola"), batch_sizes=(32, 128)):
        found += _measure(case, layer, options, peak)
    _, csv_path = write_results(options.out, found)
    picture = by_case(csv_path, csv_path.with_suffix(".png"), metric="share", ylabel="share of the layer")
    _show(found, options, console)
    console.print(f"wrote {csv_path} and {picture}")
    return True


def _measure(case: Case, layer: EncoderLayer, options: Options, peak: float) -> list[Row]:
    plan = layer.plan(case.lengths, options.threads)
    x = random_tokens(case, LAYER.hidden)
    out = np.empty_like(x)
    layer.run(plan, x, out)
    arrays = plan.arrays(layer.weights[0], x, out)
    calls: dict[str, Call] = {call.kernel: partial(plan.run, call, arrays) for call in plan.calls}
    calls[OWN] = partial(layer.run, plan, x, out)
    timings = times(calls, options)
    h, f, n = LAYER.hidden, LAYER.inner, case.tokens
    flops = {
        "qkv": 6.0 * n * h * h,
        "attended": attention_flops(case.lengths, LAYER),
        "projected": 2.0 * n * h * h,
        "inner": 2.0 * n * h * f,
        "outer": 2.0 * n * h * f,
    }
    total = timings[OWN].median_ms
    found = [row(EXPERIMENT, OWN, case, options, "layer", total, "ms")]
    for name, timing in timings.items():
        if name == OWN:
            continue
        taken = timing.median_ms * (2 if name == TWICE else 1)
        found.append(row(EXPERIMENT, name, case, options, "time", taken, "ms"))
        found.append(row(EXPERIMENT, name, case, options, "share", taken / total, ""))
        if name in flops:
            reached = flops[name] / (timing.median_ms * 1e6) / peak
            found.append(row(EXPERIMENT, name, case, options, "share_of_fma_peak", reached, ""))
    return found


def _show(found: Sequence[Row], options: Options, console: Console) -> None:
    value = {(r.dataset, r.batch_size, r.variant, r.metric): r.value for r in found}
    lines = {
        line["cora_kernel"]: float(line["cora_ms"]) for line in paper("table10_breakdown_race128_v100_ms")
    }
    whole = sum(lines.values()) - lines.get("", 0.0)
    batches = list(dict.fromkeys((r.dataset, r.batch_size) for r in found))
    shown = table(
        f"kernels of an encoder layer, {options.threads} thread(s): ms, % of the layer, % of the FMA peak",
        "kernel",
        *(f"{name} {size}" for name, size in batches),
        "paper, race 128: % of the layer",
    )
    for kernel, names in PAPER_KERNELS.items():
        cells = []
        for b in batches:
            text = f"{value[(*b, kernel, 'time')]:.2f}, {100 * value[(*b, kernel, 'share')]:.0f}"
            reached = value.get((*b, kernel, "share_of_fma_peak"))
            cells.append(text if reached is None else f"{text}, {100 * reached:.0f}")
        theirs = 100 * sum(lines.get(name, 0.0) for name in names) / whole
        shown.add_row(kernel + (" (twice)" if kernel == TWICE else ""), *cells, f"{theirs:.0f}")
    shown.add_row("layer", *(f"{value[(*b, OWN, 'layer')]:.2f}" for b in batches), "")
    console.print(shown)
