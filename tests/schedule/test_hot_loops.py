"""Which conditions are left in hot loops; two builds of one schedule give one source, in any process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import cora
from cora.schedule.schedule import Schedule
from tests.docs.pages import ROOT
from tests.schedule.test_stages import SETTINGS, B, S, X, batch, e, h, i, j, m, z

w = cora.compute("w", [batch, i, h], cora.sum(X[batch, i, h, j], over=j))


@pytest.mark.parametrize(
    ("schedule", "count"),
    [
        (cora.schedule(B), 0),
        (cora.schedule(B).split(B, i, 8), 0),
        (cora.schedule(B).vectorize(B, i), 0),
        (cora.schedule(B).split(B, i, 8, tail="mask").vectorize(B, "i_i"), 1),
        (cora.schedule(B).split(B, i, 8, tail="peel").vectorize(B, "i_i"), 0),
        (cora.schedule(B).split(B, i, 8, tail="anchored").vectorize(B, "i_i"), 0),
        (cora.schedule(B).split(B, i, 8, tail="shifted").vectorize(B, "i_i"), 0),
        (cora.schedule(B).split(B, i, 8, tail="balanced"), 0),
        (cora.schedule(B).reorder(B, i, batch), 1),
        (cora.schedule(w).split(w, i, 4).reorder(w, "i_o", h, j, "i_i"), 0),
        (cora.schedule(w).split(w, i, 4, tail="peel").reorder(w, "i_o", h, j, "i_i"), 0),
        (cora.schedule(S).rfactor(S, i, 8).vectorize("S_partial", "i_i"), 0),
        (cora.schedule(B).remap(B, batch, "descending").vectorize(B, i), 0),
        (cora.schedule(B).parallel(B, batch, balance="longest_first").vectorize(B, i), 0),
        (cora.schedule(z).split_op(z, j, multiple=8).hfuse("z_main", "z_tail", depth=3), 0),
    ],
    ids=lambda v: (
        "-".join(str(getattr(s, "tail", type(s).__name__)) for s in v.steps)
        if isinstance(v, Schedule)
        else None
    ),
)
def test_conditions_in_hot_loops(schedule: Schedule, count: int) -> None:
    kernel = cora.build(schedule, settings=SETTINGS)
    assert len(kernel.hot_guards) == count, kernel.hot_guards
    careful = cora.build(schedule, settings=cora.Settings(cache=False, guards="keep"))
    assert len(careful.hot_guards) > count


PROGRAM = """
import hashlib
import cora
from tests.schedule.test_hot_loops import sources
print(hashlib.sha256(sources().encode()).hexdigest())
"""


def sources() -> str:
    """The code of one program after many steps, at every stage."""
    softmax = cora.compute("P", [batch, i, h, j], e[batch, i, h, j] / z[batch, i, h])
    s = cora.schedule(softmax, B)
    for op in (z, e, m):
        s = s.compute_at(op, softmax, batch)
    s = s.parallel(softmax, batch, balance="longest_first").vectorize(softmax, j)
    s = s.split(m, i, 4, tail="peel").split(z, h, 2, tail="shifted").vectorize(e, j, 8)
    s = s.pad_loop(B, i, 4).pad_dim(B, i, 8).fuse(B, batch, i, name="f").split(B, "f", 32, tail="anchored")
    kernel = cora.build(s, settings=SETTINGS)
    stages = [kernel.ir(stage) for stage in ("loops", "tables", "hoisted", "lowered", "tir")]
    return "\n".join([*stages, kernel.source("ll"), kernel.source("asm"), kernel.artifact.prelude.describe()])


def test_two_builds_give_the_same_source() -> None:
    """In processes that hash strings, and so order sets, differently."""
    found = set()
    for seed in ("1", "2", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env=environment,
        )
        found.add(done.stdout)
    assert len(found) == 1
    assert len(found.pop().strip()) == 64
