"""Ragged accesses to flat offsets (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import lcm

from cora.ir.expr import ONE, ZERO, Access, Const, Dim, Expr, Read, binary
from cora.ir.simplify import simplify
from cora.ir.stmt import Buffer, LoopKind
from cora.ir.ufun import maximum_over
from cora.ir.visit import free_dims, transform
from cora.schedule.balance import WORKERS, worker_of
from cora.schedule.nest import LoopNest
from cora.storage.layout import Layout, closure
from cora.storage.offsets import offset

#: Of the innermost dim of scratch memory that is not split, in elements: workers share no cache line.
_SCRATCH_MULTIPLE = 16


@dataclass(frozen=True, slots=True)
class Flat:
    """An operator over flat buffers: where its element goes, and its value."""

    buffer: Buffer
    offset: Expr
    body: Expr


@dataclass(frozen=True, slots=True)
class Place:
    """Where the elements of a tensor lie while the program runs.

    origin: of scratch memory, which holds what one iteration of a loop computes: the first index of each dim.
    worker: the number of the worker that runs the iteration, the outermost dim of `layout` then.
    """

    layout: Layout
    origin: tuple[Expr, ...] | None = None
    worker: tuple[Expr, ...] = ()

    def indices(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The indices into the layout of an element with the given indices of the tensor."""
        if self.origin is None:
            return tuple(indices)
        moved = (simplify(i - o) for i, o in zip(indices, self.origin, strict=True))
        return (*self.worker, *moved)

    def offset(self, indices: Sequence[Expr]) -> Expr:
        """The offset of an element in the buffer."""
        return offset(self.layout, self.indices(indices))

    def begin(self, k: int) -> Expr:
        """The first index of dim `k` of the tensor that is stored."""
        return ZERO if self.origin is None else self.origin[k]

    def end(self, k: int, indices: Sequence[Expr]) -> Expr:
        """One more than the last index of dim `k` of the tensor that is stored."""
        extent = self.layout.extent(k + len(self.worker), self.indices(indices))
        return extent if self.origin is None else simplify(self.origin[k] + extent)


def place_of(nest: LoopNest, layout: Layout, *, gpu: bool = False) -> Place:
    """Where a nest stores its results: as the layout says, or for each worker what one iteration around it computes.

    On a GPU each block, or thread, has scratch memory of its own, and rows lie close together; so do those of local
    variables.
    """
    if not nest.scratch:
        return Place(layout)
    close = gpu or nest.chip == "register"
    tensor = nest.tensor
    dims: list[Dim] = []
    for k, dim in enumerate(tensor.dims):
        largest = nest.regions[dim].largest
        extent = simplify(binary("max", dim.extent, ZERO))
        if largest is not None:
            extent = Const(largest)
        elif free_dims(extent):
            extent = maximum_over(closure(tensor.dims, k), extent)()
        dims.append(Dim(dim.name, extent))
    own = layout.over(dims)
    if dims and not own.relations and not close:
        innermost = own.order[-1]
        multiple = lcm(own.pads[innermost].multiple, _SCRATCH_MULTIPLE)
        own = own.with_pad(dims[innermost], multiple, own.pads[innermost].to_max)
    parallel = [leaf for leaf in nest.around if leaf.kind is LoopKind.PARALLEL]
    shared = bool(parallel) and not close
    worker = worker_of(parallel[0]) if shared else ZERO
    origin = tuple(nest.regions[dim].begin for dim in tensor.dims)
    return Place(own.inside(Dim("%worker", WORKERS if shared else ONE)), origin, (worker,))


def flatten_body(
    body: Expr,
    places: Mapping[str, Place],
    buffers: Mapping[str, Buffer],
    simplifier: Callable[[Expr], Expr],
) -> Expr:
    """Every access in `body` as a read of a flat buffer: `T[f]` where loops and storage are fused alike."""

    def rule(e: Expr) -> Expr | None:
        match e:
            case Access(tensor=tensor, indices=indices):
                return Read(buffers[tensor.name], simplifier(places[tensor.name].offset(indices)))
        return None

    return transform(body, rule)
