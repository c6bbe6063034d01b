"""TVM's RPC: calling a function of a Python program on another machine, with bytes, through TVM's tracker.

A server offers one handler, which takes bytes and gives bytes. Each session is a process of its own, forked from the
server. Whoever reaches tracker or server can run code there: use them in networks that you trust.

Tracker and servers need the packages tornado, cloudpickle and psutil (the extra "rpc").
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

from cora.errors import CoraError, UnsupportedError, UserError

__all__ = ["RemoteError", "Session", "address", "connect", "serve"]

_FUNCTION = "cora.handle"
Handler = Callable[[bytes], bytes]


class RemoteError(CoraError):
    """The other side could not be reached, or ended."""


def address(text: str) -> tuple[str, int]:
    """Host and port of "host:port". Raises UserError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise UserError(f"rpc: expected host:port; got {text!r}")
    return host, int(port)


class Session:
    """A process on a server, until it is closed."""

    def __init__(self, session: Any, where: str) -> None:
        self._session = session
        self._where = where
        self._function: Any = session.get_function(_FUNCTION)

    def call(self, data: bytes) -> bytes:
        """What the handler there makes of `data`. Raises RemoteError if the session has ended."""
        try:
            return bytes(self._function(bytearray(data)))
        except Exception as error:  # TVM has no type of its own for it
            raise RemoteError(f"rpc: {self._where}: {_first_line(error)}") from error

    def close(self) -> None:
        """End the session: its process on the server ends when nobody holds it any more."""
        self._function = self._session = None


def connect(tracker: str, key: str, timeout_s: float) -> Session:
    """A session on a server that the tracker has under `key`; waits until one is free.

    timeout_s: how long the session may live. Raises RemoteError if the tracker cannot be reached or has no such
    server, UserError for an address that is none.
    """
    from tvm import rpc

    host, port = address(tracker)
    try:
        client = rpc.connect_tracker(host, port)
        if not any(info["key"] == f"server:{key}" for info in client.summary()["server_info"]):
            raise RemoteError(f"rpc: tracker {tracker} has no server with the key {key!r}")
        session = client.request(key, session_timeout=timeout_s)
        return Session(session, f"{key} at {tracker}")
    except CoraError:
        raise
    except Exception as error:
        raise RemoteError(f"rpc: cannot get {key!r} from tracker {tracker}: {_first_line(error)}") from error


def serve(tracker: str, key: str, handler: str, *, host: str = "0.0.0.0", port: int = 9090) -> None:
    """Offer `handler` ("module:function", bytes to bytes) to the tracker, until the process is ended.

    host: the address to listen on, which clients are told, too, unless it stands for all of them. port: the first
    to try. Raises UnsupportedError without the packages it needs, UserError for an address that is none.
    """
    try:
        import cloudpickle  # noqa: F401
        import psutil  # noqa: F401
        import tvm_ffi
        from tvm.rpc import server
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"rpc: {error}: pip install 'cora-ragged[rpc]'") from error
    module, _, name = handler.partition(":")
    function: Handler = getattr(import_module(module), name)

    def handle(data: bytearray) -> bytearray:
        return bytearray(function(bytes(data)))

    tvm_ffi.register_global_func(_FUNCTION, handle, override=True)
    logging.getLogger("RPCServer").setLevel(logging.WARNING)
    told = None if host == "0.0.0.0" else host
    state = server.PopenRPCServerState(
        host, port, port + 1000, tracker_addr=address(tracker), key=key, custom_addr=told
    )
    state.thread.join()


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1].strip()[:300]
