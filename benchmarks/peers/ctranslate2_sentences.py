"""A sentence encoder in CTranslate2, which removes padding around the products of a layer by itself."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peers.sentences import Array, Library, Padded, Prepare
from cora.kernels import LayerWeights, SentenceEncoder


def _load(model: SentenceEncoder, threads: int) -> dict[str, Prepare]:
    library = import_module("ctranslate2")
    with tempfile.TemporaryDirectory(prefix="sentences-") as folder:
        _specification(library, model).save(folder)
        encoder = library.Encoder(
            folder, device="cpu", compute_type="float32", inter_threads=1, intra_threads=threads
        )

    def prepare(padded: Padded) -> Callable[[], Array]:
        # They read the arrays' memory, which the call below keeps.
        ids, lengths = (library.StorageView.from_array(a) for a in (padded.ids, padded.lengths))

        def call() -> Array:
            encoded = np.asarray(encoder.forward_batch(ids, lengths).last_hidden_state)
            mean = np.matmul(padded.shares, encoded)[:, 0]
            return np.asarray(mean / np.linalg.norm(mean, axis=1, keepdims=True))

        return call

    return {"ctranslate2": prepare}


CTRANSLATE2 = Library("CTranslate2", ("ctranslate2",), _load)


def _specification(library: Any, model: SentenceEncoder) -> Any:
    """A TransformerEncoderModelSpec with the model's weights, ready to save."""
    specs = library.specs
    config, e = model.encoder.config, model.embeddings
    common = import_module("ctranslate2.specs.common_spec")
    transformer = import_module("ctranslate2.specs.transformer_spec")
    encoder = transformer.TransformerEncoderSpec(
        len(model.encoder.layers),
        config.heads,
        pre_norm=False,
        activation=common.Activation.GELU,
        layernorm_embedding=True,
    )
    encoder.scale_embeddings = False
    encoder.embeddings[0].weight = e.word
    encoder.position_encodings.encodings = np.ascontiguousarray(e.position + e.kind)
    _norm(encoder.layernorm_embedding, e.gamma, e.beta)
    for layer, weights in zip(encoder.layer, model.encoder.layers, strict=True):
        _fill(layer, weights)
    whole = specs.TransformerEncoderModelSpec(encoder)
    whole.config.layer_norm_epsilon = config.epsilon
    names = [f"token {number}" for number in range(len(e.word))]
    whole.config.unk_token = names[0]
    whole.register_vocabulary(names)
    whole.validate()
    whole.optimize()
    return whole


def _fill(layer: Any, w: LayerWeights) -> None:
    attention, feed_forward = layer.self_attention, layer.ffn
    _linear(attention.linear[0], w.qkv, w.qkv_bias)
    _linear(attention.linear[1], w.out, w.out_bias)
    _norm(attention.layer_norm, w.norm1_gamma, w.norm1_beta)
    _linear(feed_forward.linear_0, w.inner, w.inner_bias)
    _linear(feed_forward.linear_1, w.outer, w.outer_bias)
    _norm(feed_forward.layer_norm, w.norm2_gamma, w.norm2_beta)


def _linear(layer: Any, matrix: npt.NDArray[Any], bias: npt.NDArray[Any]) -> None:
    """Matrices are stored [outputs, inputs]."""
    layer.weight, layer.bias = np.ascontiguousarray(matrix.T), bias


def _norm(layer: Any, gamma: npt.NDArray[Any], beta: npt.NDArray[Any]) -> None:
    layer.gamma, layer.beta = gamma, beta
