"""Sizes, dims, lengths, placeholders, computed tensors: what they are, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from cora.errors import UnsupportedError, UserError
from cora.ir.expr import Access, Call, Cast, Const, Dim, Reduce, Size
from cora.ir.tensor import Tensor
from cora.lang import ops
from cora.lang.check import program, reductions_of, tensors_of
from cora.lang.define import compute, lengths, placeholder, size

M = size("M")
batch = Dim("batch", M)
lens = lengths("lens", batch)
pos = Dim("pos", lens[batch])
A = placeholder("A", [batch, pos])
idx = placeholder("idx", [batch, pos], dtype="int32")
flag = placeholder("flag", [batch], dtype="bool")

# --- what is defined -----------------------------------------------------------------------------


def test_the_first_program() -> None:
    O = compute("O", [batch, pos], 2 * A[batch, pos])  # noqa: E741
    assert Tensor("A", (batch, pos), "float32") == A
    assert O.dims == (batch, pos)
    assert O.dtype == "float32"
    assert O.ndim == 2
    assert str(O.body) == "2.0 * A[batch, pos]"
    assert program([O]) == (A, O)


def test_dims_are_known_by_name_and_extent() -> None:
    assert Dim("batch", size("M")) == batch
    assert Dim("batch", 4) == Dim("batch", Const(4))
    assert isinstance(pos.extent, Call)
    assert pos.extent.args == (batch,)


@pytest.mark.parametrize(
    "extent",
    [
        0,
        7,
        M,
        pos + 1,
        ops.minimum(pos + 1, 4),
        lens[batch] - pos,
        lens[batch] // 2,
        lens[pos],
        ops.where(pos < 3, pos, 0),
    ],
)
def test_extents_may_be_integer_expressions_of_outer_dims(extent: object) -> None:
    inner = Dim("inner", extent)  # type: ignore[arg-type]
    assert placeholder("T", [batch, pos, inner]).dims == (batch, pos, inner)


def test_lengths_over_several_dims_have_a_ragged_domain() -> None:
    table = lengths("table", batch, pos)
    names = [d.name for d in table.fun.domain]
    assert names == ["%0", "%1"]
    assert table.fun.domain[1].extent == lens.fun(table.fun.domain[0])
    assert table[batch, pos + 1].args == (batch, pos + 1)


def test_indices_are_any_integer_expressions() -> None:
    element = A[batch + 1, idx[batch, pos]]
    assert element.indices == (batch + 1, Cast("int64", idx[batch, pos]))
    assert lens[idx[batch, pos]].args == (Cast("int64", idx[batch, pos]),)


def test_a_scalar_output() -> None:
    total = compute("total", [], ops.sum(A[batch, pos], over=(batch, pos)))
    assert total.ndim == 0


def test_the_stored_type_is_the_type_of_the_body_unless_given() -> None:
    assert compute("O", [batch], lens[batch]).dtype == "int64"
    assert compute("O", [batch], flag[batch]).dtype == "bool"
    assert compute("O", [batch], 1.5).dtype == "float32"
    assert compute("O", [batch, pos], A[batch, pos], dtype="bfloat16").dtype == "bfloat16"


def test_definitions_are_values() -> None:
    O = compute("O", [batch, pos], A[batch, pos] + 1)  # noqa: E741
    twin = compute("O", [batch, pos], A[batch, pos] + 1)
    assert twin == O
    assert len({O, twin}) == 1
    assert pickle.loads(pickle.dumps(O)) == O
    assert compute("O", [batch, pos], A[batch, pos] + 2) != O


# --- what is found in definitions ----------------------------------------------------------------


def test_a_program_lists_tensors_before_their_readers_in_order_of_first_use() -> None:
    B = placeholder("B", [batch, pos])
    S = compute("S", [batch], ops.sum(B[batch, pos], over=pos))
    O = compute("O", [batch, pos], B[batch, pos] / S[batch] + A[batch, pos])  # noqa: E741
    assert program([O]) == (B, S, A, O)
    assert program([S, O]) == (B, S, A, O)
    assert program([O, O]) == (B, S, A, O)


def test_tensors_and_reductions_of_a_body() -> None:
    total = ops.sum(A[batch, pos], over=pos)
    largest = ops.max(A[batch, pos], over=pos)
    body = total / largest + total + idx[batch, 0]
    assert reductions_of(body) == (total, largest)
    assert tensors_of(body) == (A, idx)
    assert tensors_of(A[batch, idx[batch, pos]]) == (A, idx)


# --- refusals ------------------------------------------------------------------------------------

wide = Dim("wide", M)
inner = Dim("inner", pos + 1)


def _sum(body: Access, *over: Dim) -> Reduce:
    result = ops.sum(body, over=over)
    assert isinstance(result, Reduce)
    return result


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        # names
        (lambda: size(""), "size: the name must be an identifier in ASCII; got ''"),
        (lambda: size("two words"), "size: the name must be an identifier"),
        (lambda: Dim("1st", 3), "Dim: the name must be an identifier in ASCII; got '1st'"),
        (lambda: Dim("größe", 3), "must be an identifier in ASCII"),
        (lambda: Dim(3, 3), "Dim: the name must be an identifier in ASCII; got 3"),
        (lambda: lengths("a.b", batch), "lengths: the name must be an identifier"),
        (lambda: placeholder("A-1", [batch]), "placeholder: the name must be an identifier"),
        (lambda: compute("", [batch], 1), "compute: the name must be an identifier"),
        # extents
        (lambda: Dim("d", 2.5), "Dim 'd': the extent must be an integer; got 2.5 of type float32"),
        (lambda: Dim("d", True), "Dim 'd': the extent must be an integer; got True of type bool"),
        (lambda: Dim("d", M / 2), "Dim 'd': the extent must be an integer; got .* of type float32"),
        (lambda: Dim("d", -1), "Dim 'd': the extent must not be negative; got -1"),
        (lambda: Dim("d", Const(2) - 3), "Dim 'd': the extent must not be negative; got -1"),
        (lambda: Dim("d", "M"), "expected a number or a cora expression; got str"),
        (lambda: Dim("d", None), "expected a number or a cora expression; got NoneType"),
        (lambda: Dim("d", idx[batch, 0]), r"Dim 'd': the extent .*idx\[batch, 0\], which reads a tensor"),
        (lambda: Dim("d", lens[batch] + idx[batch, 0]), "Dim 'd': .* reads a tensor or reduces"),
        (lambda: Dim("d", ops.sum(lens[batch], over=batch)), "Dim 'd': .* reads a tensor or reduces"),
        # lengths
        (lambda: lengths("n"), "lengths 'n': expected at least one dim"),
        (lambda: lengths("n", "batch"), r"lengths 'n': dims\[0\] must be a cora.Dim; got str"),
        (lambda: lengths("n", pos, batch), "dim 'batch' must stand before it; got .pos, batch."),
        (lambda: lens[batch, pos], r"lens\[...\]: expected 1 indices \[batch\]; got 2"),
        (lambda: lens[1.5], r"lens\[...\]: index 0 must be an integer; got 1.5 of type float32"),
        (lambda: lens[flag[batch]], r"lens\[...\]: index 0 must be an integer; got .* of type bool"),
        # dims of tensors
        (lambda: placeholder("T", [pos]), r"the extent of dim 'pos' is lens\[batch\], so dim 'batch'"),
        (lambda: placeholder("T", [pos]), r"dim 'batch' must stand before it; got \[pos\]"),
        (lambda: placeholder("T", [pos, batch]), "dim 'batch' must stand before it"),
        (lambda: placeholder("T", [batch, inner]), "dim 'pos' must stand before it"),
        (lambda: placeholder("T", [batch, batch]), "placeholder 'T': the dim name 'batch' stands twice"),
        (lambda: placeholder("T", [batch, Dim("batch", 3)]), "the dim name 'batch' stands twice"),
        (lambda: placeholder("T", [Dim("batch", 3), pos]), "dim 'batch' must stand before it"),
        (lambda: placeholder("T", [3]), r"placeholder 'T': dims\[0\] must be a cora.Dim; got int: 3"),
        (lambda: placeholder("T", [M]), r"dims\[0\] must be a cora.Dim; got Size: M"),
        (lambda: placeholder("T", batch), "batch is a scalar expression and cannot be iterated over"),
        (lambda: compute("T", [pos], 1), "compute 'T': .* dim 'batch' must stand before it"),
        # types
        (lambda: placeholder("T", [batch], "uint8"), "placeholder 'T': dtype must .*; got 'uint8'"),
        (lambda: placeholder("T", [batch], float), "dtype must be one of .*; got <class 'float'>"),
        (lambda: compute("T", [batch], 1, dtype="complex64"), "compute 'T': dtype must be one of"),
        # accesses
        (lambda: A[batch], r"A\[...\]: expected 2 indices \[batch, pos\]; got 1"),
        (lambda: A[batch, pos, 0], r"A\[...\]: expected 2 indices \[batch, pos\]; got 3"),
        (lambda: A[batch, 0.5], r"A\[...\]: the index of dim 'pos' must be an integer; got 0.5 of type"),
        (lambda: A[batch, pos < 1], "the index of dim 'pos' must be an integer; got pos < 1 of type bool"),
        (lambda: A[batch, :], "expected a number or a cora expression; got slice"),
        (lambda: list(A), "tensor A cannot be iterated over; index it with dims"),
        # bodies
        (lambda: compute("O", [batch], A), "expected a number or a cora expression; got Tensor"),
        (lambda: compute("O", [batch], A[batch, pos]), r"compute 'O': the body uses dim\(s\) pos, which"),
        (lambda: compute("O", [batch], A[batch, pos]), r"neither dims of 'O' \[batch\] nor reduced over"),
        (lambda: compute("O", [], A[batch, pos]), r"the body uses dim\(s\) batch, pos"),
        (lambda: compute("O", [batch], _sum(A[batch, pos], wide)), r"the body uses dim\(s\) pos"),
        (lambda: compute("O", [], _sum(A[0, pos], pos)), r"the body uses dim\(s\) batch"),
        (lambda: compute("O", [batch, pos], _sum(A[batch, pos], pos)), "the dim name 'pos' stands twice"),
        (lambda: compute("O", [batch], _sum(A[batch, pos], pos, pos)), "the dim name 'pos' stands twice"),
        (lambda: compute("O", [], _sum(A[0, 0], inner)), r"the body uses dim\(s\) pos"),
        (lambda: compute("O", [batch], _sum(A[batch, 0], Dim("batch", 3))), "'batch' stands twice"),
        (lambda: compute("O", [batch], Dim("batch", 3)), "the body uses dim.s. batch, which are neither"),
    ],
)  # fmt: skip
def test_refusals(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        wrong()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda: ops.sum(ops.sum(A[batch, pos], over=pos) + wide, over=wide), "inside a reduction"),
        (lambda: ops.sum(A[batch, pos], over=pos) + ops.sum(wide, over=wide), "over different dims"),
        (lambda: ops.max(A[batch, pos], over=pos) - ops.mean(A[wide, 0], over=wide), "different dims"),
    ],
)  # fmt: skip
def test_reductions_that_are_for_later(body: Callable[[], object], message: str) -> None:
    with pytest.raises(UnsupportedError, match=f"compute 'O': .*{message}"):
        compute("O", [batch], body())  # type: ignore[arg-type]


def test_two_dims_of_one_name_in_one_operator() -> None:
    other = Dim("pos", 4)
    body = ops.sum(A[batch, pos], over=pos) + ops.sum(A[batch, other], over=other)
    with pytest.raises((UserError, UnsupportedError)):
        compute("O", [batch], body)


def test_two_tensors_of_one_name() -> None:
    other = placeholder("A", [batch])
    O = compute("O", [batch, pos], A[batch, pos] + other[batch])  # noqa: E741
    with pytest.raises(UserError, match="two different tensors are named 'A'"):
        program([O])
    with pytest.raises(UserError, match="two different tensors are named 'O'"):
        program([compute("O", [batch], 1), compute("O", [batch], 2)])
    same = compute("O", [batch, pos], A[batch, pos] + placeholder("A", [batch, pos])[batch, 0])
    assert program([same]) == (A, same)


def test_a_size_is_not_a_dim_of_the_same_name() -> None:
    assert Dim("M", 3) != Size("M")
