"""Linear layers on packed tokens against NumPy in float64."""

from __future__ import annotations

from functools import cache
from math import erf
from typing import Any

import numpy as np
import pytest

import cora
from cora.kernels.gemm import LINEAR
from tests.kernels.arrays import assert_product, stored, unset

BATCHES = {
    "none": [],
    "zeros": [0, 0],
    "one": [1],
    "around_a_tile": [5, 6, 7],
    "hole": [0, 3, 0, 0],
    "giant_among_tiny": [1, 2, 401, 1],
    "equal": [12, 12, 12],
}
EPILOGUES: list[dict[str, Any]] = [{}, {"bias": True}, {"bias": True, "residual": True}, {"residual": True}]
ACTIVATED: list[dict[str, Any]] = [
    {"bias": True, "activation": "gelu"},
    {"activation": "relu", "residual": True},
]


@cache
def kernel_of(variant: str, features: tuple[int, int], **options: Any) -> cora.Kernel:
    given = {"features_in": features[0], "features_out": features[1], **options}
    return LINEAR.build(variant=variant, definition=given)


def check(kernel: cora.Kernel, lens: list[int], features: tuple[int, int], **options: Any) -> None:
    rng = np.random.default_rng(len(lens))
    tokens, (depth, width) = sum(lens), features
    X = rng.standard_normal((tokens, depth)).astype(np.float32)
    W = rng.standard_normal((depth, width)).astype(np.float32)
    bias = rng.standard_normal(width).astype(np.float32)
    residual = rng.standard_normal((tokens, width)).astype(np.float32)
    lengths, sizes = {"lens": lens}, {"batch_size": len(lens)}
    inputs: dict[str, Any] = {"X": stored(kernel, "X", [X], lengths), "W": W, "bias": bias}
    if "residual" in kernel.inputs:
        inputs["residual"] = stored(kernel, "residual", [residual], lengths)
    out = unset(kernel, "Y", lengths, sizes)
    plan = cora.plan(kernel, threads=2, lens=lens)
    kernel.run(plan, *(inputs[name] for name in kernel.inputs), outputs={"Y": out})
    value = X.astype(np.float64) @ W
    magnitude = np.abs(X).astype(np.float64) @ np.abs(W)
    if options.get("bias"):
        value, magnitude = value + bias, magnitude + np.abs(bias)
    if options.get("activation") == "gelu":
        value = 0.5 * value * (1 + np.vectorize(erf, otypes=[float])(value / np.sqrt(2)))
    if options.get("activation") == "relu":
        value = np.maximum(value, 0)
    if options.get("residual"):
        value, magnitude = value + residual, magnitude + np.abs(residual)
    assert_product(out.packed().reshape(tokens, width), value, 1.2 * magnitude, depth)


@pytest.mark.parametrize("options", [*EPILOGUES, *ACTIVATED], ids=str)
def test_tiles(options: dict[str, Any]) -> None:
    for lens in BATCHES.values():
        check(kernel_of("tiled", (48, 100), **options), lens, (48, 100), **options)


@pytest.mark.parametrize("options", [*EPILOGUES[:2], *ACTIVATED], ids=str)
def test_generated(options: dict[str, Any]) -> None:
    for lens in BATCHES.values():
        check(kernel_of("generated", (33, 70), **options), lens, (33, 70), **options)


def test_generated_code_has_no_guards_in_hot_loops() -> None:
    """Full panels have code of their own; of features that do not fill panels the last ones are masked lanes."""
    assert kernel_of("generated", (33, 128)).hot_guards == ()
    assert all("jv_v < 6" in guard for guard in kernel_of("generated", (33, 70)).hot_guards)


@pytest.mark.parametrize("features", [(0, 5), (1, 1), (7, 64), (512, 65)], ids=str)
def test_features(features: tuple[int, int]) -> None:
    check(kernel_of("tiled", features, bias=True), BATCHES["giant_among_tiny"], features, bias=True)


def test_a_token_does_not_depend_on_its_neighbours() -> None:
    kernel = kernel_of("tiled", (48, 100))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 48)).astype(np.float32)
    W = rng.standard_normal((48, 100)).astype(np.float32)
    together = kernel(stored(kernel, "X", [X], {"lens": [7, 53]}), W).packed().reshape(60, 100)
    alone = kernel(stored(kernel, "X", [X[7:]], {"lens": [53]}), W, threads=1).packed().reshape(53, 100)
    assert np.array_equal(together[7:], alone)


def test_what_is_refused() -> None:
    with pytest.raises(cora.UserError, match="must not be negative; got -1"):
        LINEAR.define(-1, 4)
    with pytest.raises(cora.UserError, match="activation: expected one of"):
        LINEAR.define(4, 4, activation="step")
