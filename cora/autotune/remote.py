"""Measurement on other machines, through TVM's RPC tracker and servers.

On each machine `python -m cora serve --tracker host:port` offers it; `python -m tvm.exec.rpc_tracker` is the tracker.
A session there has a worker process like the one of a local run, with the same checks and the same timer: it builds
what it measures, so cora must be installed there, in the same version.
"""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, replace
from functools import cache

from cora.autotune.protocol import Ready, Reply, Request, Setup
from cora.autotune.worker import LocalWorker, WorkerDiedError, WorkerHungError
from cora.errors import UserError
from cora.runtime.rpc import RemoteError, Session, connect

__all__ = ["HANDLER", "RemoteWorker", "handle", "remote_workers"]

#: What a server offers.
HANDLER = "cora.autotune.remote:handle"
#: Seconds that a session lives at most.
SESSION_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class _Message:
    """A request for the worker of a session; of a Setup, the threads come from there."""

    request: Request
    limit_s: float


@dataclass(frozen=True, slots=True)
class _Trouble:
    """An error of the worker of a session."""

    kind: str
    text: str


class RemoteWorker:
    """A worker of a server. See `worker.Worker`.

    tracker: host:port. threads: of the kernels (0: all cores that the server may use).
    """

    def __init__(self, tracker: str, key: str, name: str, threads: int = 0) -> None:
        self.name = name
        self._tracker, self._key, self._threads = tracker, key, threads
        self._session: Session | None = None
        self._setup: Setup | None = None

    def start(self, setup: Setup) -> Ready:
        """See Worker."""
        self._setup = replace(setup, threads=self._threads)
        reply = self._send(self._setup, 0.0)
        if not isinstance(reply, Ready):
            raise WorkerDiedError(f"worker {self.name}: expected to be ready; got {reply}")
        return reply

    def ask(self, request: Request, limit_s: float) -> Reply:
        """See Worker. A session that was lost is opened again."""
        if self._session is None and self._setup is not None:
            self._send(self._setup, 0.0)
        return self._send(request, limit_s)

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()
        self._session = None

    def _send(self, request: Request, limit_s: float) -> Reply:
        if self._session is None:
            self._session = connect(self._tracker, self._key, SESSION_S)
        try:
            answer = pickle.loads(self._session.call(pickle.dumps(_Message(request, limit_s))))
        except RemoteError as error:
            self.close()
            raise WorkerDiedError(str(error)) from error
        match answer:
            case _Trouble(kind="hung", text=text):
                raise WorkerHungError(text)
            case _Trouble(kind="died", text=text):
                raise WorkerDiedError(text)
            case _Trouble(text=text):
                raise UserError(text)
        reply: Reply = answer
        return reply


def remote_workers(
    tracker: str, key: str, count: int, threads: int | None = None
) -> tuple[RemoteWorker, ...]:
    """`count` workers at the servers that a tracker has under `key`."""
    return tuple(RemoteWorker(tracker, key, f"{key} {n}", threads or 0) for n in range(1, count + 1))


def handle(data: bytes) -> bytes:
    """The server's side: serves one message by the worker of this session."""
    message = pickle.loads(data)
    try:
        return pickle.dumps(_served(message))
    except WorkerDiedError as error:
        return pickle.dumps(_Trouble("died", str(error)))
    except WorkerHungError as error:
        return pickle.dumps(_Trouble("hung", str(error)))
    except UserError as error:
        return pickle.dumps(_Trouble("user", str(error)))


def _served(message: _Message) -> Reply:
    if isinstance(message.request, Setup):
        threads = message.request.threads or len(os.sched_getaffinity(0))
        return _session_worker(threads).start(replace(message.request, threads=threads))
    return _last_worker().ask(message.request, message.limit_s)


@cache
def _session_worker(threads: int) -> LocalWorker:
    """The worker of this session: a process of its own, so that a crash does not end the server."""
    _workers().append(worker := LocalWorker(threads))
    return worker


def _last_worker() -> LocalWorker:
    if not _workers():
        raise UserError("worker: start it with a Setup first")
    return _workers()[-1]


@cache
def _workers() -> list[LocalWorker]:
    return []
