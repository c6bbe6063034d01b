"""The one timer, which lives with the tuner."""

from cora.autotune.timer import CacheRegime, Timing, measure, ratio

__all__ = ["CacheRegime", "Timing", "measure", "ratio"]
