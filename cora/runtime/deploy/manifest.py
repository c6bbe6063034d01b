"""What a deployed program says of itself: plain data for JSON, read by `cora_deploy`. docs/deploy.md lists it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cora.codegen.abi import memory_dtype
from cora.codegen.target import linux_name
from cora.ir.expr import Const, Dim, Size
from cora.ir.visit import free_dims
from cora.prelude import Table
from cora.runtime.artifact import Artifact, Signature, Slot
from cora.runtime.deploy.program import KernelCall, ProgramArray
from cora.runtime.kernel import Kernel
from cora.storage.layout import FuseAxes, Layout, SplitAxis

#: Raised when a reader of the older form would misread the new one.
FORMAT = 1
#: Stands for a number in messages.
COUNT = "{count}"


def program_data(
    kernels: Mapping[str, Kernel], calls: Sequence[KernelCall], arrays: Mapping[str, ProgramArray]
) -> dict[str, Any]:
    """The program: its arrays, lengths and sizes, and the calls in order."""
    used = [kernels[name] for name in dict.fromkeys(call.kernel for call in calls)]
    domains = {name: domain for kernel in used for name, domain in kernel.length_domains.items()}
    return {
        "arrays": {name: _array(array) for name, array in arrays.items()},
        "lengths": {name: _lengths(domain) for name, domain in domains.items()},
        "sizes": list(dict.fromkeys(name for kernel in used for name in kernel.size_names)),
        "calls": [{"kernel": call.kernel, "arrays": dict(call.arrays)} for call in calls],
    }


def kernel_data(artifact: Artifact) -> dict[str, Any]:
    """A kernel: its functions and their frames, its tensors, its prelude."""
    return {
        "name": artifact.name,
        "function": _function(artifact.kernel),
        "check": None if artifact.check is None else _function(artifact.check),
        "messages": [check.message(COUNT) for check in artifact.checks],
        "tensors": [_tensor(slot) for slot in artifact.slots],
        "prelude": {
            "sizes": list(artifact.prelude.sizes),
            "tables": [_table(table) for table in artifact.prelude.tables],
        },
    }


def target_data(artifact: Artifact) -> dict[str, Any]:
    """The processor that code was made for; `needs`: what Linux calls the features that it must have."""
    arch, cpu, _, features = artifact.target.split("|")[-4:]
    names = [name for name in features.split(",") if name]
    return {"arch": arch, "cpu": cpu, "features": names, "needs": [linux_name(n) for n in names]}


def _function(signature: Signature) -> dict[str, Any]:
    return {
        "name": signature.name,
        "buffers": [[kind, position] for kind, position in signature.buffers],
        "sizes": list(signature.sizes),
    }


def _tensor(slot: Slot) -> dict[str, Any]:
    return {
        "name": slot.tensor.name,
        "role": slot.role,
        "dtype": slot.tensor.dtype,
        "memory": memory_dtype(slot.tensor.dtype),
        "layout": slot.layout.describe(),
        "elements": slot.size_table,
    }


def _table(table: Table) -> dict[str, Any]:
    given = table.kind if table.given else None
    return {
        "name": table.fun.name,
        "key": table.key,
        "dtype": table.fun.dtype,
        "given": given,
        "entries": str(table.size),
        "meaning": table.describe(),
    }


def _array(array: ProgramArray) -> dict[str, Any]:
    slot = array.slot
    return {
        "role": array.role,
        "dtype": slot.tensor.dtype,
        "memory": memory_dtype(slot.tensor.dtype),
        "layout": slot.layout.describe(),
        **_shape(slot),
        "buffer": array.memory,
    }


def _shape(slot: Slot) -> dict[str, Any]:
    """What an array looks like.

    shape: of a dense tensor: numbers, names of sizes, null for what is computed of them; null for a ragged one.
    inner: the constant extents at the end, where rows lie one after the other. row_major: whether memory is in the
    order of the indices. pack: how a dense array becomes what lies in memory, where that is not the same.
    """
    dims, layout = slot.tensor.dims, slot.layout
    plain = layout.is_row_major and layout.is_packed
    dense = not any(free_dims(d.extent) for d in dims)
    inner: list[int] = []
    for dim in reversed(dims if plain else ()):
        if not isinstance(dim.extent, Const):
            break
        inner.insert(0, int(dim.extent.value))
    return {
        "shape": [_extent(d) for d in dims] if dense else None,
        "inner": inner,
        "row_major": layout.is_row_major,
        "pack": _pack(layout) if dense and not plain else None,
    }


def _pack(layout: Layout) -> list[list[Any]]:
    """The steps from a dense array to its memory, on axes by name; the first gives the axes of the array.

    axes: names. pad: an axis to a multiple, with zeros. split: an axis in blocks, and the axis in them. fuse: two axes
    as one. order: of all axes, outermost first.
    """
    steps: list[list[Any]] = [["axes", *(d.name for d in layout.dims)]]
    pads = {d.name: pad.multiple for d, pad in zip(layout.dims, layout.pads, strict=True)}

    def pad(axis: str, multiple: int) -> None:
        if multiple > 1:
            steps.append(["pad", axis, multiple])

    for relation in layout.relations:
        match relation:
            case SplitAxis(axis=axis, factor=factor, outer=outer, inner=inner):
                before = pads.pop(axis)
                if factor % before:
                    pad(axis, before)
                pad(axis, factor)
                steps.append(["split", axis, factor, outer, inner])
            case FuseAxes(outer=outer, inner=inner, name=name):
                pad(outer, pads.pop(outer))
                pad(inner, pads.pop(inner))
                steps.append(["fuse", outer, inner, name])
        pads |= {axis: made.multiple for axis, made in relation.made.items()}
    for axis, multiple in pads.items():
        pad(axis, multiple)
    return [*steps, ["order", *layout.stored_names]]


def _extent(dim: Dim) -> int | str | None:
    match dim.extent:
        case Const(value=value):
            return int(value)
        case Size(name=name):
            return name
    return None


def _lengths(domain: Sequence[Dim]) -> dict[str, Any]:
    """domain: the extents; size: the size that is the number of entries, where it is one."""
    match domain:
        case (Dim(extent=Size(name=name)),):
            size: str | None = name
        case _:
            size = None
    return {"domain": [str(d.extent) for d in domain], "size": size}
