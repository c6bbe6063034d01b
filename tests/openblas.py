"""Tests that need OpenBLAS' wheel are skipped where it is not installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from cora.kernels.registry import Recipe

INSTALLED = importlib.util.find_spec("scipy_openblas32") is not None
needs_openblas = pytest.mark.skipif(not INSTALLED, reason="scipy-openblas32 is not installed")


def variants(recipe: Recipe) -> list[Any]:
    """The CPU's variants of a kernel as parameters of a test."""
    return [
        pytest.param(name, marks=needs_openblas if name == "openblas" else ())
        for name in recipe.variants["llvm"]
    ]
