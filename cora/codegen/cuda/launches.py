"""A lowered function as a sequence of kernel launches: one for each statement at its top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cora.errors import InternalError, ScheduleError
from cora.ir import dtypes
from cora.ir.expr import ZERO, Const, Expr, LaneReduce, Read, Size, Var, binary, conjunction
from cora.ir.stmt import (
    BLOCK_AXES,
    THREAD_AXES,
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    If,
    Let,
    LoopKind,
    Stmt,
    Store,
    map_stmt,
)
from cora.ir.visit import free_vars, substitute, walk

#: What a block may have of shared memory that is declared in the code.
MAX_SHARED_BYTES: Final = 48 * 1024
#: What generated code calls the position of a block in the grid, and of a thread in its block.
AXIS_VARS: Final[Mapping[LoopKind, Var]] = {kind: Var(kind.value) for kind in (*BLOCK_AXES, *THREAD_AXES)}


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel and how it is launched.

    body: what a thread runs, over AXIS_VARS; it has no bound loops. grid: the number of blocks in x, y, z, over sizes
    and table reads; nothing is launched if one of them is 0. block: the number of threads in x, y, z.
    """

    name: str
    body: Stmt
    grid: tuple[Expr, ...]
    block: tuple[int, ...]
    buffers: tuple[Buffer, ...]
    sizes: tuple[Size, ...]

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return self.block[0] * self.block[1] * self.block[2]


def launches(function: Function) -> tuple[Launch, ...]:
    """The launches of a function, in order. Raises ScheduleError if threads of one kernel do not fit together."""
    parts = list(_parts(function.body, ()))
    name = function.name
    names = [name] if len(parts) == 1 else [f"{name}_{n}" for n in range(len(parts))]
    return tuple(_launch(own, lets, part, function) for own, (lets, part) in zip(names, parts, strict=True))


def _parts(s: Stmt, lets: tuple[Let, ...]) -> Iterator[tuple[tuple[Let, ...], Stmt]]:
    match s:
        case Block(stmts=stmts):
            for inner in stmts:
                yield from _parts(inner, lets)
        case Let(body=body):
            yield from _parts(body, (*lets, s))
        case _:
            yield lets, s


def _launch(name: str, lets: tuple[Let, ...], part: Stmt, function: Function) -> Launch:
    values: dict[Expr, Expr] = {}
    for let in lets:
        values[let.var] = substitute(let.value, values)
    axes = _Axes(name, values)
    axes.collect(part)
    inside = axes.threads_of(part, frozenset())
    for let in reversed(lets):
        if let.var in _free(inside):
            inside = Let(let.var, let.value, inside)
    used, sizes = _used(inside)
    grid = tuple(axes.grid.get(kind, Const(1)) for kind in BLOCK_AXES)
    block = tuple(axes.block.get(kind, 1) for kind in THREAD_AXES)
    buffers = tuple(b for b in function.buffers if b in used)
    return Launch(name, inside, grid, block, buffers, tuple(s for s in function.sizes if s in sizes))


class _Axes:
    """The extents of the axes of one kernel."""

    def __init__(self, name: str, values: Mapping[Expr, Expr]) -> None:
        self._name = name
        self._values = dict(values)
        self.grid: dict[LoopKind, Expr] = {}
        self.block: dict[LoopKind, int] = {}

    def collect(self, s: Stmt) -> None:
        """Note the extents of all bound loops in `s`."""
        match s:
            case Let(var=var, value=value):
                self._values[var] = substitute(value, self._values)
            case For(kind=kind, begin=begin, end=end, var=var) if kind in AXIS_VARS:
                if begin != ZERO:
                    raise InternalError(f"loop '{var}' bound to {kind.value} begins at {begin}")
                if kind in BLOCK_AXES:
                    self._block_axis(kind, substitute(end, self._values))
                else:
                    self._thread_axis(kind, end, var)

        def visit(inner: Stmt) -> Stmt:
            self.collect(inner)
            return inner

        map_stmt(s, visit, lambda e: e)

    def _block_axis(self, kind: LoopKind, extent: Expr) -> None:
        if free_vars(extent):
            raise InternalError(
                f"{self._name}: the extent {extent} of {kind.value} is not known before the launch"
            )
        if self.grid.setdefault(kind, extent) != extent:
            raise InternalError(f"{self._name}: two loops are bound to {kind.value}")

    def _thread_axis(self, kind: LoopKind, extent: Expr, var: Var) -> None:
        if not isinstance(extent, Const):
            raise InternalError(f"{self._name}: the extent {extent} of {kind.value} is not constant")
        count = int(extent.value)
        if self.block.setdefault(kind, count) != count:
            raise ScheduleError(
                f"bind: loop '{var.name}' runs on {count} threads along {kind.value}, another loop of the same kernel "
                f"on {self.block[kind]}: loops that run together must have one extent"
            )

    def threads_of(self, s: Stmt, bound: frozenset[LoopKind]) -> Stmt:
        """What each thread runs; what no loop distributes over an axis is stored by its first thread alone."""
        match s:
            case For(kind=kind, var=var, body=body) if kind in AXIS_VARS:
                inner = self.threads_of(body, bound | {kind})
                return _renamed(inner, {var: AXIS_VARS[kind]})
            case Store(buffer=buffer) if buffer.scope not in ("local", "shared"):
                idle = [k for k in THREAD_AXES if self.block.get(k, 1) > 1 and k not in bound]
                first = conjunction([binary("eq", AXIS_VARS[k], ZERO) for k in idle])
                return If(first, s) if idle else s
        return map_stmt(s, lambda inner: self.threads_of(inner, bound), lambda e: e)


def check_shared(launch: Launch) -> None:
    """ScheduleError if the arrays that a block of threads shares do not fit."""
    sizes: dict[str, int] = {}

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Alloc) and s.buffer.scope == "shared" and isinstance(s.buffer.size, Const):
            sizes[s.buffer.name] = int(s.buffer.size.value) * dtypes.itemsize(s.buffer.dtype)
        return map_stmt(s, visit, lambda e: e)

    visit(launch.body)
    if sum(sizes.values()) > MAX_SHARED_BYTES:
        each = ", ".join(f"'{name}' {size:,}" for name, size in sizes.items())
        raise ScheduleError(
            f"{launch.name}: a block takes {sum(sizes.values()):,} bytes of shared memory, of which there are "
            f"{MAX_SHARED_BYTES:,}: {each}; split the loops at which they are computed into smaller tiles"
        )


def _renamed(s: Stmt, values: Mapping[Expr, Expr]) -> Stmt:
    return map_stmt(s, lambda inner: _renamed(inner, values), lambda e: substitute(e, values))


def expressions(s: Stmt) -> Iterator[Expr]:
    """Every expression of `s`."""
    found: list[Expr] = []

    def expr(e: Expr) -> Expr:
        found.append(e)
        return e

    def stmt(inner: Stmt) -> Stmt:
        return map_stmt(inner, stmt, expr)

    stmt(s)
    yield from found


def _free(s: Stmt) -> frozenset[Var]:
    """The variables that `s` uses."""
    return frozenset[Var]().union(*(free_vars(e) for e in expressions(s)))


def _used(s: Stmt) -> tuple[set[Buffer], set[Size]]:
    buffers: set[Buffer] = set()
    sizes: set[Size] = set()
    for e in expressions(s):
        for node in walk(e):
            match node:
                case Read(buffer=buffer) | LaneReduce(buffer=buffer):
                    buffers.add(buffer)
                case Size():
                    sizes.add(node)

    def stmt(inner: Stmt) -> Stmt:
        if isinstance(inner, Store):
            buffers.add(inner.buffer)
        return map_stmt(inner, stmt, lambda e: e)

    stmt(s)
    return buffers, sizes
