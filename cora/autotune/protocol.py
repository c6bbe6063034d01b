"""What a tuner asks of a worker, and what it answers: plain frozen data, which crosses process borders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cora.autotune.batches import Batch
from cora.autotune.spaces.candidate import Candidate
from cora.autotune.timer import CacheRegime
from cora.ir.tensor import Tensor
from cora.settings import Settings

__all__ = [
    "BUILDER",
    "Failed",
    "Measure",
    "Measured",
    "Prepare",
    "Prepared",
    "Ready",
    "Rejected",
    "Reply",
    "Request",
    "Setup",
    "Shape",
    "Status",
]

#: ok        built, right, measurable
#: refused   the compiler refused the schedule
#: failed    building or running it raised something else
#: wrong     it computed something else than the program means
#: crashed   the worker died of it
#: timeout   the worker did not answer in time
#: slow      right, but many times slower than the default schedule at first sight
#: duplicate it has the steps, or the id, of a candidate before it
Status = Literal["ok", "refused", "failed", "wrong", "crashed", "timeout", "slow", "duplicate"]

#: Who builds candidates: "module:function", called with (candidate, outputs, target, settings).
BUILDER = "cora.autotune.bench:build_candidate"


@dataclass(frozen=True, slots=True)
class Shape:
    """A batch to measure on, with a name."""

    name: str
    batch: Batch


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker must know before anything else. Answer: Ready.

    outputs: the program. checks: small batches, to be compared with the interpreter. shapes: batches to measure on;
    on the first one results are compared with those of the default schedule. threads: workers of the kernels.
    slow_factor: a candidate this many times slower than the default at its first run is "slow".
    """

    outputs: tuple[Tensor, ...]
    default: Candidate
    checks: tuple[Batch, ...]
    shapes: tuple[Shape, ...]
    threads: int
    target: str
    settings: Settings
    slow_factor: float
    builder: str = BUILDER


@dataclass(frozen=True, slots=True)
class Prepare:
    """Build and check a candidate. Answer: Prepared or Rejected."""

    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Measure:
    """Time candidates against each other and the default schedule. Answer: Measured or Failed.

    candidates: each prepared before, by this worker or the one that it replaced.
    """

    candidates: tuple[Candidate, ...]
    shape: str
    repeats: int
    cache: CacheRegime
    warmup_ms: float
    min_sample_ms: float


@dataclass(frozen=True, slots=True)
class Ready:
    """device: what the worker's machine and software are, as text that is equal for equal ones only."""

    device: str
    checks: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """build_ms: compilation, or a look into the cache. stored_bytes: of all tensors on the first shape."""

    id: str
    build_ms: float
    stored_bytes: int
    first_ms: float


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that cannot be used, and why."""

    id: str
    status: Status
    reason: str


@dataclass(frozen=True, slots=True)
class Measured:
    """Samples by candidate, one for each repeat, in the order in which they were taken.

    ms: times per call; NaN where too short. reference_ms: of the default schedule beside them, in each repeat the
    lesser of one before and one after. busy: the share of each sample in which the calling thread had a core.
    """

    ms: Mapping[str, tuple[float, ...]]
    reference_ms: tuple[float, ...]
    busy: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Failed:
    """A request that could not be served; `id`: the candidate that is to blame, if that is known."""

    reason: str
    id: str = ""


Request: TypeAlias = Setup | Prepare | Measure
Reply: TypeAlias = Ready | Prepared | Rejected | Measured | Failed
