"""The schedule that a program gets on a GPU when its author gives none.

An element-wise operator that is read once per element is inlined; every other operator is a grid of its own. Its
spatial loops become one loop, ragged ones included, so that exactly the useful iterations run: a thread for each. A
reduction whose loads are contiguous along its last loop, and not along the last spatial one, is shared by the threads
of a warp instead: a warp for each element, its threads side by side in memory.
"""

from __future__ import annotations

from cora.errors import ScheduleError
from cora.ir.expr import Const
from cora.ir.tensor import Tensor
from cora.lang.check import reductions_of
from cora.schedule.default import inlined, strides_along, unused
from cora.schedule.schedule import Schedule
from cora.schedule.threads import WARP

#: Threads of a block.
THREADS = 128


def default_gpu_schedule(untransformed: Schedule) -> Schedule:
    """The default steps added to a schedule of the untransformed program."""
    result = inlined(untransformed)
    for tensor in result.operators:
        result = _nest(result, tensor)
    return result


def _nest(s: Schedule, tensor: Tensor) -> Schedule:
    assert tensor.body is not None
    nest = s.nest(tensor)
    s, spatial = _one_spatial_loop(s, tensor)
    if not any(leaf.reduction for leaf in nest.leaves):
        return s if spatial is None else _spread(s, tensor, spatial)
    positions = any(r.op in ("argmax", "argmin") for r in reductions_of(tensor.body))
    if spatial is None:
        return _by_threads(s, tensor, THREADS)
    if not positions and _along_reduction(s, tensor):
        return _by_warps(s, tensor, spatial)
    return _spread(s, tensor, spatial)


def _one_spatial_loop(s: Schedule, tensor: Tensor) -> tuple[Schedule, str | None]:
    """All spatial loops as one, as far as they can be fused; the name of the outermost (None: there is none)."""
    names = [leaf.name for leaf in s.nest(tensor).leaves if not leaf.reduction]
    if not names:
        return s, None
    if len(names) == 1:
        return s, names[0]
    for count in range(len(names), 1, -1):
        name = unused(s, tensor, "threads")
        try:
            return s.fuse(tensor, *names[:count], name=name), name
        except ScheduleError:
            continue
    return s, names[0]


def _spread(s: Schedule, tensor: Tensor, loop: str) -> Schedule:
    """A thread for each iteration of the outermost loop."""
    outer, inner = unused(s, tensor, f"{loop}_b"), unused(s, tensor, f"{loop}_t")
    s = s.split(tensor, loop, THREADS, names=(outer, inner))
    return s.bind(tensor, outer, "blockIdx.x").bind(tensor, inner, "threadIdx.x")


def _by_warps(s: Schedule, tensor: Tensor, loop: str) -> Schedule:
    """A warp for each iteration of the outermost loop; its threads share the last reduction loop."""
    outer, inner = unused(s, tensor, f"{loop}_b"), unused(s, tensor, f"{loop}_w")
    s = s.split(tensor, loop, THREADS // WARP, names=(outer, inner))
    s = _by_threads(s, tensor, WARP)
    return s.bind(tensor, outer, "blockIdx.x").bind(tensor, inner, "threadIdx.y")


def _by_threads(s: Schedule, tensor: Tensor, threads: int) -> Schedule:
    """The last reduction loop on the threads of a warp or block."""
    last = next(leaf for leaf in reversed(s.nest(tensor).leaves) if leaf.reduction)
    if isinstance(last.extent, Const) and int(last.extent.value) < 2:
        return s
    outer, inner = unused(s, tensor, f"{last.name}_s"), unused(s, tensor, f"{last.name}_l")
    return s.split(tensor, last.name, threads, names=(outer, inner)).bind(tensor, inner, "threadIdx.x")


def _along_reduction(s: Schedule, tensor: Tensor) -> bool:
    """Whether threads side by side along the last reduction loop read side by side, and along the spatial one not."""
    leaves = s.nest(tensor).leaves
    last_reduction = next(leaf for leaf in reversed(leaves) if leaf.reduction)
    last_spatial = next(leaf for leaf in reversed(leaves) if not leaf.reduction)
    along = strides_along(s, tensor, last_reduction.var)[1:]
    across = strides_along(s, tensor, last_spatial.var)[1:]
    return (
        1 in along
        and all(stride in (0, 1) for stride in along)
        and not (1 in across and all(stride in (0, 1) for stride in across))
    )
