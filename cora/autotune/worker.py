"""Worker processes: candidates run in them, so that none can take the tuner down.

A worker lives as long as it answers: importing the compiler costs most of a second, which is paid once. One that
dies or hangs is replaced, and told again what it is to work on.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Protocol, cast

from cora.autotune.protocol import Failed, Ready, Reply, Request, Setup
from cora.errors import CoraError, UserError

__all__ = ["LocalWorker", "Worker", "WorkerDiedError", "WorkerHungError", "serve"]

#: Seconds in which a worker must have started and checked the default schedule.
SETUP_LIMIT_S = 180.0
_ROOT = Path(__file__).resolve().parent.parent.parent


class WorkerDiedError(CoraError):
    """The worker's process ended before it answered."""


class WorkerHungError(CoraError):
    """The worker did not answer within its time limit."""


class Worker(Protocol):
    """Who serves requests: a process here, or one on another machine."""

    name: str

    def start(self, setup: Setup) -> Ready:
        """Begin, or begin anew, with a program. Raises UserError if the program cannot be run at all."""

    def ask(self, request: Request, limit_s: float) -> Reply:
        """The answer. Raises WorkerDiedError or WorkerHungError; the next request finds a new worker."""

    def close(self) -> None:
        """End it."""


class LocalWorker:
    """A worker process on this machine, which starts when it is needed.

    threads: the size of its thread pool.
    """

    def __init__(self, threads: int, name: str = "local") -> None:
        self.name = name
        self.restarts = 0
        self._threads = threads
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._log: IO[bytes] | None = None
        self._setup: Setup | None = None

    def start(self, setup: Setup) -> Ready:
        """See Worker."""
        self.close()
        self._setup = setup
        return self._begin(setup)

    def ask(self, request: Request, limit_s: float) -> Reply:
        """See Worker."""
        if self._connection is None:
            if self._setup is None:
                raise UserError("worker: start it with a Setup first")
            self.restarts += 1
            self._begin(self._setup)
        return self._exchange(request, limit_s)

    def close(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for resource in (self._connection, self._log):
            if resource is not None:
                resource.close()
        self._process = self._connection = self._log = None

    def _begin(self, setup: Setup) -> Ready:
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        path = os.pathsep.join([str(_ROOT), *(p for p in sys.path if p)])
        environment = {**os.environ, "PYTHONPATH": path, "TVM_NUM_THREADS": str(self._threads)}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cora.autotune.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=environment,
            )
        self._connection = Connection(ours.detach())
        match self._exchange(setup, SETUP_LIMIT_S):
            case Ready() as ready:
                return ready
            case Failed(reason=reason):
                self.close()
                raise UserError(f"tune: {reason}")
            case other:
                self.close()
                raise WorkerDiedError(f"worker: expected to be ready; got {other}")

    def _exchange(self, request: Request, limit_s: float) -> Reply:
        assert self._connection is not None
        try:
            self._connection.send(request)
            if not self._connection.poll(max(limit_s, 0.0)):
                self.close()
                raise WorkerHungError(f"no answer within {limit_s:.1f} s")
            return cast(Reply, self._connection.recv())
        except (EOFError, OSError) as error:
            raise WorkerDiedError(self._last_words()) from error

    def _last_words(self) -> str:
        """How the process ended, and the end of what it wrote."""
        assert self._process is not None
        assert self._log is not None
        try:
            code = self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            code = -1
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        self.close()
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return f"the process ended with {how}" + (f": {lines[-1][:300]}" if lines else "")


def serve(descriptor: int) -> None:
    """Serve requests over a socket until the other side closes it."""
    from cora.autotune.bench import Bench

    connection = Connection(descriptor)
    bench = Bench()
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        connection.send(bench.handle(request))


if __name__ == "__main__":
    serve(int(sys.argv[1]))
