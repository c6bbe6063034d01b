"""The steps of a schedule: frozen data that prints, compares, hashes and replays."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from cora.schedule.online_step import Online

Tail: TypeAlias = Literal["guard", "mask", "peel", "balanced", "anchored", "shifted", "cover"]


@dataclass(frozen=True, slots=True)
class Split:
    """Split `loop` by `factor` into `outer` and `inner`; the last iterations are guarded unless proved full.

    before: for i in 0..E: body(i)
    after:  for outer in 0..ceil(E/factor): for inner in 0..factor: if outer*factor + inner < E: body(...)

    tail "guard": as above; an innermost loop is cut into a full part without condition and a masked rest.
    "mask": as "guard", but one loop: every iteration runs under its condition, lanes under a mask (short rows).
    "peel": a loop of full parts, then one for the rest, each with code of its own: 0..min(factor, E - outer*factor).
    "balanced": as many parts, of sizes q and q + 1, none above `factor`; no condition.
    "anchored": the short part comes first (as triangles want): `0 <= outer*factor + inner - missing`.
    "shifted": the last part moves back over its neighbour, so that it is full: min(outer*factor, E - factor) + inner;
    guarded where E < factor. Not for reductions, nor for what adds to a stored value, nor in parallel.
    "cover": one part that covers the range, under its condition: E never exceeds `factor` (what remains of a tile).
    """

    op: str
    loop: str
    factor: int
    outer: str
    inner: str
    tail: Tail = "guard"


@dataclass(frozen=True, slots=True)
class SplitParts:
    """Split `loop` into `parts` parts whose sizes differ by one at most.

    before: for i in 0..E: body(i)
    after:  for outer in 0..parts: for inner in 0..size(outer): body(outer*E // parts + inner)
    """

    op: str
    loop: str
    parts: int
    outer: str
    inner: str


@dataclass(frozen=True, slots=True)
class Fuse:
    """Fuse nested loops, outermost first, into one (paper section 5.1; inner extents may depend on outer loops).

    before: for o in 0..M: for i in 0..s(o): body(o, i)
    after:  for f in 0..F: body(ffo(f), ffi(f))        F = sum of s(o); ffo, ffi from the prelude
    """

    op: str
    loops: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Reorder:
    """Put the named loops into this order, in the places that they hold now; the others stay.

    A vloop that gets outside a loop that it depends on runs to its largest extent under a condition:

    before: for b in 0..M: for i in 0..lens[b]: body
    after:  for i in 0..longest: for b in 0..M: if i < lens[b]: body
    """

    op: str
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Peel:
    """Cut the first or the last iterations of a loop off: two loops, each with code of its own.

    before: for i in 0..E: body(i)        after, end "last": for i in 0..E - count: body; for i in E - count..E: body

    What holds in one part only (a condition, the size of a loop inside) is decided there.
    """

    op: str
    loop: str
    count: int
    end: Literal["first", "last"]


@dataclass(frozen=True, slots=True)
class PadLoop:
    """Round the extent of an original loop up to a multiple; the storage must be padded at least as much.

    before: for i in 0..s(o): body        after: for i in 0..round_up(s(o), multiple): body
    """

    op: str
    loop: str
    multiple: int


@dataclass(frozen=True, slots=True)
class BulkPad:
    """Round the extent of a fused loop (the sum of the lengths) up to a multiple; iterations past it are guarded."""

    op: str
    loop: str
    multiple: int


@dataclass(frozen=True, slots=True)
class PadDim:
    """Pad the storage of a dim: to a multiple, and to the longest slice first if `to_max`.

    The dim may be one that `split_dim` or `fuse_dims` has made. A dim that is split or fused is padded before that.
    The padding of an output is zero when the kernel returns, unless `contents` is "undefined".
    """

    tensor: str
    dim: str
    multiple: int
    to_max: bool
    contents: Literal["zero", "undefined"]


@dataclass(frozen=True, slots=True)
class Parallel:
    """Run the iterations of `loop` on the workers of the plan.

    balance "cost": contiguous runs of equal work, by the extents of the inner loops (prefix sums, cut);
    "count": contiguous runs of equal numbers; "longest_first": a list of iterations for each worker, made by giving
    the next costliest one to the worker with the least work so far.

    before: for i in 0..E: body(i)
    after:  parallel for w: for i in cuts[w]..cuts[w + 1]: body(i)
            parallel for w: for k in starts[w]..starts[w + 1]: body(lists[k])          longest_first
    """

    op: str
    loop: str
    balance: Literal["cost", "count", "longest_first"]


@dataclass(frozen=True, slots=True)
class Remap:
    """Run the iterations of a loop in the order of a permutation (thread remapping, paper section 4).

    before: for i in 0..E: body(i)        after: for k in 0..E: body(order[k])

    policy "descending": the costliest first, by the extents of the inner loops; "reversed": the last first, without a
    table; "given": the permutation that the caller gives by the name `table`, one of 0..E-1, checked before anything
    runs.
    """

    op: str
    loop: str
    policy: Literal["descending", "reversed", "given"]
    table: str


@dataclass(frozen=True, slots=True)
class Vectorize:
    """Run the iterations of the innermost loop as the lanes of vectors.

    A loop whose extent is not a power of two up to 64 is split by `lanes` first (0: one 64-byte vector of the
    output's type); lanes past the end are masked.
    """

    op: str
    loop: str
    lanes: int


@dataclass(frozen=True, slots=True)
class Unroll:
    """Repeat the body of a loop of constant extent (64 at most) instead of looping."""

    op: str
    loop: str


@dataclass(frozen=True, slots=True)
class Inline:
    """Compute an operator where it is read, instead of storing it.

    before: for d: P[d] = g(d)          after: for d: C[d] = h(g(d))
            for d: C[d] = h(P[d])

    A reduction is inlined into an element-wise reader (bias, activation, residual: an epilogue).
    """

    op: str


@dataclass(frozen=True, slots=True)
class ComputeAt:
    """Compute an operator inside a loop of its consumer, as much of it as the iteration reads.

    before: for b: for j: P[b, j] = g             after: for b: for j: P[b, j] = g
            for b: for j: C[b, j] = h(P[b, j])                  for j: C[b, j] = h(P[b, j])     (at loop b)

    A dim of P that is read at one value that the loops outside fix is fixed. One that is read at an interval, an
    even function of the loops inside, is computed for that interval (at io, where i is io * 4 + ii: four values).
    The others are computed in full.
    """

    op: str
    consumer: str
    loop: str


Scope: TypeAlias = Literal["memory", "scratch", "register", "shared"]


@dataclass(frozen=True, slots=True)
class SetScope:
    """Where an operator that is computed inside a loop of its consumer is stored.

    "memory": all of it, as its layout says. The others hold what one iteration computes, and padding and order of the
    layout apply to that. "scratch": a buffer of each worker's own, which stays in its cache; on GPUs the block's shared
    memory, or registers where a thread reads nothing of others. "register": local variables, as many as a constant;
    they stay in registers where all loops over them are unrolled or vectors, else on the stack. "shared": the shared
    memory of a GPU's block.

    before: for b: for j: P[offset[b] + j] = g            after: for b: for j: P[worker * longest + j] = g
    """

    op: str
    scope: Scope


@dataclass(frozen=True, slots=True)
class CacheRead:
    """Copy what an iteration of `loop` of `op` reads of a tensor to scratch memory, and read that instead.

    before: for io: for ii: O[io*4 + ii] = h(A[io*4 + ii])       after: for io: for a in 0..4: A_copy[a] = A[io*4 + a]
                                                                         for ii: O[io*4 + ii] = h(A_copy[ii])

    The copy is an operator, `name`, with loops and a layout that may be scheduled (packing, transposing). At a
    reduction loop, or inside one, it is a copy of what the reduction reads; other reads of the tensor stay.
    """

    op: str
    tensor: str
    loop: str
    name: str


@dataclass(frozen=True, slots=True)
class Recompute:
    """Give one reader of an operator a copy of the operator of its own, `name`, which is scheduled by itself.

    before: E[i] = h(i); S = sum over i of E[i]; O[i] = g(E[i], S)
    after:  E_again[i] = h(i); S = sum over i of E_again[i]; E[i] = h(i); O[i] = g(E[i], S)

    What is cheap is computed twice instead of stored, or what is stored for one reader is inlined into another.
    """

    op: str
    reader: str
    name: str


@dataclass(frozen=True, slots=True)
class FillAtUse:
    """Let the micro-kernel that reads a copy first also write it: packing fused into the first use of a panel.

    before: for ko: for ki: for j: copy[ki, j] = B[ko*64 + ki, j]        (cache_read of B at ko, tiles along j and ki)
                    for i: tile(out, A, copy)
    after:  for ko: for i: tile(out, A, B, writing copy) if i == 0 else tile(out, A, copy)

    The copy, `op`, has no loops then: its elements are written by the tile of the first iteration of the loops in which
    it is used again. So that tile must exist, and use all that later ones do: both are proved, or it is refused when
    the schedule is lowered. A triangle grows from row to row: run its last rows first (remap "reversed").
    """

    op: str


@dataclass(frozen=True, slots=True)
class RFactor:
    """Reduce in two stages: chunks of the range of a reduction, each to a partial result, then the partial results.

    before: T[d] = sum over k < E of g(d, k)
    after:  name[d, c] = sum over j < min(size, E - c*size) of g(d, c*size + j)           c < ceil(E/size)
            T[d] = sum over c of name[d, c]

    unit "factor": chunks of `size`, as above; "parts": `size` chunks that differ by one at most. The chunks are a
    loop like any other (`<loop>_o`): in parallel, one giant row keeps all workers busy. Where a row is cut depends on
    its own length alone, so its bits do not depend on other rows, or on the workers. For sum, prod, max and min.
    """

    op: str
    loop: str
    size: int
    unit: Literal["factor", "parts"]
    name: str


@dataclass(frozen=True, slots=True)
class Outline:
    """Make the reduction of an operator an operator of its own, `name`: what inlining it would undo.

    before: C[i, j] = f(sum over k of g(i, j, k), i, j)
    after:  name[i, j] = sum over k of g(i, j, k);  C[i, j] = f(name[i, j], i, j)

    It has the dims of the operator, and is stored as it accumulates, so values and bits stay. Both are scheduled like
    any other: so the reduction can be computed at a loop of the operator, in scratch memory, in an order of dims of its
    own. A row of micro-kernels may then be a column of the result.
    """

    op: str
    name: str


@dataclass(frozen=True, slots=True)
class SplitOp:
    """Split an operator in two pieces at a point of a loop; each piece is scheduled on its own (paper section 4).

    before: for i in 0..E: body(i)
    after:  for i in 0..p: body(i)              first piece;  p = E // at * at (unit "multiple"), or min(at, E)
            for i in 0..E - p: body(p + i)      second piece

    A reduction loop is split too: the second piece adds to what the first has stored.
    """

    op: str
    loop: str
    at: int
    unit: Literal["multiple", "index"]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HFuse:
    """Horizontal fusion: run nests that do not read one another side by side (paper section 4).

    before: parallel for w: A(w); parallel for w: B(w)         after, depth 0: parallel for w: A(w); B(w)
            for i: for j: A(i, j); for i: for k: B(i, k)       depth 1: for i: {for j: A(i, j); for k: B(i, k)}

    At depth n the n outermost loops, which must be alike, are one. Then a piece may also add to what the one before
    has stored, as long as both are at the same elements in each iteration of the shared loops.
    """

    nests: tuple[str, ...]
    depth: int = 0


@dataclass(frozen=True, slots=True)
class ReorderDims:
    """Store the dims of a tensor in another order, outermost first; the definition's indices stay as they are.

    Where dims are split or fused, the order is one of what they have become.

    before: X[b][i][h] at offset(b)*H + i*H + h        after, order b, h, i: offset(b)*H + h*lens[b] + i
    """

    tensor: str
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SplitDim:
    """Store a dim of a tensor as two, `outer` = dim // factor and `inner` = dim % factor, in its place.

    Other steps on storage then name the two; the definition's indices stay as they are. The last block is a whole
    one: what of it is past the end is padding, with the rules of `pad_dim`.

    before: W[k][n] at k*N + n
    after, order no, k, ni: W[no][k][ni] at (n // 64)*K*64 + k*64 + n % 64       T[jo*64 + ji] at jo*K*64 + k*64 + ji
    """

    tensor: str
    dim: str
    factor: int
    outer: str
    inner: str


@dataclass(frozen=True, slots=True)
class FuseDims:
    """Store dims of a tensor that lie one directly inside the other as one, as loops are fused.

    A loop fused alike accesses `T[f]`. The fused dim can be padded, split and reordered as a whole.

    before: X[b][i][d] at (offset(b) + i)*D + d
    after, f split by 6, order fo, d, fi: X[fo][d][fi] at (f // 6)*D*6 + d*6 + f % 6,   f = offset(b) + i
    """

    tensor: str
    dims: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class HoistLoads:
    """Whether reads of auxiliary arrays move out of the loops that do not change them (the default: they do).

    before: for b: for i: O[offset[b] + i] = ...        after: for b: base = offset[b]; for i: O[base + i] = ...
    """

    on: bool


@dataclass(frozen=True, slots=True)
class CacheWrite:
    """Keep the accumulators of a reduction inside `loop`; reduction loops outside it continue what is stored.

    before: for i: for ko: for ki: acc += a(i, ko, ki)        after (at ko), for i: for ko:
                   O[i] = f(acc)                                  acc = 0; for ki: acc += a(i, ko, ki)
                                                                  O[i] = (0 if first else O[i]) + acc
                                                                  and f of it if last

    The block loops run once even where there is nothing to reduce, so that f(0) is stored.
    """

    op: str
    loop: str


@dataclass(frozen=True, slots=True)
class Tensorize:
    """Compute the innermost loops, from `loop` inwards, by a generated micro-kernel.

    The loops are a row loop, a column loop and one reduction loop (or a column and a reduction loop: one row):

    before: for r in 0..R: for c in 0..C: for j in 0..K: out[.., r, c] += a[.., r, j] * b[.., j, c]
    after:  tile(rows, columns, K, out, a, b, ...)

    Bounds of rows and columns become arguments of the micro-kernel. The body is a float32 sum of products, plus a
    row (a bias) and a matrix (a residual) if need be; what else is made of the sum is computed in loops over the
    tile, behind it. Columns are adjacent in memory, except in `a`. K may grow by one from row to row (a triangle).
    Reduction loops outside the tile continue what is stored, as for CacheWrite.
    """

    op: str
    loop: str


@dataclass(frozen=True, slots=True)
class TensorizeBy:
    """Compute the innermost loops, from `loop` inwards, by a micro-kernel that the user gives as LLVM IR.

    before: for r in 0..R: for c in 0..C: for j in 0..K: out[.., r, c] += a[.., r, j] * b[.., j, c]
    after:  function(min(R, rows), min(C, columns), K, a, .., b, .., out, .., adds)     for each part of the tile

    The loops and the pattern are those of Tensorize; `cora.MicroKernel` states what the function is given and what it
    must do. It computes the sum alone: what is added to that, a bias included, is computed in loops behind the call.
    Without `edges` our own micro-kernels compute what is smaller than `rows` by `columns`. They also compute what of
    a triangle is not the same in all rows of a tile. The text `ir` is part of the step.
    """

    op: str
    loop: str
    function: str
    ir: str
    rows: int
    columns: int
    edges: bool

    def __repr__(self) -> str:
        text = (
            f"{len(self.ir.splitlines())} lines, sha256 {hashlib.sha256(self.ir.encode()).hexdigest()[:12]}"
        )
        shape = f"rows={self.rows}, columns={self.columns}, edges={self.edges}"
        return f"TensorizeBy(op={self.op!r}, loop={self.loop!r}, function={self.function!r}, ir=<{text}>, {shape})"


@dataclass(frozen=True, slots=True)
class Offload:
    """Compute the innermost loops, from `loop` inwards, by a call of a library's matrix product (the paper's offload).

    before: for r in 0..R: for c in 0..C: for j in 0..K: out[.., r, c] += a[.., r, j] * b[.., j, c]
    after:  cblas_sgemm(R, C, K, a, .., b, .., beta, out, ..)

    library: "openblas", of the wheel scipy-openblas32, which must be installed where the kernel is built and run. The
    loops and the pattern are those of Tensorize, for tiles of any size: rows, columns and depth are arguments, so edges
    need no masks. What is made of the sum, and of a triangle, is as for TensorizeBy. Our own micro-kernels compute a
    tile whose strides BLAS does not take (rows that overlap) and one without products.
    """

    op: str
    loop: str
    library: Literal["openblas"]


@dataclass(frozen=True, slots=True)
class Bind:
    """Run the iterations of `loop` at once on a GPU: one per block of the grid, or one per thread of a block.

    axis: blockIdx.x, .y or .z, or threadIdx.x, .y or .z.

    before: for i in 0..n: body(i)        after: body(blockIdx.x), launched with n blocks in that direction

    The loops over blocks are the outermost and their extents depend on no loop: the host launches as many blocks as
    there are iterations (none: no launch). The extent of a loop over threads is constant. A reduction loop may be bound
    to threadIdx.x: each thread reduces its part, then the threads combine theirs.
    """

    op: str
    loop: str
    axis: Literal["blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z"]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Copy what an iteration of `loop` reads, of what is staged there in shared memory, while the one before runs.

    before: for k: barrier; copy(k); barrier; use(k)
    after:  copy(0);  for k: wait for the copy; barrier; begin copy(k + 1); use(k)

    The staged memory is there `stages` times, 2 to 4, and copies begin stages - 1 iterations early. Plain copies are
    asynchronous. For GPUs; other loops of the iteration must not wait for one another.
    """

    op: str
    loop: str
    stages: int = 2


@dataclass(frozen=True, slots=True)
class TensorCore:
    """Compute the innermost loops `row`, `column`, `over` by the tensor cores of a GPU: a tile of one warp.

    before: for row: for column: for over: C[row, column] += A[row, over] * B[over, column]
    after:  for lane (threadIdx.x): for over in steps of 16: a product by all 32 lanes

    Their extents are constants, multiples of 16, 8 and 16. A and B are float16, or both bfloat16, in shared memory
    (cache_read); with tf32, both are float32, each element rounded to 11 bits as it is read. The sum is in float32.
    Every iteration of `over` must exist. Two elements in a row belong to one lane: a loop over them is vectorized.
    """

    op: str
    row: str
    column: str
    over: str
    tf32: bool = False


TAILS: tuple[str, ...] = get_args(Tail)
LIBRARIES: tuple[str, ...] = ("openblas",)

Step: TypeAlias = (
    Split
    | SplitParts
    | Fuse
    | Reorder
    | Peel
    | PadLoop
    | BulkPad
    | PadDim
    | Parallel
    | Remap
    | Vectorize
    | Unroll
    | Inline
    | ComputeAt
    | SetScope
    | CacheRead
    | Recompute
    | FillAtUse
    | CacheWrite
    | Tensorize
    | TensorizeBy
    | Offload
    | RFactor
    | Outline
    | Online
    | SplitOp
    | HFuse
    | ReorderDims
    | SplitDim
    | FuseDims
    | HoistLoads
    | Bind
    | Pipeline
    | TensorCore
)
