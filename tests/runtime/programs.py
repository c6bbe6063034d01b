"""Small programs of the run-time tests, each built once per process."""

from __future__ import annotations

from functools import cache

import cora
from cora.ir.tensor import Tensor

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])
A = cora.placeholder("A", [batch, pos])
B = cora.placeholder("B", [batch, pos])

n = cora.Dim("n", cora.size("N"))
T = cora.placeholder("T", [n])
I = cora.placeholder("I", [batch, pos], "int32")  # noqa: E741

UNCACHED = cora.Settings(cache=False)


def scaled(factor: float, name: str = "O") -> Tensor:
    """`name[batch, pos] = factor * A[batch, pos]`."""
    return cora.compute(name, [batch, pos], factor * A[batch, pos])


def first_program() -> cora.Schedule:
    """The README's schedule of `scaled(2)`."""
    O = scaled(2)  # noqa: E741
    s = cora.schedule(O).pad_loop(O, pos, 32).pad_dim(O, pos, 64)
    s = s.fuse(O, batch, pos, name="f")
    return s.split(O, "f", 32, names=("fo", "fi")).parallel(O, "fo").vectorize(O, "fi")


@cache
def kernel(name: str) -> cora.Kernel:
    """One of the kernels used by many tests."""
    total = cora.compute("S", [batch], cora.sum(A[batch, pos], over=pos))
    programs = {
        "scale": scaled(2),
        "triple": scaled(3),
        "first": first_program(),
        "add": cora.compute("O", [batch, pos], A[batch, pos] + B[batch, pos]),
        "gather": cora.compute("O", [batch, pos], T[I[batch, pos]]),
        "dense": cora.compute("O", [n], T[n] + 1),
        "two": [scaled(2), total],
        "positions": cora.schedule(cora.compute("O", [batch, pos], pos * 1.0)),
        "chain": cora.compute("O", [batch, pos], total[batch] + A[batch, pos]),
    }
    return cora.build(programs[name], settings=UNCACHED)


def rows(*values: list[float]) -> cora.RaggedArray:
    """A ragged array of `A`."""
    return cora.ragged(list(values), A)
