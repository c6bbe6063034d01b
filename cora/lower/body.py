"""The statements of one operator: element by element, by accumulators, or by a micro-kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from cora.ir.stmt import Buffer, Stmt, Store
from cora.lower.first_use import Filled
from cora.lower.flatten import Flat, Place, flatten_body
from cora.lower.guards import Guards
from cora.lower.loops import Loops
from cora.lower.online import Correction
from cora.lower.operation import Operation, simplifier_of
from cora.lower.reduction import reduction
from cora.lower.tensorize import make_tile


def make_loops(
    op: Operation,
    places: Mapping[str, Place],
    buffers: Mapping[str, Buffer],
    guards: Guards,
    attached: Mapping[str, Stmt] = MappingProxyType({}),
    filled: Filled | None = None,
    corrected: Correction | None = None,
) -> Stmt:
    """The loops of one operator; table calls are still calls.

    attached: what other operators compute at the start of each iteration of a leaf, by its name. filled: a copy that
    the operator's micro-kernel fills. corrected: what a maximum that runs asks of the operator's sum.
    """
    simplifier = simplifier_of(op.nest)

    def flattened(op: Operation) -> Flat:
        return Flat(
            buffers[op.tensor.name],
            simplifier(places[op.tensor.name].offset(op.indices)),
            simplifier(flatten_body(op.body, places, buffers, simplifier)),
        )

    flat = flattened(op)
    loops = Loops.of(op.nest, attached, guards)
    if op.nest.tile:
        direct = None if filled is None else replace(filled, flat=flattened(filled.direct))
        tile, conditions = make_tile(op, flat, guards, direct)
        return loops.around(loops.leaves[: -op.nest.tile], conditions, tile)
    if any(leaf.reduction for leaf in op.nest.leaves):
        if corrected is not None:
            corrected = replace(corrected, flat=flattened(corrected.factor))
        return reduction(op, flat, loops, corrected)
    return loops.around(loops.leaves, op.conditions, Store(flat.buffer, flat.offset, flat.body))
