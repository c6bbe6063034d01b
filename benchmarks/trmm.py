"""A triangular matrix times a dense one, against the libraries' own routines and a dense product (paper, Fig. 9).

Square lower triangles from the left, n from 128 to 8192, stored densely and packed, and from the right, as dataset
`right`. The libraries' `strmm` works in place; its copy of the operand is not part of its time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from rich.console import Console
from rich.table import Column, Table

import cora
from benchmarks import peers
from benchmarks.options import Options
from benchmarks.plots import lines
from benchmarks.products import (
    UNCACHED,
    Recorder,
    geomean,
    kernel_call,
    numbers,
    slowest_over_mean,
    wrong_elements,
)
from benchmarks.results import write_results
from cora.kernels.triangular import TRMM, Triangle, suited

EXPERIMENT = "trmm"
OWN = "cora"
#: The competition: routines that know of the triangle.
STRMM = ("openblas_strmm", "mkl_strmm")
SGEMM = ("openblas_sgemm", "mkl_sgemm")
PACKED, RIGHT = Triangle(storage="packed"), Triangle("right")
#: The datasets: a triangle from the left, and from the right.
DATASETS = {"square": "left", "right": "right"}
#: The schedules, and the largest n they are measured at.
VARIANTS = {
    "tiled": 8192,
    "tiled_wide": 8192,
    "tiled_fine": 8192,
    "uncopied": 1024,
    "tiled_unbalanced": 8192,
    "rows": 1024,
    "rows_unbalanced": 1024,
}
WORKERS = (2, 8, 64)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: n, samples of each."""

    sizes: tuple[int, ...]
    repeats: int


FULL = Scale((128, 256, 512, 777, 1000, 1024, 2048, 4096, 8192), 11)
QUICK = Scale((128, 256, 512, 777, 1024, 2048), 5)


def run(options: Options, console: Console) -> bool:
    """Measure: tables on `console`, rows and a plot in `options.out`. False if a result is wrong."""
    scale = QUICK if options.quick else FULL
    for line in peers.absent():
        console.print(line)
    record = Recorder(EXPERIMENT)
    kernels = {v: TRMM.build(variant=v, settings=UNCACHED) for v in VARIANTS}
    packed = {
        v: TRMM.build(
            variant=v, settings=UNCACHED, definition={"storage": "packed"}, schedule={"triangle": PACKED}
        )
        for v in ("tiled", "tiled_wide", "tiled_fine", "uncopied")
    }
    right = {
        v: TRMM.build(
            variant=v, settings=UNCACHED, definition={"side": "right"}, schedule={"triangle": RIGHT}
        )
        for v in ("tiled", "tiled_wide", "tiled_fine")
    }
    thread_counts = sorted({1, options.threads})
    for threads in thread_counts:
        for n in scale.sizes:
            chosen = suited(n, n, threads)
            own = {OWN: kernels[chosen], "cora_packed": packed[chosen]}
            others = {v: kernel for v, kernel in kernels.items() if v != chosen and n <= VARIANTS[v]}
            _size(record, "square", {**own, **others}, n, scale, threads)
            chosen = suited(n, n, threads, side="right")
            _size(record, "right", {OWN: right[chosen]}, n, scale, threads)
    for variant in ("tiled", "tiled_fine", "tiled_unbalanced"):
        for n in scale.sizes:
            plan = cora.plan(kernels[variant], n=n, width=n, threads=1)
            for workers in WORKERS:
                even = slowest_over_mean(kernels[variant], plan, workers)
                record.add(variant, "square", n, workers, "slowest_over_mean", even, "")
    json_path, csv_path = write_results(options.out, record.rows)
    picture = lines(
        csv_path,
        csv_path.with_suffix(".png"),
        metric="rate",
        panels=[(dataset, threads) for dataset in DATASETS for threads in thread_counts],
        x="batch_size",
        xlabel="n",
        ylabel="useful GFLOP/s",
    )
    _report(record, thread_counts, scale, console)
    console.print(f"wrote {json_path}, {csv_path} and {picture}")
    wrong = [r for r in record.rows if r.metric == "wrong_elements" and r.value]
    for row in wrong:
        console.print(f"[red]{row.variant} is wrong at n = {row.batch_size}[/red]")
    return not wrong


def _size(
    record: Recorder, dataset: str, kernels: dict[str, cora.Kernel], n: int, scale: Scale, threads: int
) -> None:
    side = DATASETS[dataset]
    T, B = numbers(n * n, 1).reshape(n, n), numbers(n * n, 2).reshape(n, n)
    packed = T[np.tri(n, dtype=bool)]
    expected = np.tril(T) @ B if side == "left" else B @ np.tril(T)
    calls: dict[str, Callable[[], object]] = {}
    for variant, kernel in kernels.items():
        plan = cora.plan(kernel, n=n, width=n, threads=threads)
        out = np.full((n, n), np.nan, np.float32)
        triangle = packed if variant == "cora_packed" else T
        call = kernel_call(kernel, plan, {"T": triangle, "B": B}, out)
        call()
        record.add(
            variant,
            dataset,
            n,
            threads,
            "wrong_elements",
            wrong_elements(out.ravel(), expected.ravel(), n),
            "",
        )
        calls[variant] = call
    for library in filter(None, (peers.openblas(), peers.mkl())):
        # Scaled so that a product done again and again in place neither overflows nor becomes subnormal.
        steady = np.tril(T) / np.float32(n)
        np.fill_diagonal(steady, 1.0)
        in_place = library.trmm(peers.Trmm(steady, B.copy(), side))
        operands = (T, B) if side == "left" else (B, T)
        dense = library.gemm([peers.Gemm(*operands, np.empty_like(B))])
        for name, call in (("strmm", in_place), ("sgemm", dense)):
            calls[f"{library.name}_{name}"] = _on(library, call, threads)
    record.compare(dataset, n, threads, calls, n * n * (n + 1), own=OWN, best_of=STRMM, repeats=scale.repeats)


def _on(library: peers.Blas, call: Callable[[], object], threads: int) -> Callable[[], None]:
    def run() -> None:
        library.set_threads(threads)
        call()

    return run


def _report(record: Recorder, thread_counts: list[int], scale: Scale, console: Console) -> None:
    columns = (
        "GFLOP/s",
        "of peak",
        "packed, of peak",
        "lead over best strmm",
        *(f"x {v}" for v in (*STRMM, *SGEMM)),
    )
    table = Table("side", "threads", "n", *(Column(c.replace("_", " "), justify="right") for c in columns))
    slower: list[str] = []
    for (dataset, side), threads in product(DATASETS.items(), thread_counts):
        for n in scale.sizes:
            key = (dataset, n, threads)
            lead = record.value(OWN, *key, "lead")
            others = [record.value(OWN, *key, f"{v}_over_{OWN}") for v in (*STRMM, *SGEMM)]
            slower += [
                f"{v.replace('_', ' ')} from the {side} at n = {n}, {threads} threads: {x:.2f}"
                for v, x in zip((*STRMM, *SGEMM), others, strict=True)
                if x is not None and x < 1
            ]
            packed = record.value("cora_packed", *key, "of_peak")
            table.add_row(
                side,
                str(threads),
                str(n),
                f"{record.value(OWN, *key, 'rate') or 0:.1f}",
                f"{record.value(OWN, *key, 'of_peak') or 0:.1%}",
                "" if packed is None else f"{packed:.1%}",
                *("" if x is None else f"{x:.2f}" for x in (lead, *others)),
            )
    console.print(table)
    for (dataset, side), threads in product(DATASETS.items(), thread_counts):
        rows = [r for r in record.rows if (r.metric, r.dataset, r.threads) == ("lead", dataset, threads)]
        leads = [r.value for r in rows]
        if leads:
            console.print(
                f"from the {side}, {threads} threads: lead over the better strmm {min(leads):.2f} to {max(leads):.2f}, "
                f"geometric mean {geomean(leads):.3f}"
            )
    console.print("where a library is faster: " + ("; ".join(slower) or "nowhere"))
    for workers in WORKERS:
        even = [
            min(
                record.value(v, "square", n, workers, "slowest_over_mean") or 0
                for v in ("tiled", "tiled_fine")
            )
            for n in scale.sizes
        ]
        console.print(
            f"balance at {workers} workers: slowest over mean "
            + ", ".join(f"{x:.2f} (n {n})" for n, x in zip(scale.sizes, even, strict=True))
        )
