"""Arguments of a run: checked against their slot and the batch of the plan, before any memory is touched."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cora.errors import UserError
from cora.ir import dtypes
from cora.ir.evaluate import Evaluator
from cora.runtime.artifact import Slot
from cora.runtime.binding import is_dense
from cora.storage.array import RaggedArray, allocate
from cora.storage.dlpack import from_dlpack, is_foreign
from cora.storage.extents import clamp
from cora.storage.layout import Layout

if TYPE_CHECKING:
    from cora.runtime.plan import Plan

Array = npt.NDArray[Any]


def new_array(slot: Slot, count: int, plan: Plan) -> RaggedArray:
    """An uninitialised array for an output of `count` elements."""
    values = allocate(count, slot.tensor.dtype)
    return RaggedArray(values, slot.layout, plan.lengths, plan.sizes, slot.tensor.name, slot.tensor.dtype)


def memory_of(slot: Slot, value: Any, plan: Plan, count: int, writable: bool = False) -> Array:
    """The flat memory of an argument, checked against the slot and the batch of the plan.

    Nothing is converted here. An array that says nothing of its layout stands for a layout in the order of the dims.
    """
    name = slot.tensor.name
    match value:
        case RaggedArray():
            if value.layout is not slot.layout and not _equal_layouts(value.layout, slot.layout):
                raise UserError(
                    f"'{name}': expected the layout {slot.layout.describe()}; got {value.layout.describe()}: "
                    f"convert it with array.to_layout(kernel.layout('{name}'))"
                )
            _same_batch(name, value, plan)
            array = value.values
        case _:
            array = imported(slot, value)
            if not isinstance(array, np.ndarray):
                raise UserError(
                    f"'{name}': expected a RaggedArray, a NumPy array or an object with __dlpack__; "
                    f"got {type(value).__name__}"
                )
            if not slot.layout.is_row_major:
                dtype = slot.tensor.dtype
                named = "" if dtype == "float32" else f", dtype='{dtype}'"
                raise UserError(
                    f"'{name}': expected a RaggedArray in the layout {slot.layout.describe()}, which is not the order "
                    f"of a NumPy array; convert it once: cora.ragged(array, kernel.layout('{name}'){named})"
                )
            if is_dense(slot) and array.ndim == slot.tensor.ndim:
                _check_shape(slot, array, plan)
    if array.dtype != dtypes.to_numpy(slot.tensor.dtype):
        raise UserError(f"'{name}': expected values of type {slot.tensor.dtype}; got {array.dtype}")
    flags = array.flags
    if not flags.c_contiguous or not flags.aligned:
        raise UserError(f"'{name}': the values must be C-contiguous and aligned; got strides {array.strides}")
    if writable and not flags.writeable:
        raise UserError(f"'{name}': the values of an output must be writable")
    if array.size != count:
        raise UserError(
            f"'{name}': the layout {slot.layout.describe()} stores {count} elements on this batch; "
            f"got {array.size}"
        )
    return array if array.ndim == 1 else array.reshape(-1)


def imported(slot: Slot, value: Any) -> Any:
    """An array of another library as a NumPy array on the same memory; anything else as it is."""
    if isinstance(value, RaggedArray) or not is_foreign(value):
        return value
    return from_dlpack(value, slot.tensor.dtype, f"'{slot.tensor.name}'")


@lru_cache(maxsize=256)
def _equal_layouts(a: Layout, b: Layout) -> bool:
    """Whether elements lie in the same places."""
    return a == b or a.plain == b.plain


def _same_batch(name: str, array: RaggedArray, plan: Plan) -> None:
    if array.lengths is plan.lengths and array.sizes is plan.sizes:
        return
    for key, lengths in array.lengths.items():
        mine = plan.lengths.get(key)
        if mine is None or mine is lengths:
            continue
        if len(mine) != len(lengths) or (mine != lengths).any():
            bad = f"{len(lengths)} entries, not {len(mine)}"
            if len(mine) == len(lengths):
                at = int(np.argmax(mine != lengths))
                bad = f"entry {at} is {lengths[at]}, not {mine[at]}"
            raise UserError(f"'{name}': its lengths '{key}' are not those of the plan: {bad}")
    for key, size in array.sizes.items():
        if plan.sizes.get(key, size) != size:
            raise UserError(f"'{name}': its size '{key}' is {size}, that of the plan {plan.sizes[key]}")


def _check_shape(slot: Slot, array: Array, plan: Plan) -> None:
    evaluator = Evaluator(plan.sizes, plan.lengths)
    shape = tuple(int(evaluator.value(clamp(d.extent), {})) for d in slot.tensor.dims)
    if array.shape != shape:
        raise UserError(f"'{slot.tensor.name}': expected the shape {shape}; got {array.shape}")
