"""Two servers and a tracker on loopback; workers on them take over from each other's crashes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cora
from cora.autotune import Protocol, Records, tune
from cora.autotune.remote import remote_workers
from cora.autotune.worker import WorkerDiedError
from cora.errors import UserError
from cora.runtime import rpc
from tests.autotune.programs import doubled
from tests.autotune.test_tune import BUDGET, LENGTHS, PLANTED, QUICK, space_of_lanes

pytest.importorskip("tornado")
ROOT = Path(__file__).resolve().parent.parent.parent
KEY = "loopback"


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _started(*arguments: str) -> subprocess.Popen[bytes]:
    """A process in a group of its own: TVM's tracker has children that outlive it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def tracker() -> Iterator[str]:
    """The address of a tracker that has, or will have, two servers."""
    port = _free_port()
    where = f"127.0.0.1:{port}"
    on_loopback = ("--host", "127.0.0.1", "--port")
    processes = [_started("tvm.exec.rpc_tracker", *on_loopback, str(port), "--port-end", str(port + 1))]
    _wait_for(port)
    for _ in range(2):
        processes.append(
            _started("cora", "serve", "--tracker", where, "--key", KEY, *on_loopback, str(_free_port()))
        )
    try:
        yield where
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for(port: int) -> None:
    """Until somebody listens; servers that come before their tracker try again after five seconds only."""
    import time

    for _ in range(600):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the tracker did not start")


def test_two_servers_measure_for_one_search(tracker: str, tmp_path: Path) -> None:
    output = doubled()
    path = tmp_path / "r.db"
    workers = remote_workers(tracker, KEY, 2, threads=1)
    events: list[str] = []
    try:
        result = tune(
            output, [LENGTHS], budget_s=None, budget=BUDGET, db=path, workers=workers, builder=PLANTED, threads=1,
            space=space_of_lanes(output, "a", "b", "crashing", "c", "d", "e"), search_by="halving",
            protocol=Protocol(warmup_ms=0.0, min_sample_ms=QUICK.min_sample_ms),
            settings=cora.Settings(cache_dir=tmp_path), progress=lambda line, _: events.append(line),
        )  # fmt: skip
    finally:
        for worker in workers:
            worker.close()
    assert result.report.statuses == {"ok": 6, "crashed": 1}
    assert result.report.confirmed > 0
    with Records(path, read_only=True) as records:
        ((task, _, _),) = records.tasks()
        crashed = records.candidates(task.key)["crashing"]
        names = {m.worker for m in records.measurements(task.key)}
    assert "signal 11" in crashed.reason
    assert names == {f"{KEY} 1", f"{KEY} 2"}


def test_a_key_that_nobody_offers(tracker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "WAIT_S", 0.0)
    with pytest.raises(rpc.RemoteError, match="no server with the key 'nobody'"):
        rpc.connect(tracker, "nobody", 10.0)


def test_addresses() -> None:
    assert rpc.address("host:9190") == ("host", 9190)
    for text in ("host", "host:", ":1", "host:x"):
        with pytest.raises(UserError, match="host:port"):
            rpc.address(text)


def test_a_lost_session_is_a_dead_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    from cora.autotune import remote
    from cora.autotune.protocol import Prepare
    from cora.autotune.spaces.candidate import default_candidate

    class Lost:
        def call(self, data: bytes) -> bytes:
            raise rpc.RemoteError("gone")

        def close(self) -> None:
            pass

    monkeypatch.setattr(remote, "connect", lambda *_: Lost())
    (worker,) = remote.remote_workers("host:1", "key", 1)
    with pytest.raises(WorkerDiedError, match="gone"):
        worker.ask(Prepare(default_candidate([doubled()])), 1.0)
