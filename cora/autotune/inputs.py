"""Elements for the inputs of a program, drawn from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cora.autotune.batches import Batch
from cora.errors import CoraError
from cora.ir import dtypes
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Access, Expr
from cora.ir.tensor import Tensor
from cora.ir.visit import walk
from cora.lang.check import program
from cora.storage.array import RaggedArray
from cora.storage.lengths import bind

__all__ = ["draw_inputs"]


def draw_inputs(outputs: Sequence[Tensor], batch: Batch, seed: int = 0) -> dict[str, RaggedArray]:
    """An array in the packed layout for every input, by name.

    Floating-point elements are normally distributed. Integers that are used as indices lie below the extent of
    the dim they index, where it is the same for all iterations of the batch, else they are 0. The same arguments
    give the same elements.
    """
    tensors = program(outputs)
    limits = _index_limits(tensors, batch)
    rng = np.random.default_rng(seed)
    return {t.name: _drawn(t, batch, rng, limits) for t in tensors if t.body is None}


def _drawn(tensor: Tensor, batch: Batch, rng: np.random.Generator, limits: Mapping[str, int]) -> RaggedArray:
    array = RaggedArray.empty(tensor, batch.arrays, dict(batch.sizes))
    count = len(array.values)
    kind: npt.DTypeLike = dtypes.to_numpy(tensor.dtype)
    values: npt.NDArray[Any]
    if tensor.name in limits:
        values = rng.integers(0, max(limits[tensor.name], 1), count)
    elif dtypes.is_float(tensor.dtype):
        values = rng.standard_normal(count, np.float32)
    elif tensor.dtype == "bool":
        values = rng.integers(0, 2, count)
    else:
        values = rng.integers(-100, 100, count)
    array.values[:] = values.astype(kind)
    return array


def _index_limits(tensors: Sequence[Tensor], batch: Batch) -> dict[str, int]:
    """For each tensor that is used as an index, below what its elements must stay."""
    limits: dict[str, int] = {}
    for tensor in tensors:
        for access in walk(tensor.body) if tensor.body is not None else ():
            if not isinstance(access, Access):
                continue
            for dim, index in zip(access.tensor.dims, access.indices, strict=True):
                for inner in walk(index):
                    if isinstance(inner, Access):
                        limit = _extent(access.tensor, dim.extent, batch)
                        limits[inner.tensor.name] = min(limits.get(inner.tensor.name, limit), limit)
    return limits


def _extent(tensor: Tensor, extent: Expr, batch: Batch) -> int:
    """The value of an extent that depends on no dim; 1 for one that does."""
    try:
        sizes, lengths = bind(tensor.dims, dict(batch.sizes), batch.arrays, "inputs")
        return int(Evaluator(sizes, lengths).value(extent, {}))
    except (CoraError, KeyError):
        return 1
