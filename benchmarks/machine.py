"""What a result was measured on; the tuner's records say the same."""

from cora.autotune.machine import Machine, last_level_cache_bytes, this_machine

__all__ = ["Machine", "last_level_cache_bytes", "this_machine"]
