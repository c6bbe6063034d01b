"""The command line: `python -m benchmarks demo|foundation|...|all|list`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.options import Options
from cora.errors import CoraError

app = typer.Typer(
    help="Experiments: each writes <out>/<experiment>.json and .csv, a plot, and prints a table.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Target(str, Enum):
    """A back end."""

    LLVM = "llvm"
    CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment: its module has `run(options, console)`, which says whether its checks held."""

    name: str
    summary: str

    def run(self, options: Options, console: Console) -> bool:
        """Run it; False if a result was wrong. CoraErrors and failed writes are passed on."""
        run: Callable[[Options, Console], bool] = import_module(f"benchmarks.{self.name}").run
        return run(options, console)


EXPERIMENTS = (
    Experiment("demo", "an encoder layer on a batch of real lengths, checked, timed against padded ones"),
    Experiment("foundation", "building, planning, launching and streaming, against their targets"),
    Experiment("builds", "building the library's kernels: anew, from the cache, and the proofs' share"),
    Experiment("softmax", "softmax of ragged scores as one loop nest, against NumPy and PyTorch"),
    Experiment(
        "loadhoist", "what ragged loops and storage cost at equal lengths, and what hoisting gives back"
    ),
    Experiment("vgemm", "batches of products of many shapes, and linear layers, against BLAS libraries"),
    Experiment("trmm", "a triangular matrix times a dense one, against strmm and dense products"),
    Experiment("taco", "triangles as ragged tensors and as sparse matrices: trmm, tradd, trmul"),
    Experiment("opsplit", "operation splitting and horizontal fusion of the products of attention"),
    Experiment("encoder", "an encoder layer against PyTorch's ways (Table 4)"),
    Experiment(
        "embeddings", "texts to vectors by a sentence encoder, against PyTorch, ONNX Runtime, CTranslate2"
    ),
    Experiment("mha", "multi-head attention against PyTorch, plain and micro-batched (Table 9)"),
    Experiment("masked_sdpa", "causal attention: the triangle alone, the square, PyTorch (Figure 18)"),
    Experiment("waste", "operations of a padded encoder layer over useful ones (Figure 2)"),
    Experiment("partial_padding", "operations that our kernels execute over useful ones (Figure 22)"),
    Experiment("prelude", "auxiliary arrays: time and memory (Tables 7 and 8, storage schemes)"),
    Experiment("breakdown", "an encoder layer kernel by kernel (Table 10)"),
    Experiment("pad_fusion", "attention on packed tokens, and with an operator that pads (Figure 11)"),
    Experiment("tuning", "the tuner on fully measured grids, replayed with measured noise"),
    Experiment("memory", "forward activations, ragged and padded (Figure 19)"),
)

#: Experiments that need NVRTC (extra cuda), and are asked for by name.
CUDA_EXPERIMENTS = (
    Experiment(
        "cuda_resources", "registers, shared memory, spills and occupancy of kernels for GPUs; no GPU needed"
    ),
)

Quick = Annotated[bool, typer.Option("--quick", help="Less data and fewer repeats.")]
Out = Annotated[Path, typer.Option("--out", help="Folder of the results.")]
Lengths = Annotated[
    Path | None,
    typer.Option("--lengths", help="Folder with recorded lengths, <dataset>.npy; else they are drawn."),
]
OnTarget = Annotated[Target, typer.Option("--target", help="Back end.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads; else all cores that the process may use."),
]


def _command(experiments: tuple[Experiment, ...]) -> Callable[..., None]:
    def command(
        quick: Quick = False,
        out: Out = Path("results"),
        lengths: Lengths = None,
        target: OnTarget = Target.LLVM,
        threads: Threads = None,
    ) -> None:
        _run(experiments, quick, out, lengths, target, threads)

    return command


def _run(
    experiments: tuple[Experiment, ...],
    quick: bool,
    out: Path,
    lengths: Path | None,
    target: Target,
    threads: int | None,
) -> None:
    """Run experiments in turn. Exit status 1 if a result is wrong or one fails, 2 for a usage error."""
    if target is Target.CUDA:
        typer.echo(f"benchmarks: {_no_cuda()}", err=True)
        raise typer.Exit(2)
    if threads is not None:
        # TVM reads it when its pool starts, which nothing has caused yet.
        os.environ["TVM_NUM_THREADS"] = str(threads)
    # Idle workers of MKL and OpenBLAS stop spinning well before the next library is timed.
    os.environ.setdefault("KMP_BLOCKTIME", "5")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "22")
    options = Options(quick, out, lengths, threads or len(os.sched_getaffinity(0)))
    console = Console()
    try:
        right = [experiment.run(options, console) for experiment in experiments]
    except (CoraError, OSError) as error:
        typer.echo(f"benchmarks: {error}", err=True)
        raise typer.Exit(1) from error
    if not all(right):
        raise typer.Exit(1)


def _no_cuda() -> str:
    """Why target cuda cannot be measured."""
    from cora.runtime.cuda.driver import has_device

    if has_device():
        return (
            "target 'cuda': these experiments compare with libraries for CPUs; cuda_resources needs no target"
        )
    return "target 'cuda': this machine has no CUDA device; cuda_resources needs none"


for _experiment in (*EXPERIMENTS, *CUDA_EXPERIMENTS):
    app.command(_experiment.name, help=_experiment.summary)(_command((_experiment,)))
app.command("all", help="every experiment in turn")(_command(EXPERIMENTS))


@app.command("list", help="the names of the experiments")
def list_experiments() -> None:
    """Print a table of the experiments."""
    table = Table("experiment", "what it measures")
    for experiment in (*EXPERIMENTS, *CUDA_EXPERIMENTS):
        table.add_row(experiment.name, experiment.summary)
    Console().print(table)
