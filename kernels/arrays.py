"""Packed tokens from the arrays that users have, and back: RaggedArrays, NumPy, PyTorch (packed, and jagged).

Nothing is copied where the tokens lie together in memory. PyTorch is not imported unless a tensor of it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

import cora
from cora import UnsupportedError, UserError

Values = npt.NDArray[np.float32]
Lengths = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a batch of sequences, one after the other.

    values: [tokens, ...] in float32. lengths: of the sequences. wrap: makes an array of the kind that was given, for
    the same sequences, of other values [tokens, ...].
    """

    values: Values
    lengths: Lengths
    wrap: Callable[[Values], Any]


def tokens(
    name: str,
    value: Any,
    lengths: Any = None,
    cu_seqlens: Any = None,
    *,
    inner: int,
) -> Tokens:
    """The tokens of an argument with `inner` axes after that of the tokens.

    value: a RaggedArray [batch, i, ...]; a NumPy array or PyTorch tensor [tokens, ...] with `lengths`, or with
    `cu_seqlens` [batch + 1], where each sequence starts, and the end; or a jagged nested tensor [batch, i, ...].
    Raises UserError for another type, shape or element type, for lengths that are missing, do not fit or are given
    twice; UnsupportedError for tensors that require gradients.
    """
    match value:
        case cora.RaggedArray():
            return _of_ragged(name, value, lengths, cu_seqlens, inner)
        case np.ndarray():
            return Tokens(
                _checked(name, value, inner), _lengths(name, len(value), lengths, cu_seqlens), _same
            )
    if _is_torch(value):
        return _of_torch(name, value, lengths, cu_seqlens, inner)
    raise UserError(
        f"'{name}': expected a RaggedArray, a NumPy array or a PyTorch tensor; got {type(value).__name__}"
    )


def _same(values: Values) -> Values:
    return values


def _is_torch(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" or hasattr(value, "requires_grad")


def _of_ragged(name: str, value: cora.RaggedArray, lengths: Any, cu_seqlens: Any, inner: int) -> Tokens:
    dims = value.layout.dims
    if len(dims) != inner + 2:
        raise UserError(f"'{name}': expected {inner + 2} dims; got {value.layout.describe()}")
    fun = getattr(dims[1].extent, "fun", None)
    own = None if fun is None else value.lengths.get(fun.name)
    if own is None:
        raise UserError(
            f"'{name}': expected a dim of tokens with one length for each sequence; got {value.layout.describe()}"
        )
    if lengths is not None or cu_seqlens is not None:
        _same_lengths(name, own, _given(name, lengths, cu_seqlens))
    starts = np.cumsum(own, dtype=np.int64)
    count = int(starts[-1]) if len(starts) else 0
    sizes = _inner_sizes(name, value)
    values = value.packed().reshape(count, *sizes)

    def wrap(result: Values) -> cora.RaggedArray:
        new = tuple(
            dim if size == old else cora.Dim(f"{dim.name}_", size)
            for dim, old, size in zip(dims[2:], sizes, result.shape[1:], strict=False)
        )
        layout = cora.Layout.packed((*dims[:2], *new))
        return cora.RaggedArray.from_values(result, layout, value.lengths, value.sizes)

    return Tokens(_checked(name, values, inner), np.asarray(own), wrap)


def _inner_sizes(name: str, value: cora.RaggedArray) -> tuple[int, ...]:
    """The extents of the dims after that of the tokens, which are numbers or run-time sizes."""
    sizes = []
    for dim in value.layout.dims[2:]:
        extent: Any = dim.extent
        size = getattr(extent, "value", value.sizes.get(getattr(extent, "name", "")))
        if size is None:
            raise UserError(f"'{name}': dim '{dim.name}': expected a constant extent; got {extent}")
        sizes.append(int(size))
    return tuple(sizes)


def _of_torch(name: str, value: Any, lengths: Any, cu_seqlens: Any, inner: int) -> Tokens:
    torch = import_module("torch")
    if value.requires_grad:
        raise UnsupportedError(
            f"'{name}' requires gradients: kernels compute forward only; pass tensor.detach()"
        )
    if not value.is_nested:
        values = _checked(name, _numpy(name, value), inner)
        return Tokens(values, _lengths(name, len(values), lengths, cu_seqlens), torch.from_numpy)
    if value.layout is not torch.jagged:
        raise UserError(f"'{name}': expected a nested tensor of layout torch.jagged; got {value.layout}")
    transposed = inner == 2 and isinstance(
        value.size(1), int
    )  # [batch, heads, i, d], as PyTorch's own wants it
    plain = value.transpose(1, 2) if transposed else value
    if plain.lengths() is not None:
        raise UserError(f"'{name}': the nested tensor has holes; make it contiguous()")
    values = _checked(name, _numpy(name, plain.values()), inner)
    offsets = plain.offsets()
    own = _lengths(name, len(values), None, offsets)
    if lengths is not None or cu_seqlens is not None:
        _same_lengths(name, own, _given(name, lengths, cu_seqlens))

    def wrap(result: Values) -> Any:
        jagged = torch.nested.nested_tensor_from_jagged(torch.from_numpy(result), offsets)
        return jagged.transpose(1, 2) if transposed and result.ndim == 3 else jagged

    return Tokens(values, own, wrap)


def _numpy(name: str, tensor: Any) -> npt.NDArray[Any]:
    if tensor.device.type != "cpu":
        raise UserError(f"'{name}': expected a tensor in CPU memory; got one on {tensor.device}")
    if str(tensor.dtype) != "torch.float32":
        raise UserError(f"'{name}': expected values of type float32; got {tensor.dtype}")
    array: npt.NDArray[Any] = np.from_dlpack(tensor)
    return array


def _checked(name: str, values: npt.NDArray[Any], inner: int) -> Values:
    if values.ndim != inner + 1:
        raise UserError(f"'{name}': expected {inner + 1} axes [tokens, ...]; got the shape {values.shape}")
    if values.dtype != np.float32:
        raise UserError(f"'{name}': expected values of type float32; got {values.dtype}")
    if not values.flags.c_contiguous:
        raise UserError(f"'{name}': the values must be C-contiguous; got strides {values.strides}")
    return values


def _lengths(name: str, count: int, lengths: Any, cu_seqlens: Any) -> Lengths:
    result = _given(name, lengths, cu_seqlens)
    total = int(result.sum(dtype=np.int64))
    if total != count:
        raise UserError(f"'{name}': the lengths add up to {total}, but there are {count} tokens")
    return result


def _given(name: str, lengths: Any, cu_seqlens: Any) -> Lengths:
    """The lengths, from one of the two forms."""
    if (lengths is None) == (cu_seqlens is None):
        raise UserError(f"'{name}': expected either lengths or cu_seqlens")
    values = np.asarray(lengths if cu_seqlens is None else cu_seqlens)
    form = "lengths" if cu_seqlens is None else "cu_seqlens"
    if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
        raise UserError(
            f"'{name}': {form}: expected integers of one axis; got shape {values.shape}, type {values.dtype}"
        )
    wide = values.astype(np.int64)
    if cu_seqlens is not None:
        if not len(wide) or wide[0] != 0:
            raise UserError(f"'{name}': cu_seqlens must start with 0; got {values[:1]}")
        wide = np.diff(wide)
    bad = np.flatnonzero((wide < 0) | (wide >= 2**31))
    if bad.size:
        raise UserError(
            f"'{name}': {form}: expected lengths from 0 to 2^31 - 1; got {wide[bad[0]]} at entry {bad[0]}"
        )
    return wide.astype(np.int32)


def _same_lengths(name: str, own: Lengths, given: Lengths) -> None:
    if not np.array_equal(own, given):
        raise UserError(f"'{name}': the lengths that are given are not those of the array")
