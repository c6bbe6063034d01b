"""Panels that the micro-kernel which uses them first writes: every shape and tail, triangles, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import cora
from tests.reference import assert_matches
from tests.schedule.test_tensorize import (
    KEEP,
    SETTINGS,
    A,
    At,
    B,
    L,
    N,
    R,
    U,
    X,
    above,
    activated,
    batch,
    below,
    bias,
    check,
    col,
    i,
    j,
    product,
    r,
    row,
)
from tests.tiles.given_kernels import any_tile


def panels(c: cora.Tensor, tail: str = "balanced", *, blocks: bool = False) -> cora.Schedule:
    """Copies of B by panels of 64 columns, used again by every tile of rows; if asked for, in blocks of 5 rows of B."""
    s = cora.schedule(c).split(c, j, 64, names=("jp", "jv")).split(c, i, 6, names=("it", "ir"), tail=tail)  # type: ignore[arg-type]
    if not blocks:
        s = s.reorder(c, "jp", "it", "ir", "jv", r).tensorize(c, "ir")
        return s.cache_read(c, B, "jp", "panel").fill_at_use("panel").parallel(c, batch)
    s = s.split(c, r, 5, names=("rb", "rr"), tail="balanced").reorder(c, "rb", "it", "jp", "ir", "jv", "rr")
    s = s.tensorize(c, "ir").cache_read(c, B, "rb", "panel")
    s = s.split_dim("panel", j, 64, names=("po", "pi")).reorder_dims("panel", batch, "po", r, "pi")
    return s.fill_at_use("panel").parallel(c, batch)


@pytest.mark.parametrize("tail", ["guard", "peel", "balanced", "anchored"])
def test_products_of_every_shape(tail: str) -> None:
    kernel = check(panels(product(A, bias[batch, j], R[batch, i, j]), tail), [A, B, bias, R])
    lowered = kernel.ir("lowered")
    assert "fills panel from B[" in lowered
    assert "if it == 0" in lowered
    assert "for r_panel" not in lowered


def test_blocks_of_the_reduction() -> None:
    check(panels(product(At, bias[batch, j]), blocks=True), [At, B, bias])
    check(panels(activated(), blocks=True), [A, B, bias, R])


@pytest.mark.parametrize("blocks", [False, True])
def test_the_same_bits_as_with_a_copy_and_with_every_guard(blocks: bool) -> None:
    filled = panels(product(A, bias[batch, j]), blocks=blocks)
    copied = cora.schedule(filled.outputs[0]).replay([s for s in filled.steps if "FillAtUse" not in repr(s)])
    rng = np.random.default_rng(4)
    lengths = {"m": [3, 0, 17, 64], "n": [5, 4, 64, 130], "k": [7, 3, 0, 33]}
    arrays = {}
    for tensor in (A, B, bias):
        arrays[tensor.name] = cora.RaggedArray.empty(tensor, lengths, {"M": 4})
        arrays[tensor.name].values[:] = rng.standard_normal(arrays[tensor.name].values.size)
    results = []
    for s, settings in ((filled, SETTINGS), (copied, SETTINGS), (filled, KEEP)):
        kernel = cora.build(s, settings=settings)
        results.append(kernel(*(arrays[name] for name in kernel.inputs)).values)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("kind", ["lower", "packed", "upper"])
@pytest.mark.parametrize("tail", ["anchored", "guard"])
def test_triangle(kind: str, tail: str) -> None:
    """The longest rows come first; what only some of them read is not part of the panel."""
    left = L if kind == "packed" else U
    if kind == "upper":
        over, body = above, cora.sum(U[row, N - 1 - above] * X[N - 1 - above, col], over=above)
    else:
        over, body = below, cora.sum(left[row, below] * X[below, col], over=below)
    c = cora.compute("C", [row, col], body)
    s = cora.schedule(c).split(c, row, 6, names=("it", "ir"), tail=tail)  # type: ignore[arg-type]
    s = s.split(c, col, 64, names=("p", "v")).split(c, over, 12, names=("ko", "ki"))
    s = s.reorder(c, "ko", "it", "p", "ir", "v", "ki").tensorize(c, "ir")
    if kind != "upper":
        s = s.remap(c, "it", "reversed")
    s = s.cache_read(c, X, "ko", "panel").fill_at_use("panel")
    kernels = [cora.build(s, settings=settings) for settings in (SETTINGS, KEEP)]
    rng = np.random.default_rng(2)
    for size in (0, 1, 5, 6, 7, 13, 40):
        sizes = {"N": size, "K": 70}
        arrays = {}
        for tensor in (left, X):
            arrays[tensor.name] = cora.RaggedArray.empty(tensor, {}, sizes)
            arrays[tensor.name].values[:] = rng.standard_normal(arrays[tensor.name].values.size)
        if left is U:
            inside = np.tri(size, dtype=bool) if kind == "lower" else ~np.tri(size, k=-1, dtype=bool)
            values = arrays["U"].values.reshape(size, size)
            arrays["U"].values[:] = np.where(inside, values, np.nan).ravel()
        reference = cora.interpret(c, arrays, sizes=sizes)
        for kernel in kernels:
            out = cora.RaggedArray.empty(c, {}, sizes, fill=np.nan)
            given = (arrays[name] for name in kernel.inputs)
            assert_matches(reference, kernel.run(cora.plan(kernel, **sizes), *given, outputs={"C": out}))


def refused(message: str, s: cora.Schedule) -> None:
    with pytest.raises(cora.ScheduleError, match=message):
        cora.build(s, settings=SETTINGS)


def test_a_triangle_in_its_own_order_is_refused() -> None:
    c = cora.compute("C", [row, col], cora.sum(U[row, below] * X[below, col], over=below))
    s = (
        cora.schedule(c)
        .split(c, row, 6)
        .split(c, col, 64)
        .reorder(c, "col_o", "row_o", "row_i", "col_i", below)
    )
    s = s.tensorize(c, "row_i").cache_read(c, X, "col_o", "panel").fill_at_use("panel")
    refused("later uses may be deeper than the first", s)
    cora.build(s.remap(c, "row_o", "reversed"), settings=SETTINGS)


def test_refusals_at_the_step() -> None:
    c = product(A)
    s = cora.schedule(c).split(c, j, 64).split(c, i, 6).reorder(c, "j_o", "i_o", "i_i", "j_i", r)
    copied = s.cache_read(c, B, "j_o", "panel")
    for message, make in (
        ("expected a copy that cache_read has made", lambda: s.fill_at_use(c)),
        ("no operator 'panel'", lambda: s.fill_at_use("panel")),
        ("its loops are scheduled", lambda: copied.vectorize("panel", j, 16).fill_at_use("panel")),
        (
            "is filled where it is used; it has no loops",
            lambda: copied.fill_at_use("panel").split("panel", j, 4),
        ),
        (
            "is filled where it is used",
            lambda: copied.fill_at_use("panel").fill_at_use("panel").unroll("panel", r),
        ),
    ):
        with pytest.raises(cora.ScheduleError, match=message):
            make()
    double = cora.compute("double", [batch, r, j], B[batch, r, j] * 2.0)
    d = cora.compute("C", [batch, i, j], cora.sum(A[batch, i, r] * double[batch, r, j], over=r))
    t = cora.schedule(d).split(d, j, 64).compute_at(double, d, "j_o").set_scope(double, "scratch")
    with pytest.raises(cora.ScheduleError, match="expected a copy that cache_read has made"):
        t.fill_at_use(double)


def test_refusals_of_loops() -> None:
    c = product(A)
    s = cora.schedule(c).split(c, j, 64).split(c, i, 6).reorder(c, "j_o", "i_o", "i_i", "j_i", r)
    filled = s.cache_read(c, B, "j_o", "panel").fill_at_use("panel")
    refused("a generated micro-kernel must read it; tensorize 'C'", filled)
    refused("a generated micro-kernel must read it", filled.tensorize(c, "i_i", any_tile()))
    once = s.cache_read(c, B, "i_o", "panel").fill_at_use("panel").tensorize(c, "i_i")
    refused("every part of it is used once", once)
    left = s.reorder(c, "i_o", "j_o").cache_read(c, A, "i_o", "panel").fill_at_use("panel")
    refused("it must be what the micro-kernel reads in vectors", left.tensorize(c, "i_i"))
    parts = cora.schedule(c).split(c, j, 64).split(c, i, parts=3).split(c, "i_i", 6, names=("it", "ir"))
    parts = parts.reorder(c, "j_o", "i_o", "it", "ir", "j_i", r).tensorize(c, "ir")
    refused("its first use may have no rows", parts.cache_read(c, B, "j_o", "panel").fill_at_use("panel"))
    Bt = cora.placeholder("Bt", [batch, j, r])
    turned = cora.compute("C", [batch, i, j], cora.sum(A[batch, i, r] * Bt[batch, j, r], over=r))
    t = cora.schedule(turned).split(turned, j, 64).split(turned, i, 6)
    t = t.reorder(turned, "j_o", "i_o", "i_i", "j_i", r).tensorize(turned, "i_i")
    t = t.cache_read(turned, Bt, "j_o", "panel").reorder_dims("panel", batch, r, j)
    cora.build(t, settings=SETTINGS)
    refused("the columns of what 'panel' is copied from are", t.fill_at_use("panel"))


def test_parallel_tiles_cannot_fill() -> None:
    """A loop that uses the panel again must run in order."""
    c = product(A)
    s = cora.schedule(c).split(c, j, 64).split(c, i, 6).reorder(c, "j_o", "i_o", "i_i", "j_i", r)
    s = s.tensorize(c, "i_i").cache_read(c, B, "j_o", "panel").fill_at_use("panel")
    with pytest.raises(cora.ScheduleError):
        cora.build(s.parallel(c, "i_o"), settings=SETTINGS)
