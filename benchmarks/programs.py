"""The programs that the experiments build and run."""

from __future__ import annotations

import cora
from cora.ir.expr import Dim
from cora.lang.define import Lengths


def first_program(tag: str = "") -> tuple[cora.Tensor, cora.Schedule]:
    """The README's program, O[batch, pos] = 2 * A[batch, pos]: its input, and its schedule.

    The two loops are fused and run in vectors of 32, in parallel; the loop over pos is padded to
    32, the storage of O to 64. `tag` is appended to every name: with another tag it is a program
    that the compiler has never seen.
    """
    A, O = twice(tag)  # noqa: E741
    _, pos = O.dims
    s = cora.schedule(O)
    s = s.pad_loop(O, pos, 32).pad_dim(O, pos, 64).fuse(O, *O.dims, name="f")
    return A, s.split(O, "f", 32, names=("fo", "fi")).parallel(O, "fo").vectorize(O, "fi")


def twice(tag: str = "") -> tuple[cora.Tensor, cora.Tensor]:
    """O[batch, pos] = 2 * A[batch, pos] with neither schedule nor padding: its input and its output."""
    lens, batch = _batch(tag)
    pos = cora.Dim(f"pos{tag}", lens[batch])
    A = cora.placeholder(f"A{tag}", [batch, pos])
    return A, cora.compute(f"O{tag}", [batch, pos], 2 * A[batch, pos])


def _batch(tag: str = "") -> tuple[Lengths, Dim]:
    batch = cora.Dim(f"batch{tag}", cora.size(f"M{tag}"))
    return cora.lengths(f"lens{tag}", batch), batch
