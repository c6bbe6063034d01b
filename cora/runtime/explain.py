"""What a kernel does, in words: loops, guards, auxiliary arrays; on a batch also sizes and waste."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cora.ir import dtypes
from cora.ir.evaluate import Evaluator
from cora.ir.tensor import Tensor
from cora.runtime.artifact import Artifact
from cora.runtime.count import (
    Waste,
    elements,
    executed_iterations,
    flops_per_iteration,
    useful_iterations,
)

if TYPE_CHECKING:
    from cora.runtime.plan import Plan, Prepared


def explain(artifact: Artifact, plan: Plan | None, prepared: Prepared | None) -> str:
    """The explanation of a kernel; `plan` and `prepared` (both or neither) add one batch's sizes and waste."""
    parts = [
        f"kernel {artifact.name} for {artifact.target}",
        section("definition", artifact.stages["definition"]),
        section("schedule", artifact.stages["schedule"]),
        section("loops", artifact.stages["lowered"]),
        section("guards", _guards(artifact)),
        section("storage", "\n".join(f"{s.tensor.name}{s.layout.describe()}" for s in artifact.slots)),
        section("auxiliary arrays", _tables(artifact, prepared)),
    ]
    if plan is not None and prepared is not None:
        parts.append(section("batch", repr(plan)))
        parts.append(section("waste", str(waste(artifact, plan, prepared))))
    return "\n\n".join(parts)


def section(title: str, body: str) -> str:
    """A part of the explanation."""
    return f"{title}:\n" + "\n".join(f"  {line}" for line in (body or "(none)").splitlines())


def _guards(artifact: Artifact) -> str:
    lines = []
    for operator in dict.fromkeys(g.operator for g in artifact.guards):
        lines.append(f"{operator}:")
        lines += [f"  {guard}" for guard in artifact.guards if guard.operator == operator]
    return "\n".join(lines)


def _tables(artifact: Artifact, prepared: Prepared | None) -> str:
    lines = artifact.prelude.describe().splitlines()
    shown = []
    for position, (table, line) in enumerate(zip(artifact.prelude.tables, lines, strict=True)):
        if table.fun.name.startswith("size_"):
            continue
        name = artifact.table_names.get(position, "")
        label = f"{name}: " if name and name != table.fun.name else ""
        sizes = f" = {prepared.tables[position].size} entries" if prepared is not None else ""
        shown.append(label + line + sizes)
    return "\n".join(shown)


def waste(artifact: Artifact, plan: Plan, prepared: Prepared) -> Waste:
    """Executed and useful FLOPs, stored and useful bytes of a kernel on the batch of `plan`."""
    evaluator = Evaluator({**plan.sizes, "%workers": plan.threads}, plan.lengths)
    executed = useful = 0
    counted: set[Tensor] = set()
    for nest in artifact.nests.values():
        assert nest.tensor.body is not None
        flops = flops_per_iteration(nest.tensor.body)
        executed += flops * executed_iterations(nest, evaluator)
        if nest.tensor not in counted:  # the pieces of an operator share its iterations
            useful += flops * useful_iterations(nest, evaluator)
        counted.add(nest.tensor)
    stored = valid = 0
    for slot, count in zip(artifact.slots, prepared.element_counts, strict=True):
        size = dtypes.itemsize(slot.tensor.dtype)
        stored += size * count
        dims = slot.tensor.dims
        valid += size * elements(dims, [d.extent for d in dims], evaluator)
    return Waste(executed, useful, stored, valid)
