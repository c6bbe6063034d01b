"""Ready-made ragged kernels: definitions, and schedules for each back end apart from them."""

from cora.kernels.attention import attention
from cora.kernels.encoder import Encoder, EncoderLayer, LayerConfig, LayerWeights, SentenceEncoder

__all__ = ["Encoder", "EncoderLayer", "LayerConfig", "LayerWeights", "SentenceEncoder", "attention"]
