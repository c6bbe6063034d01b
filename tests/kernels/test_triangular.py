"""Triangles and bands against NumPy in float64; what is not stored or not to be read holds NaN."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import cora
from cora.kernels.triangular import BANDED, ELEMENTWISE, TRADD, TRMM, TRMUL, Triangle, suited
from tests.kernels.arrays import assert_product
from tests.openblas import needs_openblas, variants

TRIANGLES = [
    Triangle(*parts)
    for parts in product(
        ("left", "right"), ("lower", "upper"), (False, True), (False, True), ("dense", "packed")
    )
]
#: n and the other extent: nothing, one, and around tiles of 6 rows and panels of 64 columns.
SHAPES = [(0, 3), (3, 0), (1, 1), (5, 64), (6, 63), (7, 65), (13, 1), (70, 130)]
Matrix = np.ndarray


@cache
def trmm_kernel(variant: str, triangle: Triangle, alpha: bool = False) -> cora.Kernel:
    return TRMM.build(
        variant=variant,
        definition={
            "side": triangle.side,
            "uplo": triangle.uplo,
            "transposed": triangle.transposed,
            "unit": triangle.unit,
            "storage": triangle.storage,
            "alpha": alpha,
        },
        schedule={"triangle": triangle},
    )


def check_trmm(
    kernel: cora.Kernel, triangle: Triangle, n: int, width: int, alpha: float | None = None, threads: int = 2
) -> None:
    rng = np.random.default_rng(n)
    full = rng.standard_normal((n, n)).astype(np.float32)
    inside = np.tri(n, dtype=bool) if triangle.uplo == "lower" else np.tri(n, dtype=bool).T
    T = np.where(inside, full, 0).astype(np.float64)
    stored = np.where(inside, full, np.float32(np.nan))
    if triangle.unit:
        np.fill_diagonal(T, 1)
        np.fill_diagonal(stored, np.nan)
    op = T.T if triangle.transposed else T
    B = rng.standard_normal((n, width) if triangle.side == "left" else (width, n)).astype(np.float32)
    out = np.full(B.shape, np.nan, np.float32)
    inputs: dict[str, Any] = {"T": stored if triangle.storage == "dense" else stored[inside], "B": B}
    if alpha is not None:
        inputs["alpha"] = np.array(alpha, np.float32)
    plan = cora.plan(kernel, n=n, width=width, threads=threads)
    kernel.run(plan, *(inputs[name] for name in kernel.inputs), outputs={"C": out})
    left, right = (op, B.astype(np.float64)) if triangle.side == "left" else (B.astype(np.float64), op)
    scale = 1.0 if alpha is None else alpha
    assert_product(out, scale * (left @ right), abs(scale) * (np.abs(left) @ np.abs(right)), n)


@pytest.mark.parametrize("triangle", TRIANGLES, ids=str)
def test_trmm(triangle: Triangle) -> None:
    kernel = trmm_kernel(next(iter(TRMM.variants["llvm"])), triangle)
    for n, width in SHAPES:
        check_trmm(kernel, triangle, n, width)


@pytest.mark.parametrize("variant", variants(TRMM))
def test_variants_of_trmm(variant: str) -> None:
    for triangle in (Triangle(), Triangle(storage="packed")):
        kernel = trmm_kernel(variant, triangle)
        for n, width in SHAPES:
            check_trmm(kernel, triangle, n, width)
        check_trmm(kernel, triangle, 257, 96, threads=5)


RIGHT = [triangle for triangle in TRIANGLES if triangle.side == "right"]
#: Around tiles of 6 columns, their blocks of 192, blocks of 240 of a sum, panels of 64 rows and copies of 16 lanes.
RIGHT_SHAPES = [(0, 0), (2, 1), (7, 15), (15, 17), (191, 63), (192, 64), (193, 65), (239, 2), (241, 7)]


@pytest.mark.parametrize("alpha", [None, -1.5])
@pytest.mark.parametrize("triangle", RIGHT, ids=str)
def test_triangles_from_the_right(triangle: Triangle, alpha: float | None) -> None:
    """Micro-kernels, whatever the triangle and what is made of its sums; no condition is left around their calls."""
    kernel = trmm_kernel("tiled", triangle, alpha is not None)
    tile, around = hot_tile(kernel.ir("lowered"))
    assert "@ panels[" in tile
    assert ("turned[" in tile) == (not triangle.transposed)
    assert all(line.startswith("for ") for line in around), around
    for n, width in RIGHT_SHAPES:
        check_trmm(kernel, triangle, n, width, alpha)


@pytest.mark.parametrize("uplo", ["lower", "upper"])
def test_a_triangle_from_the_right_where_it_is(uplo: str) -> None:
    triangle = Triangle("right", uplo)
    kernel = trmm_kernel("uncopied", triangle)
    tile, around = hot_tile(kernel.ir("lowered"))
    assert "= T[" in tile
    assert all(line.startswith("for ") for line in around), around
    for n, width in RIGHT_SHAPES:
        check_trmm(kernel, triangle, n, width)


@pytest.mark.parametrize("variant", ["tiled_wide", "tiled_fine", "tiled_unbalanced"])
def test_blocks_from_the_right(variant: str) -> None:
    for triangle in (Triangle("right"), Triangle("right", "upper", storage="packed")):
        kernel = trmm_kernel(variant, triangle)
        for n, width in [*SHAPES, (33, 127), (33, 129), (20, 511), (20, 513)]:
            check_trmm(kernel, triangle, n, width, threads=3)


def test_what_is_beyond_the_sums_may_be_infinite() -> None:
    """The elements of B that a column does not add up are not multiplied by zeros either."""
    kernel = trmm_kernel("tiled", Triangle("right"))
    n, width = 70, 5
    T, B = np.ones((n, n), np.float32), np.ones((width, n), np.float32)
    B[:, : n // 2] = [[np.nan], [np.inf], [-np.inf], [np.nan], [1]]
    out = np.full((width, n), np.nan, np.float32)
    inputs = {"T": T, "B": B}
    plan = cora.plan(kernel, n=n, width=width)
    kernel.run(plan, *(inputs[name] for name in kernel.inputs), outputs={"C": out})
    sums = np.arange(n - n // 2, 0, -1, dtype=np.float32)
    assert np.array_equal(out[:, n // 2 :], np.tile(sums, (width, 1)))


def hot_tile(text: str) -> tuple[str, list[str]]:
    """The line of the call of a micro-kernel, and the lines of the loops around it, innermost first."""
    lines = text.splitlines()
    (at,) = (place for place, line in enumerate(lines) if "# tile" in line)
    around, depth = [], len(lines[at]) - len(lines[at].lstrip())
    for line in reversed(lines[:at]):
        indent = len(line) - len(line.lstrip())
        if indent < depth:
            around.append(line.strip())
            depth = indent
    return lines[at], around


@needs_openblas
@pytest.mark.parametrize("triangle", TRIANGLES, ids=str)
def test_triangles_offloaded(triangle: Triangle) -> None:
    """What BLAS cannot take runs in our own tiles."""
    kernel = trmm_kernel("openblas", triangle)
    takes = triangle.side == "left" and triangle.storage == "dense" and triangle.grows
    assert (", by openblas" in kernel.ir("lowered")) == takes
    for n, width in [*SHAPES, (257, 96)]:
        check_trmm(kernel, triangle, n, width)


def test_the_suited_variant() -> None:
    def names(panel: int, sizes: tuple[int, ...], workers: int = 1) -> list[str]:
        return [suited(n, n, workers, panel=panel) for n in sizes]

    assert names(64, (128, 256, 512)) == ["uncopied", "uncopied", "uncopied"]
    assert names(16, (128, 256, 512)) == ["uncopied", "uncopied", "tiled_wide"]
    for panel in (16, 64):
        assert names(panel, (777, 8192)) == ["tiled_wide", "tiled_wide"]
        assert names(panel, (777, 1024, 8192), workers=2) == ["tiled", "tiled", "tiled"]
        assert suited(1000, 300, workers=8, panel=panel) == "tiled_fine"
    assert suited(512, 512) in ("uncopied", "tiled_wide")
    assert [suited(n, n, side="right") for n in (128, 8192)] == ["tiled_wide", "tiled_wide"]
    assert suited(128, 128, workers=2, side="right") == "tiled_fine"


def test_what_is_copied() -> None:
    tiled, uncopied = (trmm_kernel(v, Triangle()).ir("lowered") for v in ("tiled", "uncopied"))
    assert "@ panels[" in tiled
    assert "fills panels from B[" in tiled  # by the micro-kernel that uses a panel first
    assert "for pl" not in tiled
    assert "@ B[" in uncopied
    assert "at most" in tiled  # the depth of a tile grows from row to row


def test_alpha() -> None:
    for triangle in (Triangle(), Triangle("right", "upper", unit=True)):
        check_trmm(trmm_kernel("tiled", triangle, alpha=True), triangle, 30, 70, alpha=-1.5)


@pytest.mark.parametrize("n", [0, 1, 2, 16, 63, 200])
def test_sums_and_products(n: int) -> None:
    rng = np.random.default_rng(n)
    size = n * (n + 1) // 2
    X, Y = (rng.standard_normal(size).astype(np.float32) for _ in range(2))
    for kernel, expected in ((elementwise("add"), X + Y), (elementwise("multiply"), X * Y)):
        out = np.full(size, np.nan, np.float32)
        kernel.run(cora.plan(kernel, n=n, threads=3), X, Y, outputs={"C": out})
        assert np.array_equal(out, expected)


def test_all_elementwise_operations() -> None:
    X, Y = np.float32([1, -2, 3, 4, 5, np.nan]), np.float32([2, 2, -7, 4, np.nan, 1])
    numpy = {
        "add": np.add,
        "subtract": np.subtract,
        "multiply": np.multiply,
        "maximum": np.maximum,
        "minimum": np.minimum,
    }
    for operation, function in numpy.items():
        result = elementwise(operation)(X, Y, n=3).packed()
        assert np.array_equal(result, function(X, Y), equal_nan=True), operation


@cache
def elementwise(operation: str) -> cora.Kernel:
    return ELEMENTWISE.build(definition={"operation": operation})


def test_tradd_and_trmul_are_two_of_them() -> None:
    assert str(TRADD.define().body) == str(ELEMENTWISE.define("add").body)
    assert str(TRMUL.define().body) == str(ELEMENTWISE.define("multiply").body)


@pytest.mark.parametrize("variant", BANDED.variants["llvm"])
def test_banded(variant: str) -> None:
    kernel = BANDED.build(variant=variant)
    for n, width, below, above in (
        (0, 4, 1, 1),
        (1, 3, 0, 0),
        (9, 65, 2, 1),
        (30, 70, 0, 3),
        (30, 7, 29, 0),
        (12, 64, 40, 40),
    ):
        rng = np.random.default_rng(n)
        inside = np.tri(n, n, above, dtype=bool) & ~np.tri(n, n, -below - 1, dtype=bool)
        T = np.where(inside, rng.standard_normal((n, n)), 0).astype(np.float32)
        B = rng.standard_normal((n, width)).astype(np.float32)
        out = np.full((n, width), np.nan, np.float32)
        plan = cora.plan(kernel, n=n, width=width, below=below, above=above, threads=2)
        inputs = {"band": T[inside], "B": B}
        kernel.run(plan, *(inputs[name] for name in kernel.inputs), outputs={"C": out})
        T64, B64 = T.astype(np.float64), B.astype(np.float64)
        assert_product(out, T64 @ B64, np.abs(T64) @ np.abs(B64), below + above + 1)


def test_what_is_refused() -> None:
    with pytest.raises(cora.UserError, match="side: expected one of left, right; got 'top'"):
        TRMM.define("top")
    with pytest.raises(cora.UserError, match="uplo: expected one of lower, upper; got 'both'"):
        TRMM.define("left", "both")
    with pytest.raises(cora.UserError, match="storage: expected one of dense, packed; got 'sparse'"):
        TRMM.define(storage="sparse")
    with pytest.raises(cora.UserError, match="operation: expected one of add"):
        ELEMENTWISE.define("divide")
