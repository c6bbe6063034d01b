"""Tiles by micro-kernels: ragged products of every shape, epilogues, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import cora
from cora.schedule.schedule import Schedule
from tests.guard_pages import guarded
from tests.reference import assert_matches

SETTINGS = cora.Settings(cache=False)

M = cora.size("M")
batch = cora.Dim("batch", M)
m, n, k = (cora.lengths(name, batch) for name in "mnk")
i = cora.Dim("i", m[batch])
j = cora.Dim("j", n[batch])
r = cora.Dim("r", k[batch])

A = cora.placeholder("A", [batch, i, r])
At = cora.placeholder("At", [batch, r, i])
B = cora.placeholder("B", [batch, r, j])
Bt = cora.placeholder("Bt", [batch, j, r])
bias = cora.placeholder("bias", [batch, j])
R = cora.placeholder("R", [batch, i, j])

SHAPES = (
    ([], [], []),
    ([0], [5], [3]),
    ([3, 0, 17, 6], [5, 4, 64, 1], [7, 3, 0, 33]),
    ([5, 6, 7, 12, 13], [63, 64, 65, 16, 17], [1, 2, 3, 4, 5]),
    ([1, 130], [1, 200], [1, 65]),
)


def product(a: cora.Tensor, *extra: object, name: str = "C") -> cora.Tensor:
    left = a[batch, i, r] if a is A else a[batch, r, i]
    total = cora.sum(left * B[batch, r, j], over=r)
    for term in extra:
        total = total + term  # type: ignore[operator]
    return cora.compute(name, [batch, i, j], total)


def tiled(c: cora.Tensor, tail: str, rows: int = 6, columns: int = 64) -> Schedule:
    return (
        cora.schedule(c)
        .split(c, j, columns, names=("jp", "jv"))
        .split(c, i, rows, names=("it", "ir"), tail=tail)  # type: ignore[arg-type]
        .reorder(c, "jp", "it", "ir", "jv", r)
        .tensorize(c, "ir")
        .parallel(c, batch)
    )


def check(s: Schedule, inputs: list[cora.Tensor]) -> cora.Kernel:
    """On all shapes; arrays end at an inaccessible page, outputs start as NaN."""
    kernel = cora.build(s, settings=SETTINGS)
    output = s.outputs[0]
    rng = np.random.default_rng(1)
    for ms, ns, ks in SHAPES:
        lengths, sizes = {"m": ms, "n": ns, "k": ks}, {"M": len(ms)}
        arrays = []
        for tensor in inputs:
            values = rng.standard_normal(cora.RaggedArray.empty(tensor, lengths, sizes).values.size)
            memory = guarded(values.astype(np.float32))
            arrays.append(cora.RaggedArray.from_values(memory, tensor, lengths, sizes))
        reference = cora.interpret(output, {a.name: a for a in arrays}, lengths=lengths, sizes=sizes)
        known = {name: values for name, values in lengths.items() if name in kernel.length_domains}
        plan = cora.plan(kernel, **known)
        empty = cora.RaggedArray.empty(output, lengths, sizes, fill=np.nan).values
        out = cora.RaggedArray.from_values(guarded(empty), output, lengths, sizes, writable=True)
        ordered = [next(a for a in arrays if a.name == name) for name in kernel.inputs]
        assert_matches(reference, kernel.run(plan, *ordered, outputs={output.name: out}))
    return kernel


@pytest.mark.parametrize("tail", ["guard", "mask", "peel", "balanced", "anchored", "shifted"])
def test_ragged_batched_product(tail: str) -> None:
    kernel = check(tiled(product(A), tail), [A, B])
    assert "# tile" in kernel.ir("lowered")


def test_transposed_left_operand() -> None:
    check(tiled(product(At), "guard"), [At, B])


def test_tile_larger_than_any_micro_kernel_is_cut() -> None:
    check(tiled(product(A), "guard", rows=13, columns=150), [A, B])


def test_bias_and_residual() -> None:
    c = product(A, bias[batch, j], R[batch, i, j])
    check(tiled(c, "guard"), [A, B, bias, R])


def test_row_of_a_matrix() -> None:
    x = cora.placeholder("x", [batch, r])
    c = cora.compute("y", [batch, j], cora.sum(x[batch, r] * B[batch, r, j], over=r))
    s = cora.schedule(c).split(c, j, 64).tensorize(c, "j_i")
    check(s, [x, B])


def test_epilogue_by_inlining_the_product() -> None:
    c = product(A, name="P")
    d = cora.compute("D", [batch, i, j], c[batch, i, j] + bias[batch, j])
    s = cora.schedule(d).inline(c)
    s = s.split(d, j, 64).split(d, i, 6).reorder(d, "j_o", "i_o", "i_i", "j_i", r).tensorize(d, "i_i")
    check(s, [A, B, bias])


@pytest.mark.parametrize("over", [r, i], ids=["reduction", "rows"])
def test_pieces(over: cora.Dim) -> None:
    c = product(A)
    s = cora.schedule(c).split_op(c, over, multiple=8)
    for piece in ("C_main", "C_tail"):
        s = s.split(piece, j, 64, names=("jp", "jv")).split(piece, i, 8, names=("it", "ir"))
        s = s.reorder(piece, "jp", "it", "ir", "jv", r).tensorize(piece, "ir").parallel(piece, batch)
    check(s, [A, B])


def test_stages_and_tiles() -> None:
    double = cora.compute("double", [batch, i, r], A[batch, i, r] * 2.0)
    c = cora.compute("C", [batch, i, j], cora.sum(double[batch, i, r] * B[batch, r, j], over=r))
    tiles = cora.schedule(c).split(c, i, 6).split(c, j, 64).reorder(c, "j_o", "i_o", "i_i", "j_i", r)
    check(tiles.compute_at(double, c, "i_o").tensorize(c, "i_i"), [A, B])
    inside = tiles.compute_at(double, c, "i_i")
    with pytest.raises(cora.ScheduleError, match="at loop 'i_i' of 'C': a micro-kernel cannot run it"):
        inside.tensorize(c, "i_i")
    with pytest.raises(cora.ScheduleError, match="at loop 'i_i' of 'C': a micro-kernel cannot run it"):
        tiles.tensorize(c, "i_i").compute_at(double, c, "i_i")


def refused(c: cora.Tensor, message: str) -> None:
    with pytest.raises(cora.ScheduleError, match=message):
        cora.build(tiled(c, "guard"), settings=SETTINGS)


def test_refusals_of_bodies() -> None:
    by_columns = cora.sum(A[batch, i, r] * Bt[batch, j, r], over=r)
    refused(cora.compute("C", [batch, i, j], by_columns), "apart, not adjacent")
    refused(
        cora.compute("C", [batch, i, j], cora.max(A[batch, i, r] * B[batch, r, j], over=r)),
        "got the term max",
    )
    refused(
        cora.compute("C", [batch, i, j], cora.sum(A[batch, i, r] + B[batch, r, j], over=r)),
        "expected a product",
    )
    squared = cora.sum(A[batch, i, r] * A[batch, i, r] * B[batch, r, j], over=r)
    refused(cora.compute("C", [batch, i, j], squared), "expected a product")
    total = cora.sum(A[batch, i, r] * B[batch, r, j], over=r)
    longest = cora.max(A[batch, i, r] * B[batch, r, j], over=r)
    refused(cora.compute("C", [batch, i, j], total + longest), "expected one sum")


def test_refusals_of_loops() -> None:
    c = product(A)
    s = cora.schedule(c)
    with pytest.raises(
        cora.ScheduleError, match="must have a row loop, a column loop and one reduction loop"
    ):
        s.tensorize(c, i).tensorize(c, batch)
    with pytest.raises(cora.ScheduleError, match="must have a row loop"):
        s.split(c, r, 8).tensorize(c, i)
    with pytest.raises(cora.ScheduleError, match="must have a row loop"):
        s.vectorize(c, r, lanes=8).tensorize(c, i)
    with pytest.raises(cora.ScheduleError, match="a micro-kernel runs loop 'jv'"):
        tiled(c, "guard").split(c, "jv", 16)
    with pytest.raises(cora.ScheduleError, match="no constant bound"):
        cora.build(s.tensorize(c, i), settings=SETTINGS)


def blocked(c: cora.Tensor, tail: str, at: str) -> Schedule:
    """Rows of at most 6, columns of at most 64, and the reduction in blocks of at most 5 outside loop `at`."""
    s = cora.schedule(c)
    s = s.split(c, j, 64, names=("jp", "jv")).split(c, i, 6, names=("it", "ir"), tail="balanced")
    s = s.split(c, r, 5, names=("rb", "rr"), tail=tail)  # type: ignore[arg-type]
    order = ["jp", "it"]
    order.insert(order.index(at), "rb")
    return s.reorder(c, *order, "ir", "jv", "rr").tensorize(c, "ir").parallel(c, batch)


@pytest.mark.parametrize("tail", ["guard", "balanced", "anchored"])
@pytest.mark.parametrize("at", ["jp", "it"])
def test_reduction_in_blocks(tail: str, at: str) -> None:
    kernel = check(blocked(product(A, bias[batch, j], R[batch, i, j]), tail, at), [A, B, bias, R])
    assert "adds unless rb == 0, residual if" in kernel.ir("lowered")


def test_full_tiles_behind_an_anchored_one_have_constant_bounds() -> None:
    kernel = cora.build(tiled(product(A), "anchored"), settings=SETTINGS)
    short, full = [line for line in kernel.ir("lowered").splitlines() if "# tile" in line]
    assert "rows=6," in full
    assert "rows=6," not in short


KEEP = cora.Settings(cache=False, guards="keep")


@pytest.mark.parametrize("tail", ["guard", "balanced", "anchored"])
def test_guards_that_are_kept_bound_the_tile_and_change_no_bit(tail: str) -> None:
    c = product(A, bias[batch, j], R[batch, i, j])
    for s in (tiled(c, tail), blocked(c, tail, "jp"), blocked(activated(), tail, "it")):
        proved, kept = (cora.build(s, settings=settings) for settings in (SETTINGS, KEEP))
        assert "# tile" in kept.ir("lowered")
        rng = np.random.default_rng(3)
        for ms, ns, ks in SHAPES:
            lengths = {"m": ms, "n": ns, "k": ks}
            arrays = {}
            for tensor in (A, B, bias, R):
                arrays[tensor.name] = cora.RaggedArray.empty(tensor, lengths, {"M": len(ms)})
                arrays[tensor.name].values[:] = rng.standard_normal(arrays[tensor.name].values.size)
            one, other = (kernel(*(arrays[n] for n in kernel.inputs)) for kernel in (proved, kept))
            np.testing.assert_array_equal(one.values, other.values)


def test_a_kept_guard_that_changes_inside_the_tile_is_refused() -> None:
    wide = cora.placeholder("wide", [batch, cora.Dim("at", n[batch] + 4)])
    taps, filters = cora.Dim("tap", 5), cora.Dim("filter", 7)
    w = cora.placeholder("w", [filters, taps])
    c = cora.compute("C", [batch, filters, j], cora.sum(w[filters, taps] * wide[batch, j + taps], over=taps))
    s = cora.schedule(c).split(c, j, 64, names=("jp", "jv")).reorder(c, "jp", "filter", "jv", taps)
    check(s.tensorize(c, "filter"), [w, wide])
    with pytest.raises(cora.ScheduleError, match="depends on another loop of the tile"):
        cora.build(s.tensorize(c, "filter"), settings=KEEP)


def activated() -> cora.Tensor:
    return cora.compute("C", [batch, i, j], cora.gelu(product_of(A) + bias[batch, j]) * 0.5 + R[batch, i, j])


def product_of(a: cora.Tensor) -> cora.Expr:
    return cora.sum(a[batch, i, r] * B[batch, r, j], over=r)


def test_what_no_micro_kernel_computes_is_done_behind_it() -> None:
    kernel = check(tiled(activated(), "balanced"), [A, B, bias, R])
    tile = kernel.ir("lowered").partition("# tile")[0].splitlines()[-1]
    assert "+ bias" in tile
    assert "+ R" not in tile
    check(blocked(activated(), "balanced", "it"), [A, B, bias, R])


def test_terms_that_are_not_plain() -> None:
    scaled = cora.compute("C", [batch, i, j], 0.25 * product_of(A) + 3.0 * R[batch, i, j])
    check(tiled(scaled, "guard"), [A, B, R])
    rows = cora.placeholder("rows", [batch, i])
    divided = cora.compute("C", [batch, i, j], product_of(A) / rows[batch, i])
    check(tiled(divided, "guard"), [A, B, rows])
    twice = cora.compute("C", [batch, i, j], product_of(A) + R[batch, i, j] + R[batch, i, j] * 2.0)
    check(tiled(twice, "guard"), [A, B, R])
    square = cora.compute("C", [batch, i, j], product_of(A) * product_of(A))
    check(tiled(square, "guard"), [A, B])


N = cora.size("N")
row = cora.Dim("row", N)
col = cora.Dim("col", cora.size("K"))
below = cora.Dim("below", row + 1)
above = cora.Dim("above", N - row)
L = cora.placeholder("L", [row, below])
U = cora.placeholder("U", [row, cora.Dim("any", N)])
X = cora.placeholder("X", [cora.Dim("from", N), col])


@pytest.mark.parametrize("size", [0, 1, 5, 6, 7, 13, 40])
@pytest.mark.parametrize("blocks", [0, 5])
@pytest.mark.parametrize("kind", ["lower", "upper"])
def test_triangle(kind: str, blocks: int, size: int) -> None:
    """The reduction grows, or shrinks, by one from row to row; nothing beyond the diagonal is read."""
    if kind == "lower":
        over, a, body = below, L, cora.sum(L[row, below] * X[below, col], over=below)
    else:  # from the far end, so that every row begins at the same column
        over, a = above, U
        body = cora.sum(U[row, N - 1 - above] * X[N - 1 - above, col], over=above)
    c = cora.compute("C", [row, col], body)
    s = (
        cora.schedule(c)
        .split(c, row, 6, names=("it", "ir"), tail="balanced")
        .split(c, col, 64, names=("p", "v"))
    )
    if blocks:
        s = s.split(c, over, blocks, names=("ko", "ki")).reorder(c, "ko", "it", "p", "ir", "v", "ki")
    else:
        s = s.reorder(c, "it", "p", "ir", "v", over)
    kernel = cora.build(s.tensorize(c, "ir"), settings=SETTINGS)
    assert "+ row, at most" in kernel.ir("lowered")
    rng = np.random.default_rng(2)
    sizes = {"N": size, "K": 70}
    arrays = {}
    for tensor in (a, X):
        array = cora.RaggedArray.empty(tensor, {}, sizes)
        array.values[:] = rng.standard_normal(array.values.size)
        arrays[tensor.name] = array
    if kind == "upper":
        arrays["U"].values[:] = np.where(
            np.tri(size, k=-1), np.nan, arrays["U"].values.reshape(size, size)
        ).ravel()
    reference = cora.interpret(c, arrays, sizes=sizes)
    out = cora.RaggedArray.empty(c, {}, sizes, fill=np.nan)
    plan = cora.plan(kernel, **sizes)
    assert_matches(reference, kernel.run(plan, *(arrays[n] for n in kernel.inputs), outputs={"C": out}))
