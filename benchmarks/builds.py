"""How long kernels take to build: anew, and from the disk cache; what lowering, proofs and the solver take of it.

Each sample is a new process with a cache of its own. It first builds another product: that imports the compilers, and
compiles what all kernels of a machine share. Then it builds once without finding the kernel, and once more.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Column, Table

import cora
import cora.lower.pipeline as pipeline
from benchmarks.long_schedule import forty_steps
from benchmarks.options import TARGET, Options
from benchmarks.plots import grouped_bars
from benchmarks.processes import output_of
from benchmarks.results import Row, write_results
from benchmarks.transformer import LAYER
from cora.kernels.attention.recipe import ATTENTION
from cora.kernels.encoder.layer import layer_kernels
from cora.kernels.gemm import LINEAR, VGEMM
from cora.kernels.triangular import TRMM

EXPERIMENT = "builds"
SAMPLES, QUICK_SAMPLES = 7, 1


def _layer() -> object:
    layer_kernels.cache_clear()
    return layer_kernels(LAYER)


#: By name: what builds it, and how many milliseconds that may take.
PROGRAMS: Mapping[str, tuple[Callable[[], object], float]] = MappingProxyType(
    {
        "forty steps": (lambda: cora.build(forty_steps()), 300.0),
        "vgemm": (VGEMM.build, 150.0),
        "linear": (
            lambda: LINEAR.build(definition={"features_in": LAYER.hidden, "features_out": LAYER.hidden}),
            150.0,
        ),
        "trmm": (TRMM.build, 150.0),
        "attention": (ATTENTION.build, 150.0),
        "encoder layer": (_layer, 1000.0),
    }
)
#: Parts of a cold build, in milliseconds: all of it; lowering, its proofs, and of these what the solver takes.
PARTS = ("cold", "lowering", "proofs", "solver", "cached")


def run(options: Options, console: Console) -> bool:
    """Measure all programs: a table on `console`, rows and a plot in `options.out`."""
    rows: list[Row] = []
    table = Table("program", *(Column(f"{part}, ms", justify="right") for part in PARTS), "cold, wanted")
    for name, (_, limit_ms) in PROGRAMS.items():
        samples = [_in_new_process(name) for _ in range(QUICK_SAMPLES if options.quick else SAMPLES)]
        medians = {part: float(np.median([s[part] for s in samples])) for part in PARTS}
        rows += [Row(EXPERIMENT, name, "", 0, TARGET, 1, part, ms, "ms") for part, ms in medians.items()]
        least = min(s["cold"] for s in samples)
        rows.append(Row(EXPERIMENT, name, "", 0, TARGET, 1, "cold_min", least, "ms"))
        verdict = "met" if medians["cold"] <= limit_ms else "[yellow]MISSED[/yellow]"
        table.add_row(name, *(f"{medians[part]:.1f}" for part in PARTS), f"{limit_ms:.0f} {verdict}")
    _, csv_path = write_results(options.out, rows)
    picture = grouped_bars(
        csv_path, csv_path.with_suffix(".png"), metrics=PARTS, title="Building kernels", unit="ms"
    )
    console.print(table)
    console.print(f"wrote {csv_path} and {picture}")
    return True


def sample(name: str) -> dict[str, float]:
    """Milliseconds by part, in a process that has built nothing yet, with an empty cache."""
    build, _ = PROGRAMS[name]
    _another()
    spent = dict.fromkeys(PARTS, 0.0)
    lower = pipeline.lower

    def timed(*arguments: Any) -> Any:
        begin = time.perf_counter()
        lowered = lower(*arguments)
        spent["lowering"] += 1e3 * (time.perf_counter() - begin)
        for method, effort in lowered.effort.items():
            spent["proofs"] += 1e3 * effort.seconds
            spent["solver"] += 1e3 * effort.seconds if method == "z3" else 0.0
        return lowered

    for part in ("cold", "cached"):
        with mock.patch.object(pipeline, "lower", timed):
            begin = time.perf_counter()
            build()
            spent[part] = 1e3 * (time.perf_counter() - begin)
    return spent


def _another() -> cora.Kernel:
    """A product that is none of the programs, by micro-kernels, which asks the solver too."""
    batch = cora.Dim("warm", cora.size("W"))
    rows = cora.Dim("r", cora.lengths("ls", batch)[batch])
    k, n = cora.Dim("k", 32), cora.Dim("n", 64)
    A, B = cora.placeholder("A", [batch, rows, k]), cora.placeholder("B", [k, n])
    C = cora.compute("C", [batch, rows, n], cora.sum(A[batch, rows, k] * B[k, n], over=k))
    s = cora.schedule(C).split(C, rows, 6, names=("ro", "ri")).reorder(C, "ro", "ri", n, k)
    return cora.build(s.tensorize(C, "ri").parallel(C, batch))


def _in_new_process(name: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="cora-bench-") as folder:
        code = f"import json; from benchmarks.builds import sample; print(json.dumps(sample({name!r})))"
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        printed = output_of("-c", code, environment=environment)
    measured: dict[str, float] = json.loads(printed)
    return measured
