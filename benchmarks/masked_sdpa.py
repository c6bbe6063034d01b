"""Causal attention, no projections: the paper's Figure 18.

"cora" computes the triangle only (the paper's NoPad); "cora square" every score of the square, and masks (Pad). The
mask is the same; PyTorch's ways are padded to the longest with a mask, or go sequence by sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from rich.console import Console

import cora
from benchmarks.options import Options
from benchmarks.peers import torch_attention, torch_encoder
from benchmarks.plots import by_case
from benchmarks.results import Row, write_results
from benchmarks.transformer import (
    LAYER,
    OWN,
    Call,
    Case,
    attention_flops,
    cases,
    check,
    geomean,
    measured,
    row,
    rows,
    table,
    times,
)
from cora.kernels.attention import Attention, kernel_of

EXPERIMENT = "masked_sdpa"
SQUARE = "cora square"
#: The paper's figures: over Pad, and over PyTorch.
PAPER = {SQUARE: 1.34, "torch padded": 2.46}


def run(options: Options, console: Console) -> bool:
    """Run it: a table on `console`; rows and a plot in `options.out`. False if a result is wrong."""
    torch_encoder.keep_memory()
    size = LAYER.head_size
    kind = partial(Attention, LAYER.heads, LAYER.heads, size, size, size**-0.5)
    kernels = {
        OWN: kernel_of(kind(causal="bottom-right")),
        SQUARE: kernel_of(kind(mask=lambda at: at.j < at.i + 1)),
    }
    found, right = measured(
        cases(options, quick=("mnli", "squad"), datasets=("mnli", "race")),
        lambda case: _measure(case, kernels, options),
        console,
    )
    _, csv_path = write_results(options.out, found)
    picture = by_case(
        csv_path, csv_path.with_suffix(".png"), metric="sdpa_over_cora", ylabel="time over cora"
    )
    _show(found, options, console)
    console.print(f"wrote {csv_path} and {picture}")
    return right


def _measure(case: Case, kernels: dict[str, cora.Kernel], options: Options) -> tuple[list[Row], list[str]]:
    rng = np.random.default_rng(0)
    shape = (case.tokens, LAYER.heads, LAYER.head_size)
    q, k, v = (rng.standard_normal(shape, np.float32) for _ in range(3))
    calls: dict[str, Call] = {}
    results = {}
    work = {}
    for name, kernel in kernels.items():
        plan = cora.plan(kernel, lens=case.lengths, threads=options.threads)
        results[name] = np.empty(shape, np.float32)
        calls[name] = partial(kernel.run, plan, q, k, v, outputs={"O": results[name]})
        calls[name]()
        work[name] = kernel.waste(plan).flops_ratio
    expected = results[OWN]
    wrong = [name for name, result in results.items() if not check(name, result, expected)]
    for name, way in torch_attention.sdpa_ways(q, k, v, case.lengths, options.threads, causal=True).items():
        way.call()
        if check(name, way.result(), expected):
            calls[name] = way.call
        else:
            wrong.append(name)
    timings = times(calls, options)
    speed = attention_flops(case.lengths, LAYER, causal=True) / (timings[OWN].median_ms * 1e6)
    return [
        *rows(EXPERIMENT, case, "sdpa", timings, options),
        row(EXPERIMENT, OWN, case, options, "useful_speed", speed, "GFLOP/s"),
        *(
            row(EXPERIMENT, name, case, options, "executed_over_useful_flops", ratio, "")
            for name, ratio in work.items()
        ),
    ], wrong


def _show(found: Sequence[Row], options: Options, console: Console) -> None:
    value = {(r.dataset, r.batch_size, r.variant, r.metric): r.value for r in found}
    variants = list(dict.fromkeys(r.variant for r in found if r.variant != OWN))
    own = table(
        f"causal attention, {options.threads} thread(s); others: times ours",
        "batch",
        "ms",
        "GFLOP/s",
        *variants,
    )
    for dataset, size in dict.fromkeys((r.dataset, r.batch_size) for r in found):
        own.add_row(
            f"{dataset} {size}",
            f"{value[dataset, size, OWN, 'sdpa']:.2f}",
            f"{value[dataset, size, OWN, 'useful_speed']:.0f}",
            *(f"{value[dataset, size, v, 'sdpa_over_cora']:.2f}" for v in variants),
        )
    means = [
        geomean(r.value for r in found if r.variant == v and r.metric == "sdpa_over_cora") for v in variants
    ]
    own.add_row("geomean", "", "", *(f"{m:.2f}" for m in means))
    own.add_row("paper", "", "", *(f"{PAPER[v]:.2f}" if v in PAPER else "" for v in variants))
    console.print(own)
