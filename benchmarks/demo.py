"""The first program and a row softmax on a realistic batch: built, checked, timed against NumPy.

Lengths as in MNLI. All compared times are of one thread; NumPy gets its data in the form that
suits it: padded to the longest sequence, or as one array per sequence, prepared beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Column, Table

import cora
from benchmarks.options import TARGET, Options
from benchmarks.plots import grouped_bars
from benchmarks.programs import first_program, row_softmax
from benchmarks.results import Row, write_results
from benchmarks.timer import Timing, measure, ratio
from cora.runtime.count import Waste

DATASET = "mnli"
SEQUENCES = 128
UNCACHED = cora.Settings(cache=False)
#: Roundings that a kernel may be off, in units of the interpreter's first-order bound.
ULPS = 4.0

LABELS = {
    "cora": "cora, 1 thread",
    "cora_threads": "cora, {threads} threads",
    "numpy_padded": "NumPy, padded",
    "numpy_by_row": "NumPy, row by row",
}

Array = npt.NDArray[np.float32]
Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Subject:
    """A program on one batch, ready to run: the kernel, and NumPy's two ways of doing the same.

    Attributes:
        name: of the program, as metrics are named.
        output: the tensor that the kernel computes from `array`.
        padded: computes on all sequences at once, padded to the longest.
        padded_rows: the valid part of what `padded` computed last, one array for each sequence.
        rows: computes sequence by sequence.
        row_results: what `rows` writes, one array for each sequence.
        padding_ratio: elements of the padded array over valid ones.
    """

    name: str
    kernel: cora.Kernel
    output: cora.Tensor
    array: cora.RaggedArray
    padded: Call
    padded_rows: Callable[[], list[Array]]
    rows: Call
    row_results: list[Array]
    padding_ratio: float


def run(options: Options, console: Console) -> bool:
    """Run the demo: a table on `console`; rows and a plot in `options.out`. False if a result is wrong.

    Raises:
        UserError: lengths that cannot be read.
    """
    lengths = options.batch(DATASET, 16 if options.quick else SEQUENCES)
    console.print(
        f"{len(lengths)} sequences as in {DATASET.upper()}: {lengths.sum():,} tokens, "
        f"lengths {lengths.min()} to {lengths.max()}, mean {lengths.mean():.1f}"
    )
    rows: list[Row] = []
    table = Table("program", "computed by", *(_right(h) for h in ("ms", "x cora", "work", "stored")), "check")
    right = True
    for subject in (_first_program(lengths), _row_softmax(lengths)):
        errors = _errors(subject, lengths)
        right = right and errors["cora"] <= ULPS
        waste = subject.kernel.waste(cora.plan(subject.kernel, lens=lengths, threads=1))
        timings = _times(subject, lengths, options)
        own = timings["cora"]
        work = {"numpy_padded": subject.padding_ratio, "numpy_by_row": 1.0}
        stored = {"numpy_padded": subject.padding_ratio, "numpy_by_row": 1.0}
        for variant, timing in timings.items():
            table.add_row(
                subject.name.replace("_", " ") if variant == "cora" else "",
                LABELS[variant].format(threads=options.threads),
                f"{timing.median_ms:.3f}",
                f"{ratio(timing, own):.2f}",
                f"{work.get(variant, waste.flops_ratio):.2f}",
                f"{stored.get(variant, waste.bytes_ratio):.2f}",
                _verdict(errors[variant]) if variant in errors else "",
            )
        table.add_section()
        rows += _rows(subject, timings, waste, errors, options, len(lengths))
    console.print(table)
    console.print(
        "ms: median. x cora: time relative to cora on one thread. work, stored: FLOPs\n"
        "executed and bytes stored, relative to the useful ones. check: cora.interpret.\n"
        "The first program has one number a token: its time is that of a call."
    )
    csv_path = write_results(options.out, rows)[1]
    picture = grouped_bars(
        csv_path,
        csv_path.with_suffix(".png"),
        metrics=["first_program", "row_softmax"],
        title=f"{len(lengths)} sequences as in {DATASET.upper()}",
        unit="ms",
    )
    console.print(f"wrote {csv_path} and {picture}")
    if not right:
        console.print("[red]the result of a kernel is not that of cora.interpret[/red]")
    return right


def _right(heading: str) -> Column:
    return Column(heading, justify="right")


def _verdict(error: float) -> str:
    return "ok" if error <= ULPS else f"[red]WRONG ({error:.3g})[/red]"


def _first_program(lengths: npt.NDArray[np.int32]) -> Subject:
    A, schedule = first_program()
    array = _random(A, lengths)
    padded, out = array.to_padded(), np.empty_like(array.to_padded())
    rows = array.to_rows()
    outs = [np.empty_like(row) for row in rows]

    def by_row() -> None:
        for row, result in zip(rows, outs, strict=True):
            np.multiply(row, np.float32(2), out=result)

    return Subject(
        "first_program",
        cora.build(schedule, settings=UNCACHED),
        schedule.outputs[0],
        array,
        partial(np.multiply, padded, np.float32(2), out=out),
        lambda: [result[:n] for result, n in zip(out, lengths, strict=True)],
        by_row,
        outs,
        out.size / array.values.size,
    )


def _row_softmax(lengths: npt.NDArray[np.int32]) -> Subject:
    X, P = row_softmax()
    array = _random(X, lengths)
    # As attention does it: padding gets the type's lowest number, whose exponential is 0.
    padded = array.to_padded(fill=float(np.finfo(np.float32).min))
    out = np.empty_like(padded)
    rows = array.to_rows()
    outs = [np.empty_like(row) for row in rows]

    def by_row() -> None:
        for row, result in zip(rows, outs, strict=True):
            _softmax(row, result)

    return Subject(
        "row_softmax",
        cora.build(P, settings=UNCACHED),
        P,
        array,
        partial(_softmax, padded, out),
        lambda: [result[:n, :, :n] for result, n in zip(out, lengths, strict=True)],
        by_row,
        outs,
        out.size / array.values.size,
    )


def _softmax(x: Array, out: Array) -> None:
    """Softmax over the last axis, in place in `out`."""
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(axis=-1, keepdims=True), out=out)


def _random(tensor: cora.Tensor, lengths: npt.NDArray[np.int32]) -> cora.RaggedArray:
    array = cora.RaggedArray.empty(tensor, {"lens": lengths})
    array.values[:] = 4 * np.random.default_rng(0).standard_normal(array.values.size, np.float32)
    return array


def _errors(subject: Subject, lengths: npt.NDArray[np.int32]) -> dict[str, float]:
    """The largest error of each way, in units of the interpreter's bound; infinite for a NaN."""
    reference = cora.interpret(subject.output, [subject.array])
    subject.padded()
    subject.rows()
    results: dict[str, npt.NDArray[Any]] = {
        "cora": subject.kernel(subject.array).packed(),
        "numpy_padded": np.concatenate([r.reshape(-1) for r in subject.padded_rows()]),
        "numpy_by_row": np.concatenate([r.reshape(-1) for r in subject.row_results]),
    }
    errors = {}
    for name, values in results.items():
        off = np.abs(values - reference.values)
        scaled = np.where(off == 0, 0.0, off / np.where(reference.error > 0, reference.error, np.nan))
        errors[name] = float(np.nan_to_num(scaled, nan=np.inf).max(initial=0.0))
    return errors


def _times(subject: Subject, lengths: npt.NDArray[np.int32], options: Options) -> dict[str, Timing]:
    """Times by variant; "cora" on one thread, and "cora_threads" on all if these are more."""
    kernel, array = subject.kernel, subject.array
    calls: dict[str, Call] = {}
    for variant, threads in (("cora", 1), ("cora_threads", options.threads)):
        if variant == "cora" or threads > 1:
            plan = cora.plan(kernel, lens=lengths, threads=threads)
            outputs = {subject.output.name: kernel.run(plan, array)}
            calls[variant] = partial(kernel.run, plan, array, outputs=outputs)
    calls |= {"numpy_padded": subject.padded, "numpy_by_row": subject.rows}
    return measure(calls, repeats=3 if options.quick else 10)


def _rows(
    subject: Subject,
    timings: Mapping[str, Timing],
    waste: Waste,
    errors: Mapping[str, float],
    options: Options,
    batch_size: int,
) -> list[Row]:
    def row(variant: str, metric: str, value: float, unit: str) -> Row:
        threads = options.threads if variant == "cora_threads" else 1
        name = f"{subject.name}{metric}"
        return Row("demo", variant, DATASET, batch_size, TARGET, threads, name, value, unit)

    return [
        *(row(variant, "", t.median_ms, "ms") for variant, t in timings.items()),
        *(
            row(variant, "_over_cora", ratio(t, timings["cora"]), "")
            for variant, t in timings.items()
            if variant != "cora"
        ),
        *(row(variant, "_error", error, "bounds") for variant, error in errors.items()),
        row("cora", "_executed_over_useful_flops", waste.flops_ratio, ""),
        row("cora", "_stored_over_useful_bytes", waste.bytes_ratio, ""),
        row("numpy_padded", "_stored_over_useful_elements", subject.padding_ratio, ""),
    ]
