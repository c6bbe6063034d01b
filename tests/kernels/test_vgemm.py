"""Batches of products: every variant, storage and epilogue against NumPy in float64."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import erf
from typing import Any

import numpy as np
import pytest

import cora
from cora.kernels.gemm import VGEMM, Blocking, Storage, suited
from tests.kernels.arrays import assert_product, stored, unset
from tests.openblas import needs_openblas, variants

#: m, n, k of each entry: hostile to tiles of 6 rows and panels of 64 columns.
BATCHES = {
    "none": [],
    "empty": [(0, 0, 0), (0, 3, 5), (4, 0, 2)],
    "no_depth": [(3, 5, 0), (7, 65, 0)],
    "one": [(1, 1, 1)],
    "around_tiles": [(5, 63, 7), (6, 64, 8), (7, 65, 9), (12, 128, 1), (13, 129, 3)],
    "giant_among_tiny": [(1, 2, 3), (200, 300, 70), (2, 1, 1), (0, 9, 9)],
    "equal": [(24, 80, 16)] * 3,
    "blocks": [(193, 257, 5), (385, 513, 3), (1, 1000, 2)],
}
PACKED = Storage()
STORAGES = [
    Storage(a, b, c, padded) for a, b, c in product(("row", "column"), repeat=3) for padded in (False, True)
]
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(erf, otypes=[float])(x / np.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@cache
def kernel_of(variant: str, storage: Storage = PACKED, **definition: Any) -> cora.Kernel:
    return VGEMM.build(variant=variant, definition=definition, schedule={"storage": storage})


def check(
    kernel: cora.Kernel,
    shapes: list[tuple[int, int, int]],
    *,
    alpha: float | None = None,
    beta: float | None = None,
    bias: bool = False,
    activation: str = "none",
    threads: int = 2,
) -> None:
    """Run on random matrices of these shapes into an output full of NaN, and compare with NumPy."""
    rng = np.random.default_rng(len(shapes))
    lengths = {name: [s[axis] for s in shapes] for axis, name in enumerate(("m", "n", "k"))}
    sizes = {"batch_size": len(shapes)}
    A = [rng.standard_normal((m, k)).astype(np.float32) for m, n, k in shapes]
    B = [rng.standard_normal((k, n)).astype(np.float32) for m, n, k in shapes]
    C0 = [rng.standard_normal((m, n)).astype(np.float32) for m, n, k in shapes]
    rows = [rng.standard_normal(n).astype(np.float32) for m, n, k in shapes]
    inputs: dict[str, Any] = {"A": stored(kernel, "A", A, lengths), "B": stored(kernel, "B", B, lengths)}
    if alpha is not None:
        inputs["alpha"] = np.array(alpha, np.float32)
    if beta is not None:
        inputs["beta"] = np.array(beta, np.float32)
        inputs["C0"] = stored(kernel, "C0", C0, lengths)
    if bias:
        inputs["bias"] = stored(kernel, "bias", rows, lengths)
    out = unset(kernel, "C", lengths, sizes)
    plan = cora.plan(kernel, threads=threads, **lengths)
    kernel.run(plan, *(inputs[name] for name in kernel.inputs), outputs={"C": out})
    results = out.packed()
    at = 0
    for a, b, c0, row, (m, n, k) in zip(A, B, C0, rows, shapes, strict=True):
        a64, b64 = a.astype(np.float64), b.astype(np.float64)
        scale = 1.0 if alpha is None else np.float32(alpha)
        value = scale * (a64 @ b64)
        magnitude = abs(scale) * (np.abs(a64) @ np.abs(b64))
        if beta is not None:
            value, magnitude = value + np.float32(beta) * c0, magnitude + abs(beta) * np.abs(c0)
        if bias:
            value, magnitude = value + row, magnitude + np.abs(row)
        # the activations' slopes are below 1.2
        expected = ACTIVATIONS[activation](value)
        result = results[at : at + m * n].reshape(m, n)
        assert_product(result, expected, 1.2 * magnitude + np.abs(expected), k)
        at += m * n
    assert at == len(results)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("variant", variants(VGEMM))
def test_variants(variant: str, batch: str) -> None:
    check(kernel_of(variant), BATCHES[batch])


@pytest.mark.parametrize(("rows", "columns"), [(6, 64), (6, 16), (8, 12)])
def test_blocks_for_other_processors(rows: int, columns: int) -> None:
    """The schedules of processors with other vectors are right on this one, whose micro-kernels cut the tiles."""
    blocking = Blocking(rows, columns, 96, 10 * columns, 10 * rows)
    for variant in ("tiled", "uncopied"):
        kernel = VGEMM.build(variant=variant, schedule={"blocking": blocking})
        for batch in BATCHES.values():
            check(kernel, batch)


@needs_openblas
@pytest.mark.parametrize("variant", ["unsplit_unbalanced", "split_unbalanced", "split_balanced"])
def test_tiles_of_the_papers_variants_by_openblas(variant: str) -> None:
    kernel = VGEMM.build(variant=variant, schedule={"kernel": "openblas"}, definition={"bias": True})
    assert ", by openblas" in kernel.ir("lowered")
    for batch in BATCHES.values():
        check(kernel, batch, bias=True)


@needs_openblas
@pytest.mark.parametrize("storage", [STORAGES[n] for n in (1, 2, 4, 6, 8)], ids=str)
def test_storage_of_offloaded_products(storage: Storage) -> None:
    kernel = kernel_of("openblas", storage)
    assert ", by openblas" in kernel.ir("lowered")
    for batch in ("empty", "no_depth", "around_tiles", "giant_among_tiny"):
        check(kernel, BATCHES[batch])


@pytest.mark.parametrize("storage", STORAGES, ids=str)
def test_storage(storage: Storage) -> None:
    for batch in ("empty", "around_tiles", "giant_among_tiny"):
        check(kernel_of("tiled", storage), BATCHES[batch])


@pytest.mark.parametrize("variant", ["unsplit_unbalanced", "split_balanced"])
def test_variants_of_columns_and_padded_storage(variant: str) -> None:
    for storage in (Storage("column", "row", "row", True), Storage("column", "column", "column")):
        check(kernel_of(variant, storage), BATCHES["giant_among_tiny"])


def test_generated_code_has_no_guards_in_hot_loops() -> None:
    assert kernel_of("generated").hot_guards == ()


@pytest.mark.parametrize("variant", ["tiled", "generated"])
@pytest.mark.parametrize(
    "options",
    [
        {"alpha": -0.5},
        {"beta": 2.0},
        {"bias": True},
        {"alpha": 0.0, "beta": 1.0},
        {"alpha": 1.5, "beta": -1.0, "bias": True, "activation": "relu"},
        {"bias": True, "activation": "gelu"},
        {"activation": "silu"},
    ],
    ids=str,
)
def test_epilogues(variant: str, options: dict[str, Any]) -> None:
    definition = {k: v if k == "activation" else True for k, v in options.items()}
    kernel = kernel_of(variant, **definition)
    for batch in ("empty", "no_depth", "around_tiles"):
        check(kernel, BATCHES[batch], **options)


def test_bias_is_added_by_micro_kernels() -> None:
    for batch in BATCHES.values():
        check(kernel_of("tiled", bias=True), batch, bias=True)


def test_results_do_not_depend_on_workers_or_neighbours() -> None:
    kernel = kernel_of("tiled")
    rng = np.random.default_rng(0)
    shapes = [(40, 70, 33), (200, 300, 50), (7, 9, 11)]
    A = [rng.standard_normal((m, k)).astype(np.float32) for m, n, k in shapes]
    B = [rng.standard_normal((k, n)).astype(np.float32) for m, n, k in shapes]

    def run(entries: list[int], threads: int) -> np.ndarray:
        chosen = [shapes[e] for e in entries]
        lengths = {name: [s[axis] for s in chosen] for axis, name in enumerate(("m", "n", "k"))}
        arrays = [stored(kernel, x, [of[e] for e in entries], lengths) for x, of in (("A", A), ("B", B))]
        return kernel.run(cora.plan(kernel, threads=threads, **lengths), *arrays).packed()

    together = run([0, 1, 2], 1)
    assert np.array_equal(together, run([0, 1, 2], 7))
    assert np.array_equal(together, np.concatenate([run([e], 2) for e in (0, 1, 2)]))


def test_variants_of_micro_kernels_give_the_same_bits() -> None:
    rng = np.random.default_rng(3)
    shapes = [(40, 70, 33), (200, 300, 1100), (7, 9, 11)]
    lengths = {name: [s[axis] for s in shapes] for axis, name in enumerate(("m", "n", "k"))}
    a, b = (
        np.concatenate([rng.standard_normal(s[x] * s[y]).astype(np.float32) for s in shapes])
        for x, y in ((0, 2), (2, 1))
    )
    results = {
        variant: kernel_of(variant)(a, b, **lengths).packed()
        for variant in VGEMM.variants["llvm"]
        if variant not in ("generated", "openblas")
    }
    assert all(np.array_equal(results["tiled"], result) for result in results.values())


def test_no_loop_has_a_condition_and_panels_are_copied() -> None:
    lowered = kernel_of("uncopied").ir("lowered")
    assert "if " not in lowered
    assert "@ B[" in lowered
    tiled = kernel_of("tiled").ir("lowered")
    assert "@ panels[" in tiled
    assert "fills panels from B[" in tiled
    calls = [line for line in tiled.partition("for ir")[2].splitlines() if "# tile" not in line]
    assert not any("if " in line for line in calls)


def test_the_suited_variant() -> None:
    for panel in (16, 64):
        assert suited([300], [300], [300], panel=panel) == "tiled"
        assert suited([300], [64], [64], panel=panel) == "uncopied"
        assert suited([900] * 4, [900] * 4, [900] * 4, workers=2, panel=panel) == "tiled_fine"
        assert suited([900] * 40, [900] * 40, [900] * 40, workers=2, panel=panel) == "tiled"
        assert suited([], [], [], panel=panel) == "tiled"
    # What has one cache line of each row in a panel is copied, unless it is small or read once.
    assert suited([50], [900], [900], panel=64) == suited([200], [200], [200], panel=64) == "uncopied"
    assert suited([50], [900], [900], panel=16) == suited([200], [200], [200], panel=16) == "tiled"
    assert suited([6], [900], [900], panel=16) == "uncopied"


def test_what_is_refused() -> None:
    with pytest.raises(cora.UserError, match="activation: expected one of none, relu"):
        VGEMM.define(activation="gulp")
    with pytest.raises(cora.UserError, match="Storage: b: expected one of row, column; got 'rows'"):
        Storage(b="rows")
    with pytest.raises(cora.UserError, match="no schedule 'fast' for 'llvm'; expected one of tiled"):
        VGEMM.build(variant="fast")
    with pytest.raises(cora.UnsupportedError, match="no schedule for target 'abacus'"):
        VGEMM.build(target="abacus")
