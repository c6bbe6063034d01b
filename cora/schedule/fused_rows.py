"""Copies for loops that are fused: the rows of a ragged tensor, one behind another, as one dim of the copy.

A tile of a fused loop holds parts of several rows, so what it reads is an interval of no dim; but it is one of
iterations of the fused loop: `X[ffo(f), ffi(f), k]` for the values f of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cora.ir.expr import Access, Call, Dim, Expr
from cora.ir.simplify import Simplifier
from cora.ir.tensor import Tensor
from cora.ir.ufun import FusedInner, FusedOuter, Scan, UFun, fusion_maps
from cora.ir.visit import free_dims, substitute
from cora.schedule.nest import LoopNest


@dataclass(frozen=True, slots=True)
class FusedRows:
    """Dims `place` and `place + 1` of a tensor as one, in which row r starts at `offset(r)`."""

    place: int
    offset: UFun

    def indices(self, given: Sequence[Expr]) -> tuple[Expr, ...]:
        """The indices into the copy of an element with the given indices of the tensor."""
        k = self.place
        return (*given[:k], self.offset(given[k]) + given[k + 1], *given[k + 2 :])


def fused_rows(nest: LoopNest, reads: Sequence[Access]) -> FusedRows | None:
    """The two dims of a tensor through which one fused loop of its reader runs, in all its reads; None: there are none.

    Only where the outer of them depends on no loop around the two, and no later dim of the tensor on the two.
    """
    simplifier = Simplifier({leaf.var: leaf.extent for leaf in nest.scope})
    found: set[FusedRows | None] = set()
    for read in reads:
        values = [simplifier(substitute(index, nest.values)) for index in read.indices]
        found.add(next((f for k in range(len(values) - 1) if (f := _pair(k, values)) is not None), None))
    (rows,) = found if len(found) == 1 else (None,)
    if rows is None:
        return None
    dims = reads[0].tensor.dims
    joined = set(dims[rows.place : rows.place + 2])
    return None if any(free_dims(d.extent) & joined for d in dims[rows.place + 2 :]) else rows


def _pair(k: int, values: Sequence[Expr]) -> FusedRows | None:
    match values[k], values[k + 1]:
        case (
            Call(fun=UFun(definition=FusedOuter(offset=offset)), args=(outer,)),
            Call(fun=UFun(definition=FusedInner(offset=same)), args=(inner,)),
        ) if offset == same and outer == inner:
            return FusedRows(k, offset)
    return None


def copy_of(source: Tensor, name: str, joined: FusedRows | None) -> Tensor:
    """The operator that copies `source`."""
    if joined is None:
        return Tensor(name, source.dims, source.dtype, Access(source, tuple(source.dims)))
    k, offset = joined.place, joined.offset
    assert isinstance(offset.definition, Scan)
    outer, inner = source.dims[k : k + 2]
    rows = Dim(f"{outer.name}_{inner.name}", offset(offset.definition.index.extent))
    ffo, ffi = fusion_maps(offset)
    dims = (*source.dims[:k], rows, *source.dims[k + 2 :])
    body = Access(source, (*source.dims[:k], ffo(rows), ffi(rows), *source.dims[k + 2 :]))
    return Tensor(name, dims, source.dtype, body)
