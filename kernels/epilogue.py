"""What is done to a product before it is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import cora

#: The activations by name.
ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "none": lambda x: x,
        "relu": lambda x: cora.maximum(x, 0.0),
        "gelu": cora.gelu,
        "gelu_tanh": lambda x: cora.gelu(x, approximate="tanh"),
        "sigmoid": cora.sigmoid,
        "silu": lambda x: x * cora.sigmoid(x),
        "tanh": cora.tanh,
    }
)


def activated(name: str, value: Any) -> Any:
    """The activation `name` of an expression.

    Raises:
        UserError: there is none of that name.
    """
    if name not in ACTIVATIONS:
        raise cora.UserError(f"activation: expected one of {', '.join(ACTIVATIONS)}; got {name!r}")
    return ACTIVATIONS[name](value)


def chosen(what: str, value: str, among: tuple[str, ...]) -> str:
    """`value`, if it is one of `among`.

    Raises:
        UserError: it is not.
    """
    if value not in among:
        raise cora.UserError(f"{what}: expected one of {', '.join(among)}; got {value!r}")
    return value
