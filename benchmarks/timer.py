"""The one timer, which lives with the tuner, and how long libraries wait for each other."""

from typing import Final

from cora.autotune.timer import CacheRegime, Timing, measure, ratio

__all__ = ["CacheRegime", "Timing", "measure", "ratio", "settle_ms"]

#: Workers of other libraries spin for tens of milliseconds behind a call, on the cores that the next one wants.
_SPINNING_MS: Final = 40.0


def settle_ms(threads: int) -> float:
    """The pause before each sample, in milliseconds, where several libraries run on `threads` each; see `measure`."""
    return 0.0 if threads == 1 else _SPINNING_MS
