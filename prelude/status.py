"""How the native code tells what went wrong."""

from __future__ import annotations

from typing import Final

# Bits of the status that arithmetic sets.
OVERFLOW: Final = 1
ZERO_DIVISION: Final = 2

# `prelude_compute` returns 0, or `(position of the table + 1) * PER_TABLE + fault`; a fault is a status,
# or one of these.
PER_TABLE: Final = 16
TOO_LARGE: Final = 8
NO_ROOM: Final = 9
WRONG_COUNT: Final = 10
FACT_VIOLATED: Final = 11

# Tables hold at most this many entries: positions within them are 32-bit.
MAX_ENTRIES: Final = 2**31 - 1
