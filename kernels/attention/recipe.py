"""Attention in the registry."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import cora
from cora.kernels.attention import cuda, flash, schedules
from cora.kernels.attention.definition import Attention, Program, define, packed_qkv, separate
from cora.kernels.registry import Recipe, Variant


def _define(
    heads: int = 8, kv_heads: int | None = None, head_size: int = 64, *, packed: bool = False, **more: Any
) -> Program:
    """`define` of `Attention`, with as many heads of keys as of queries and a scale of 1 / sqrt(head_size) by default.

    packed: whether queries, keys and values lie in one tensor QKV.
    """
    given = {"value_size": head_size, "scale": head_size**-0.5, **more}
    kind = Attention(heads, heads if kv_heads is None else kv_heads, head_size, **given)
    return define(kind, packed_qkv if packed else separate)


def _suited(program: Program, *, queries: str = "Q", values: str = "V") -> cora.Schedule:
    """`flash` where it takes the program."""
    make = flash.flash if flash.fits(program) else cuda.stored
    return make(program, queries=queries, values=values)


ATTENTION = Recipe(
    "attention",
    "attention of ragged sequences",
    _define,
    MappingProxyType(
        {
            "llvm": MappingProxyType(
                {
                    "fused": Variant(
                        schedules.schedule, "a block of queries at a time, its scores in the cache"
                    )
                }
            ),
            "cuda": MappingProxyType(
                {
                    "suited": Variant(
                        _suited, "`flash`, or `stored` for values of more than 128 elements with lse"
                    ),
                    "flash": Variant(
                        flash.flash, "one kernel: scores stay on the chip, the maximum runs along keys"
                    ),
                    "stored": Variant(cuda.stored, "three kernels: scores, rows, weighted sums of values"),
                }
            ),
        }
    ),
)
