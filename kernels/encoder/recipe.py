"""Layer norm in the registry; the encoder's other operators are `linear` and `attention`."""

from __future__ import annotations

from types import MappingProxyType
from typing import TypeAlias

import cora
from cora.kernels.encoder import cuda, definition, schedules
from cora.kernels.registry import Recipe, Variant

#: Average, variance and result.
Norm: TypeAlias = tuple[cora.Tensor, cora.Tensor, cora.Tensor]


def _define(size: int = 512, epsilon: float = 1e-5) -> Norm:
    return definition.layer_norm("normed", size, epsilon)


def _lanes(norm: Norm) -> cora.Schedule:
    return schedules.layer_norm(*norm)


def _warps(norm: Norm) -> cora.Schedule:
    return cuda.layer_norm(*norm)


LAYER_NORM = Recipe(
    "layer_norm",
    "layer norm of packed tokens",
    _define,
    MappingProxyType(
        {
            "llvm": MappingProxyType({"lanes": Variant(_lanes, "a token at a time, in vectors")}),
            "cuda": MappingProxyType({"warps": Variant(_warps, "a warp for each token")}),
        }
    ),
)
