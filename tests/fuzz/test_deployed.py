"""Random programs written into folders: the loader that they run with gives the bits of cora's kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cora
from cora import Schedule, ScheduleError, Tensor, UnsupportedError
from cora.runtime.deploy import cora_deploy
from cora.schedule.default import default_schedule
from tests.fuzz.case import generate
from tests.fuzz.check import PROVE, Batch, _bits, _garbage, _Run
from tests.fuzz.choices import Choices, Seeded
from tests.fuzz.program import Program

CASES = 8


def compare(
    folder: Path, program: Schedule | Sequence[Tensor], batches: Sequence[Batch], seed: int, **options: Any
) -> None:
    """Run a deployed program on the batches, forwards and backwards in one session; what `check` takes."""
    s = program if isinstance(program, Schedule) else default_schedule(cora.schedule(*program))
    try:
        kernel = cora.build(s, settings=PROVE)
    except (ScheduleError, UnsupportedError) as refusal:
        pytest.skip(str(refusal))
    cora.deploy(folder, kernel)
    loaded = cora_deploy.load(folder)
    session = loaded.session(2)
    ranges, special = options.get("ranges", {}), options.get("special", False)
    runs = [_Run(s, b, np.random.default_rng([seed, n]), ranges, special) for n, b in enumerate(batches)]
    for run in (*runs, *reversed(runs)):
        arrays = {
            n: run.inputs[n].to_layout(kernel.layout(n), _garbage(run.inputs[n].dtype)) for n in kernel.inputs
        }
        outputs = {t.name: run._empty(t, kernel.layout(t.name)).values for t in s.outputs}
        session.run(**{n: a.values for n, a in arrays.items()}, **_named(run, kernel), outputs=outputs)
        for own in run._outputs(kernel, run._plan(kernel, 2), "end"):
            assert (_bits(own.values) == _bits(outputs[own.name])).all(), own.name
        for name, array in arrays.items():
            if loaded.arrays[name]["pack"] is not None:
                packed = cora_deploy._packed(run.inputs[name].to_padded(), loaded.arrays[name]["pack"])
                expected = run.inputs[name].to_layout(array.layout, 0)
                assert (_bits(packed) == _bits(expected.values)).all(), name


def _named(run: _Run, kernel: cora.Kernel) -> Mapping[str, Any]:
    """The sizes, lengths and permutations that the kernel needs."""
    known = {*kernel.size_names, *kernel.length_domains}
    return {n: v for n, v in {**run.sizes, **run.lengths, **run.permutations}.items() if n in known}


@pytest.mark.parametrize("number", range(CASES))
def test_a_random_program(number: int, tmp_path: Path) -> None:
    program = Program()
    case = generate(Choices(Seeded(f"deployed:{number}")), program)

    def check(first: Any, batches: Any, *, seed: int, **options: Any) -> None:
        compare(tmp_path, first, batches, seed, **options)

    case.program.run(case.last, check)
