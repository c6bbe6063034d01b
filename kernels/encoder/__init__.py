"""Transformer encoders on packed tokens: definitions, schedules, and the classes to use."""

from cora.kernels.encoder.config import LayerConfig, LayerWeights
from cora.kernels.encoder.layer import Encoder, EncoderLayer, EncoderPlan, Memory
from cora.kernels.encoder.sentence import Embeddings, SentenceEncoder

__all__ = [
    "Embeddings",
    "Encoder",
    "EncoderLayer",
    "EncoderPlan",
    "LayerConfig",
    "LayerWeights",
    "Memory",
    "SentenceEncoder",
]
