"""Products of dense matrices of many shapes, against the libraries that are best at them (paper, Fig. 8).

Single products; batches whose every m, n and k is drawn, from the paper's distribution and from a harsher one; linear
layers on packed tokens. On one pinned thread, and on all. All ratios are of one run; the peak of the multiply-add
units is measured between the samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Column, Table

import cora
from benchmarks import peers
from benchmarks.options import Options
from benchmarks.plots import lines
from benchmarks.products import (
    UNCACHED,
    Batch,
    Recorder,
    geomean,
    kernel_call,
    library_call,
    numbers,
    slowest_over_mean,
    wrong_elements,
)
from benchmarks.results import write_results
from cora.kernels.gemm import LINEAR, VGEMM, Storage, suited

EXPERIMENT = "vgemm"
OWN = "cora"
BLAS = ("openblas", "mkl", "mkl_batch")
SHAPES = (
    (64, 64, 64),
    (128, 128, 128),
    (256, 256, 256),
    (512, 512, 512),
    (1000, 1000, 1000),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (100, 77, 333),
    (37, 512, 512),
    (16, 512, 512),
    (331, 700, 129),
)
#: The paper's: with our own tiles, and with tiles by OpenBLAS.
PAPER = ("unsplit_unbalanced", "split_unbalanced", "split_balanced")
VARIANTS = ("uncopied", *PAPER, "generated")
#: What padded storage may take, its operands and result together.
PADDED_BYTES = 2 << 30
WORKERS = (2, 8, 64)
#: Batches whose balance is counted.
BALANCED = (2, 8, 32)
HIDDEN = 512


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: shapes, batch sizes, those with all variants, sequences of tokens, samples of each."""

    shapes: tuple[tuple[int, int, int], ...]
    batches: tuple[int, ...]
    with_variants: tuple[int, ...]
    sequences: tuple[int, ...]
    widths: tuple[int, ...]
    repeats: int


FULL = Scale(SHAPES, tuple(2 << n for n in range(9)), (8, 32), (8, 128), (512, 1536, 2048), 11)
QUICK = Scale(SHAPES[1:6] + SHAPES[7:10], (2, 4), (2,), (16,), (512, 2048), 4)


def shapes_of(dataset: str, size: int) -> tuple[tuple[int, int, int], ...]:
    """The shapes of a batch: "paper": multiples of 128 from 512 to 1408; "harsh": 1 to 1408, multiples of nothing."""
    rng = np.random.default_rng(size)
    drawn = rng.integers(4, 12, (size, 3)) * 128 if dataset == "paper" else rng.integers(1, 1409, (size, 3))
    return tuple((int(m), int(n), int(k)) for m, n, k in drawn)


def run(options: Options, console: Console) -> bool:
    """Measure: tables on `console`, rows and a plot in `options.out`. False if a result is wrong.

    Raises:
        UserError: lengths that cannot be read.
    """
    scale = QUICK if options.quick else FULL
    for line in peers.absent():
        console.print(line)
    record = Recorder(EXPERIMENT)
    thread_counts = sorted({1, options.threads})
    for threads in thread_counts:
        _singles(record, scale, threads)
        for dataset in ("paper", "harsh"):
            for size in scale.batches:
                _batch(record, dataset, size, scale, threads)
        _linear(record, scale, threads, options)
    _scaling(record, scale, options.threads)
    _balance(record, scale)
    _build_times(record)
    json_path, csv_path = write_results(options.out, record.rows)
    picture = lines(
        csv_path,
        csv_path.with_suffix(".png"),
        metric="of_peak",
        panels=[("paper", threads) for threads in thread_counts] + [("harsh", t) for t in thread_counts],
        x="batch_size",
        xlabel="products in the batch",
        ylabel="useful FLOPs, of the peak",
    )
    _report(record, console)
    console.print(f"wrote {json_path}, {csv_path} and {picture}")
    wrong = [r for r in record.rows if r.metric == "wrong_elements" and r.value]
    for row in wrong:
        console.print(f"[red]{row.variant} is wrong on {row.dataset}, batch {row.batch_size}[/red]")
    return not wrong


@cache
def _product(variant: str | None = None, padded: bool = False, **choices: str) -> cora.Kernel:
    schedule = {"storage": Storage(padded=padded), **choices}
    return VGEMM.build(variant=variant, settings=UNCACHED, schedule=schedule)


def _variants() -> dict[str, cora.Kernel]:
    """The schedules beside the suited one; those that offload tiles where OpenBLAS is there."""
    kernels = {variant: _product(variant) for variant in VARIANTS}
    if peers.openblas() is not None:
        kernels["offload"] = _product("openblas")
        kernels.update({f"{v}_offload": _product(v, kernel="openblas") for v in PAPER})
    return kernels


def _suited(batch: Batch, threads: int) -> cora.Kernel:
    """The kernel that the library's own rule names."""
    return _product(suited(**batch.lengths, workers=threads))


@cache
def _layer(features_in: int, features_out: int, **definition: Any) -> cora.Kernel:
    given = {"features_in": features_in, "features_out": features_out, **definition}
    return LINEAR.build(settings=UNCACHED, definition=given)


def _singles(record: Recorder, scale: Scale, threads: int) -> None:
    for m, n, k in scale.shapes:
        batch = Batch.random(((m, n, k),))
        kernel = _suited(batch, threads)
        calls, results = _libraries(batch, threads, batched=False)
        _own(record, OWN, kernel, batch, threads, calls, results, f"{m}x{n}x{k}")
        _own(record, "generated", _product("generated"), batch, threads, calls, results, f"{m}x{n}x{k}")
        record.compare(
            f"{m}x{n}x{k}", 1, threads, calls, batch.flops, own=OWN, best_of=BLAS, repeats=scale.repeats
        )


def _batch(record: Recorder, dataset: str, size: int, scale: Scale, threads: int) -> None:
    batch = Batch.random(shapes_of(dataset, size))
    calls, results = _libraries(batch, threads, batched=True)
    _own(record, OWN, _suited(batch, threads), batch, threads, calls, results, dataset)
    torch = peers.padded_bmm()
    if peers.PaddedBmm.stored_bytes(batch.problems(batch.empty())) <= PADDED_BYTES:
        padded = _product(padded=True)
        _own(record, "cora_padded", padded, batch, threads, calls, results, dataset)
        if torch is not None:
            torch.set_threads(threads)
            calls["torch_padded"] = torch.gemm(batch.problems(batch.empty()))
    if size in scale.with_variants:
        for variant, kernel in _variants().items():
            _own(record, variant, kernel, batch, threads, calls, results, dataset)
    record.compare(dataset, size, threads, calls, batch.flops, own=OWN, best_of=BLAS, repeats=scale.repeats)


def _libraries(
    batch: Batch, threads: int, *, batched: bool
) -> tuple[dict[str, Callable[[], object]], np.ndarray[Any, Any]]:
    """The calls of the libraries, and what one of them (or else NumPy) computes."""
    calls: dict[str, Callable[[], object]] = {}
    for library in filter(None, (peers.openblas(), peers.mkl())):
        problem = batch.problems(batch.empty())
        calls[library.name] = library_call(library, problem, batched=False, threads=threads)
        if batched and library.name == "mkl":
            calls["mkl_batch"] = library_call(library, problem, batched=True, threads=threads)
    expected = batch.empty()
    for p in batch.problems(expected):
        np.matmul(p.A, p.B, out=p.C)
    return calls, expected


def _own(
    record: Recorder,
    variant: str,
    kernel: cora.Kernel,
    batch: Batch,
    threads: int,
    calls: dict[str, Callable[[], object]],
    expected: np.ndarray[Any, Any],
    dataset: str,
) -> None:
    """Add the call of a kernel, once its result is compared."""
    plan = cora.plan(kernel, threads=threads, **batch.lengths)
    inputs: dict[str, Any] = {"A": batch.left, "B": batch.right}
    out: Any = batch.empty()
    if not kernel.layout("C").is_packed:
        inputs = {x: _padded(kernel, x, values, batch) for x, values in inputs.items()}
        out = _padded(kernel, "C", out, batch)
    call = kernel_call(kernel, plan, inputs, out)
    call()
    result = out.packed() if isinstance(out, cora.RaggedArray) else out
    terms = max(k for _, _, k in batch.shapes)
    size = len(batch.shapes)
    record.add(variant, dataset, size, threads, "wrong_elements", wrong_elements(result, expected, terms), "")
    record.add(variant, dataset, size, threads, "flops_ratio", kernel.waste(plan).flops_ratio, "")
    calls[variant] = call


def _padded(kernel: cora.Kernel, name: str, values: Any, batch: Batch) -> cora.RaggedArray:
    layout = kernel.layout(name)
    used = {"A": "mk", "B": "kn", "C": "mn"}[name]
    lengths = {x: batch.lengths[x] for x in used}
    packed = cora.RaggedArray.from_values(values, cora.Layout.packed(layout.dims), lengths, name=name)
    return packed.to_layout(layout)


def _linear(record: Recorder, scale: Scale, threads: int, options: Options) -> None:
    """Linear layers of 512 features in; plain, with bias, and with bias and gelu, against the plain product."""
    epilogues: dict[str, dict[str, Any]] = {
        "plain": {},
        "bias": {"bias": True},
        "bias_gelu": {"bias": True, "activation": "gelu_tanh"},
        "bias_residual": {"bias": True, "residual": True},
    }
    for size in scale.sequences:
        lens = options.batch("mnli", size)
        tokens = int(lens.sum())
        for width in scale.widths:
            X, W = numbers(tokens * HIDDEN, 1), numbers(HIDDEN * width, 2).reshape(HIDDEN, width)
            batch = Batch(((tokens, width, HIDDEN),), X, W.reshape(-1))
            given = {"X": X, "bias": numbers(width, 3), "residual": numbers(tokens * width, 4)}
            calls, expected = _libraries(batch, threads, batched=False)
            for name, definition in epilogues.items():
                kernel = _layer(HIDDEN, width, **definition)
                plan = cora.plan(kernel, threads=threads, lens=lens)
                out = np.full(tokens * width, np.nan, np.float32)
                panels = {"W": cora.ragged(W, kernel.layout("W"))}
                call = calls[OWN if name == "plain" else name] = kernel_call(
                    kernel, plan, {**given, **panels}, out
                )
                if name == "plain":
                    call()
                    wrong = wrong_elements(out, expected, HIDDEN)
                    record.add(OWN, f"linear {width}", size, threads, "wrong_elements", wrong, "")
            record.compare(
                f"linear {width}",
                size,
                threads,
                calls,
                batch.flops,
                own=OWN,
                best_of=BLAS,
                repeats=scale.repeats,
            )


def _scaling(record: Recorder, scale: Scale, most: int) -> None:
    """The paper's Fig. 27: one batch on 1, 2, 4, ... threads."""
    batch = Batch.random(shapes_of("paper", scale.batches[-1] if len(scale.batches) < 5 else 32))
    for threads in dict.fromkeys([*(1 << n for n in range(most.bit_length()) if 1 << n < most), most]):
        kernel = _suited(batch, threads)
        plan = cora.plan(kernel, threads=threads, **batch.lengths)
        call = kernel_call(kernel, plan, {"A": batch.left, "B": batch.right}, batch.empty())
        record.compare(
            "scaling",
            len(batch.shapes),
            threads,
            {OWN: call},
            batch.flops,
            own=OWN,
            best_of=(),
            repeats=scale.repeats,
        )


def _balance(record: Recorder, scale: Scale) -> None:
    """How even the shares of the workers are, from the plans alone."""
    for variant in ("tiled", "tiled_fine", "unsplit_unbalanced", "split_balanced"):
        kernel = _product(variant)
        for dataset in ("paper", "harsh"):
            for size in BALANCED:
                nothing = np.empty(0, np.float32)
                lengths = Batch(shapes_of(dataset, size), nothing, nothing).lengths
                plan = cora.plan(kernel, threads=1, **lengths)
                for workers in WORKERS:
                    slowest = slowest_over_mean(kernel, plan, workers)
                    record.add(variant, dataset, size, workers, "slowest_over_mean", slowest, "")


def _build_times(record: Recorder) -> None:
    """Building without the cache, and from it, in a process that has built before."""
    for recipe, definition in ((VGEMM, {}), (LINEAR, {"features_in": HIDDEN, "features_out": HIDDEN})):
        for metric, settings in (
            ("build_cold", UNCACHED),
            ("build_first", cora.Settings()),
            ("build_cached", cora.Settings()),
        ):
            start = time.perf_counter()
            recipe.build(settings=settings, definition=definition)
            if metric != "build_first":
                record.add(recipe.name, "", 0, 1, metric, (time.perf_counter() - start) * 1e3, "ms")


def _report(record: Recorder, console: Console) -> None:
    keys = dict.fromkeys(
        (r.threads, r.dataset, r.batch_size)
        for r in record.rows
        if r.metric == "of_peak" and r.variant == OWN
    )
    columns = (
        "GFLOP/s",
        "of peak",
        "lead over best BLAS",
        "x OpenBLAS",
        "x MKL",
        "x MKL batch",
        "x torch, padded",
    )
    table = Table("threads", "products", "batch", *(Column(c, justify="right") for c in columns))
    leads: dict[tuple[int, str], list[float]] = {}
    slower: list[str] = []
    for threads, dataset, size in keys:

        def value(metric: str, key: tuple[str, int, int] = (dataset, size, threads)) -> float | None:
            return record.value(OWN, *key, metric)

        lead = value("lead")
        if lead is not None:
            group = (
                dataset
                if dataset in ("paper", "harsh")
                else dataset.split()[0].rstrip("0123456789x") or "single"
            )
            leads.setdefault((threads, group), []).append(lead)
            if lead < 1:
                slower.append(f"{dataset} (batch {size}, {threads} threads): {lead:.2f}")
        others = ("openblas", "mkl", "mkl_batch", "torch_padded")
        table.add_row(
            str(threads),
            dataset,
            str(size),
            f"{value('rate') or 0:.1f}",
            f"{value('of_peak') or 0:.1%}",
            *(_shown(x) for x in (lead, *(value(f"{other}_over_{OWN}") for other in others))),
        )
    console.print(table)
    for (threads, group), values in leads.items():
        console.print(
            f"{group}, {threads} threads: lead over the better BLAS {min(values):.2f} to {max(values):.2f}, "
            f"geometric mean {geomean(values):.3f}"
        )
    console.print("where a library is faster: " + ("; ".join(slower) or "nowhere"))
    balance = [r for r in record.rows if r.metric == "slowest_over_mean" and r.variant == "tiled_fine"]
    for workers in WORKERS:
        found = [r.value for r in balance if r.threads == workers]
        console.print(f"balance at {workers} workers: slowest over mean {min(found):.3f} to {max(found):.3f}")
    for row in record.rows:
        if row.metric.startswith("build_"):
            console.print(f"{row.variant}: {row.metric.replace('_', ' ')} {row.value:.0f} ms")


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
