"""Indices read from data that are out of range: refused before any memory is touched, harmless when unchecked."""

from __future__ import annotations

import numpy as np
import pytest

import cora
from cora import UserError
from tests.guard_pages import guarded

M = cora.size("M")
batch = cora.Dim("batch", M)
lens, picks = cora.lengths("lens", batch), cora.lengths("picks", batch)
pos, p = cora.Dim("pos", lens[batch]), cora.Dim("p", picks[batch])
A = cora.placeholder("A", [batch, pos])
BAD = (-1, 3, 2**31 - 1, -(2**31))
BAD_LONG = (*BAD, 2**62, -(2**63), 2**63 - 1)


def gather(dtype: str, settings: cora.Settings, padded: bool = False) -> cora.Kernel:
    idx = cora.placeholder("idx", [batch, p], dtype=dtype)
    O = cora.compute("O", [batch, p], A[batch, idx[batch, p]])  # noqa: E741
    if not padded:
        return cora.build(O, settings=settings)
    s = cora.schedule(O).pad_dim("idx", "p", 4).pad_dim("O", "p", 4).pad_loop("O", "p", 4)
    return cora.build(s.vectorize("O", "p", 4).parallel("O", "batch"), settings=settings)


def arrays(kernel: cora.Kernel, dtype: str, bad: int, at: tuple[int, int]) -> list[cora.RaggedArray]:
    """Rows of 3, 0 and 5 elements; two picks from each of the others, one of them `bad`."""
    rows = [[0, 2], [], [4, 1]]
    rows[at[0]][at[1]] = bad
    a = cora.ragged([[1.0, 2.0, 3.0], [], [4.0, 5.0, 6.0, 7.0, 8.0]], A)
    i = cora.ragged(rows, kernel.layout("idx"), {"picks": [2, 0, 2]}, dtype=dtype, name="idx")
    by_name = {"A": a, "idx": i}
    made = []
    for name in kernel.inputs:
        array = by_name[name]
        made.append(
            cora.RaggedArray(
                guarded(array.values), array.layout, array.lengths, array.sizes, name, array.dtype
            )
        )
    return made


@pytest.fixture(scope="module")
def checked() -> dict[str, cora.Kernel]:
    return {t: gather(t, cora.Settings(cache=False)) for t in ("int8", "int32", "int64")}


@pytest.mark.parametrize(
    ("dtype", "bad"), [*(("int32", b) for b in BAD), *(("int64", b) for b in BAD_LONG), ("int8", -128)]
)
def test_an_index_out_of_range_is_refused(checked: dict[str, cora.Kernel], dtype: str, bad: int) -> None:
    kernel = checked[dtype]
    plan = cora.plan(kernel, lens=[3, 0, 5], picks=[2, 0, 2])
    out = np.full(4, np.nan, np.float32)
    with pytest.raises(
        UserError, match=r"compute 'O': the index .*idx\[batch, p\].* into dim 'pos' of 'A'.*1 of the"
    ):
        kernel.run(plan, *arrays(kernel, dtype, bad, (0, 1)), outputs={"O": out})
    assert np.isnan(out).all()
    # the plan serves the next call
    kernel.run(plan, *arrays(kernel, dtype, 1, (0, 1)), outputs={"O": out})
    assert out.tolist() == [1.0, 2.0, 8.0, 5.0]


def test_the_first_and_the_last_index_are_seen(checked: dict[str, cora.Kernel]) -> None:
    kernel = checked["int32"]
    for at, bad in (((0, 0), 3), ((2, 1), 5), ((2, 0), -1)):
        with pytest.raises(UserError, match="must be at least 0 and below lens"):
            kernel(*arrays(kernel, "int32", bad, at))


@pytest.mark.parametrize("padded", [False, True])
def test_unchecked_indices_read_nothing_outside(padded: bool) -> None:
    kernel = gather("int64", cora.Settings(cache=False, check_indices=False), padded)
    for bad in BAD_LONG:
        out = kernel(*arrays(kernel, "int64", bad, (2, 1)))
        assert out.to_list() == [[1.0, 3.0], [], [8.0, 0.0 if bad != 3 else 7.0]]


def test_padding_of_the_indices_is_not_checked() -> None:
    kernel = gather("int32", cora.Settings(cache=False), padded=True)
    inputs = arrays(kernel, "int32", 1, (0, 1))
    index = next(a for a in inputs if a.name == "idx")
    padding = np.ones(len(index.values), np.bool_)
    padding[[0, 1, 4, 5]] = False
    index.values[padding] = 10**9
    assert kernel(*inputs).to_list() == [[1.0, 2.0], [], [8.0, 5.0]]


def test_an_index_that_is_not_reached_is_not_checked() -> None:
    idx = cora.placeholder("idx", [batch, p], dtype="int32")
    flag = cora.placeholder("flag", [batch, p], dtype="bool")
    O = cora.compute("O", [batch, p], cora.where(flag[batch, p], A[batch, idx[batch, p]], -1.0))  # noqa: E741
    kernel = cora.build(O, settings=cora.Settings(cache=False))
    a = cora.ragged([[1.0, 2.0]], A)
    i = cora.ragged([[7, 1, -9]], idx)
    f = cora.ragged([[False, True, False]], flag)
    assert kernel(A=a, idx=i, flag=f).to_list() == [[-1.0, 2.0, -1.0]]
    with pytest.raises(UserError, match=r"the index .*idx\[batch, p\]"):
        kernel(A=a, idx=i, flag=cora.ragged([[True, True, False]], flag))


def test_an_index_into_an_empty_row_is_refused(checked: dict[str, cora.Kernel]) -> None:
    kernel = checked["int32"]
    a = cora.ragged([[], [1.0]], A)
    i = cora.ragged([[0], []], kernel.layout("idx"), {"picks": [1, 0]}, dtype="int32", name="idx")
    with pytest.raises(UserError, match="into dim 'pos'"):
        kernel(A=a, idx=i)


def test_an_index_of_an_index() -> None:
    N = cora.size("N")
    table = cora.placeholder("table", [cora.Dim("n", N)], dtype="int32")
    idx = cora.placeholder("idx", [batch, p], dtype="int32")
    O = cora.compute("O", [batch, p], A[batch, table[idx[batch, p]]])  # noqa: E741
    kernel = cora.build(O, settings=cora.Settings(cache=False))
    a = cora.ragged([[1.0, 2.0]], A)
    good = {"A": a, "idx": cora.ragged([[2, 0]], idx), "table": np.array([1, 5, 0], np.int32)}
    assert kernel(**good).to_list() == [[1.0, 2.0]]
    for bad in ({"idx": cora.ragged([[1, 0]], idx)}, {"idx": cora.ragged([[3, 0]], idx)}):
        with pytest.raises(UserError, match="the index"):
            kernel(**{**good, **bad})
