"""Programs: kernels that are called in turn, on arrays that have names."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cora.errors import UnsupportedError, UserError
from cora.runtime.artifact import Slot
from cora.runtime.kernel import Kernel
from cora.runtime.names import RESERVED
from cora.runtime.routines import calls_library

#: Keywords of a deployed program that are no arrays, lengths or sizes.
KEYWORDS = frozenset({*RESERVED, "outputs"})


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A step of a program: the name of a kernel, and for each of its inputs and outputs the program's array."""

    kernel: str
    arrays: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProgramArray:
    """An array of a program.

    slot: the tensor of the kernel that uses it first. role: "input", "output" or "temporary". memory: which of the
    program's buffers a temporary lies in; those in one buffer are not needed at the same time.
    """

    slot: Slot
    role: str
    memory: int | None


def arrays_of(kernels: Mapping[str, Kernel], calls: Sequence[KernelCall]) -> dict[str, ProgramArray]:
    """All arrays of a program, in order of first use.

    An array that no call writes is an input; one that is written and not read afterwards an output. Raises UserError
    for calls that leave out or invent tensors, for arrays that are written twice, or read before they are written, and
    for tensors of different types or layouts in one array; UnsupportedError for kernels that run on no CPU.
    """
    if not calls:
        raise UserError("deploy: expected at least one call")
    slots: dict[str, Slot] = {}
    written: dict[str, int] = {}
    last_read: dict[str, int] = {}
    for number, call in enumerate(calls):
        kernel = _kernel(kernels, call)
        own = {s.tensor.name: s for s in kernel.artifact.slots if s.role != "workspace"}
        if set(own) != set(call.arrays):
            raise UserError(
                f"deploy: call of '{call.kernel}': expected arrays for {', '.join(own)}; "
                f"got some for {', '.join(call.arrays) or 'none'}"
            )
        for tensor, slot in own.items():
            name = call.arrays[tensor]
            _check_alike(name, slots.setdefault(name, slot), slot)
            if slot.role == "input":
                last_read[name] = number
        for tensor, slot in own.items():
            name = call.arrays[tensor]
            if slot.role == "output":
                if name in written or name in last_read:
                    raise UserError(f"deploy: array '{name}' is written after it was read or written before")
                written[name] = number
    _check_names(kernels, calls, slots)
    outputs = {name for name in written if name not in last_read}
    memory = _share_memory({n: (at, last_read[n]) for n, at in written.items() if n not in outputs})
    return {
        name: ProgramArray(slot, _role(name, written, outputs), memory.get(name))
        for name, slot in slots.items()
    }


def _kernel(kernels: Mapping[str, Kernel], call: KernelCall) -> Kernel:
    kernel = kernels.get(call.kernel)
    if kernel is None:
        raise UserError(f"deploy: no kernel '{call.kernel}'; there are {', '.join(kernels)}")
    if kernel.artifact.target.startswith("cuda|"):
        raise UnsupportedError(
            f"deploy: kernel '{call.kernel}' is for CUDA; programs of CPU kernels are written"
        )
    if calls_library(kernel.artifact.nests):
        raise UnsupportedError(
            f"deploy: kernel '{call.kernel}' calls OpenBLAS, which is not part of the folder; let micro-kernels "
            "compute its tiles"
        )
    return kernel


def _role(name: str, written: Mapping[str, int], outputs: set[str]) -> str:
    if name not in written:
        return "input"
    return "output" if name in outputs else "temporary"


def _check_alike(name: str, first: Slot, other: Slot) -> None:
    """UserError unless both tensors have their elements in the same places, as far as is known without a batch."""
    if first.tensor.dtype != other.tensor.dtype:
        raise UserError(
            f"deploy: array '{name}': '{first.tensor.name}' is of type {first.tensor.dtype}, "
            f"'{other.tensor.name}' of {other.tensor.dtype}"
        )
    plain = all(s.layout.is_packed and s.layout.is_row_major for s in (first, other))
    if not plain and first.layout.plain != other.layout.plain:
        raise UserError(
            f"deploy: array '{name}': '{first.tensor.name}' has the layout {first.layout.describe()}, "
            f"'{other.tensor.name}' has {other.layout.describe()}"
        )


def _check_names(
    kernels: Mapping[str, Kernel], calls: Sequence[KernelCall], slots: Mapping[str, Slot]
) -> None:
    """Arrays, lengths and sizes are all keywords of one call."""
    used = {call.kernel: kernels[call.kernel] for call in calls}.values()
    others = {name for k in used for name in (*k.size_names, *k.length_domains)}
    for name in slots:
        if not name.isidentifier() or keyword.iskeyword(name) or name in KEYWORDS | others:
            raise UserError(
                f"deploy: array '{name}': expected an identifier that is no keyword, no length and no size"
            )
    domains: dict[str, str] = {}
    for kernel in used:
        for name, domain in kernel.length_domains.items():
            text = ", ".join(str(d.extent) for d in domain)
            if domains.setdefault(name, text) != text:
                raise UserError(f"deploy: lengths '{name}' are over [{domains[name]}] and over [{text}]")


def _share_memory(lives: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """A buffer for each temporary: from the call that writes it to the last that reads it, it has it for itself."""
    free_after: list[int] = []
    places: dict[str, int] = {}
    for name, (start, end) in sorted(lives.items(), key=lambda life: life[1]):
        place = next((p for p, until in enumerate(free_after) if until < start), len(free_after))
        if place == len(free_after):
            free_after.append(end)
        free_after[place] = end
        places[name] = place
    return places
