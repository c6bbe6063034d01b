"""Statements: lowered programs over flat buffers.

Grammar:

    stmt := For(var, begin, end, kind, body) | Let(var, value, body) | If(cond, then, other)
          | Block(stmts) | Alloc(buffer, body) | Store(buffer, offset, value) | Tile(rows, columns, depth, ...)
          | Barrier() | ThreadReduce(op, buffer, ...) | CopyAsync(buffer, offset, source) | AwaitCopies(groups)
          | GroupCopies()
          | WarpProduct(rows, columns, out, slot, a, b)

Meaning: sequential, except that the iterations of a PARALLEL loop may run in any order and at once, and the
iterations of a VECTOR loop run in lock step, one per lane: each statement in it runs for all lanes before the next
(a vector loop begins at 0, has a constant end, and nothing but Let, If, Block and Store inside). The iterations of a
loop bound to a GPU's axis run at once, one per block or thread; threads wait for one another at barriers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from cora.ir.expr import ZERO, Expr, Read, ReduceOp, Size, Var
from cora.ir.node import Node

Scope = Literal["input", "output", "table", "workspace", "local", "shared"]


class LoopKind(Enum):
    """How the iterations of a loop run."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTOR = "vectorize"
    UNROLL = "unroll"
    PIPELINE = "pipeline"
    PIPELINE_3 = "pipeline, 3 stages"
    PIPELINE_4 = "pipeline, 4 stages"
    BLOCK_X = "blockIdx.x"
    BLOCK_Y = "blockIdx.y"
    BLOCK_Z = "blockIdx.z"
    THREAD_X = "threadIdx.x"
    THREAD_Y = "threadIdx.y"
    THREAD_Z = "threadIdx.z"


#: Loops that run ahead of themselves, by the number of iterations whose data is in shared memory.
PIPELINES = {2: LoopKind.PIPELINE, 3: LoopKind.PIPELINE_3, 4: LoopKind.PIPELINE_4}
#: Loops whose iterations are the blocks of a GPU's grid, and those that are the threads of a block.
BLOCK_AXES = (LoopKind.BLOCK_X, LoopKind.BLOCK_Y, LoopKind.BLOCK_Z)
THREAD_AXES = (LoopKind.THREAD_X, LoopKind.THREAD_Y, LoopKind.THREAD_Z)


@dataclass(frozen=True, slots=True, eq=False)
class Buffer(Node):
    """A flat array of `size` elements.

    input, output: a tensor's values; table: an auxiliary array of the prelude; workspace: an intermediate tensor
    owned by the plan; local: registers or stack of one iteration, of constant size; shared: of one block of threads,
    of constant size. multiple: what divides every entry of a table.
    """

    name: str
    dtype: str
    size: Expr
    scope: Scope
    multiple: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class For(Node):
    """`for var in begin..end` (end exclusive; no iteration where end <= begin)."""

    var: Var
    begin: Expr
    end: Expr
    kind: LoopKind
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Let(Node):
    """`var = value`, computed once, for `body`."""

    var: Var
    value: Expr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class If(Node):
    """`then` where `cond` holds, else `other` (None: nothing)."""

    cond: Expr
    then: Stmt
    other: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Block(Node):
    """Statements in order; an empty block does nothing."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Alloc(Node):
    """A local buffer that lives for `body`; its contents are undefined at first."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Store(Node):
    """`buffer[offset] = value`, converted to the buffer's type."""

    buffer: Buffer
    offset: Expr
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Operand(Node):
    """A matrix operand: element (r, c) lies at `offset + r * row + r * (r - 1) // 2 * bend + c * column` of `buffer`.

    bend: how much longer each row is than the one before (in a packed triangle); 0 in a matrix.
    """

    buffer: Buffer
    offset: Expr
    row: Expr
    column: Expr
    bend: Expr = ZERO


@dataclass(frozen=True, slots=True, eq=False)
class Fill(Node):
    """Where `when` holds a tile reads `source` in place of b, and writes to b those rows that all its rows read."""

    source: Operand
    when: Expr


@dataclass(frozen=True, slots=True)
class Routine:
    """A function that computes dense tiles, but is not of our own family of micro-kernels.

    name: what people call it. symbol: what it is linked as. convention: how it is called, as a user's micro-kernel
    (`cora.tiles.given`) or as `cblas_sgemm`. rows, columns: the largest tile (0: any). edges: whether it computes
    smaller tiles too.
    """

    name: str
    symbol: str
    convention: Literal["given", "cblas"]
    rows: int = 0
    columns: int = 0
    edges: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Tile(Node):
    """A dense tile, computed by a micro-kernel (`cora.tiles`), for 0 <= r < rows and 0 <= c < columns:

        out[r, c] = begin[r, c] + sum over 0 <= j < depth(r) of a[r, j] * b[j, c] + end[r, c]

    depth(r) = min(max(depth + step * r, 0), limit), where step is 0 or 1 (a lower triangle).
    begin is start[0, c], or 0 without start, where `first` holds; else what out[r, c] was: a later block of the
    reduction adds to the earlier ones. end is residual[r, c] where there is one and `last` holds; else 0.

    fill: where b is written by the tile's first use of it; None: b holds its elements already.
    by: the routine that computes it, or what it can of it; None: our own micro-kernels. A routine adds no start and no
    residual, and rows of `a` do not bend for it.

    All float32. Columns of b, out, start and residual are adjacent (stride 1); only a may bend. rows <= max_rows and
    columns <= max_columns; where one of them is not positive nothing happens. It reads and writes exactly the
    elements named.
    """

    rows: Expr
    columns: Expr
    depth: Expr
    step: int
    limit: Expr
    max_rows: int
    max_columns: int
    out: Operand
    a: Operand
    b: Operand
    start: Operand | None
    residual: Operand | None
    first: Expr
    last: Expr
    by: Routine | None = None
    fill: Fill | None = None

    def numbers(self) -> tuple[Expr, ...]:
        """The expressions that say how large the tile is and when it begins and ends."""
        fills = () if self.fill is None else (self.fill.when,)
        return (self.rows, self.columns, self.depth, self.limit, self.first, self.last, *fills)

    def operands(self) -> dict[str, Operand]:
        """The operands that there are, by the name of their field."""
        source = None if self.fill is None else self.fill.source
        named = {"out": self.out, "a": self.a, "b": self.b, "start": self.start, "residual": self.residual}
        named["source"] = source
        return {name: operand for name, operand in named.items() if operand is not None}


@dataclass(frozen=True, slots=True, eq=False)
class Barrier(Node):
    """Every thread of the block waits for all others; what they wrote before is visible after. GPUs only."""


@dataclass(frozen=True, slots=True, eq=False)
class ThreadReduce(Node):
    """Combine a buffer of each thread with those of the others along threadIdx.x, element by element. GPUs only.

    before: thread t has buffer[i] = v(t, i)        after: every thread has buffer[i] = op of v(t, i) over t

    for 0 <= i < buffer.size, in an order that depends on `threads`, the extent of threadIdx.x, alone. With
    `positions` (argmax, argmin) the position that goes with the value is combined alike; of equal values the smallest.
    All threads of the block, or all of a warp where `threads` is at most 32, must get there together.
    """

    op: ReduceOp
    buffer: Buffer
    positions: Buffer | None
    threads: int


@dataclass(frozen=True, slots=True, eq=False)
class CopyAsync(Node):
    """`buffer[offset] = source`, some time before the next AwaitCopies of the same thread is over. GPUs only.

    buffer is shared; source reads an element of the same type from memory.
    """

    buffer: Buffer
    offset: Expr
    source: Read


@dataclass(frozen=True, slots=True, eq=False)
class AwaitCopies(Node):
    """The thread waits until its own asynchronous copies are done; others see them after a barrier. GPUs only.

    groups: how many of the newest groups of copies it does not wait for (None: there are no groups).
    """

    groups: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GroupCopies(Node):
    """The asynchronous copies of a thread since the last one become a group, which may be empty. GPUs only."""


@dataclass(frozen=True, slots=True, eq=False)
class WarpProduct(Node):
    """A product of floats in shared memory by the tensor cores, for the 32 threads of a warp together:

        C[i, j] = C[i, j] + sum over k < 16 of a[i, k] * b[k, j]        i < 16 * rows, j < 8 * columns

    in float32; a and b are float16, or bfloat16, or float32, which is rounded to tf32. A thread t along threadIdx.x
    holds, of each block of 16 x 8 elements, those at row t // 4 + 8 * p and column t % 4 * 2 + q, in
    `out[slot + ((block row * columns + block column) * 2 + p) * 2 + q]`. GPUs only; all threads of the warp must get
    there together. Of a, k is adjacent; of b either k or j; rows begin at multiples of 16 bytes.
    """

    rows: int
    columns: int
    out: Buffer
    slot: Expr
    a: Operand
    b: Operand


Stmt: TypeAlias = (
    For
    | Let
    | If
    | Block
    | Alloc
    | Store
    | Tile
    | Barrier
    | ThreadReduce
    | CopyAsync
    | AwaitCopies
    | GroupCopies
    | WarpProduct
)

NOTHING = Block(())


@dataclass(frozen=True, slots=True, eq=False)
class Function(Node):
    """A lowered kernel: parameters are `buffers` in order, then the values of `sizes` in order (int64)."""

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[Size, ...]
    body: Stmt


def block(stmts: list[Stmt]) -> Stmt:
    """`stmts` in order, nested blocks flattened."""
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Block) else (stmt,))
    return flat[0] if len(flat) == 1 else Block(tuple(flat))


def map_stmt(s: Stmt, on_stmt: Callable[[Stmt], Stmt], on_expr: Callable[[Expr], Expr]) -> Stmt:
    """`s` with `on_stmt` applied to its direct sub-statements and `on_expr` to its direct expressions."""
    match s:
        case For(var=v, begin=b, end=e, kind=k, body=body):
            return For(v, on_expr(b), on_expr(e), k, on_stmt(body))
        case Let(var=v, value=value, body=body):
            return Let(v, on_expr(value), on_stmt(body))
        case If(cond=c, then=t, other=o):
            return If(on_expr(c), on_stmt(t), None if o is None else on_stmt(o))
        case Block(stmts=stmts):
            return block([on_stmt(x) for x in stmts])
        case Alloc(buffer=buffer, body=body):
            return Alloc(buffer, on_stmt(body))
        case Store(buffer=buffer, offset=offset, value=value):
            return Store(buffer, on_expr(offset), on_expr(value))
        case CopyAsync(buffer=buffer, offset=offset, source=source):
            read = on_expr(source)
            assert isinstance(read, Read)
            return CopyAsync(buffer, on_expr(offset), read)
        case WarpProduct():
            operands = _map_operand(s.a, on_expr), _map_operand(s.b, on_expr)
            return WarpProduct(s.rows, s.columns, s.out, on_expr(s.slot), *operands)
        case Barrier() | ThreadReduce() | AwaitCopies() | GroupCopies():
            return s
        case Tile():
            return Tile(
                on_expr(s.rows),
                on_expr(s.columns),
                on_expr(s.depth),
                s.step,
                on_expr(s.limit),
                s.max_rows,
                s.max_columns,
                _map_operand(s.out, on_expr),
                _map_operand(s.a, on_expr),
                _map_operand(s.b, on_expr),
                None if s.start is None else _map_operand(s.start, on_expr),
                None if s.residual is None else _map_operand(s.residual, on_expr),
                on_expr(s.first),
                on_expr(s.last),
                s.by,
                None if s.fill is None else Fill(_map_operand(s.fill.source, on_expr), on_expr(s.fill.when)),
            )


def statements(s: Stmt) -> Iterator[Stmt]:
    """`s` and every statement in it, outermost first."""
    yield s
    inner: list[Stmt] = []

    def note(part: Stmt) -> Stmt:
        inner.append(part)
        return part

    map_stmt(s, note, lambda e: e)
    for part in inner:
        yield from statements(part)


def expressions(s: Stmt) -> list[Expr]:
    """The expressions of `s` itself, its sub-statements aside."""
    found: list[Expr] = []

    def note(e: Expr) -> Expr:
        found.append(e)
        return e

    map_stmt(s, lambda part: part, note)
    return found


def _map_operand(operand: Operand, on_expr: Callable[[Expr], Expr]) -> Operand:
    numbers = (operand.offset, operand.row, operand.column, operand.bend)
    return Operand(operand.buffer, *map(on_expr, numbers))
