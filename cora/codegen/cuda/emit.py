"""Kernels to TIR from which TVM prints CUDA C++: no pass runs in between.

So everything that passes would do is done here: flat buffers, explicit thread positions, barriers where the program
has them, truncated division. A vector loop becomes an unrolled loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import tvm
from tvm import tirx as T  # noqa: N812
from tvm.ir import PointerType, PrimType

from cora.codegen.cuda.copies import as_copies, emit_copies
from cora.codegen.cuda.expr import Context, Value, bound, evaluate, find, memory_dtype, store
from cora.codegen.cuda.launches import AXIS_VARS, Launch
from cora.codegen.cuda.reduce import emit_thread_reduce
from cora.codegen.cuda.scope import CudaScope
from cora.codegen.cuda.tensor_core import emit_warp_product
from cora.codegen.cuda.vector import VectorCopy, VectorLoop, as_vectors
from cora.codegen.nodes import Tir, TirBuffer, TirStmt, const, int_value
from cora.codegen.scope import Names
from cora.errors import InternalError
from cora.ir import dtypes
from cora.ir.expr import TRUE, Const, Expr, Read
from cora.ir.stmt import (
    BLOCK_AXES,
    THREAD_AXES,
    Alloc,
    AwaitCopies,
    Barrier,
    Block,
    Buffer,
    CopyAsync,
    For,
    GroupCopies,
    If,
    Let,
    LoopKind,
    Stmt,
    Store,
    ThreadReduce,
    Tile,
    WarpProduct,
    expressions,
    statements,
)
from cora.ir.visit import free_vars, substitute, walk

#: The calling convention of a function that the host launches on a device.
_DEVICE_KERNEL: Final = 2
#: The declared length of arrays, which nothing in code generation looks at.
_ANY_LENGTH: Final = 2**30
#: Loops over the elements of local arrays are unrolled up to this many iterations, so that those stay in registers.
_MAX_UNROLL: Final = 64


def emit(launch: Launch, target: object, index: str) -> tvm.tirx.PrimFunc:
    """The TIR of a kernel; its parameters are the addresses of the buffers, then the sizes (of type `index`)."""
    names = Names()
    scope = CudaScope(names)
    params: list[Tir] = []
    buffers: dict[Buffer, TirBuffer] = {}
    for buffer in launch.buffers:
        pointer, array = _parameter(names, scope, buffer)
        params.append(pointer)
        buffers[buffer] = array
    values: dict[Expr, Value] = {}
    for size in launch.sizes:
        var = T.Var(names.fresh(size.name), index)
        params.append(var)
        values[size] = Value(var, index, nonneg=True)
    axes: dict[LoopKind, Tir] = {}
    for kind, var in AXIS_VARS.items():
        axes[kind] = T.Var(names.fresh(kind.value.replace(".", "_")), "int32")
        place = axes[kind] if index == "int32" else T.Cast(index, axes[kind])
        values[var] = Value(place, index, nonneg=True)
    context = Context(scope, index, values, buffers)
    _stmt(context, launch.body, launch, axes)
    body = _in_axes(scope.stmt(), launch, axes)
    attrs = tvm.ir.make_node(
        "ir.DictAttrs",
        **{
            "global_symbol": launch.name,
            "tirx.noalias": True,
            "tirx.is_global_func": True,
            "calling_conv": _DEVICE_KERNEL,
            "target": target,
        },
    )
    return T.PrimFunc(params, body, attrs=attrs)


def _parameter(names: Names, scope: CudaScope, buffer: Buffer) -> tuple[Tir, TirBuffer]:
    """The address of a flat array and the array, aligned to one element."""
    if buffer.scope in ("local", "shared"):
        raise InternalError(f"parameter '{buffer.name}' must not be {buffer.scope}")
    stored = memory_dtype(buffer.dtype)
    name = names.fresh(buffer.name)
    pointer = T.Var(names.fresh(f"{name}_data"), PointerType(PrimType(stored), "global"))
    alignment = dtypes.itemsize(buffer.dtype)
    array = T.decl_buffer((const(_ANY_LENGTH, "int32"),), stored, name, data_alignment=alignment)
    scope.add(T.DeclBuffer(array, data=pointer))
    return pointer, array


def _in_axes(body: TirStmt, launch: Launch, axes: dict[LoopKind, Tir]) -> TirStmt:
    """`body` with every axis declared. The grid is not part of the code: its extents are placeholders."""
    extents = dict(zip(THREAD_AXES, launch.block, strict=True))
    for kind in (*reversed(THREAD_AXES), *reversed(BLOCK_AXES)):
        extent = const(extents.get(kind, _ANY_LENGTH), "int32")
        domain = tvm.ir.Range(const(0, "int32"), extent)
        axis = T.IterVar(domain, axes[kind], T.IterVar.ThreadIndex, kind.value)
        body = T.AttrStmt(axis, "thread_extent", extent, body)
    return body


def _stmt(c: Context, s: Stmt, launch: Launch, axes: dict[LoopKind, Tir]) -> None:
    copies = as_copies(s, c.definitions)
    if copies is not None and copies.hardware:
        emit_copies(c, copies, _in_loop)
        return
    match s:
        case Block(stmts=stmts):
            for inner in stmts:
                _stmt(c, inner, launch, axes)
        case Let(var=var, value=e, body=body):
            inside = c.with_value(var, bound(c, evaluate(c, e), var.name))
            if var.dtype == dtypes.INDEX:
                inside = replace(inside, definitions={**c.definitions, var: substitute(e, c.definitions)})
            _stmt(inside, body, launch, axes)
        case Store(buffer=buffer, offset=offset, value=e):
            place = evaluate(c, offset)
            store(c, buffer, place, evaluate(c, e))
        case If(cond=cond, then=then, other=other):
            test = evaluate(c, cond).tir
            yes, no = c.child(), c.child()
            _stmt(yes, then, launch, axes)
            if other is not None:
                _stmt(no, other, launch, axes)
            c.scope.add(T.IfThenElse(test, yes.scope.stmt(), None if other is None else no.scope.stmt()))
        case Alloc(buffer=buffer, body=body):
            if not isinstance(buffer.size, Const):
                raise InternalError(f"'{buffer.name}': the size must be a constant; got {buffer.size}")
            size = int(buffer.size.value)
            block = c.child()
            array = block.scope.alloc(buffer.name, memory_dtype(buffer.dtype), size, buffer.scope)
            _stmt(replace(block, buffers={**block.buffers, buffer: array}), body, launch, axes)
            c.scope.add(block.scope.stmt())
        case For():
            vectors = as_vectors(s, c.definitions)
            if vectors is not None:
                _vectors(c, s, vectors, launch, axes)
            else:
                _loop(c, s, launch, axes)
        case CopyAsync(buffer=buffer, offset=offset, source=source):
            # too narrow for the hardware: at once
            value = T.BufferLoad(find(c, source.buffer), [evaluate(c, source.offset).tir])
            c.scope.add(T.BufferStore(find(c, buffer), value, [evaluate(c, offset).tir]))
        case WarpProduct():
            emit_warp_product(c, s, axes[LoopKind.THREAD_X])
        case AwaitCopies(groups=None):
            c.scope.add(T.Evaluate(T.call_extern("int32", "cora_await_copies")))
        case AwaitCopies(groups=groups):
            c.scope.add(T.Evaluate(T.call_extern("int32", f"cora_await_copies_but<{groups}>")))
        case GroupCopies():
            c.scope.add(T.Evaluate(T.call_extern("int32", "cora_group_copies")))
        case Barrier():
            c.scope.add(T.Evaluate(T.op.tvm_storage_sync("shared")))
        case ThreadReduce(buffer=buffer):
            values = find(c, buffer)
            positions = None if s.positions is None else find(c, s.positions)
            emit_thread_reduce(c, s, values, positions, launch, axes)
        case Tile():
            raise InternalError("a tile of a CPU's micro-kernel in a kernel for a GPU")


def _loop(c: Context, s: For, launch: Launch, axes: dict[LoopKind, Tir]) -> None:
    _in_loop(c, s, lambda inner: _stmt(inner, s.body, launch, axes))


def _in_loop(c: Context, s: For, body: Callable[[Context], None]) -> None:
    """The loop `s` around what `body` appends."""
    if s.kind not in (LoopKind.SERIAL, LoopKind.VECTOR, LoopKind.UNROLL):
        raise InternalError(f"loop '{s.var.name}' of kind {s.kind.value} in a kernel for a GPU")
    begin, end = evaluate(c, s.begin), evaluate(c, s.end)
    wide = "int64" if "int64" in (begin.dtype, end.dtype) else c.index
    first = begin.tir if begin.dtype == wide else T.Cast(wide, begin.tir)
    last = end.tir if end.dtype == wide else T.Cast(wide, end.tir)
    var = c.scope.var(s.var.name, wide)
    p, q = int_value(begin.tir), int_value(end.tir)
    constant = p is not None and q is not None
    extent = const(max(q - p, 0), wide) if p is not None and q is not None else last
    if not constant:
        # TVM prints the end of a loop into its condition, where it would be evaluated in every iteration
        extent = c.scope.bind(last if p == 0 else T.Sub(last, first), f"{s.var.name}_count")
    inner = c.child()
    body(inner.with_value(s.var, Value(var, wide, nonneg=begin.nonneg)))
    kind = T.ForKind.UNROLLED if constant and _unrolled(s) else T.ForKind.SERIAL
    c.scope.add(T.For(var, first, extent, kind, inner.scope.stmt()))


def _vectors(c: Context, s: For, vectors: VectorLoop, launch: Launch, axes: dict[LoopKind, Tir]) -> None:
    """A vector loop by wide accesses where its condition holds for all lanes, else lane by lane."""
    wide = c.child()
    buffers = dict(wide.buffers)
    for copy in (*vectors.loads, vectors.store):
        local = copy.local
        buffers[local] = wide.scope.alloc(local.name, memory_dtype(local.dtype), vectors.lanes)
    inner = replace(wide, buffers=buffers)
    own = T.Ramp(const(0, "int32"), const(1, "int32"), vectors.lanes)
    for copy in vectors.loads:
        loaded = T.BufferLoad(find(inner, copy.buffer), [_lanes_at(inner, copy, vectors.lanes)])
        inner.scope.add(T.BufferStore(buffers[copy.local], loaded, [own]))
    _loop(inner, For(vectors.var, s.begin, s.end, LoopKind.UNROLL, vectors.lane_body), launch, axes)
    store_ = vectors.store
    stored = T.BufferLoad(buffers[store_.local], [own])
    place = _lanes_at(inner, store_, vectors.lanes)
    inner.scope.add(T.BufferStore(find(inner, store_.buffer), stored, [place]))
    if vectors.whole == TRUE:
        c.scope.add(inner.scope.stmt())
        return
    single = c.child()
    _loop(single, s, launch, axes)
    test = evaluate(c, vectors.whole).tir
    c.scope.add(T.IfThenElse(test, inner.scope.stmt(), single.scope.stmt()))


def _lanes_at(c: Context, copy: VectorCopy, lanes: int) -> Tir:
    """The index of adjacent elements, in a form that shows TVM that it is a multiple of their number."""
    first = evaluate(c, copy.offset)
    shift = const(lanes.bit_length() - 1, first.dtype)
    group = c.scope.bind(T.shift_right(first.tir, shift), "group")
    return T.Ramp(T.Mul(group, const(lanes, first.dtype)), const(1, first.dtype), lanes)


def _unrolled(s: For) -> bool:
    """Whether a loop of constant extent is unrolled: asked for, or its variable indexes a local array."""
    if s.kind is not LoopKind.SERIAL:
        return True
    match s.begin, s.end:
        case Const(value=int(begin)), Const(value=int(end)) if end - begin <= _MAX_UNROLL:
            return _indexes_local(s.body, s)
    return False


def _indexes_local(body: Stmt, loop: For) -> bool:
    accesses: list[Read | Store] = []
    for part in statements(body):
        accesses += [part] if isinstance(part, Store) else []
        accesses += [n for e in expressions(part) for n in walk(e) if isinstance(n, Read)]
    return any(a.buffer.scope == "local" and loop.var in free_vars(a.offset) for a in accesses)
