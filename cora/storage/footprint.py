"""How much memory a layout needs on one batch: elements, padding, and the arrays that find an element.

Our scheme stores the tables A_d of Algorithm 1 and what finds a row in them; the tree-shaped scheme of sparse
compilers (CSF) the starts of all slices (paper, section 7.4 and its appendix on storage access lowering).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cora.ir import dtypes
from cora.ir.expr import Call, Expr
from cora.ir.simplify import simplify
from cora.ir.ufun import Given, UFun
from cora.ir.visit import walk
from cora.storage.boxes import Batch, stored_size
from cora.storage.csf import csf_entries
from cora.storage.layout import Layout
from cora.storage.lengths import Lengths
from cora.storage.offsets import offset, table_offset, table_size

CSF_ENTRY_BYTES = 8  # starts of slices are counted as wide as our prefix sums


@dataclass(frozen=True, slots=True)
class Footprint:
    """The memory of one tensor on one batch, in bytes.

    stored: all elements, padding included; useful: the valid ones. tables: our auxiliary arrays, by name and meaning
    (the lengths themselves, which the batch brings, are not among them). csf: those of the tree-shaped scheme.
    """

    stored_bytes: int
    useful_bytes: int
    tables: Mapping[str, int]
    csf_bytes: int

    @property
    def auxiliary_bytes(self) -> int:
        """Our auxiliary arrays together."""
        return sum(self.tables.values())


def footprint(
    layout: Layout, sizes: Mapping[str, int], lengths: Mapping[str, Lengths], dtype: str = "float32"
) -> Footprint:
    """The memory of a tensor of `dtype` in `layout`. Raises UserError for sizes and lengths that are missing."""
    batch = Batch(sizes, lengths)
    evaluator = batch.evaluator()
    width = dtypes.itemsize(dtype)
    tables: dict[str, int] = {}
    for fun in auxiliary_tables(layout):
        label = f"{fun.name}: {fun.definition}"
        tables[label] = int(evaluator.value(table_size(fun))) * dtypes.itemsize(fun.dtype)
    return Footprint(
        stored_size(layout, batch) * width,
        stored_size(Layout.packed(layout.dims), batch) * width,
        tables,
        int(evaluator.value(csf_entries(layout))) * CSF_ENTRY_BYTES,
    )


def auxiliary_tables(layout: Layout) -> tuple[UFun, ...]:
    """The functions whose tables are read to find an element, those that find a place in these tables included."""
    found: dict[UFun, None] = {}
    waiting: list[Expr] = [simplify(offset(layout, layout.dims))]
    while waiting:
        for node in walk(waiting.pop(0)):
            match node:
                case Call(fun=fun) if fun not in found and not isinstance(fun.definition, Given):
                    found[fun] = None
                    waiting.append(table_offset(fun, fun.domain))
    return tuple(found)
