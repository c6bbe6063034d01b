"""The application: every module in `cora/cli/commands` is a subcommand of its name.

Such a module has a function `command`, whose parameters are the options and whose docstring is the help. It imports
what it needs inside that function: help and other subcommands do not wait for it.
"""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module

import typer

from cora.cli import commands
from cora.errors import CoraError

__all__ = ["main"]


def application() -> typer.Typer:
    """The application with all subcommands."""
    app = typer.Typer(
        help="cora: a compiler for ragged tensors.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    # A callback keeps the name of the subcommand in the usage when there is only one.
    app.callback()(lambda: None)
    for module in pkgutil.iter_modules(commands.__path__):
        app.command(module.name)(import_module(f"{commands.__name__}.{module.name}").command)
    return app


def main() -> None:
    """Run it. Exit status 1, with the message on standard error, for any CoraError."""
    try:
        application()(prog_name="python -m cora")
    except CoraError as error:
        print(f"cora: {error}", file=sys.stderr)
        raise SystemExit(1) from error
