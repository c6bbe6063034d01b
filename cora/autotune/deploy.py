"""The serving side: which schedule a batch gets, by the records. Nothing is tuned, built or measured here.

What decides, in this order; an argument goes before the environment:

disable   CORA_TUNE_DISABLE=1        the default schedule
pin       CORA_TUNE_PIN=<candidate>  the candidate of that name in the records, whatever was measured
          the record of the batch's length class; else of the nearest one; else the default schedule

print     CORA_TUNE_PRINT=1          tells on standard error what was chosen, and why
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cora.autotune.batches import batch_of
from cora.autotune.classes import LengthClass, class_of, distance, parse_class
from cora.autotune.device import device_text, differences
from cora.autotune.records import Records, WinnerRow
from cora.autotune.spaces.candidate import DEFAULT, Candidate, default_candidate
from cora.errors import CoraError, UserError
from cora.ir.fingerprint import fingerprint
from cora.ir.tensor import Tensor
from cora.schedule.schedule import Schedule

__all__ = ["Tuned", "TuningWarning", "best_schedule", "load_tuned"]

#: A class further away than this, in powers of two over all its parts, says nothing about a batch.
FAR = 8.0


class TuningWarning(UserWarning):
    """A record that cannot be used."""


@dataclass(frozen=True)
class Tuned:
    """The schedules that records hold for a program on this machine; loaded once, asked for every batch.

    outputs: the program. winners: candidates by length class. pinned: a candidate that serves every batch.
    printing: tell each choice on standard error.
    """

    outputs: tuple[Tensor, ...]
    winners: Mapping[LengthClass, Candidate]
    pinned: Candidate | None = None
    printing: bool = False

    def schedule(self, lengths: object) -> Schedule:
        """The schedule for a batch, given as `tune` takes it. Raises UserError for one that does not fit."""
        candidate, why = self.choice(lengths)
        if self.printing:
            names = ", ".join(t.name for t in self.outputs)
            print(f"cora: {names}: {candidate.id} ({why})", file=sys.stderr)
        return self._made(candidate)

    def choice(self, lengths: object) -> tuple[Candidate, str]:
        """The candidate for a batch, and why it is that one."""
        if self.pinned is not None:
            return self.pinned, "pinned"
        if not self.winners:
            return self._default, "nothing was tuned for this program on this machine"
        wanted = class_of(batch_of(self.outputs, lengths))
        if wanted in self.winners:
            return self.winners[wanted], f"tuned for {wanted}"
        nearest = min(self.winners, key=lambda known: (distance(known, wanted), str(known)))
        if distance(nearest, wanted) > FAR:
            return self._default, f"nothing was tuned near {wanted}"
        return self.winners[nearest], f"tuned for {nearest}, the nearest to {wanted}"

    @cached_property
    def _default(self) -> Candidate:
        return default_candidate(self.outputs)

    @cached_property
    def _schedules(self) -> dict[str, Schedule]:
        return {}

    def _made(self, candidate: Candidate) -> Schedule:
        known = self._schedules.get(candidate.digest)
        if known is None:
            known = self._schedules[candidate.digest] = candidate.schedule(self.outputs)
        return known


def load_tuned(
    db: str | os.PathLike[str] | None,
    output: Tensor | Sequence[Tensor],
    *,
    threads: int | None = None,
    target: str = "llvm",
    disable: bool | None = None,
    pin: str | None = None,
    printing: bool | None = None,
) -> Tuned:
    """What the records hold for a program; without records, all batches get the default schedule.

    db: the file; one that does not exist holds nothing, which is said in a warning. threads, target: what the
    kernels will run with. disable, pin, printing: see the text of the module; None leaves it to the environment.
    A record from another machine or version, or whose steps do not fit, is ignored with a TuningWarning.
    Raises UserError for a file that is no record file, and for a pinned candidate that is not in it.
    """
    outputs = (output,) if isinstance(output, Tensor) else tuple(output)
    if disable is None:
        disable = _flag("CORA_TUNE_DISABLE")
    if printing is None:
        printing = _flag("CORA_TUNE_PRINT")
    if pin is None:
        pin = os.environ.get("CORA_TUNE_PIN") or None
    if disable or db is None:
        return Tuned(outputs, {}, None, printing)
    if pin == DEFAULT:
        return Tuned(outputs, {}, default_candidate(outputs), printing)
    if not os.path.exists(db):
        if pin is not None:
            raise UserError(f"records: no file {os.fspath(db)}, so no candidate {pin!r} to pin")
        warnings.warn(f"no records {os.fspath(db)}: default schedules are used", TuningWarning, stacklevel=2)
        return Tuned(outputs, {}, None, printing)
    program = fingerprint(outputs)
    with Records(db, read_only=True) as records:
        if pin is not None:
            return Tuned(outputs, {}, _pinned(records, program, pin), printing)
        found = records.winners(program)
    count = threads or len(os.sched_getaffinity(0))
    winners: dict[LengthClass, Candidate] = {}
    ignored: dict[str, None] = {}
    for row in found:
        reason = _unusable(row, outputs, count, target)
        if reason is not None:
            ignored[reason] = None
            continue
        winners.setdefault(parse_class(row.task.length_class), row.candidate)
    for reason in ignored:
        warnings.warn(f"records in {os.fspath(db)} are ignored: {reason}", TuningWarning, stacklevel=2)
    return Tuned(outputs, winners, None, printing)


def best_schedule(
    db: str | os.PathLike[str] | None,
    output: Tensor | Sequence[Tensor],
    lengths: object,
    *,
    threads: int | None = None,
    target: str = "llvm",
    disable: bool | None = None,
    pin: str | None = None,
    printing: bool | None = None,
) -> Schedule:
    """The schedule for one batch: `load_tuned(...).schedule(lengths)`; for many, keep what `load_tuned` gives."""
    tuned = load_tuned(
        db, output, threads=threads, target=target, disable=disable, pin=pin, printing=printing
    )
    return tuned.schedule(lengths)


def _flag(name: str) -> bool:
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        raise UserError(f"environment: {name} must be 0 or 1; got {value!r}")
    return value == "1"


def _pinned(records: Records, program: str, pin: str) -> Candidate:
    for task, *_ in records.tasks():
        if task.program == program:
            row = records.candidates(task.key).get(pin)
            if row is not None and row.status == "ok":
                return row.candidate
            if row is not None:
                raise UserError(f"records: candidate {pin!r} cannot be pinned: {row.status}: {row.reason}")
    raise UserError(f"records: {records.path} holds no candidate {pin!r} of this program")


def _unusable(row: WinnerRow, outputs: Sequence[Tensor], threads: int, target: str) -> str | None:
    """Why a record is not for here; None if it is."""
    task = row.task
    if task.device != device_text():
        return f"measured elsewhere: {differences(device_text(), task.device)}"
    if task.target != target:
        return f"measured for target {task.target!r}, not {target!r}"
    if task.threads != threads:
        return f"measured with {task.threads} threads, not {threads}"
    try:
        row.candidate.schedule(outputs)
    except CoraError as error:
        return f"{row.candidate.id} does not fit the program: {error}"
    return None
