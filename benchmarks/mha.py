"""Multi-head attention (projections included) against PyTorch: the paper's Table 9, on this machine.

"cora OpenBLAS" offloads the two projections to NumPy's OpenBLAS, on the same packed tokens, as the paper's prototype
did on ARM processors.
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
    Array,
    Call,
    Case,
    attention_flops,
    best_micro_batches,
    cases,
    check,
    geomean,
    measured,
    paper,
    projection_flops,
    random_tokens,
    row,
    rows,
    table,
    times,
)
from cora.kernels import LayerWeights, linear
from cora.kernels.encoder.layer import layer_schedules
from cora.kernels.gemm.schedules import tokens_prepacked

EXPERIMENT = "mha"
OFFLOADED = "cora OpenBLAS"


class MultiHeadAttention:
    """Projection to queries, keys and values, attention, projection: three kernels on packed tokens."""

    def __init__(self) -> None:
        known = layer_schedules(LAYER)
        out = tokens_prepacked(linear(LAYER.hidden, LAYER.hidden, bias=True, name="projected"))
        self.kernels = [cora.build(s) for s in (known["qkv"], known["attended"], out)]
        self.weights = LayerWeights.random(LAYER)

    def calls(self, case: Case, x: Array, options: Options) -> tuple[dict[str, Call], Array]:
        """Ours, and with the projections offloaded; the array that both write."""
        plan = cora.plan(self.kernels, lens=case.lengths, threads=options.threads)
        qkv, attended, out = (np.empty((len(x), n * LAYER.hidden), np.float32) for n in (3, 1, 1))
        project, attend, merge = self.kernels
        w = self.weights
        into, onto = (cora.ragged(m, k.layout("W")) for m, k in ((w.qkv, project), (w.out, merge)))

        def own() -> None:
            project.run(plan, x, into, w.qkv_bias, outputs={"qkv": qkv})
            attend.run(plan, qkv, outputs={"attended": attended})
            merge.run(plan, attended, onto, w.out_bias, outputs={"projected": out})

        def offloaded() -> None:
            np.matmul(x, w.qkv, out=qkv)
            np.add(qkv, w.qkv_bias, out=qkv)
            attend.run(plan, qkv, outputs={"attended": attended})
            np.matmul(attended, w.out, out=out)
            np.add(out, w.out_bias, out=out)

        return {OWN: own, OFFLOADED: offloaded}, out


def run(options: Options, console: Console) -> bool:
    """Run it: a table on `console`; rows and a plot in `options.out`. False if a result is wrong."""
    torch_encoder.keep_memory()
    module = MultiHeadAttention()
    found, right = measured(cases(options), lambda case: _measure(case, module, options), console)
    _, csv_path = write_results(options.out, found)
    picture = by_case(csv_path, csv_path.with_suffix(".png"), metric="mha_over_cora", ylabel="time over cora")
    _show(found, options, console)
    console.print(f"wrote {csv_path} and {picture}")
    return right


def _measure(case: Case, module: MultiHeadAttention, options: Options) -> tuple[list[Row], list[str]]:
    x = random_tokens(case, LAYER.hidden)
    calls, out = module.calls(case, x, options)
    calls[OWN]()
    expected = out.copy()
    calls[OFFLOADED]()
    wrong = [] if check(OFFLOADED, out, expected) else [OFFLOADED]
    w = module.weights
    peers = torch_attention.mha_ways(
        (w.qkv, w.qkv_bias), (w.out, w.out_bias), LAYER.heads, x, case.lengths, options.threads
    )
    for name, way in peers.items():
        way.call()
        if check(name, way.result(), expected):
            calls[name] = partial(way.call)
        else:
            wrong.append(name)
    timings = best_micro_batches(times(calls, options))
    useful = attention_flops(case.lengths, LAYER) + projection_flops(case.tokens, LAYER)
    speed = useful / (timings[OWN].median_ms * 1e6)
    return [
        *rows(EXPERIMENT, case, "mha", timings, options),
        row(EXPERIMENT, OWN, case, options, "useful_speed", speed, "GFLOP/s"),
    ], wrong


def _show(found: Sequence[Row], options: Options, console: Console) -> None:
    value = {(r.dataset, r.batch_size, r.variant, r.metric): r.value for r in found}
    variants = list(dict.fromkeys(r.variant for r in found if r.variant != OWN))
    eight = {(line["dataset"], int(line["batch_size"])): line for line in paper("table9_mha_arm_8core_ms")}
    own = table(
        f"multi-head attention, {options.threads} thread(s); others: times ours",
        "batch",
        "ms",
        "GFLOP/s",
        *(v.removeprefix("torch ") for v in variants),
        "paper (8 cores): PyTorch, micro-batched",
    )
    for dataset, size in dict.fromkeys((r.dataset, r.batch_size) for r in found):
        line = eight[dataset, size]
        over = [float(line[c]) / float(line["cora_ms"]) for c in ("pytorch_ms", "pytorch_microbatched_ms")]
        own.add_row(
            f"{dataset} {size}",
            f"{value[dataset, size, OWN, 'mha']:.1f}",
            f"{value[dataset, size, OWN, 'useful_speed']:.0f}",
            *(f"{value.get((dataset, size, v, 'mha_over_cora'), float('nan')):.2f}" for v in variants),
            f"{over[0]:.2f}, {over[1]:.2f}",
        )
    means = [
        geomean(r.value for r in found if r.variant == v and r.metric == "mha_over_cora") for v in variants
    ]
    own.add_row("geomean", "", "", *(f"{m:.2f}" for m in means), "")
    console.print(own)
