"""What everything stands on: building, planning, launching and streaming, against their targets.

Each part is one function below that gives rows; `FIGURES` says what they should be. Ratios and
differences come from samples that were taken in turn, in one run.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import cora
import cora.codegen.build as code_generation
from benchmarks.fused_tables import FRESH_MEMORY, KEPT_MEMORY, table_times_in_new_process
from benchmarks.options import TARGET, Options
from benchmarks.peaks import NumpyStream
from benchmarks.plots import share_of_targets
from benchmarks.processes import output_of
from benchmarks.programs import first_program, twice
from benchmarks.results import Row, write_results
from benchmarks.timer import Timing, measure, ratio
from cora.codegen.target import detect
from cora.lower.pipeline import lower
from cora.prelude import Arena
from cora.runtime.artifact import make_artifact
from cora.runtime.build import prelude_objects

EXPERIMENT = "foundation"
DATASET = "race"
BATCH_SIZE = 128
BATCHES = 50
#: Kernels are compiled anew: what is measured is the code as it is now.
UNCACHED = cora.Settings(cache=False)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured.

    Attributes:
        builds: samples of what takes milliseconds.
        starts: processes that are started.
        calls: samples of what takes microseconds.
        streams: samples of the element-wise operator.
        stream_elems: elements of its input.
    """

    builds: int
    starts: int
    calls: int
    streams: int
    stream_elems: int


FULL = Scale(builds=30, starts=20, calls=50, streams=20, stream_elems=64 << 20)
QUICK = Scale(builds=7, starts=5, calls=20, streams=7, stream_elems=8 << 20)


@dataclass(frozen=True, slots=True)
class Figure:
    """A target: a row (by variant and metric), and the largest value allowed, or the smallest."""

    variant: str
    metric: str
    limit: float
    smaller: bool
    unit: str
    what: str

    def met(self, value: float) -> bool:
        """Whether a value is within the limit."""
        return value <= self.limit if self.smaller else value >= self.limit


FIGURES = (
    Figure("build", "cold", 150, True, "ms", "build of the first program, all proofs, cache off"),
    Figure("build", "tir_and_llvm", 50, True, "ms", "of it: TIR passes, LLVM, linking"),
    Figure("build", "cached", 5, True, "ms", "build from the disk cache"),
    Figure("process", "cached_start", 300, True, "ms", "new process: imports, cached build, one run"),
    Figure("build", "compilations", 1, True, "", f"compilations for {BATCHES} batches"),
    Figure("prelude", "numpy_over_native", 10, False, "", "prelude (offsets, ffo, ffi): NumPy over native"),
    Figure("plan", "median", 60, True, "us", "cora.plan, validation included"),
    Figure("run", "overhead", 5, True, "us", "kernel.run less TVM's bare call"),
    Figure("stream", "numpy_over_cora", 0.9, False, "", "element-wise: NumPy's time over cora's"),
)


def run(options: Options, console: Console) -> bool:
    """Measure everything: a table on `console`; rows and a plot in `options.out`.

    False if a kernel's result is wrong; a target that is missed is reported, and no failure.

    Raises:
        UserError: lengths that cannot be read.
    """
    scale = QUICK if options.quick else FULL
    lengths = options.batch(DATASET, BATCH_SIZE)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="cora-bench-") as folder:
        parts: dict[str, Callable[[], list[Row]]] = {
            "builds": lambda: _builds(scale, Path(folder)),
            "new processes": lambda: _processes(options, scale, Path(folder)),
            "many batches": lambda: _batches(options),
            "the prelude": lambda: _prelude(scale, lengths),
            "plans": lambda: _plans(options, scale, lengths),
            "launches": lambda: _launches(scale),
            "streaming": lambda: _stream(options, scale),
        }
        for title, part in parts.items():
            console.print(f"measuring {title}")
            rows += part()
    json_path, csv_path = write_results(options.out, rows)
    picture = share_of_targets(
        csv_path,
        csv_path.with_suffix(".png"),
        targets=[(f.variant, f.metric, f.limit, f.smaller) for f in FIGURES],
    )
    console.print(_table(rows))
    console.print(f"wrote {json_path}, {csv_path} and {picture}")
    return all(row.value == 0 for row in rows if row.metric.startswith("wrong_elements"))


def _table(rows: list[Row]) -> Table:
    """Targets first, then the medians of what they consist of; the spread is in the files."""
    table = Table("figure", "value", "target", "verdict")
    value = {(row.variant, row.metric): row.value for row in rows}
    for figure in FIGURES:
        measured = value[figure.variant, figure.metric]
        table.add_row(
            figure.what,
            f"{measured:.3g} {figure.unit}".strip(),
            f"{'<=' if figure.smaller else '>='} {figure.limit:g} {figure.unit}".strip(),
            "met" if figure.met(measured) else "[yellow]MISSED[/yellow]",
        )
    table.add_section()
    targets = {(figure.variant, figure.metric) for figure in FIGURES}
    for row in rows:
        spread = row.metric.endswith(("_min", "_p90"))
        if (row.variant, row.metric) not in targets and not spread:
            table.add_row(
                f"{row.variant}: {row.metric}".replace("_", " "), f"{row.value:.3g} {row.unit}".strip()
            )
    return table


@dataclass(frozen=True, slots=True)
class _Rows:
    """Makes rows of one variant."""

    variant: str
    threads: int = 1
    dataset: str = ""
    batch_size: int = 0

    def __call__(self, metric: str, value: float, unit: str = "") -> Row:
        return Row(
            EXPERIMENT, self.variant, self.dataset, self.batch_size, TARGET, self.threads, metric, value, unit
        )

    def times(self, metric: str, timing: Timing, *, unit: str = "ms") -> list[Row]:
        """The median under `metric`, and the spread."""
        scale = {"ms": 1.0, "us": 1e3}[unit]
        return [
            self(metric, scale * timing.median_ms, unit),
            self(f"{metric}_min", scale * timing.min_ms, unit),
            self(f"{metric}_p90", scale * timing.p90_ms, unit),
        ]


def _builds(scale: Scale, folder: Path) -> list[Row]:
    """Builds of the first program in a warm process, and the parts of one build.

    Every build without the cache is of a program with other names, so that nothing that the
    compiler remembers serves it.
    """
    tags = count()
    cached = cora.Settings(cache_dir=folder / "cache")
    _, schedule = first_program()
    host = detect()

    def cold() -> cora.Kernel:
        return cora.build(first_program(tag=f"_{next(tags)}")[1], settings=UNCACHED)

    def lowering() -> object:
        return lower(first_program(tag=f"_{next(tags)}")[1], UNCACHED)

    lowered = lower(schedule, UNCACHED)
    artifact = make_artifact(lowered, repr(schedule), "", host.key)
    prelude = prelude_objects(artifact.prelude, host, None)
    calls = {
        "cold": cold,
        "schedule": lambda: first_program(tag=f"_{next(tags)}"),
        "lower": lowering,
        "prelude_object": lambda: prelude_objects(artifact.prelude, host, None),
        "tir_and_llvm": lambda: code_generation.compile_functions([lowered.kernel], host, prelude),
        "cached": lambda: cora.build(schedule, settings=cached),
    }
    timings = measure(calls, repeats=scale.builds, warmup_ms=0.0, min_sample_ms=0.0)
    row = _Rows("build")
    return [r for name, timing in timings.items() for r in row.times(name, timing)]


_CACHED_START = """
import json, sys, time
from pathlib import Path
start = time.perf_counter()
import cora
imported = time.perf_counter()
from benchmarks.programs import first_program
A, schedule = first_program()
scheduled = time.perf_counter()
kernel = cora.build(schedule, settings=cora.Settings(cache_dir=Path({cache!r})))
built = time.perf_counter()
result = kernel(cora.ragged([[1, 2, 3], [4], []], A)).to_list()
ran = time.perf_counter()
times = [imported - start, scheduled - imported, built - scheduled, ran - built, time.process_time()]
compilers = [name for name in ("tvm", "z3", "llvmlite") if name in sys.modules]
print(json.dumps([[1e3 * t for t in times], result, compilers]))
"""


def _processes(options: Options, scale: Scale, folder: Path) -> list[Row]:
    """New processes that find their kernel in the cache: wall time, and where it goes."""
    cache = folder / "cache"
    cora.build(first_program()[1], settings=cora.Settings(cache_dir=cache))
    program = _CACHED_START.format(cache=str(cache))
    reports: list[Any] = []

    # As in an installation, Python keeps byte code; the calls before the first sample write it.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")

    def start(code: str) -> str:
        return output_of("-c", code, environment=environment)

    def cached_start() -> None:
        reports.append(json.loads(start(program)))

    timings = measure(
        {"cached_start": cached_start, "import_numpy": lambda: start("import numpy")},
        repeats=scale.starts,
        warmup_ms=0.0,
        min_sample_ms=0.0,
    )
    measured = reports[-scale.starts :]
    parts = np.median([report[0] for report in measured], axis=0)
    wrong = sum(report[1] != [[2.0, 4.0, 6.0], [8.0], []] for report in reports)
    row = _Rows("process", options.threads)
    return [
        *row.times("cached_start", timings["cached_start"]),
        *row.times("import_numpy", timings["import_numpy"]),
        *(
            row(f"cached_start_{name}", float(part), "ms")
            for name, part in zip(("import", "schedule", "build", "run", "cpu"), parts, strict=True)
        ),
        row("cached_start_compiler_modules", max(len(report[2]) for report in measured)),
        row("wrong_elements", wrong),
    ]


def _batches(options: Options) -> list[Row]:
    """One kernel for many batches: how often code is generated, and whether the results are right."""
    rng = np.random.default_rng(0)
    row = _Rows("build", options.threads)
    A, schedule = first_program()
    wrong = 0
    with _counted_compilations() as compilations:
        kernel = cora.build(schedule, settings=UNCACHED)
        for _ in range(BATCHES):
            lengths = rng.integers(0, 200, rng.integers(0, 40))
            array = _random(A, lengths)
            wrong += int(np.count_nonzero(kernel(array).packed() != 2 * array.packed()))
        made = compilations()
    return [row("compilations", made), row("batches", BATCHES), row("wrong_elements", wrong)]


@contextmanager
def _counted_compilations() -> Iterator[Any]:
    """Inside, a function that says how often code was generated so far."""
    original = code_generation.compile_functions
    with mock.patch.object(code_generation, "compile_functions", wraps=original) as counted:
        yield lambda: counted.call_count


def _prelude(scale: Scale, lengths: npt.NDArray[np.int32]) -> list[Row]:
    """The tables of a fused loop over the batch: native code against NumPy, with its memory fresh or kept."""
    row = _Rows("prelude", 1, DATASET, len(lengths))
    rows: list[Row] = []
    for suffix, memory in (("", FRESH_MEMORY), ("_kept_memory", KEPT_MEMORY)):
        times = table_times_in_new_process(lengths, scale.calls, memory)
        rows += [
            row(f"numpy_over_native{suffix}", ratio(times.numpy, times.native)),
            *row.times(f"native{suffix}", times.native, unit="us"),
            *row.times(f"numpy{suffix}", times.numpy, unit="us"),
            row(f"wrong_elements{suffix}", times.wrong),
        ]
    return [*rows, row("entries", times.entries)]


def _plans(options: Options, scale: Scale, lengths: npt.NDArray[np.int32]) -> list[Row]:
    """`cora.plan` of the first program, and the prelude inside it."""
    kernel = cora.build(first_program()[1], settings=UNCACHED)
    arena = Arena()
    sizes = {"M": len(lengths), "%workers": options.threads}
    timings = measure(
        {
            "median": lambda: cora.plan(kernel, lens=lengths, threads=options.threads),
            "prelude": lambda: kernel.prelude.compute(sizes, {"lens": lengths}, arena),
        },
        repeats=scale.calls,
    )
    row = _Rows("plan", options.threads, DATASET, len(lengths))
    return [r for name, timing in timings.items() for r in row.times(name, timing, unit="us")]


def _launches(scale: Scale) -> list[Row]:
    """`kernel.run` with outputs given, less the call of the compiled function that it ends in.

    The loops are those of the definition, so that the kernel runs in the calling thread, and the
    batch has four elements, so that both times are nearly all overhead.
    """
    A, O = twice()  # noqa: E741
    kernel = cora.build(cora.schedule(O), settings=UNCACHED)
    array = _random(A, np.array([3, 1, 0], np.int32))
    plan = cora.plan(kernel, lens=array.lengths["lens"], threads=1)
    outputs = {"O": kernel.run(plan, array)}
    bare = kernel._run
    with mock.patch.object(kernel, "_run", wraps=bare) as recorded:
        kernel.run(plan, array, outputs=outputs)
    arguments = recorded.call_args.args
    timings = measure(
        {"run": partial(kernel.run, plan, array, outputs=outputs), "bare": lambda: bare(*arguments)},
        repeats=2 * scale.calls,
    )
    overhead = np.median(np.subtract(timings["run"].samples, timings["bare"].samples))
    row = _Rows("run", 1, "", len(array.lengths["lens"]))
    return [
        row("overhead", 1e3 * float(overhead), "us"),
        *row.times("median", timings["run"], unit="us"),
        *row.times("bare_call", timings["bare"], unit="us"),
    ]


def _stream(options: Options, scale: Scale) -> list[Row]:
    """A ragged element-wise operator with the default schedule, against NumPy on the packed buffer."""
    A, O = twice()  # noqa: E741
    kernel = cora.build(O, settings=UNCACHED)
    lengths = _rows_of(options, scale.stream_elems)
    array = _random(A, lengths)
    plan = cora.plan(kernel, lens=lengths, threads=options.threads)
    result = kernel.run(plan, array)
    source, target = array.values, np.empty_like(array.values)
    with NumpyStream(options.threads) as stream:
        stream.multiply(source, 2.0, target)
        wrong = int(np.count_nonzero(result.values != target))
        timings = measure(
            {
                "cora": partial(kernel.run, plan, array, outputs={"O": result}),
                "numpy": partial(stream.multiply, source, 2.0, target),
            },
            repeats=scale.streams,
        )
    row = _Rows("stream", options.threads, DATASET, len(lengths))
    moved_bytes = source.nbytes + target.nbytes
    return [
        row("numpy_over_cora", ratio(timings["numpy"], timings["cora"])),
        *row.times("cora", timings["cora"]),
        *row.times("numpy", timings["numpy"]),
        *(row(f"{name}_rate", moved_bytes / (t.median_ms * 1e6), "GB/s") for name, t in timings.items()),
        row("buffer", source.nbytes, "bytes"),
        row("wrong_elements", wrong),
    ]


def _rows_of(options: Options, elements: int) -> npt.NDArray[np.int32]:
    """Lengths as in the dataset, drawn or the recorded ones over and over, `elements` in total."""
    some = options.batch(DATASET, BATCH_SIZE)
    lengths = np.tile(some, -(-elements // int(some.sum())))
    ends = np.cumsum(lengths)
    last = int(np.searchsorted(ends, elements))
    kept = lengths[: last + 1].copy()
    kept[-1] -= ends[last] - elements
    return kept


def _random(tensor: cora.Tensor, lengths: npt.ArrayLike) -> cora.RaggedArray:
    array = cora.RaggedArray.empty(tensor, {"lens": lengths})
    array.values[:] = np.random.default_rng(0).standard_normal(array.values.size, np.float32)
    return array
