"""`python -m cora records`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    db: Annotated[Path, typer.Argument(help="A file of records.")],
    reports: Annotated[bool, typer.Option("--reports", help="Print the report of each decision.")] = False,
    failures: Annotated[
        bool, typer.Option("--failures", help="List what could not be used, and why.")
    ] = False,
    export: Annotated[Path | None, typer.Option("--export", help="Write everything as JSON.")] = None,
    add: Annotated[Path | None, typer.Option("--import", help="Add what --export wrote elsewhere.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Folder for a picture of the costs of each task.")
    ] = None,
) -> None:
    """Show what was measured and decided; export, import, draw."""
    import json

    from rich.console import Console
    from rich.table import Table

    from cora.autotune import Records, Report
    from cora.autotune.device import device_text
    from cora.autotune.plot import plot_costs

    console = Console()
    with Records(db, read_only=add is None) as records:
        if add is not None:
            console.print(f"imported {records.import_json(add)} measurements from {add}")
        if export is not None:
            console.print(f"exported {records.export_json(export)} measurements to {export}")
        winners = {row.task.key: row for row in records.winners()}
        table = Table(
            "operator", "length class", "threads", "machine", "candidates", "samples", "winner", "holdout"
        )
        for task, statuses, count in records.tasks():
            row = winners.get(task.key)
            report = None if row is None else Report.from_data(json.loads(row.report))
            here = task.device == device_text()
            table.add_row(
                task.operator,
                task.length_class,
                str(task.threads),
                "this one" if here else f"other: {json.loads(task.device)['cpu']}",
                f"{statuses.get('ok', 0)} of {sum(statuses.values())}",
                str(count),
                "(undecided)" if row is None else row.candidate.id,
                "" if report is None else f"{report.holdout:.3f}",
            )
            if plot is not None and count:
                plot.mkdir(parents=True, exist_ok=True)
                console.print(
                    f"wrote {plot_costs(records, task.key, plot / f'{task.operator}-{task.key}.png')}"
                )
        console.print(table)
        for row in winners.values() if reports else ():
            console.print(
                str(Report.from_data(json.loads(row.report))), highlight=False, markup=False, soft_wrap=True
            )
        if failures:
            for task, *_ in records.tasks():
                for id, one in records.candidates(task.key).items():
                    if one.status != "ok":
                        line = f"{task.operator} {id}: {one.status}: {one.reason}"
                        console.print(line, highlight=False, markup=False, soft_wrap=True)
