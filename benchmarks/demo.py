"""One encoder layer on a batch of real lengths: checked against NumPy, timed against padded ones.

The layer of the paper (512 elements, 8 heads, 2048 in between), with relu, which NumPy has, too. 32 sequences as long
as those of MNLI. Ours computes on their tokens and nothing else; NumPy, and PyTorch where it is installed, pad them to
the longest. Every result is compared with NumPy's in float64, sequence by sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from rich.console import Console

from benchmarks.options import Options
from benchmarks.peers import numpy_encoder, torch_encoder
from benchmarks.plots import grouped_bars
from benchmarks.results import Row, write_results
from benchmarks.timer import Timing, ratio
from benchmarks.transformer import OWN, Array, Call, Case, layer_flops, random_tokens, row, rows, table, times
from cora.kernels import EncoderLayer, LayerConfig, LayerWeights

EXPERIMENT = "demo"
METRIC = "encoder_layer"
DATASET, SEQUENCES = "mnli", 32
LAYER = LayerConfig(hidden=512, heads=8, inner=2048, activation="relu")
#: The largest error that is allowed; activations are of size 1.
TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found for one way: times, the largest error, and how many tokens it computes."""

    timing: Timing
    error: float
    tokens: int


def run(options: Options, console: Console) -> bool:
    """Run the demo: a table on `console`; rows and a plot in `options.out`. False if a result is wrong.

    Raises UserError for lengths that cannot be read, and for a batch without tokens.
    """
    count = 8 if options.quick else SEQUENCES
    lengths = options.batch(DATASET, count)
    case = Case(DATASET, count, lengths)
    console.print(
        f"{case.batch_size} sequences as in {DATASET.upper()}: {case.tokens:,} tokens, "
        f"lengths {lengths.min()} to {lengths.max()}, mean {lengths.mean():.1f}"
    )
    found = _measure(case, options)
    _show(found, case, options, console)
    _, csv_path = write_results(options.out, _rows(found, case, options))
    picture = grouped_bars(
        csv_path,
        csv_path.with_suffix(".png"),
        metrics=[METRIC],
        title=f"an encoder layer, {case.batch_size} sequences as in {DATASET.upper()}",
        unit="ms",
        logarithmic=False,
    )
    console.print(f"wrote {csv_path} and {picture}")
    wrong = [name for name, one in found.items() if not one.error <= TOLERANCE]
    for name in wrong:
        console.print(f"[red]{name}: the result is not that of the reference[/red]")
    return not wrong


def _measure(case: Case, options: Options) -> dict[str, Measured]:
    """Ours first, then the others."""
    weights = LayerWeights.random(LAYER)
    x = random_tokens(case, LAYER.hidden)
    expected = numpy_encoder.reference(LAYER, weights, x, case.lengths)
    layer = EncoderLayer(LAYER, weights)
    plan, out = layer.plan(case.lengths, options.threads), np.full_like(x, np.nan)
    calls: dict[str, Call] = {OWN: partial(layer.run, plan, x, out)}
    calls[OWN]()
    errors = {OWN: _error(out, expected)}
    tokens = {OWN: case.tokens}
    numpy_encoder.set_threads(options.threads)
    others = {"NumPy, padded": numpy_encoder.padded(LAYER, weights, x, case.lengths)}
    torch = torch_encoder.padded(LAYER, weights, x, case.lengths, options.threads)
    if torch is not None:
        torch_encoder.keep_memory()
        others["PyTorch, padded"] = torch
    for name, way in others.items():
        way.call()
        calls[name] = way.call
        errors[name] = _error(way.result(), expected)
        tokens[name] = len(case.lengths) * int(case.lengths.max())
    timings = times(calls, options, repeats=5)
    return {name: Measured(timings[name], errors[name], tokens[name]) for name in calls}


def _error(result: Array, expected: numpy_encoder.Wide) -> float:
    """The largest error; infinite for a NaN."""
    return float(np.nan_to_num(np.abs(result - expected), nan=np.inf).max(initial=0.0))


def _show(found: Mapping[str, Measured], case: Case, options: Options, console: Console) -> None:
    useful = layer_flops(case.lengths, LAYER)
    own = table(
        f"encoder layer, {options.threads} thread(s)",
        "computed by",
        "tokens",
        "ms",
        "x cora",
        "useful GFLOP/s",
        "largest error",
    )
    for name, one in found.items():
        own.add_row(
            name,
            f"{one.tokens:,}",
            f"{one.timing.median_ms:.1f}",
            f"{ratio(one.timing, found[OWN].timing):.2f}",
            f"{useful / (one.timing.median_ms * 1e6):.0f}",
            f"{one.error:.1e}" if one.error <= TOLERANCE else f"[red]WRONG ({one.error:.1e})[/red]",
        )
    console.print(own)
    console.print(
        "tokens: computed, padding included. ms: median. x cora: time relative to ours.\n"
        "useful: operations on tokens of the batch. error: against NumPy in float64."
    )


def _rows(found: Mapping[str, Measured], case: Case, options: Options) -> list[Row]:
    timings = {name: one.timing for name, one in found.items()}
    return [
        *rows(EXPERIMENT, case, METRIC, timings, options),
        *(row(EXPERIMENT, n, case, options, f"{METRIC}_error", one.error, "") for n, one in found.items()),
        *(row(EXPERIMENT, n, case, options, "tokens_computed", one.tokens, "") for n, one in found.items()),
    ]
