"""All operators under test."""

from __future__ import annotations

from tests.operators.families import attention, elementwise, gather, reductions, shapes, triangles, types
from tests.operators.harness import Case

CASES: tuple[Case, ...] = (
    *elementwise.CASES,
    *reductions.CASES,
    *triangles.CASES,
    *attention.CASES,
    *gather.CASES,
    *shapes.CASES,
    *types.CASES,
)
