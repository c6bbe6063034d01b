"""`python -m cora build`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    program: Annotated[
        str | None, typer.Argument(help="encoder, attention, vgemm, ...; --list names them all.")
    ] = None,
    parameters: Annotated[
        list[str] | None, typer.Argument(help="Of the program, as name=value: hidden=512 norm=pre.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write, made if it is missing.")] = None,
    cpu: Annotated[
        str | None,
        typer.Option("--cpu", help="LLVM's name of the oldest processor to run on; else this one."),
    ] = None,
    runtime: Annotated[
        bool,
        typer.Option("--runtime", help="Also copy TVM's run time: package tvm is not needed to run then."),
    ] = False,
    names: Annotated[bool, typer.Option("--list", help="List programs and parameters, and stop.")] = False,
) -> None:
    """Compile a program into a folder of libraries that runs with NumPy and TVM's run time alone."""
    import json

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from cora.cli.programs import arguments, find, programs
    from cora.errors import UserError

    console = Console()
    if names:
        table = Table("program", "computes", "parameters and defaults")
        for known in programs().values():
            defaults = (p.describe(name) for name, p in known.parameters.items())
            table.add_row(known.name, known.summary, escape(" ".join(defaults)))
        console.print(table)
        return
    if program is None or out is None:
        raise UserError("build: expected a program and --out FOLDER; --list names the programs")
    found = find(program)
    target = "llvm" if cpu is None else {"kind": "llvm", "mcpu": cpu}
    manifest = found.write(out, target=target, runtime=runtime, **arguments(found, parameters or ()))
    data = json.loads(manifest.read_text())
    model = f"{data['target']['arch']}, {cpu or 'this model'}"
    table = Table("kernel", "library", "KiB", "auxiliary arrays", title=f"{data['name']} for {model}")
    for name, kernel in data["kernels"].items():
        size_bytes = (out / kernel["library"]).stat().st_size
        tables = sum(t["given"] is None for t in kernel["prelude"]["tables"])
        table.add_row(name, kernel["library"], f"{size_bytes / 1024:.0f}", str(tables))
    console.print(table)
    calls = " -> ".join(call["kernel"] for call in data["program"]["calls"])
    console.print(f"calls: {calls}", highlight=False, soft_wrap=True)
    console.print(f"wrote {manifest}; run it with {out / 'cora_deploy.py'}", highlight=False, soft_wrap=True)
