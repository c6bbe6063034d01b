"""Encoders against NumPy, on hostile batches; their operators one by one; plans, memory, errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cora
from cora.kernels import Encoder, EncoderLayer, LayerConfig, LayerWeights
from cora.kernels.encoder import definition, schedules
from tests.kernels import reference
from tests.kernels.reference import HOSTILE, Array

SMALL = LayerConfig(hidden=24, heads=2, inner=40, activation="gelu")
KINDS = (
    SMALL,
    LayerConfig(hidden=24, heads=2, inner=40, activation="relu", norm="pre"),
    LayerConfig(hidden=16, heads=4, inner=16, activation="gelu_tanh", epsilon=1e-12),
    LayerConfig(hidden=65, heads=1, inner=3, activation="none"),
    LayerConfig(hidden=128, heads=2, inner=150, activation="gelu"),
)


def tokens(lengths: tuple[int, ...], hidden: int) -> Array:
    """Random tokens."""
    return np.random.default_rng(len(lengths)).standard_normal((sum(lengths), hidden), np.float32)


@pytest.mark.parametrize("config", KINDS, ids=lambda c: f"{c.hidden}-{c.activation}-{c.norm}")
def test_a_layer(config: LayerConfig) -> None:
    weights = LayerWeights.random(config)
    layer = EncoderLayer(config, weights)
    for lengths in HOSTILE:
        x = tokens(lengths, config.hidden)
        expected = reference.encoder_layer(config, weights, x, lengths)
        np.testing.assert_allclose(layer(x, lengths, threads=2), expected, atol=2e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_several_layers(norm: Any, layers: int) -> None:
    config = replace(SMALL, norm=norm)
    weights = [LayerWeights.random(config, seed) for seed in range(layers)]
    rng = np.random.default_rng(1)
    gamma, beta = rng.standard_normal((2, config.hidden), np.float32)
    lengths = (3, 0, 30, 1)
    x = tokens(lengths, config.hidden)
    before = x.copy()
    expected: Array = x
    for w in weights:
        expected = reference.encoder_layer(config, w, expected, lengths)
    np.testing.assert_allclose(Encoder(config, weights)(x, lengths), expected, atol=4e-5)
    normed = Encoder(config, weights, (gamma, beta))(x, lengths)
    np.testing.assert_allclose(normed, reference.layer_norm(expected, gamma, beta, config.epsilon), atol=2e-4)
    np.testing.assert_array_equal(x, before)


def test_bits_depend_neither_on_neighbours_nor_on_threads() -> None:
    layer = EncoderLayer(SMALL, LayerWeights.random(SMALL))
    lengths = (7, 100, 1, 64)
    x = tokens(lengths, SMALL.hidden)
    together = layer(x, lengths, threads=3)
    for own in reference.parts(lengths):
        alone = layer(x[own], [own.stop - own.start], threads=1)
        np.testing.assert_array_equal(together[own], alone)


def test_a_plan_is_run_without_new_arrays() -> None:
    encoder = Encoder(SMALL, [LayerWeights.random(SMALL, seed) for seed in range(2)])
    lengths = (5, 0, 33)
    x, plan = tokens(lengths, SMALL.hidden), encoder.plan(lengths, threads=1)
    out = np.full_like(x, np.nan)
    assert encoder.run(plan, x, out) is out
    np.testing.assert_array_equal(out, encoder(x, lengths, threads=1))
    memory = plan.memory()
    assert memory.activations_bytes == 38 * 4 * (4 * 24 + 4 * 24)
    assert memory.total_bytes == memory.activations_bytes + memory.workspace_bytes + memory.tables_bytes
    assert plan.waste()["outer"].useful_flops >= 2 * 38 * 24 * 40


@pytest.mark.parametrize("size", [1, 15, 64, 100])
def test_layer_norm(size: int) -> None:
    kernel = cora.build(schedules.layer_norm(*definition.layer_norm("Y", size, 1e-5)))
    rng = np.random.default_rng(0)
    x = 100 + rng.standard_normal((7, size), np.float32)
    gamma, beta = rng.standard_normal((2, size), np.float32)
    y = kernel(X=x, gamma=gamma, beta=beta, lens=[0, 4, 3]).values.reshape(7, size)
    np.testing.assert_allclose(y, reference.layer_norm(x, gamma, beta), atol=2e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 5}, "hidden must be a multiple of heads"),
        ({"inner": 0}, "inner: expected a positive integer"),
        ({"activation": "swish"}, "activation: expected one of"),
        ({"norm": "none"}, "norm: expected 'post' or 'pre'"),
        ({"epsilon": -1.0}, "epsilon: expected a number from 0"),
    ],
)
def test_configurations_that_do_not_exist(change: dict[str, Any], message: str) -> None:
    with pytest.raises(cora.UserError, match=message):
        replace(SMALL, **change)


def test_weights_that_do_not_fit() -> None:
    weights = LayerWeights.random(SMALL)
    with pytest.raises(cora.UserError, match=r"weight 'out': expected the shape \(24, 24\)"):
        EncoderLayer(SMALL, replace(weights, out=weights.qkv))
    with pytest.raises(cora.UserError, match="weight 'outer': expected float32"):
        EncoderLayer(SMALL, replace(weights, outer=weights.outer.astype(np.float64)))
    with pytest.raises(cora.UserError, match="at least one layer"):
        Encoder(SMALL, [])


def test_arguments_that_do_not_fit() -> None:
    layer = EncoderLayer(SMALL, LayerWeights.random(SMALL))
    x = tokens((3, 2), 24)
    with pytest.raises(cora.UserError, match="add up to 4, but there are 5 tokens"):
        layer(x, [3, 1])
    with pytest.raises(cora.UserError, match="either lengths or cu_seqlens"):
        layer(x)
    with pytest.raises(cora.UserError, match="stores 120 elements"):
        layer(tokens((3, 2), 23), [3, 2])
    other = EncoderLayer(KINDS[1], LayerWeights.random(KINDS[1]))
    with pytest.raises(cora.UserError, match="another configuration"):
        layer.run(other.plan([5]), x, x.copy())
