"""The laboratory: builds, checks and measures candidates on workers, under a budget, and keeps records.

All samples of a candidate are relative to the default schedule beside it: its time over the lesser of two of the
default's, taken before and after in the same turn. So what the machine does meanwhile cancels, and samples of
different minutes, sessions and workers may be compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from cora import tune
from cora.autotune.protocol import (
    Failed,
    Measure,
    Measured,
    Prepare,
    Prepared,
    Rejected,
    Reply,
    Setup,
    Shape,
    Status,
)
from cora.autotune.records import CandidateRow, Measurement, Records
from cora.autotune.search import GROUP
from cora.autotune.spaces.candidate import DEFAULT, Candidate
from cora.autotune.statistics import geometric_mean
from cora.autotune.timer import CacheRegime
from cora.autotune.worker import Worker, WorkerDiedError, WorkerHungError
from cora.errors import UserError

__all__ = ["Lab", "Protocol", "Spending"]

S = TypeVar("S")

#: Less samples than this say nothing about noise.
FEWEST = 6
#: Samples of which the calling thread had a core for less than this share are contended: taken again, once.
BUSY = 0.9


@dataclass(frozen=True, slots=True)
class Protocol:
    """How is measured.

    cache, warmup_ms, min_sample_ms: see the timer. build_limit_s: for building and checking a candidate;
    measure_limit_s: for a group of candidates, besides what their first runs say.
    """

    cache: CacheRegime = "warm"
    warmup_ms: float = 5.0
    min_sample_ms: float = 2.0
    build_limit_s: float = 60.0
    measure_limit_s: float = 30.0


@dataclass(slots=True)
class Spending:
    """What a run has spent of its budget; `share` of its time is for the search."""

    budget: tune.TuningBudget
    share: float = 0.75
    clock: Callable[[], float] = time.monotonic
    samples: int = 0
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return self.clock() - self.started

    def of_search(self) -> float:
        """The share of the search's budget that is spent, the larger of time and samples; 1: it is over."""
        of_time = self.seconds / (self.share * self.budget.time_s) if self.budget.time_s else math.inf
        limit = self.budget.search_samples
        return max(of_time, self.samples / limit if limit else math.inf)


@dataclass(slots=True)
class _Samples:
    """Relative times of one candidate on one batch, with whether each was taken without contention."""

    ratios: list[float] = field(default_factory=list)
    clean: list[bool] = field(default_factory=list)

    def best(self, count: int) -> list[float]:
        """Up to `count` samples, clean ones first, in the order in which they were taken."""
        order = sorted(range(len(self.ratios)), key=lambda i: not self.clean[i])[:count]
        return [self.ratios[i] for i in sorted(order)]


class Lab:
    """See the text of the module. A `search.Laboratory`.

    on_event: called with a line for people whenever something happened.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        setup: Setup,
        spending: Spending,
        protocol: Protocol,
        records: Records | None = None,
        task: str = "",
        run: str = "",
        on_event: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not workers:
            raise UserError("tune: expected at least one worker")
        self._workers = tuple(workers)
        self._shapes = setup.shapes
        self._spending = spending
        self._protocol = protocol
        self._records = records
        self._task, self._run = task, run
        self._event = on_event
        self._slow_factor = setup.slow_factor
        self.rows: dict[str, CandidateRow] = {}
        self._samples: dict[tuple[str, str, str], _Samples] = {}
        self._by_steps: dict[str, str] = {}
        self._old: set[str] = set()
        self.contended = self.taken = self.resumed = 0
        self.default_ms: dict[str, list[float]] = {}
        self._first_ms: dict[str, float] = {}
        if records is not None:
            self._resume(records)

    # what a search sees

    def prepare(self, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """See search.Laboratory. What is on record from an earlier run is not built again until it is measured."""
        new: dict[str, Candidate] = {}
        for candidate in candidates:
            row = self.rows.get(candidate.id)
            known = row.candidate if row is not None else new.get(candidate.id)
            if known == candidate:
                continue
            if known is not None and candidate.id not in self._old:
                self._event(f"{candidate.id}: duplicate (another candidate has the id)")
                continue
            self._old.discard(candidate.id)  # its name meant other steps in an earlier run
            first = self._by_steps.setdefault(candidate.digest, candidate.id)
            if first != candidate.id:
                self._set(CandidateRow(candidate, "duplicate", f"has the steps of {first!r}", None, None))
            else:
                new[candidate.id] = candidate
        asked = [(c, Prepare(c), self._protocol.build_limit_s) for c in new.values()]
        for candidate, reply, _ in self._each(asked):
            self._set(self._row(candidate, reply))
        usable = [c for c in candidates if self._usable(c.id) and self.rows[c.id].candidate == c]
        return tuple({c.id: c for c in usable}.values())

    def reason(self, id: str) -> str | None:
        """See search.Laboratory."""
        row = self.rows[id]
        return None if row.status == "ok" else f"{row.status}: {row.reason}"

    def sample(self, candidates: Sequence[Candidate], count: int) -> None:
        """See search.Laboratory. The best candidate so far is measured in every group, besides the default."""
        self._take(candidates, count, "search", self._shapes, lambda: self.spent() >= 1)

    def again(self, candidates: Sequence[Candidate]) -> None:
        """See search.Laboratory: one group for each worker; those that others disturbed once more."""
        left = [c for c in candidates if self._usable(c.id)]
        for _ in (0, 1):
            if not left or self.spent() >= 1:
                return
            size = -(-len(left) // len(self._workers))
            groups = [tuple(left[at : at + size]) for at in range(0, len(left), size)]
            self._measure([(shape, group, 1) for shape in self._shapes for group in groups], "search")
            left = [c for c in left if self._usable(c.id) and not self._undisturbed(c.id)]

    def _undisturbed(self, id: str) -> bool:
        """Whether the last sample of a candidate in the search was taken without contention, on each shape."""
        return all(self._of(id, "search", shape).clean[-1:] == [True] for shape in self._shapes)

    def taken_of(self, id: str) -> Sequence[float]:
        """See search.Laboratory."""
        return self.samples(id, "search", self._shapes)

    def score(self, id: str) -> tune.Score:
        """See search.Laboratory: the median of the relative times, of several shapes their geometric mean."""
        row = self.rows.get(id)
        stored = float(row.stored_bytes or 0) if row is not None else 0.0
        return tune.score_samples(self.samples(id, "search", self._shapes), id=id, secondary=stored)

    def spent(self) -> float:
        """See search.Laboratory."""
        return self._spending.of_search()

    # what the tuner sees besides

    def fresh(
        self, candidates: Sequence[Candidate], counts: Sequence[int], stage: str, shapes: Sequence[Shape]
    ) -> None:
        """Measure anew, in one group, whatever the budget: the i-th candidate until it has counts[i] samples."""
        for count in sorted(set(counts)):
            group = [c for c, n in zip(candidates, counts, strict=True) if n >= count]
            self._take(group, count, stage, shapes, lambda: False, whole=True)

    def scores(self) -> tuple[tune.Score, ...]:
        """The scores of all candidates that have one, earlier runs' included, best first."""
        found = [self.score(id) for id in self.rows if self._usable(id)]
        return tuple(sorted((s for s in found if s.usable), key=lambda s: (s.primary, s.secondary, s.id)))

    def affordable(self, count: int, candidates: int, shapes: Sequence[Shape], share: float) -> int:
        """How many of `count` samples of each of `candidates` fit into a share of the time left; FEWEST at least."""
        known = [ms for values in self.default_ms.values() for ms in values if math.isfinite(ms)]
        left_s = self._spending.budget.time_s - self._spending.seconds
        if not known or math.isinf(left_s):
            return count
        # Two of the default schedule besides, all of them about as slow; the warm-up is two calls and more.
        each_s = max(sum(known) / len(known), self._protocol.min_sample_ms) / 1e3
        turn_s = (candidates + 2) * each_s * len(shapes)
        return max(min(count, FEWEST), min(count, int((share * left_s - 3 * turn_s) / turn_s)))

    def samples(self, id: str, stage: str, shapes: Sequence[Shape], count: int = 10**9) -> list[float]:
        """The relative times of a candidate; of several shapes the geometric mean of the i-th ones."""
        each = [self._of(id, stage, shape).best(count) for shape in shapes]
        return [geometric_mean(values) for values in zip(*each, strict=False)]

    @property
    def statuses(self) -> dict[str, int]:
        """How many candidates have each status."""
        found: dict[str, int] = {}
        for row in self.rows.values():
            found[row.status] = found.get(row.status, 0) + 1
        return found

    # the rest

    def _resume(self, records: Records) -> None:
        """What earlier runs of the task found. Crashes and time-outs count: they would happen again."""
        self.rows = records.candidates(self._task)
        self._old = set(self.rows)
        for row in self.rows.values():
            if row.status != "duplicate":
                self._by_steps.setdefault(row.candidate.digest, row.candidate.id)
        for shape in self._shapes:
            for m in records.measurements(self._task, "search", shape.batch.digest):
                self._add(m, shape)
                self.resumed += 1

    def _take(
        self,
        candidates: Sequence[Candidate],
        count: int,
        stage: str,
        shapes: Sequence[Shape],
        over: Callable[[], bool],
        whole: bool = False,
    ) -> None:
        """Bring the samples of each candidate up to `count`, in groups of those that lack equally many."""
        usable = {c.id: c for c in candidates if self._usable(c.id)}
        for attempt in (0, 1):
            jobs = self._jobs(list(usable.values()), count, stage, shapes, again=attempt > 0, whole=whole)
            if not jobs:
                return
            width = len(self._workers)
            for at in range(0, len(jobs), width):
                if over():
                    return
                self._measure(jobs[at : at + width], stage)

    def _usable(self, id: str) -> bool:
        return id in self.rows and self.rows[id].status == "ok"

    def _jobs(
        self,
        candidates: list[Candidate],
        count: int,
        stage: str,
        shapes: Sequence[Shape],
        again: bool,
        whole: bool,
    ) -> list[tuple[Shape, tuple[Candidate, ...], int]]:
        jobs: list[tuple[Shape, tuple[Candidate, ...], int]] = []
        for shape in shapes:
            lacking: dict[int, list[Candidate]] = {}
            for candidate in candidates:
                held = self._of(candidate.id, stage, shape)
                have = sum(held.clean) if again else len(held.ratios)
                if have < count:
                    lacking.setdefault(count - have, []).append(candidate)
            for missing, group in lacking.items():
                size = len(group) if whole else GROUP
                jobs += [
                    (shape, self._with_incumbent(group[at : at + size], stage), missing)
                    for at in range(0, len(group), size)
                ]
        return jobs

    def _with_incumbent(self, group: list[Candidate], stage: str) -> tuple[Candidate, ...]:
        """A group of the search, with the best candidate so far."""
        if stage != "search" or len(group) == 1:
            return tuple(group)
        ranked = [(s.primary, id) for id in self.rows if (s := self.score(id)).usable]
        best = min(ranked, default=(0.0, ""))[1]
        if not best or best == DEFAULT or best in {c.id for c in group}:
            return tuple(group)
        return (*group, self.rows[best].candidate)

    def _measure(self, jobs: Sequence[tuple[Shape, tuple[Candidate, ...], int]], stage: str) -> None:
        asked = [(job, self._request(*job), self._limit_s(job[1], job[2])) for job in jobs]
        for (shape, group, repeats), reply, worker in self._each(asked):
            match reply:
                case Measured():
                    self._store(shape, group, reply, stage, worker)
                case Failed() | Rejected() if len(group) > 1:
                    # One of them did it: each on its own.
                    self._measure([(shape, (candidate,), repeats) for candidate in group], stage)
                case Failed(reason=reason) | Rejected(reason=reason):
                    status: Status = reply.status if isinstance(reply, Rejected) else "failed"
                    if group[0].id == DEFAULT:
                        raise UserError(f"tune: the default schedule cannot be measured: {reason}")
                    known = self.rows[group[0].id]
                    self._set(CandidateRow(known.candidate, status, f"measuring: {reason}", None, None))
                case other:
                    raise UserError(f"tune: the worker answered {other}")

    def _request(self, shape: Shape, group: tuple[Candidate, ...], repeats: int) -> Measure:
        p = self._protocol
        return Measure(group, shape.name, repeats, p.cache, p.warmup_ms, p.min_sample_ms)

    def _limit_s(self, group: tuple[Candidate, ...], repeats: int) -> float:
        """Ten times what the first runs make likely, and the fixed part."""
        first_s = sum(self._first_ms.get(c.id, 0.0) for c in group) / 1e3
        return self._protocol.measure_limit_s + 10 * (repeats + 3) * first_s

    def _each(self, asked: Sequence[tuple[S, Prepare | Measure, float]]) -> list[tuple[S, Reply, str]]:
        """The answers to requests, spread over the workers, and whose. That for one that died or hung is Rejected."""
        width = len(self._workers)

        def run(worker: Worker, mine: Sequence[tuple[S, Prepare | Measure, float]]) -> list[Reply]:
            return [_answer(worker, request, limit_s) for _, request, limit_s in mine]

        if width == 1:
            replies = [run(self._workers[0], asked)]
        else:
            with ThreadPoolExecutor(width) as pool:
                shares = [asked[n::width] for n in range(width)]
                replies = list(pool.map(run, self._workers, shares))
        return [
            (subject, replies[n % width][n // width], self._workers[n % width].name)
            for n, (subject, *_) in enumerate(asked)
        ]

    def _row(self, candidate: Candidate, reply: Reply) -> CandidateRow:
        match reply:
            case Prepared(build_ms=build_ms, stored_bytes=stored, first_ms=first_ms):
                self._first_ms[candidate.id] = first_ms
                return CandidateRow(candidate, "ok", "", build_ms, stored)
            case Rejected(status=status, reason=reason):
                return CandidateRow(candidate, status, reason, None, None)
            case Failed(reason=reason):
                return CandidateRow(candidate, "failed", reason, None, None)
        raise UserError(f"tune: the worker answered {reply}")

    def _set(self, row: CandidateRow) -> None:
        self.rows[row.candidate.id] = row
        if self._records is not None:
            self._records.add_candidate(self._task, row)
        self._event(f"{row.candidate.id}: {row.status}" + (f" ({row.reason})" if row.reason else ""))

    def _store(
        self, shape: Shape, group: Iterable[Candidate], reply: Measured, stage: str, worker: str
    ) -> None:
        for candidate in group:
            times = zip(reply.ms[candidate.id], reply.reference_ms, reply.busy[candidate.id], strict=True)
            for ms, reference_ms, busy in times:
                batch = shape.batch.digest
                row = Measurement(self._run, candidate.digest, stage, batch, ms, reference_ms, busy, worker)
                self._add(row, shape)
                self.taken += 1
                self.contended += busy < BUSY
                if stage == "search":
                    self._spending.samples += 1
                if self._records is not None:
                    self._records.add_measurement(self._task, row)
        self.default_ms.setdefault(shape.name, []).extend(reply.reference_ms)
        self._event(f"{stage}: {self.taken} samples")

    def _add(self, row: Measurement, shape: Shape) -> None:
        ratio = row.ms / row.reference_ms if row.reference_ms > 0 else math.nan
        if math.isfinite(ratio):
            held = self._held(row.candidate, row.stage, shape)
            held.ratios.append(ratio)
            held.clean.append(not row.busy < BUSY)

    def _of(self, id: str, stage: str, shape: Shape) -> _Samples:
        """The samples of a candidate: by its steps, since names may change their meaning."""
        digest = self.rows[id].candidate.digest if id in self.rows else id
        return self._held(digest, stage, shape)

    def _held(self, digest: str, stage: str, shape: Shape) -> _Samples:
        return self._samples.setdefault((digest, stage, shape.batch.digest), _Samples())


def _answer(worker: Worker, request: Prepare | Measure, limit_s: float) -> Reply:
    id = request.candidate.id if isinstance(request, Prepare) else ""
    try:
        reply = worker.ask(request, limit_s)
    except WorkerDiedError as error:
        return Rejected(id, "crashed", str(error))
    except WorkerHungError as error:
        return Rejected(id, "timeout", str(error))
    if isinstance(reply, Rejected) and reply.status == "wrong":
        worker.close()  # it may have written anywhere
    return reply
