"""The tree-shaped storage scheme (CSF) of sparse compilers: the baseline that ours is compared with.

Each dim is a level of a tree. A slice of a variable dim may have any number of entries there, so a
level for such a dim stores where the entries of each of its slices start: one number per slice.
Ragged tensors need far less, since their extents depend on few outer dims (paper, appendix on
storage access lowering, and section 7.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from cora.errors import UserError
from cora.ir.expr import ZERO, Expr
from cora.ir.ufun import UFun
from cora.ir.visit import free_dims
from cora.storage.boxes import Batch
from cora.storage.layout import Layout
from cora.storage.lengths import Lengths
from cora.storage.offsets import auxiliary_functions, size, storage_dims, table_layout, table_size


def csf_entries(layout: Layout) -> Expr:
    """The auxiliary entries of the tree-shaped scheme: the slices of every variable dim.

    For X[batch][i][head][j] with i and j of size s24(batch): s1 + s3 * sum of s24. (Each level's
    array has one entry more, its end, which the paper does not count.)
    """
    dims = storage_dims(layout)
    total: Expr = ZERO
    for p, dim in enumerate(dims):
        if free_dims(dim.extent):
            total = total + size(Layout.packed(dims[:p]))
    return total


def auxiliary_entries(layout: Layout) -> Expr:
    """The auxiliary entries of our scheme: the tables A_d, and those that find a row in them."""
    tables: dict[UFun, None] = {}
    waiting = list(auxiliary_functions(layout))
    while waiting:
        fun = waiting.pop(0)
        if fun not in tables:
            tables[fun] = None
            waiting += auxiliary_functions(table_layout(fun))
    total: Expr = ZERO
    for fun in tables:
        total = total + table_size(fun)
    return total


@dataclass(frozen=True, slots=True)
class CsfStorage:
    """The tree of one batch, by level (storage order).

    A level is the constant extent of its dim, or the array of row starts: slice s has its entries
    at starts[s] .. starts[s + 1].
    """

    levels: tuple[int | tuple[int, ...], ...]
    order: tuple[int, ...]

    @property
    def entries(self) -> int:
        """The auxiliary entries stored, without the end of each array (see `csf_entries`)."""
        return sum(len(level) - 1 for level in self.levels if not isinstance(level, int))

    def offset(self, indices: Sequence[int]) -> int:
        """The position of the element at `indices` (one per axis): one load per variable axis.

        Raises UserError for a wrong number of indices.
        """
        if len(indices) != len(self.levels):
            raise UserError(f"CSF offset: expected {len(self.levels)} indices; got {len(indices)}")
        node = 0
        for level, k in zip(self.levels, self.order, strict=True):
            start = node * level if isinstance(level, int) else level[node]
            node = start + indices[k]
        return node


def csf_storage(layout: Layout, sizes: Mapping[str, int], lengths: Mapping[str, Lengths]) -> CsfStorage:
    """The tree of `layout` for one batch. Its offsets are those of our scheme."""
    evaluator = Batch(sizes, lengths).evaluator()
    dims = storage_dims(layout)
    levels: list[int | tuple[int, ...]] = []
    for p, dim in enumerate(dims):
        if free_dims(dim.extent):
            counts: list[int] = []
            for node in evaluator.points(dims[:p]):
                env: dict[Expr, int] = dict(zip(dims, node, strict=False))
                counts.append(int(evaluator.value(dim.extent, env)))
            levels.append(tuple(accumulate(counts, initial=0)))
        else:
            levels.append(int(evaluator.value(dim.extent)))
    return CsfStorage(tuple(levels), layout.stored.order)
