"""How samples are taken; how long they take is nothing to test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.timer import measure, settle_ms
from cora.autotune import timer
from cora.errors import UserError


def test_samples_are_taken_in_turn_and_there_and_back() -> None:
    called: list[str] = []
    calls: dict[str, Callable[[], None]] = {name: lambda name=name: called.append(name) for name in "ab"}  # type: ignore[misc]
    timings = measure(calls, repeats=2, warmup_ms=0.0, min_sample_ms=0.0)
    assert [len(t.samples) for t in timings.values()] == [2, 2]
    assert called[-4:] == ["a", "b", "b", "a"]


def test_a_sample_follows_a_pause_and_calls_that_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    monkeypatch.setattr(timer.time, "sleep", lambda seconds: happened.append(f"pause {seconds}"))
    monkeypatch.setattr(timer, "_per_call_ms", lambda call, count: happened.append("sample") or 1.0)
    measure({"a": lambda: happened.append("call")}, repeats=2, warmup_ms=0.0, settle_ms=2.0)
    samples = "\n".join(happened).split("pause 0.002\n")[1:]
    assert len(samples) == 2
    for sample in samples:
        calls = sample.split()
        assert calls.count("sample") == 1
        assert calls[0] == "call"
        assert calls[-1] == "sample"


def test_one_thread_waits_for_nobody() -> None:
    assert settle_ms(1) == 0
    assert settle_ms(2) > 0


def test_refusals() -> None:
    with pytest.raises(UserError, match="at least one callable"):
        measure({})
    with pytest.raises(UserError, match="settle_ms must be at least 0"):
        measure({"a": lambda: None}, settle_ms=-1.0)
