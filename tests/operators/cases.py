"""All operators under test."""

from __future__ import annotations

from tests.operators.families import elementwise, reductions, triangles
from tests.operators.harness import Case

CASES: tuple[Case, ...] = (*elementwise.CASES, *reductions.CASES, *triangles.CASES)
