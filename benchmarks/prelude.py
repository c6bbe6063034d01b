"""What auxiliary arrays cost: the paper's Tables 7 and 8, and its table of storage schemes (section 7.4).

"cora" is one plan for all kernels of a layer, which six layers share. "redundant" computes the prelude of every kernel
by itself, six times, as the paper's prototype did. "tree" is the tree-shaped scheme of sparse compilers for the
scores X[batch, i, head, j], filled by NumPy, against ours for the same tensor. Times are of one thread, and do not
include memory for activations.
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
from benchmarks.transformer import LAYER, OWN, Call, Case, cases, paper, row, table, times
from cora.kernels import EncoderLayer, LayerWeights
from cora.kernels.encoder.layer import layer_kernels
from cora.storage.boxes import Batch
from cora.storage.csf import auxiliary_entries, csf_entries
from cora.storage.lengths import frozen

EXPERIMENT = "prelude"
REDUNDANT, TREE = "redundant", "tree"
LAYERS = 6


def run(options: Options, console: Console) -> bool:
    """Tables on `console`, rows and a plot in `options.out`."""
    kernels = layer_kernels(LAYER)
    layer = EncoderLayer(LAYER, LayerWeights.random(LAYER))
    found: list[Row] = []
    for case in cases(options, quick=("cola", "race"), datasets=("cola", "race"), batch_sizes=(32, 128)):
        found += _measure(case, kernels.all, layer, options)
    _, csv_path = write_results(options.out, found)
    picture = by_case(csv_path, csv_path.with_suffix(".png"), metric="tables_bytes", ylabel="bytes")
    _show(found, console)
    console.print(f"wrote {csv_path} and {picture}")
    return True


def _measure(case: Case, kernels: Sequence[cora.Kernel], layer: EncoderLayer, options: Options) -> list[Row]:
    lens = case.lengths

    def together() -> cora.Plan:
        return cora.plan(kernels, lens=lens, threads=options.threads)

    def redundant() -> list[cora.Plan]:
        return [cora.plan(k, lens=lens, threads=options.threads) for _ in range(LAYERS) for k in kernels]

    x = np.zeros((case.tokens, LAYER.hidden), np.float32)
    plan, out = layer.plan(lens, options.threads), np.empty_like(x)
    scores = _scores()
    tree = partial(_tree, lens.astype(np.int64), LAYER.heads)
    whole = partial(layer.run, plan, x, out)
    calls: dict[str, Call] = {OWN: together, REDUNDANT: redundant, TREE: tree, "layer": whole}
    timings = times(calls, options)
    batch = Batch({"M": len(lens)}, {"lens": frozen(lens)}).evaluator()
    share = timings[OWN].median_ms / LAYERS / timings["layer"].median_ms
    single = [cora.plan(k, lens=lens, threads=options.threads).arena.used_bytes for k in kernels]
    used = together().arena.used_bytes
    return [
        *(row(EXPERIMENT, v, case, options, "prelude", timings[v].median_ms, "ms") for v in (OWN, REDUNDANT)),
        row(EXPERIMENT, OWN, case, options, "tables_bytes", used, "bytes"),
        row(EXPERIMENT, REDUNDANT, case, options, "tables_bytes", LAYERS * sum(single), "bytes"),
        row(EXPERIMENT, OWN, case, options, "share_of_a_layer", share, ""),
        row(EXPERIMENT, TREE, case, options, "storage", timings[TREE].median_ms, "ms"),
        row(
            EXPERIMENT,
            OWN,
            case,
            options,
            "storage_bytes",
            4 * int(batch.value(auxiliary_entries(scores))),
            "bytes",
        ),
        row(
            EXPERIMENT,
            TREE,
            case,
            options,
            "storage_bytes",
            4 * int(batch.value(csf_entries(scores))),
            "bytes",
        ),
    ]


def _scores() -> cora.Layout:
    """X[batch, i, head, j]."""
    batch = cora.Dim("batch", cora.size("M"))
    lens = cora.lengths("lens", batch)
    i, j = cora.Dim("i", lens[batch]), cora.Dim("j", lens[batch])
    return cora.Layout.packed([batch, i, cora.Dim("head", LAYER.heads), j])


def _tree(lengths: np.ndarray, heads: int) -> tuple[np.ndarray, np.ndarray]:
    """The row starts of both levels of the tree of X[batch, i, head, j]."""
    rows = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.concatenate([[0], np.cumsum(np.repeat(lengths, lengths * heads))])
    return rows, columns


def _show(found: Sequence[Row], console: Console) -> None:
    value = {(r.dataset, r.batch_size, r.variant, r.metric): r.value for r in found}
    theirs = {
        (line["dataset"], int(line["batch_size"]), line["variant"]): line
        for line in paper("tables7_8_prelude_6layer")
    }
    storage = {
        (line["dataset"], int(line["batch_size"])): line for line in paper("section7_4_storage_schemes")
    }
    shown = table(
        f"prelude of {LAYERS} layers; the paper's without its copies to a device",
        "batch",
        "us",
        "redundant, us",
        "KB",
        "redundant, KB",
        "% of a layer",
        "paper: us",
        "redundant, us",
        "KB",
        "redundant, KB",
    )
    schemes = table(
        "storage scheme of the scores", "batch", "KB", "tree, KB", "tree, us", "paper: KB", "tree, KB"
    )
    for dataset, size in dict.fromkeys((r.dataset, r.batch_size) for r in found):

        def get(variant: str, metric: str, key: tuple[str, int] = (dataset, size)) -> float:
            return value[(*key, variant, metric)]

        reported = [theirs[dataset, size, v] for v in ("optimized", "redundant")]
        shown.add_row(
            f"{dataset} {size}",
            *(f"{1e3 * get(v, 'prelude'):.0f}" for v in (OWN, REDUNDANT)),
            *(f"{get(v, 'tables_bytes') / 1e3:.1f}" for v in (OWN, REDUNDANT)),
            f"{100 * get(OWN, 'share_of_a_layer'):.3f}",
            *(f"{1e3 * (float(p['storage_ms']) + float(p['loop_fusion_ms'])):.0f}" for p in reported),
            *(f"{float(p['storage_kb']) + float(p['loop_fusion_kb']):.1f}" for p in reported),
        )
        line = storage[dataset, size]
        schemes.add_row(
            f"{dataset} {size}",
            *(f"{get(v, 'storage_bytes') / 1e3:.2f}" for v in (OWN, TREE)),
            f"{1e3 * get(TREE, 'storage'):.0f}",
            line["cora_storage_kb"],
            line["sparse_storage_kb"],
        )
    console.print(shown)
    console.print(schemes)
