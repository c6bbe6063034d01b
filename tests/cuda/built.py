"""Kernels of cases, each built once."""

from __future__ import annotations

from pathlib import Path

import cora
from tests.operators.harness import Case


class Built:
    """Kernels, each built once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kernels: dict[tuple[str, str], cora.Kernel] = {}

    def get(self, case: Case, schedule: str, target: object = "cuda") -> cora.Kernel:
        """The kernel of a case under one of its schedules, or the default one."""
        key = case.name, schedule
        if key not in self._kernels:
            settings = cora.Settings(cache_dir=self._folder)
            program = (
                case.outputs
                if schedule == "default"
                else case.schedules[schedule](cora.schedule(*case.outputs))
            )
            self._kernels[key] = cora.build(program, target, settings)
        return self._kernels[key]
