"""The steps of a schedule: frozen data that prints, compares, hashes, goes to JSON and back, and replays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from cora.errors import UserError


@dataclass(frozen=True, slots=True)
class Split:
    """Split `loop` by `factor` into `outer` and `inner`; the last iterations are guarded unless proved full.

    before: for i in 0..E: body(i)
    after:  for outer in 0..ceil(E/factor): for inner in 0..factor: if outer*factor + inner < E: body(...)

    tail "guard": as above; an innermost loop is cut into a full part without condition and a masked rest.
    "anchored": the short part comes first (as triangles want): `0 <= outer*factor + inner - missing`.
    "balanced": as many parts, of sizes q and q + 1, none above `factor`; no condition.
    """

    op: str
    loop: str
    factor: int
    outer: str
    inner: str
    tail: Literal["guard", "anchored", "balanced"] = "guard"


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

    The padding of an output is zero when the kernel returns, unless `contents` is "undefined".
    """

    tensor: str
    dim: str
    multiple: int
    to_max: bool
    contents: Literal["zero", "undefined"]


@dataclass(frozen=True, slots=True)
class Parallel:
    """Run the iterations of `loop` on the workers of the plan, in contiguous runs.

    balance "cost": the runs carry equal work by the extents of the inner loops; "count": equal numbers.
    """

    op: str
    loop: str
    balance: Literal["cost", "count"]


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

    A dim of P that is read at one value that the loops outside fix is fixed; the others are computed in full.
    """

    op: str
    consumer: str
    loop: str


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
    """Horizontal fusion: run nests that do not read one another in one parallel loop (paper section 4).

    before: parallel for w: A(w); parallel for w: B(w)      after: parallel for w: A(w); B(w)
    """

    nests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReorderDims:
    """Store the dims of a tensor in another order, outermost first; the definition's indices stay as they are.

    before: X[b][i][h] at offset(b)*H + i*H + h        after, order b, h, i: offset(b)*H + h*lens[b] + i
    """

    tensor: str
    order: tuple[str, ...]


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


TAILS = ("guard", "anchored", "balanced")

Step: TypeAlias = (
    Split
    | SplitParts
    | Fuse
    | Reorder
    | PadLoop
    | BulkPad
    | PadDim
    | Parallel
    | Vectorize
    | Unroll
    | Inline
    | ComputeAt
    | CacheWrite
    | Tensorize
    | SplitOp
    | HFuse
    | ReorderDims
    | HoistLoads
    | Bind
)

_BY_NAME = {kind.__name__: kind for kind in get_args(Step)}


def to_data(step: Step) -> dict[str, Any]:
    """`step` as plain JSON data: its fields, and its kind under "step"."""
    data: dict[str, Any] = {"step": type(step).__name__}
    for field in fields(step):
        value = getattr(step, field.name)
        data[field.name] = list(value) if isinstance(value, tuple) else value
    return data


def from_data(data: dict[str, Any]) -> Step:
    """The step that `to_data` wrote; UserError if `data` is not one."""
    kind = _BY_NAME.get(str(data.get("step")))
    if kind is None:
        raise UserError(f"schedule step: expected one of {', '.join(_BY_NAME)}; got {data.get('step')!r}")
    names = {field.name: field.type for field in fields(kind)}
    given = {k: v for k, v in data.items() if k != "step"}
    if set(given) != set(names):
        raise UserError(f"{kind.__name__}: expected the fields {', '.join(names)}; got {', '.join(given)}")
    for name, value in given.items():
        kinds = {"str": str, "int": int, "bool": bool, "tuple[str, ...]": list}
        expected = kinds.get(str(names[name]), str)
        if type(value) is not expected:
            raise UserError(f"{kind.__name__}.{name}: expected {expected.__name__}; got {value!r}")
        if isinstance(value, list) and not all(isinstance(v, str) for v in value):
            raise UserError(f"{kind.__name__}.{name}: expected a list of str; got {value!r}")
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    step: Step = kind(**plain)
    return step
