"""`python -m cora serve`."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    tracker: Annotated[
        str, typer.Option("--tracker", help="host:port of the tracker (python -m tvm.exec.rpc_tracker).")
    ],
    key: Annotated[str, typer.Option("--key", help="Under which clients ask for this machine.")] = "cora",
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="First port to try.")] = 9090,
) -> None:
    """Offer this machine for tuning, through TVM's RPC. Whoever reaches it can run code here."""
    from cora.autotune.remote import HANDLER
    from cora.runtime.rpc import serve

    serve(tracker, key, HANDLER, host=host, port=port)
