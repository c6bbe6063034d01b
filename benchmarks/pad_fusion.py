"""Attention that reads packed tokens, against an operator that adds padding before it: as in the paper's Figure 11.

"cora" reads packed queries, keys and values. "padding apart" first copies them to a storage in which every sequence
is padded to a multiple of 32, and attends there: the same kernel, and one more. Both write packed tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from rich.console import Console

import cora
from benchmarks.options import Options
from benchmarks.plots import by_case
from benchmarks.results import Row, write_results
from benchmarks.transformer import LAYER, OWN, Call, Case, cases, check, rows, table, times
from cora.kernels.attention.definition import Attention, define, packed_qkv
from cora.kernels.attention.schedules import schedule
from cora.kernels.encoder.definition import tokens

EXPERIMENT = "pad_fusion"
APART = "padding apart"
MULTIPLE = 32
LANES = 16


def run(options: Options, console: Console) -> bool:
    """Run it: a table on `console`; rows and a plot in `options.out`. False if a result is wrong."""
    size = LAYER.head_size
    program = define(Attention(LAYER.heads, LAYER.heads, size, size, size**-0.5), packed_qkv)
    fused = cora.build(schedule(program))
    padded = cora.build(schedule(program).pad_dim("QKV", "i", MULTIPLE))
    enter = cora.build(_add_padding())
    found: list[Row] = []
    right = True
    for case in cases(options, quick=("mnli",), datasets=("race",)):
        measured, same = _measure(case, fused, enter, padded, options)
        found += measured
        right = right and same
        if not same:
            console.print(f"[red]{case.label}: the two give different results[/red]")
    _, csv_path = write_results(options.out, found)
    picture = by_case(
        csv_path, csv_path.with_suffix(".png"), metric="attention_over_cora", ylabel="time over cora"
    )
    _show(found, options, console)
    console.print(f"wrote {csv_path} and {picture}")
    return right


def _add_padding() -> cora.Schedule:
    """QKV packed to QKV padded."""
    batch, i = tokens()
    dims = [batch, i, cora.Dim("part", 3), cora.Dim("heads", LAYER.heads), cora.Dim("d", LAYER.head_size)]
    packed = cora.placeholder("packed", dims)
    return _copy(cora.compute("QKV", dims, packed[tuple(dims)])).pad_dim("QKV", "i", MULTIPLE)


def _copy(output: cora.Tensor) -> cora.Schedule:
    s = cora.schedule(output).vectorize(output, output.dims[-1].name, LANES)
    return s.parallel(output, "batch")


def _measure(
    case: Case, fused: cora.Kernel, enter: cora.Kernel, attend: cora.Kernel, options: Options
) -> tuple[list[Row], bool]:
    plan = cora.plan([fused, enter, attend], lens=case.lengths, threads=options.threads)
    rng = np.random.default_rng(0)
    qkv = rng.standard_normal((case.tokens, 3 * LAYER.hidden), np.float32)
    outs = [np.empty((case.tokens, LAYER.hidden), np.float32) for _ in range(2)]
    lens = {"lens": case.lengths}
    wide = cora.RaggedArray.empty(enter.layout("QKV"), lens, dtype="float32")

    def separately() -> None:
        enter.run(plan, qkv, outputs={"QKV": wide})
        attend.run(plan, wide, outputs={"O": outs[1]})

    calls: dict[str, Call] = {OWN: partial(fused.run, plan, qkv, outputs={"O": outs[0]}), APART: separately}
    for call in calls.values():
        call()
    same = check(APART, outs[1], outs[0])
    timings = times(calls, options)
    return [*rows(EXPERIMENT, case, "attention", timings, options)], same


def _show(found: Sequence[Row], options: Options, console: Console) -> None:
    value = {(r.dataset, r.batch_size, r.variant, r.metric): r.value for r in found}
    shown = table(f"attention, {options.threads} thread(s)", "batch", "ms", f"{APART}, times")
    for dataset, size in dict.fromkeys((r.dataset, r.batch_size) for r in found):
        shown.add_row(
            f"{dataset} {size}",
            f"{value[dataset, size, OWN, 'attention']:.2f}",
            f"{value[dataset, size, APART, 'attention_over_cora']:.2f}",
        )
    console.print(shown)
