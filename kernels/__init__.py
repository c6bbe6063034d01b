"""Ready-made ragged kernels: definitions, and schedules for each back end apart from them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cora.kernels.attention import attention
from cora.kernels.attention.deploy import deploy_attention
from cora.kernels.attention.recipe import ATTENTION
from cora.kernels.encoder import Encoder, EncoderLayer, LayerConfig, LayerWeights, SentenceEncoder
from cora.kernels.encoder.deploy import deploy_encoder
from cora.kernels.encoder.recipe import LAYER_NORM
from cora.kernels.gemm import LINEAR, VGEMM, linear, vgemm
from cora.kernels.registry import Recipe, Variant
from cora.kernels.triangular import (
    BANDED,
    ELEMENTWISE,
    TRADD,
    TRMM,
    TRMUL,
    banded_matmul,
    tradd,
    triangle_elementwise,
    trmm,
    trmul,
)

#: All recipes by name.
RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in (VGEMM, LINEAR, ATTENTION, LAYER_NORM, TRMM, TRADD, TRMUL, ELEMENTWISE, BANDED)
    }
)

__all__ = [
    "RECIPES",
    "Encoder",
    "EncoderLayer",
    "LayerConfig",
    "LayerWeights",
    "Recipe",
    "SentenceEncoder",
    "Variant",
    "attention",
    "banded_matmul",
    "deploy_attention",
    "deploy_encoder",
    "linear",
    "tradd",
    "triangle_elementwise",
    "trmm",
    "trmul",
    "vgemm",
]
