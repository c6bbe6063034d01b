"""What a tuning run has found, in numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cora.autotune.decide import Verdict
from cora.errors import UserError

__all__ = ["Report"]

_VERDICTS: Mapping[str, str] = {
    "win": "faster than the default schedule",
    "tie": "a tie: the win is inside the noise, so the default schedule stays",
    "default": "nothing was faster than the default schedule",
    "holdout": "slower than the default schedule on a shape that did not select it, so the default stays",
}


@dataclass(frozen=True, slots=True)
class Report:
    """The result of tuning one length class.

    All costs are times relative to the default schedule: 0.5 is twice as fast.

    winner: the candidate to use. chosen: the finalist with the best score; the winner, if it won.
    selected: its score in the search, by which it became a finalist. confirmed: by fresh samples. holdout: geometric
    mean over the holdout shapes, nothing was chosen by it; holdout_shapes: each, with a 95 % interval.
    confirmed_interval: likewise. default_ms: of the default schedule, by shape. ties: finalists that may be as fast.
    statuses: candidates by what became of them. search_samples, all_samples: measurements made now; resumed: taken
    from records. contended: of those made now, how many others disturbed.
    """

    operator: str
    length_class: str
    winner: str
    chosen: str
    verdict: Verdict
    policy: str
    selected: float
    confirmed: float
    confirmed_interval: tuple[float, float]
    holdout: float
    holdout_shapes: Mapping[str, tuple[float, float, float]]
    default_ms: Mapping[str, float]
    ties: tuple[str, ...]
    statuses: Mapping[str, int]
    search_samples: int
    all_samples: int
    resumed: int
    contended: int
    seconds: float

    @property
    def shrinkage(self) -> float:
        """By how much of itself the selected figure was too low, by the holdout: the winner's curse, in percent."""
        return 100 * (self.holdout / self.selected - 1)

    @property
    def shrinkage_confirmed(self) -> float:
        """The same for the confirmed figure."""
        return 100 * (self.holdout / self.confirmed - 1)

    def to_data(self) -> dict[str, Any]:
        """As plain JSON data; NaN becomes None."""
        return {k: _plain(v) for k, v in asdict(self).items()}

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Report:
        """What `to_data` wrote. Raises UserError if it did not."""
        try:
            values: dict[str, Any] = {k: math.nan if v is None else v for k, v in data.items()}
            for name in ("ties", "confirmed_interval"):
                values[name] = tuple(math.nan if x is None else x for x in values[name])
            values["holdout_shapes"] = {
                k: tuple(math.nan if x is None else x for x in v) for k, v in values["holdout_shapes"].items()
            }
            return Report(**values)
        except (TypeError, KeyError, AttributeError) as error:
            raise UserError(f"report: expected the fields of a report; {error}") from error

    def __str__(self) -> str:
        rejected = ", ".join(f"{n} {status}" for status, n in sorted(self.statuses.items()) if status != "ok")
        low, high = self.confirmed_interval
        lines = [
            f"{self.operator} [{self.length_class}]",
            f"  winner     {self.winner}",
            f"             {_VERDICTS[self.verdict]}",
            f"  selected   {_cost(self.selected)}",
            f"  confirmed  {_cost(self.confirmed)}, 95 % between {low:.3f} and {high:.3f}",
            f"  holdout    {_cost(self.holdout)}",
        ]
        lines += [
            f"    {name}: {_cost(middle)}, 95 % between {low:.3f} and {high:.3f}"
            for name, (middle, low, high) in self.holdout_shapes.items()
        ]
        if self.winner != self.chosen:
            lines.insert(3, f"  best other {self.chosen}")
        if math.isfinite(self.shrinkage):
            lines.append(
                f"  shrinkage  {self.shrinkage:+.1f} % from selected, {self.shrinkage_confirmed:+.1f} % from confirmed "
                "to holdout"
            )
        others = [id for id in self.ties if id != self.chosen]
        if others:
            shown = ", ".join(others[:4]) + (f" and {len(others) - 4} more" if len(others) > 4 else "")
            lines.append(f"  ties       {shown}")
        defaults = ", ".join(f"{name} {ms:.3f} ms" for name, ms in self.default_ms.items())
        lines += [
            f"  default    {defaults}",
            f"  candidates {sum(self.statuses.values())}, {self.statuses.get('ok', 0)} usable"
            + (f"; {rejected}" if rejected else ""),
            f"  samples    {self.search_samples} in the search, {self.all_samples} in all, "
            f"{self.resumed} from records; {self.contended} contended",
            f"  time       {self.seconds:.1f} s",
            f"  policy     {self.policy}",
        ]
        return "\n".join(lines)


def _cost(relative: float) -> str:
    if not (math.isfinite(relative) and relative > 0):
        return "(not measured)"
    return f"{relative:.3f} of the default's time ({1 / relative:.2f} times as fast)"


def _plain(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case tuple() | list():
            return [_plain(v) for v in value]
        case dict():
            return {k: _plain(v) for k, v in value.items()}
    return value
