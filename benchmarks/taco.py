"""Triangles as ragged tensors and as sparse matrices: trmm, tradd and trmul (paper, Table 6).

Against CSR and BSR (blocks of 32) of SciPy, which run on one thread, and CSR of MKL. A sparse result is allocated by
each call, as these libraries do; ours is given. NumPy on the packed buffers is the limit of element-wise work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from rich.console import Console
from rich.table import Column, Table

import cora
from benchmarks import peers
from benchmarks.options import Options
from benchmarks.peaks import NumpyStream
from benchmarks.plots import lines
from benchmarks.products import UNCACHED, Recorder, kernel_call, numbers, wrong_elements
from benchmarks.results import write_results
from cora.kernels.triangular import TRADD, TRMM, TRMUL, Triangle

EXPERIMENT = "taco"
OWN = "cora"
OPERATORS = ("trmm", "tradd", "trmul")
OTHERS = ("scipy_csr", "scipy_bsr", "mkl_csr", "numpy_packed")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: n of the element-wise operators; the largest n of trmm; samples of each."""

    sizes: tuple[int, ...]
    largest_product: int
    repeats: int


FULL = Scale((128, 512, 2048, 8192), 2048, 9)
QUICK = Scale((128, 512, 2048), 512, 5)


def run(options: Options, console: Console) -> bool:
    """Measure: a table on `console`, rows and a plot in `options.out`. False if a result is wrong."""
    scale = QUICK if options.quick else FULL
    for line in peers.absent():
        console.print(line)
    record = Recorder(EXPERIMENT)
    kernels = {
        "trmm": TRMM.build(
            settings=UNCACHED,
            definition={"storage": "packed"},
            schedule={"triangle": Triangle(storage="packed")},
        ),
        "tradd": TRADD.build(settings=UNCACHED),
        "trmul": TRMUL.build(settings=UNCACHED),
    }
    thread_counts = sorted({1, options.threads})
    for threads in thread_counts:
        for n in scale.sizes:
            for operator, kernel in kernels.items():
                if operator != "trmm" or n <= scale.largest_product:
                    _measure(record, operator, kernel, n, threads, scale.repeats)
    json_path, csv_path = write_results(options.out, record.rows)
    picture = lines(
        csv_path,
        csv_path.with_suffix(".png"),
        metric="time",
        panels=[(operator, threads) for operator in OPERATORS for threads in thread_counts],
        x="batch_size",
        xlabel="n",
        ylabel="ms",
        logarithmic=True,
    )
    table = Table(
        "threads",
        "operator",
        "n",
        *(Column(c, justify="right") for c in ("ms", "rate", *(f"x {o}" for o in OTHERS))),
    )
    for row in [r for r in record.rows if r.metric == "time" and r.variant == OWN]:
        key = (row.dataset, row.batch_size, row.threads)
        rate = record.value(OWN, *key, "rate") or 0
        unit = "GFLOP/s" if row.dataset == "trmm" else "GB/s"
        others = (record.value(OWN, *key, f"{o}_over_{OWN}") for o in OTHERS)
        table.add_row(
            str(row.threads), row.dataset, str(row.batch_size), f"{row.value:.4f}", f"{rate:.1f} {unit}",
            *("" if x is None else f"{x:.2f}" for x in others),
        )  # fmt: skip
    console.print(table)
    console.print("x other: its time relative to cora's; above 1 cora is faster")
    console.print(f"wrote {json_path}, {csv_path} and {picture}")
    wrong = [r for r in record.rows if r.metric == "wrong_elements" and r.value]
    for row in wrong:
        console.print(f"[red]{row.variant} {row.dataset} is wrong at n = {row.batch_size}[/red]")
    return not wrong


def _measure(
    record: Recorder, operator: str, kernel: cora.Kernel, n: int, threads: int, repeats: int
) -> None:
    inside = np.tri(n, dtype=bool)
    X, Y = np.tril(numbers(n * n, 1).reshape(n, n)), np.tril(numbers(n * n, 2).reshape(n, n))
    calls: dict[str, Callable[[], object]] = {}
    if operator == "trmm":
        expected = X @ Y
        inputs = {"T": X[inside], "B": Y}
        plan = cora.plan(kernel, n=n, width=n, threads=threads)
        amount = n * n * (n + 1)
    else:
        expected = X + Y if operator == "tradd" else X * Y
        inputs = {"X": X[inside], "Y": Y[inside]}
        plan = cora.plan(kernel, n=n, threads=threads)
        amount = 12 * len(inputs["X"])
    result = np.full(n * n if operator == "trmm" else len(inputs["X"]), np.nan, np.float32)
    calls[OWN] = kernel_call(kernel, plan, inputs, result)
    calls[OWN]()
    reference = expected.ravel() if operator == "trmm" else expected[inside]
    record.add(OWN, operator, n, threads, "wrong_elements", wrong_elements(result, reference, n), "")
    for library in filter(None, (*(peers.scipy_sparse() or ()), peers.mkl_sparse())):
        prepare = {"trmm": library.matmul, "tradd": library.add, "trmul": library.multiply}[operator]
        if prepare is None:
            continue
        call, read = prepare(X, Y)
        call()
        wrong = wrong_elements(read().ravel(), expected.ravel(), n)
        record.add(library.name, operator, n, threads, "wrong_elements", wrong, "")
        calls[library.name] = call
    mkl = peers.mkl()
    if mkl is not None:
        mkl.set_threads(threads)
    with NumpyStream(threads) as stream:
        if operator != "trmm":
            function = np.add if operator == "tradd" else np.multiply
            calls["numpy_packed"] = partial(
                stream.binary, function, inputs["X"], inputs["Y"], np.empty_like(result)
            )
        record.compare(
            operator, n, threads, calls, amount, own=OWN, best_of=tuple(OTHERS[:3]), repeats=repeats,
            unit="GFLOP/s" if operator == "trmm" else "GB/s",
        )  # fmt: skip
