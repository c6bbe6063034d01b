"""Whether a kernel computes what its program means, before anyone measures how fast it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cora.autotune.batches import Batch
from cora.autotune.inputs import draw_inputs
from cora.errors import UserError
from cora.interp import Reference, interpret
from cora.ir import dtypes
from cora.ir.tensor import Tensor
from cora.runtime.kernel import Kernel
from cora.runtime.plan import plan
from cora.storage.array import RaggedArray
from cora.storage.boxes import Batch as Bound
from cora.storage.boxes import stored_size
from cora.storage.lengths import bind

__all__ = ["Check", "checks_of", "fault_in", "matches", "run_guarded"]

Array = npt.NDArray[Any]

#: Roundings that a kernel may be off, in units of the interpreter's first-order bound.
ULPS = 8.0
#: Elements before and after an output that nobody may write to.
MARGIN = 64


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """A batch with its inputs, and what the interpreter says about the outputs."""

    batch: Batch
    inputs: Mapping[str, RaggedArray]
    references: tuple[Reference, ...]


def checks_of(outputs: Sequence[Tensor], batches: Sequence[Batch]) -> tuple[Check, ...]:
    """Checks on `batches`, without those on which the program means nothing (an index into an empty dim).

    Raises UserError if it means nothing on any of them.
    """
    found: list[Check] = []
    fault = ""
    for number, batch in enumerate(batches):
        try:
            inputs = draw_inputs(outputs, batch, seed=number)
            references = interpret(tuple(outputs), inputs, sizes=dict(batch.sizes), lengths=batch.arrays)
        except UserError as error:
            fault = str(error)
            continue
        found.append(Check(batch, inputs, references))
    if not found:
        raise UserError(f"tune: the program runs on none of {len(batches)} batches: {fault}")
    return tuple(found)


def fault_in(kernel: Kernel, checks: Sequence[Check], threads: int, undefined: frozenset[str]) -> str | None:
    """What is wrong with the results of a kernel; None if nothing is.

    undefined: outputs whose storage padding may hold anything.
    """
    for check in checks:
        fault = _fault(kernel, check, threads, undefined)
        if fault is not None:
            return f"on {check.batch}: {fault}"
    return None


def _fault(kernel: Kernel, check: Check, threads: int, undefined: frozenset[str]) -> str | None:
    outputs, fault = run_guarded(kernel, check.batch, check.inputs, threads)
    if fault is not None:
        return fault
    for reference in check.references:
        name = reference.tensor.name
        array = outputs[name]
        elements = array.packed()
        wrong = ~matches(elements, reference.values, ULPS * reference.error, reference.tensor.dtype)
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            at = reference.indices()[first].tolist()
            return (
                f"{name}{at} is {elements[first]!r} instead of {reference.values[first]!r}; "
                f"{np.count_nonzero(wrong)} of {len(elements)} elements are wrong"
            )
        stray = np.count_nonzero(array.values) - np.count_nonzero(elements)
        if stray and name not in undefined:
            return f"{stray} elements of the storage padding of {name} are not zero"
    return None


def run_guarded(
    kernel: Kernel, batch: Batch, inputs: Mapping[str, RaggedArray], threads: int
) -> tuple[dict[str, RaggedArray], str | None]:
    """The outputs of a kernel, by name, in memory filled with NaN; and whether it wrote beside them."""
    wanted = {*kernel.size_names, *kernel.length_domains}
    made = plan(kernel, threads=threads, **{k: v for k, v in batch.named.items() if k in wanted})
    arrays = [inputs[name].to_layout(kernel.layout(name)) for name in kernel.inputs]
    outputs: dict[str, RaggedArray] = {}
    memory: dict[str, Array] = {}
    for slot in kernel.artifact.slots:
        if slot.role != "output":
            continue
        name, dtype = slot.tensor.name, slot.tensor.dtype
        sizes, lengths = bind(slot.tensor.dims, dict(batch.sizes), batch.arrays, f"output '{name}'")
        count = stored_size(slot.layout, Bound(sizes, lengths))
        whole = np.full(count + 2 * MARGIN, _poison(dtype), dtypes.to_numpy(dtype))
        memory[name] = whole
        outputs[name] = RaggedArray(whole[MARGIN : MARGIN + count], slot.layout, lengths, sizes, name, dtype)
    kernel.run(made, *arrays, outputs=outputs)
    for name, whole in memory.items():
        margins = np.concatenate([whole[:MARGIN], whole[-MARGIN:]])
        if margins.tobytes() != np.full_like(margins, _poison(outputs[name].dtype)).tobytes():
            return outputs, f"it wrote outside the storage of {name}"
    return outputs, None


def _poison(dtype: str) -> Any:
    if dtypes.is_float(dtype):
        return float("nan")
    return True if dtype == "bool" else dtypes.lowest(dtype)


def matches(elements: Array, expected: Array, allowed: Array, dtype: str) -> npt.NDArray[np.bool_]:
    """Which elements are right: equal, or for floating point within `allowed`; NaN where NaN is expected.

    An infinity is right where the expected value may round to one.
    """
    if not dtypes.is_float(dtype):
        return np.asarray(elements == expected)
    got = elements.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(got - expected) <= allowed
        rounded = (expected + np.copysign(allowed, expected)).astype(elements.dtype)
    same = (np.isnan(got) & np.isnan(expected)) | (got == expected)
    return np.asarray(near | same | (np.isinf(got) & (got == rounded.astype(np.float64))))
