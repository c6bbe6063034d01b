"""The tuner: builds, checks, measures and remembers schedules; how it chooses is `cora.tune`.

    result = cora.autotune.tune(output, lengths=[...], budget_s=60, db="tune.db")
    kernel = cora.build(result.schedule)
    ...
    schedule = cora.autotune.best_schedule("tune.db", output, lengths)      # in the serving path: looks, never tunes

docs/tuning.md has the rest.
"""

from cora.autotune.batches import Batch, batch_of
from cora.autotune.classes import LengthClass, class_of
from cora.autotune.deploy import Tuned, TuningWarning, best_schedule, load_tuned
from cora.autotune.lab import Protocol
from cora.autotune.records import Records
from cora.autotune.report import Report
from cora.autotune.spaces import Candidate, Space, space_of
from cora.autotune.spaces.candidate import listed
from cora.autotune.tuner import TuningResult, tune

__all__ = [
    "Batch",
    "Candidate",
    "LengthClass",
    "Protocol",
    "Records",
    "Report",
    "Space",
    "Tuned",
    "TuningResult",
    "TuningWarning",
    "batch_of",
    "best_schedule",
    "class_of",
    "listed",
    "load_tuned",
    "space_of",
    "tune",
]
