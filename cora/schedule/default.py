"""The schedule that a program gets when its author gives none.

Per operator: one loop for everything where all tensors are stored alike; otherwise the outermost loop in parallel,
balanced by cost, and one loop in vector lanes, chosen so that every access has stride 0 or 1 along it.
"""

from __future__ import annotations

from cora.errors import CoraError
from cora.ir import dtypes
from cora.ir.expr import Access, Const, Dim, Reduce, Var
from cora.ir.simplify import Simplifier, linear_in
from cora.ir.tensor import Tensor
from cora.ir.visit import free_dims, substitute, walk
from cora.lang.check import reductions_of
from cora.schedule.nest import LoopNest
from cora.schedule.schedule import Schedule
from cora.storage.offsets import offset

VECTOR_BYTES = 64


def default_schedule(untransformed: Schedule) -> Schedule:
    """The default steps added to a schedule of the untransformed program."""
    result = untransformed
    for tensor in untransformed.tensors:
        if tensor.body is not None:
            result = _operator(result, tensor)
    return result


def lanes_of(tensor: Tensor) -> int:
    """One vector of the type that the operator computes in."""
    return min(16, VECTOR_BYTES // dtypes.itemsize(dtypes.compute_type(tensor.dtype)))


def _operator(s: Schedule, tensor: Tensor) -> Schedule:
    assert tensor.body is not None
    if not tensor.dims:
        return _vector_reduction(s, tensor)
    reductions = reductions_of(tensor.body)
    if not reductions:
        flat = _flat(s, tensor)
        return flat if flat is not None else _elementwise(s, tensor)
    if _unit_stride(s, tensor, tensor.dims[-1]) and _reads_along(s, tensor, tensor.dims[-1]):
        return _columns(s, tensor, reductions[0].over)
    return _vector_reduction(s, tensor).parallel(tensor, tensor.dims[0])


def _flat(s: Schedule, tensor: Tensor) -> Schedule | None:
    """All loops as one, if then every tensor is read and written at the loop variable itself."""
    name = "flat"
    if len(tensor.dims) == 1:
        name = tensor.dims[0].name
        fused = s
    else:
        try:
            fused = s.fuse(tensor, *tensor.dims, name=name)
        except CoraError:
            return None
    nest = fused.nest(tensor)
    if any(stride != 1 for stride in _strides(fused, tensor, nest.leaves[0].var)):
        return None
    vectorized = fused.vectorize(tensor, name, lanes_of(tensor))
    return vectorized.parallel(tensor, vectorized.nest(tensor).leaves[0].name)


def _elementwise(s: Schedule, tensor: Tensor) -> Schedule:
    *outer, last = tensor.dims
    vector = _unit_stride(s, tensor, last)
    if vector:
        s = s.vectorize(tensor, last, lanes_of(tensor))
    if not outer:
        return s.parallel(tensor, s.nest(tensor).leaves[0].name)
    if len(outer) > 1 and not free_dims(last.extent):
        return s.fuse(tensor, *outer, name="rows").parallel(tensor, "rows")
    return s.parallel(tensor, outer[0])


def _columns(s: Schedule, tensor: Tensor, over: tuple[Dim, ...]) -> Schedule:
    """The last dim in lanes, inside the reduction: a vector of accumulators, four registers wide where there is room."""
    last = tensor.dims[-1]
    lanes = lanes_of(tensor)
    if not isinstance(last.extent, Const) or int(last.extent.value) > 2 * lanes:
        lanes *= 4
    s = s.split(tensor, last, lanes)
    outer, inner = f"{last.name}_o", f"{last.name}_i"
    s = s.reorder(tensor, outer, *over, inner).vectorize(tensor, inner)
    return s.parallel(tensor, s.nest(tensor).leaves[0].name)


def _vector_reduction(s: Schedule, tensor: Tensor) -> Schedule:
    """The last dim reduced over in lanes, if its accesses allow it."""
    assert tensor.body is not None
    reductions = reductions_of(tensor.body)
    if not reductions or any(r.op in ("argmax", "argmin") for r in reductions):
        return s
    last = reductions[0].over[-1]
    return s.vectorize(tensor, last, lanes_of(tensor)) if _unit_stride(s, tensor, last) else s


def _unit_stride(s: Schedule, tensor: Tensor, dim: Dim) -> bool:
    """Whether every access has stride 0 or 1 along `dim`, and the store stride 1 (if it is a dim of the tensor)."""
    store, *loads = _strides(s, tensor, Var(dim.name))
    return all(stride in (0, 1) for stride in loads) and store == (1 if dim in tensor.dims else 0)


def _reads_along(s: Schedule, tensor: Tensor, dim: Dim) -> bool:
    _, *loads = _strides(s, tensor, Var(dim.name))
    return 1 in loads


def _strides(s: Schedule, tensor: Tensor, var: Var) -> list[int | None]:
    """How far the store and each load move in memory along a leaf variable; None if not evenly."""
    assert tensor.body is not None
    nest = s.nest(tensor)
    simplifier = Simplifier({leaf.var: leaf.extent for leaf in nest.leaves})
    accesses = [Access(tensor, tuple(tensor.dims))]
    accesses += [n for n in walk(tensor.body) if isinstance(n, Access)]
    return [_stride(s, access, nest, simplifier, var) for access in dict.fromkeys(accesses)]


def _stride(s: Schedule, access: Access, nest: LoopNest, simplifier: Simplifier, var: Var) -> int | None:
    indices = [simplifier(substitute(i, nest.values)) for i in access.indices]
    at = simplifier(offset(s.layout(access.tensor), indices))
    if any(isinstance(n, (Access, Reduce)) for n in walk(at)):
        return None
    split = linear_in(at, var)
    return None if split is None else split[0]
