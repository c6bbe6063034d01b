"""A builder for workers under test: the name of a candidate says what goes wrong with it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import cora
from cora.autotune.bench import build_candidate
from cora.autotune.spaces import Candidate
from tests.autotune.programs import doubled


def build(candidate: Candidate, outputs: Sequence[cora.Tensor], target: str, settings: cora.Settings) -> Any:
    """The kernel of a candidate, or what its name asks for."""
    kernel = build_candidate(candidate, outputs, target, settings)
    match candidate.id.partition("_")[0]:
        case "crashing":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hanging":
            time.sleep(3600)
        case "failing":
            raise RuntimeError("planted")
        case "wrong":
            return _patched(kernel, _stray_element)
        case "outside":
            return _patched(kernel, _beside)
        case "late":  # dies when it is measured, after all checks
            return _patched(kernel, _Dying(candidate.id))
    return kernel


def _patched(kernel: cora.Kernel, spoil: Any) -> cora.Kernel:
    run = kernel.run

    def spoiled(plan: cora.Plan, *arrays: Any, outputs: Any = None) -> Any:
        result = run(plan, *arrays, outputs=outputs)
        spoil(outputs)
        return result

    kernel.run = spoiled  # type: ignore[method-assign]
    return kernel


def _stray_element(outputs: Any) -> None:
    """One element of long arrays is a little off."""
    values = outputs["O"].values
    if len(values) > 40:
        values[40] *= 1.001


def _beside(outputs: Any) -> None:
    """Writes one element behind the array."""
    values = outputs["O"].values
    if values.base is not None:
        values.base[-1] = 0.0


class _Dying:
    def __init__(self, id: str) -> None:
        self._left = 12 if id.endswith("soon") else 30

    def __call__(self, outputs: Any) -> None:
        self._left -= 1
        if self._left <= 0:
            os._exit(7)


def program() -> cora.Tensor:
    """For `module:function` on the command line."""
    return doubled()


def batches(outputs: Sequence[cora.Tensor]) -> list[dict[str, Any]]:
    """For the same."""
    return [{"lens": [40, 7, 0, 19]}]
