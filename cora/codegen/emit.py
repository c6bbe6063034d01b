"""Lowered functions to TIR that LLVM code generation takes once the arguments are packed: no pass is needed.

So everything that passes would do is done here: flat one-dimensional buffers, explicit vectors (Ramp and
Broadcast), unrolling, truncated division, masks, vector functions. See `values` for how lanes are treated.
"""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import tirx as T  # noqa: N812
from tvm.ir import PointerType, PrimType

from cora.codegen import arith, memory
from cora.codegen.abi import memory_dtype
from cora.codegen.emit_expr import bound, evaluate, restrict
from cora.codegen.nodes import Tir, TirBuffer, TirStmt, const, i64, int_value
from cora.codegen.routine_call import emit_tile
from cora.codegen.scope import Names, Scope
from cora.codegen.transpose import emit_transposed
from cora.codegen.values import Context, Value, index_constant
from cora.errors import InternalError
from cora.ir import dtypes
from cora.ir.expr import Const, Expr
from cora.ir.stmt import Alloc, Block, Buffer, For, Function, If, Let, LoopKind, Stmt, Store, Tile, map_stmt
from cora.ir.visit import substitute
from cora.tiles.family import TileFamily

#: The most lanes of one vector value; 64 elements of 8 bytes fill half of the widest register file.
MAX_LANES = 64

#: The declared length of arrays, which nothing in code generation looks at.
_ANY_LENGTH = 2**62

#: DLPack's number of the CPU.
_DL_CPU = 1


def emit(function: Function, family: TileFamily | None = None) -> tvm.tirx.PrimFunc:
    """The TIR of `function`: parameters as in `cora.codegen.abi`.

    Raises InternalError for a program that breaks the rules of `cora.ir.stmt`.
    """
    if not function.name.isidentifier():
        raise InternalError(f"function {function.name!r}: the name must be an identifier")
    names = Names()
    scope = Scope(names)
    frame = T.Var(names.fresh("frame"), PointerType(PrimType("int64")))
    words = T.decl_buffer((i64(_ANY_LENGTH),), "int64", names.fresh("words"), data_alignment=8)
    scope.add(T.DeclBuffer(words, data=frame))
    params = [
        _parameter(names, scope, b, T.BufferLoad(words, [i64(place)]))
        for place, b in enumerate(function.buffers)
    ]
    first = len(params)
    sizes = [
        scope.bind(T.BufferLoad(words, [i64(first + place)]), s.name)
        for place, s in enumerate(function.sizes)
    ]
    context = Context(
        scope,
        {
            s: Value(var, "int64", nonneg=True, small=True)
            for s, var in zip(function.sizes, sizes, strict=True)
        },
        dict(zip(function.buffers, params, strict=True)),
        family=family,
    )
    _stmt(context, function.body)
    attrs = tvm.ir.make_node("ir.DictAttrs", **{"global_symbol": function.name, "tirx.noalias": True})
    result = T.PrimFunc([frame], _on_cpu(scope.stmt()), attrs=attrs)
    if not tvm.tirx.analysis.verify_well_formed(result, assert_mode=False):
        raise InternalError(f"function '{function.name}' gives ill-formed TIR:\n{result.script()}")
    return result


def _on_cpu(body: TirStmt) -> TirStmt:
    """`body`, on device 0 of kind CPU: where the workspace of large local arrays comes from."""
    for attribute, value in (("device_id", 0), ("device_type", _DL_CPU)):
        body = T.AttrStmt(const(0, "int32"), attribute, const(value, "int32"), body)
    return body


def _parameter(names: Names, scope: Scope, buffer: Buffer, address: Tir) -> TirBuffer:
    """A flat array at an address, aligned to one element."""
    if buffer.scope == "local":
        raise InternalError(f"parameter '{buffer.name}' must not be local")
    name = names.fresh(buffer.name)
    stored = memory_dtype(buffer.dtype)
    pointer_type = PointerType(PrimType(stored))
    pointer = T.Var(names.fresh(f"{name}_data"), pointer_type)
    scope.add(T.Bind(pointer, T.reinterpret(pointer_type, address)))
    alignment = dtypes.itemsize(buffer.dtype)
    array = T.decl_buffer((i64(_ANY_LENGTH),), stored, name, data_alignment=alignment)
    scope.add(T.DeclBuffer(array, data=pointer))
    return array


def _stmt(c: Context, s: Stmt) -> None:
    match s:
        case Block(stmts=stmts):
            for inner in stmts:
                _stmt(c, inner)
        case Let(var=var, value=e, body=body):
            value = bound(c, arith.convert(evaluate(c, e), var.dtype), var.name)
            _stmt(c.with_value(var, value), body)
        case Store(buffer=buffer, offset=offset, value=e):
            place = evaluate(c, offset)
            memory.store(c, buffer, place, evaluate(c, e))
        case If():
            _if(c, s)
        case Tile():
            emit_tile(c, s, c.family)
        case Alloc(buffer=buffer, body=body):
            _alloc(c, buffer, body)
        case For(kind=LoopKind.VECTOR):
            _vector(c, s)
        case For():
            if not emit_transposed(c, s):
                _scalar(c, s)


def _if(c: Context, s: If) -> None:
    cond = bound(c, evaluate(c, s.cond), "cond")
    if cond.uniform:
        then = c.child()
        _stmt(then, s.then)
        if s.other is None:
            c.scope.add(T.IfThenElse(cond.tir, then.scope.stmt(), None))
            return
        other = c.child()
        _stmt(other, s.other)
        c.scope.add(T.IfThenElse(cond.tir, then.scope.stmt(), other.scope.stmt()))
        return
    # Both masks come first: the statements of one branch may change what the condition reads.
    inner = restrict(c, cond)
    outer = None if s.other is None else restrict(c, arith.unary(c.scope, "not", cond))
    _stmt(inner, s.then)
    if outer is not None and s.other is not None:
        _stmt(outer, s.other)


def _alloc(c: Context, buffer: Buffer, body: Stmt) -> None:
    if c.lanes > 1:
        raise InternalError(f"local buffer '{buffer.name}' is allocated inside a vector loop")
    if not isinstance(buffer.size, Const):
        raise InternalError(f"local buffer '{buffer.name}': the size must be a constant; got {buffer.size}")
    inner = c.child()
    local = inner.scope.alloc(buffer.name, memory_dtype(buffer.dtype), int(buffer.size.value))
    _stmt(replace(inner, buffers={**inner.buffers, buffer: local}), body)
    c.scope.add(inner.scope.stmt())


def _scalar(c: Context, s: For) -> None:
    """A loop that is none of lanes."""
    if s.kind is LoopKind.UNROLL:
        _unroll(c, s)
    else:
        _loop(c, s)


def _loop(c: Context, s: For) -> None:
    if c.lanes > 1:
        raise InternalError(f"loop '{s.var.name}' stands inside a vector loop")
    parallel = s.kind is LoopKind.PARALLEL
    if parallel and c.in_parallel:
        raise InternalError(f"parallel loop '{s.var.name}' stands inside another parallel loop")
    begin, end = evaluate(c, s.begin), evaluate(c, s.end)
    if parallel and int_value(begin.tir) != 0:
        raise InternalError(f"parallel loop '{s.var.name}' must begin at 0; it begins at {s.begin}")
    extent = arith.binary(c.scope, "sub", end, begin).tir
    if parallel:
        extent = T.Max(extent, i64(0))
    var = c.scope.var(s.var.name, "int64")
    inner = replace(c.child(), in_parallel=c.in_parallel or parallel)
    value = Value(var, "int64", nonneg=begin.nonneg, small=True)
    _stmt(inner.with_value(s.var, value), s.body)
    kind = T.ForKind.PARALLEL if parallel else T.ForKind.SERIAL
    c.scope.add(T.For(var, begin.tir, extent, kind, inner.scope.stmt()))


def _vector(c: Context, s: For) -> None:
    match s.begin, s.end:
        case Const(value=0), Const(value=int(lanes)) if _is_lane_count(lanes):
            pass
        case _:
            raise InternalError(
                f"vector loop '{s.var.name}': expected 0..n for a power of two n <= {MAX_LANES}; "
                f"got {s.begin}..{s.end}"
            )
    if c.lanes > 1:
        raise InternalError(f"vector loop '{s.var.name}' stands inside another vector loop")
    if lanes == 1:
        _stmt(c.with_value(s.var, index_constant(0)), s.body)
        return
    lane = Value(i64(0), "int64", lanes, 1, nonneg=True, small=True)
    _stmt(replace(c.with_value(s.var, lane), lanes=lanes), s.body)


def _is_lane_count(lanes: int) -> bool:
    return 1 <= lanes <= MAX_LANES and lanes & (lanes - 1) == 0


def _unroll(c: Context, s: For) -> None:
    match s.begin, s.end:
        case Const(value=int(begin)), Const(value=int(end)):
            for k in range(begin, end):
                _stmt(c, _with_constant(s.body, {s.var: Const(k, s.var.dtype)}))
        case _:
            raise InternalError(
                f"unrolled loop '{s.var.name}': expected constant bounds; got {s.begin}..{s.end}"
            )


def _with_constant(s: Stmt, values: dict[Expr, Expr]) -> Stmt:
    return map_stmt(s, lambda t: _with_constant(t, values), lambda e: substitute(e, values))
