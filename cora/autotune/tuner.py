"""`tune`: search, confirm, hold out, decide, remember."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cora import tune as policy
from cora.autotune.batches import Batch, batch_of, hostile, resampled
from cora.autotune.classes import class_of
from cora.autotune.decide import Decision, decide, slower_on_holdout
from cora.autotune.device import differences
from cora.autotune.estimate import ranked
from cora.autotune.lab import Lab, Protocol, Spending
from cora.autotune.protocol import BUILDER, Setup, Shape
from cora.autotune.records import Records, Task
from cora.autotune.report import Report
from cora.autotune.search import SEARCHES, search
from cora.autotune.spaces import DEFAULT, Candidate, Space, space_of
from cora.autotune.spaces.candidate import default_candidate
from cora.autotune.statistics import geometric_mean, median, median_interval, relative_uncertainty
from cora.autotune.worker import LocalWorker, Worker
from cora.codegen.target import resolve
from cora.errors import UserError
from cora.ir.fingerprint import fingerprint
from cora.ir.tensor import Tensor
from cora.schedule.schedule import Schedule
from cora.settings import Settings

__all__ = ["Progress", "TuningResult", "tune"]

#: What a run may spend by default, besides its time. The search stops when candidates stop getting better.
BUDGET = policy.TuningBudget(
    candidates=10_000, samples=24, finalists=5, confirmation_samples=12, holdout_samples=15
)
#: Confirmation samples of all finalists together, in multiples of what quiet ones need.
CONFIRMATIONS = 3
#: Shares of the time left for them, of which the rest is for restarts and retakes.
CONFIRM_SHARE, HOLDOUT_SHARE = 0.5, 0.8
#: How many batches are drawn for each one that is tuned on, if no holdout is given.
HOLDOUTS = 2

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class TuningResult:
    """What `tune` has found, for each length class of the batches that it was given, in their order.

    outputs: the program. reports: what was measured. winners: the candidates to use, by length class.
    """

    outputs: tuple[Tensor, ...]
    reports: tuple[Report, ...]
    winners: Mapping[str, Candidate]

    @property
    def schedule(self) -> Schedule:
        """The schedule of the only length class, or of the first of several."""
        return next(iter(self.winners.values())).schedule(self.outputs)

    @property
    def report(self) -> Report:
        """The report of the only length class, or of the first of several."""
        return self.reports[0]

    @property
    def policy(self) -> policy.DeploymentPolicy:
        """Which candidate serves which length class."""
        ids = {shape: candidate.id for shape, candidate in self.winners.items()}
        if len(ids) == 1:
            return policy.GlobalPolicy(next(iter(ids.values())))
        return policy.PerShapePolicy(tuple(ids.items()))

    def schedule_for(self, lengths: object) -> Schedule:
        """The schedule for a batch: that of its length class. Raises UserError if that class was not tuned."""
        key = str(class_of(batch_of(self.outputs, lengths)))
        if key not in self.winners:
            raise UserError(f"tune: class {key} was not tuned; there are {', '.join(self.winners)}")
        return self.winners[key].schedule(self.outputs)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.reports))


def tune(
    output: Tensor | Sequence[Tensor],
    lengths: Sequence[object],
    *,
    holdout: Sequence[object] = (),
    budget_s: float | None = 60.0,
    budget: policy.TuningBudget = BUDGET,
    threshold_percent: float = 0.5,
    db: str | os.PathLike[str] | None = None,
    name: str = "",
    space: Space | None = None,
    search_by: str = "guided",
    seed: int = 0,
    threads: int | None = None,
    target: str = "llvm",
    settings: Settings | None = None,
    protocol: Protocol | None = None,
    workers: Sequence[Worker] = (),
    builder: str = BUILDER,
    progress: Progress | None = None,
) -> TuningResult:
    """Find a schedule for a program that is faster than the default one, or keep that.

    output: the computed tensor, or several. lengths: batches to tune on, each as `batch_of` takes it; they are
    grouped by length class, and each class is tuned on its own. holdout: batches that do not select; if there are
    none of a class, they are drawn from its batches. budget_s: seconds for everything, from when the workers are ready;
    None: as `budget` says.
    threshold_percent: differences up to which are ties. db: file of the records; a second run goes on where the first
    one stopped. name: of the operator, for the records and for spaces of its own. space, search_by, seed: which
    candidates, in which order. threads: of the kernels (None: all that this process may use). protocol: how is
    measured. workers: on other machines; without them one process here. builder: see `protocol.BUILDER`.
    progress: called with a line and the share of the budget that is spent.

    Raises UserError for arguments that are wrong, and if nothing at all could be measured. A candidate that cannot
    be built, is wrong, crashes or hangs is on record with the reason, and the search goes on.
    """
    outputs = (output,) if isinstance(output, Tensor) else tuple(output)
    if not lengths:
        raise UserError("tune: lengths: expected at least one batch")
    if search_by not in SEARCHES:
        raise UserError(f"tune: search_by: expected one of {', '.join(SEARCHES)}; got {search_by!r}")
    resolve(target)
    objective = policy.TuningObjective("relative_time", "stored_bytes", threshold_percent)
    if budget_s is not None:
        budget = replace(budget, time_s=budget_s)
    count = threads or len(os.sched_getaffinity(0))
    groups = _by_class(outputs, lengths)
    kept_out = _by_class(outputs, holdout)
    own = () if workers else (LocalWorker(count),)
    budget = replace(
        budget, time_s=budget.time_s / len(groups), search_samples=budget.search_samples / len(groups)
    )
    if space is None:
        space = space_of(outputs, name, target=target)
    run = secrets.token_hex(6)
    label = name or "_".join(t.name for t in outputs)
    reports: list[Report] = []
    winners: dict[str, Candidate] = {}
    try:
        for key, batches in groups.items():
            job = _Job(
                outputs, label, key, batches, kept_out.get(key, ()), budget, objective, space, search_by, seed,
                count, target, settings or Settings(), protocol or Protocol(), tuple(workers) or own, builder, run,
                progress or (lambda line, share: None),
            )  # fmt: skip
            records = None if db is None else Records(db)
            try:
                report, winners[key] = job.run_on(records)
            finally:
                if records is not None:
                    records.close()
            reports.append(report)
    finally:
        for worker in own:
            worker.close()
    return TuningResult(outputs, tuple(reports), winners)


def _by_class(outputs: Sequence[Tensor], given: Sequence[object]) -> dict[str, tuple[Batch, ...]]:
    groups: dict[str, tuple[Batch, ...]] = {}
    for one in given:
        batch = batch_of(outputs, one)
        key = str(class_of(batch))
        if batch not in groups.get(key, ()):
            groups[key] = (*groups.get(key, ()), batch)
    return groups


@dataclass(frozen=True, slots=True)
class _Job:
    """The tuning of one length class."""

    outputs: tuple[Tensor, ...]
    operator: str
    length_class: str
    batches: tuple[Batch, ...]
    holdout: tuple[Batch, ...]
    budget: policy.TuningBudget
    objective: policy.TuningObjective
    space: Space
    search_by: str
    seed: int
    threads: int
    target: str
    settings: Settings
    protocol: Protocol
    workers: tuple[Worker, ...]
    builder: str
    run: str
    progress: Progress

    def run_on(self, records: Records | None) -> tuple[Report, Candidate]:
        """Search, confirm, hold out, decide, remember."""
        shapes = tuple(Shape(f"tuning {n}", batch) for n, batch in enumerate(self.batches, 1))
        kept_out = tuple(Shape(f"holdout {n}", batch) for n, batch in enumerate(self._holdout(), 1))
        plan = policy.HoldoutPlan(tuple(s.name for s in shapes), tuple(s.name for s in kept_out))
        assert len(plan.tuning) == len(shapes)
        default = default_candidate(self.outputs)
        setup = Setup(
            self.outputs, default, hostile(self.outputs), (*shapes, *kept_out), self.threads, self.target,
            self.settings, 10.0, self.builder,
        )  # fmt: skip
        self.progress("building and checking the default schedule", 0.0)
        devices = {worker.start(setup).device for worker in self.workers}
        if len(devices) > 1:
            one, other, *_ = sorted(devices)
            raise UserError(f"tune: the workers' machines differ: {differences(one, other)}")
        spending = Spending(self.budget)
        task = self._task(devices.pop())
        key = ""
        if records is not None:
            key = records.task(task)

        def event(line: str) -> None:
            self.progress(line, min(1.0, spending.seconds / spending.budget.time_s))

        lab = Lab(
            self.workers,
            replace(setup, shapes=shapes),
            spending,
            self.protocol,
            records,
            key,
            self.run,
            event,
        )
        if not lab.prepare([default]):
            raise UserError(f"tune: the default schedule cannot be used: {lab.reason(DEFAULT)}")
        search(self.search_by, self.space, lab, self.budget, self.seed)
        searched = {s.id: lab.samples(s.id, "search", shapes) for s in lab.scores()}
        confirmed = self._confirm(lab, ranked(searched), shapes)
        stored = {id: row.stored_bytes or 0 for id, row in lab.rows.items()}
        decision = decide(confirmed, stored, self.objective.threshold_percent, searched)
        holdout = self._hold_out(lab, decision, kept_out)
        winner = decision.winner
        verdict = decision.verdict
        if verdict == "win" and slower_on_holdout(holdout, self.objective.threshold_percent) is not None:
            winner, verdict = DEFAULT, "holdout"
        candidate = lab.rows[winner].candidate
        report = self._report(lab, spending, decision, confirmed, holdout, shapes)
        report = replace(report, winner=winner, verdict=verdict, policy=str(policy.GlobalPolicy(winner)))
        if records is not None:
            records.decide(key, self.run, candidate, report.policy, report.to_data())
        self.progress("done", 1.0)
        return report, candidate

    def _holdout(self) -> tuple[Batch, ...]:
        """The batches that do not select: those given, else drawn from those that do."""
        if self.holdout:
            return tuple(b for b in self.holdout if b not in self.batches) or self._drawn()
        return self._drawn()

    def _drawn(self) -> tuple[Batch, ...]:
        found: dict[Batch, None] = {}
        for batch in self.batches:
            for number in range(4 * HOLDOUTS):
                drawn = resampled(batch, self.seed + 1 + number)
                if drawn not in self.batches:
                    found[drawn] = None
                if len(found) >= HOLDOUTS * len(self.batches):
                    break
        # A batch of equal lengths has no other of its kind.
        return tuple(found) or (_halved(self.batches[0]),)

    def _task(self, device: str) -> Task:
        dtypes = ",".join(dict.fromkeys(t.dtype for t in self.outputs))
        return Task(
            self.operator, fingerprint(self.outputs), dtypes, type(self.space).__name__, self.length_class,
            self.target, self.threads, self.protocol.cache, device,
        )  # fmt: skip

    def _confirm(self, lab: Lab, ranking: Sequence[str], shapes: Sequence[Shape]) -> dict[str, list[float]]:
        """Fresh samples of the finalists and the default schedule; noisy ones get more."""
        finalists = [id for id in ranking if id != DEFAULT][: self.budget.finalists]
        base = lab.affordable(self.budget.confirmation_samples, len(finalists) + 1, shapes, CONFIRM_SHARE)
        left = CONFIRMATIONS * base * (len(finalists) + 1)
        counts: list[int] = []
        for id in (DEFAULT, *finalists):
            noise = relative_uncertainty(lab.samples(id, "search", shapes))
            counts.append(max(1, policy.confirmation_count(base, noise, left)))
            left -= counts[-1]
        candidates = [lab.rows[id].candidate for id in (DEFAULT, *finalists)]
        lab.fresh(candidates, counts, "confirm", shapes)
        found = {c.id: lab.samples(c.id, "confirm", shapes) for c in candidates}
        if not found[DEFAULT]:
            raise UserError("tune: nothing could be measured: every sample was too short for the timer")
        return {id: samples for id, samples in found.items() if samples}

    def _hold_out(self, lab: Lab, decision: Decision, shapes: Sequence[Shape]) -> dict[str, list[float]]:
        """Samples of the chosen candidate, by holdout shape."""
        chosen = lab.rows[decision.chosen].candidate
        count = lab.affordable(max(1, self.budget.holdout_samples), 1, shapes, HOLDOUT_SHARE)
        lab.fresh([chosen], [count], "holdout", shapes)
        return {shape.name: lab.samples(chosen.id, "holdout", [shape]) for shape in shapes}

    def _report(
        self,
        lab: Lab,
        spending: Spending,
        decision: Decision,
        confirmed: Mapping[str, Sequence[float]],
        holdout: Mapping[str, Sequence[float]],
        shapes: Sequence[Shape],
    ) -> Report:
        chosen = decision.chosen
        held = {name: (median(v), *median_interval(v)) for name, v in holdout.items()}
        return Report(
            operator=self.operator,
            length_class=self.length_class,
            winner=decision.winner,
            chosen=chosen,
            verdict=decision.verdict,
            policy="",
            selected=median(lab.samples(chosen, "search", shapes)),
            confirmed=median(confirmed[chosen]),
            confirmed_interval=median_interval(confirmed[chosen]),
            holdout=geometric_mean([middle for middle, _, _ in held.values()]),
            holdout_shapes=held,
            default_ms={name: median(v) for name, v in lab.default_ms.items()},
            ties=decision.ties,
            statuses=lab.statuses,
            search_samples=spending.samples,
            all_samples=lab.taken,
            resumed=lab.resumed,
            contended=lab.contended,
            seconds=spending.seconds,
        )


def _halved(batch: Batch) -> Batch:
    """A batch of half the lengths."""
    return Batch(tuple((n, tuple(x // 2 for x in v)) for n, v in batch.lengths), batch.sizes)
