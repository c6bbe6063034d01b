"""`python -m cora tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cora.autotune import TuningResult


def command(
    operator: Annotated[
        str, typer.Argument(help="vgemm, trmm, attention, or module:function that gives your program.")
    ],
    budget_s: Annotated[float, typer.Option("--budget-s", min=1, help="Seconds for everything.")] = 60.0,
    db: Annotated[
        Path | None, typer.Option("--db", help="File of the records; a second run goes on.")
    ] = None,
    batch: Annotated[
        list[str] | None,
        typer.Option("--batch", help="Lengths and sizes as JSON, '{\"lens\": [3, 0, 5]}'; may be repeated."),
    ] = None,
    holdout: Annotated[
        list[str] | None, typer.Option("--holdout", help="Likewise, of batches that do not select.")
    ] = None,
    samples: Annotated[
        float | None, typer.Option("--samples", min=1, help="Measurements in the search, all together.")
    ] = None,
    candidates: Annotated[int, typer.Option("--candidates", min=1, help="Candidates of the space.")] = 256,
    search: Annotated[
        str, typer.Option("--search", help="guided, combined, halving, local, random or exhaustive.")
    ] = "guided",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the order of candidates.")] = 0,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Threads of the kernels; else all cores.")
    ] = None,
    threshold: Annotated[float, typer.Option("--threshold", min=0, help="Ties, in percent.")] = 0.5,
    tracker: Annotated[
        str | None, typer.Option("--tracker", help="host:port of an RPC tracker: measure on its servers.")
    ] = None,
    key: Annotated[str, typer.Option("--key", help="Key of the servers at the tracker.")] = "cora",
    servers: Annotated[int, typer.Option("--servers", min=1, help="How many of them to use.")] = 1,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the costs; needs --db.")] = None,
) -> None:
    """Find a schedule that is faster than the default one, on this machine or on others."""
    from dataclasses import replace

    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from cora.autotune import Records, space_of, tune
    from cora.autotune.catalogue import find
    from cora.autotune.plot import plot_costs
    from cora.autotune.remote import remote_workers
    from cora.autotune.tuner import BUDGET
    from cora.errors import UserError

    console = Console()
    if plot is not None and db is None:
        raise UserError("tune: --plot draws what is on record: give --db as well")
    entry = find(operator)
    batches = _batches(batch) or list(entry.batches)
    budget = BUDGET if samples is None else replace(BUDGET, search_samples=samples)
    workers = remote_workers(tracker, key, servers, threads) if tracker is not None else ()
    columns = (SpinnerColumn(), BarColumn(30), TextColumn("{task.percentage:3.0f} %"), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as bar:
        shown = bar.add_task("starting", total=1.0)

        def progress(line: str, share: float) -> None:
            bar.update(shown, description=line[:100], completed=share)

        result = tune(
            entry.outputs,
            batches,
            holdout=_batches(holdout),
            budget_s=budget_s,
            budget=budget,
            threshold_percent=threshold,
            db=db,
            name=entry.name,
            space=space_of(entry.outputs, entry.name, candidates, seed),
            search_by=search,
            seed=seed,
            threads=threads,
            workers=workers,
            progress=progress,
        )
    _show(console, result)
    if plot is not None and db is not None:
        with Records(db) as records:
            for task, *_ in records.tasks():
                if task.operator == entry.name and task.length_class == result.report.length_class:
                    console.print(f"wrote {plot_costs(records, task.key, plot)}")


def _show(console: Any, result: TuningResult) -> None:
    console.print(str(result), highlight=False, markup=False, soft_wrap=True)
    for schedule in {c.digest: c.schedule(result.outputs) for c in result.winners.values()}.values():
        console.print(repr(schedule), highlight=False, markup=False, soft_wrap=True)


def _batches(given: list[str] | None) -> list[Any]:
    import json

    from cora.errors import UserError

    try:
        return [json.loads(text) for text in given or ()]
    except json.JSONDecodeError as error:
        raise UserError(f"tune: expected a batch as JSON, like '{{\"lens\": [3, 0, 5]}}'; {error}") from error
