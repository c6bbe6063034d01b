"""Element-wise operations on packed lower triangles (paper, Table 6: tradd, trmul)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import cora
from cora.kernels.epilogue import chosen

#: The operations on two triangles by name.
OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "add": lambda x, y: x + y,
        "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y,
        "maximum": cora.maximum,
        "minimum": cora.minimum,
    }
)


def triangle_elementwise(operation: str = "add") -> cora.Tensor:
    """The output C[row, column], a packed lower triangle; its size is `n`.

    The inputs are X and Y, float32, packed lower triangles: row r holds columns 0 to r.

    Raises:
        UserError: an operation that is not in OPERATIONS.
    """
    chosen("operation", operation, tuple(OPERATIONS))
    row = cora.Dim("row", cora.size("n"))
    column = cora.Dim("column", row + 1)
    X, Y = (cora.placeholder(name, [row, column]) for name in ("X", "Y"))
    return cora.compute("C", [row, column], OPERATIONS[operation](X[row, column], Y[row, column]))


def tradd() -> cora.Tensor:
    """X + Y; see `triangle_elementwise`."""
    return triangle_elementwise("add")


def trmul() -> cora.Tensor:
    """X * Y, element by element; see `triangle_elementwise`."""
    return triangle_elementwise("multiply")
