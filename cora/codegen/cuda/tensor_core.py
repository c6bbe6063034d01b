"""Products by the tensor cores: a warp loads the operands' blocks from shared memory, 8 x 8 elements at a time."""

from __future__ import annotations

from tvm import tirx as T  # noqa: N812

from cora.codegen.cuda.expr import Context, evaluate, find
from cora.codegen.nodes import Tir, TirBuffer, const, int_value
from cora.ir.expr import ONE, Expr
from cora.ir.stmt import Operand, WarpProduct

_SUFFIX = {"float16": "f16", "bfloat16": "bf16"}


def emit_warp_product(c: Context, s: WarpProduct, lane: Tir) -> None:
    """Append the loads of all blocks of both operands, then the products.

    One load takes four 8 x 8 matrices, of which lane l gives the address of row l % 8 of matrix l // 8. They are: of a,
    rows 0 and 8 at columns 0, then the same at columns 8; of b, for two blocks of columns, k = 0 and k = 8.
    """
    block = c.child()
    a = block.scope.alloc("a_blocks", "uint32", 4 * s.rows)
    b = block.scope.alloc("b_blocks", "uint32", 2 * (s.columns + s.columns % 2))
    place = _Lane(block, lane)
    first = _first(block, s.a, place.low16, place.high8)
    for row in range(s.rows):
        _load(block, "cora_ldmatrix", _address(a, 4 * row), _later(block, first, s.a.row, 16 * row))
    across = s.b.column == ONE
    # beyond the last of an odd number of blocks of columns the one before it is loaded again
    single = s.columns == 1
    second = const(0, "int32") if single else place.high8
    if across:
        first = _first(block, s.b, place.low16, second)
    else:
        first = _first(block, s.b, place.middle8, T.Add(second, place.low8))
    name = "cora_ldmatrix_trans" if across else "cora_ldmatrix"
    for pair in range((s.columns + 1) // 2):
        _load(block, name, _address(b, 4 * pair), _later(block, first, s.b.column, 16 * pair))
    out, slot = find(block, s.out), evaluate(block, s.slot).tir
    name = f"cora_mma_{_SUFFIX[s.a.buffer.dtype]}"
    for row in range(s.rows):
        for column_ in range(s.columns):
            first = T.Add(slot, const(4 * (row * s.columns + column_), "int32"))
            arguments = _address(out, first), _address(a, 4 * row), _address(b, 2 * column_)
            block.scope.add(T.Evaluate(T.call_extern("int32", name, *arguments)))
    c.scope.add(block.scope.stmt())


class _Lane:
    """Parts of the number of a lane: l % 16; l % 8; 8 for the upper half; 8 for odd groups of 8."""

    def __init__(self, c: Context, lane: Tir) -> None:
        def bits(mask: int) -> Tir:
            return T.bitwise_and(lane, const(mask, "int32"))

        self.low16 = c.scope.bind(bits(15), "row_of_lane")
        self.low8 = c.scope.bind(bits(7), "row_of_matrix")
        self.high8 = c.scope.bind(T.shift_right(bits(16), const(1, "int32")), "upper_lanes")
        self.middle8 = c.scope.bind(bits(8), "odd_matrix")


def _first(c: Context, operand: Operand, row: Tir, column: Tir) -> Tir:
    """The address in shared memory of the element that a lane points to in the first load."""
    base, along_row, along_column = (evaluate(c, e) for e in (operand.offset, operand.row, operand.column))
    terms = [
        T.Mul(n if along.dtype == "int32" else T.Cast(along.dtype, n), along.tir)
        for n, along in ((row, along_row), (column, along_column))
    ]
    place = T.Add(T.Add(base.tir, terms[0]), terms[1])
    address = T.address_of(T.BufferLoad(find(c, operand.buffer), [place]))
    return c.scope.bind(T.call_extern("uint32", "cora_shared", address), "blocks_at")


def _later(c: Context, first: Tir, along: Expr, count: int) -> Tir:
    """The address of what lies `count` rows or columns further."""
    if count == 0:
        return first
    step = evaluate(c, along)
    known = int_value(step.tir)
    if known is not None:
        return T.Add(first, const(2 * count * known, "uint32"))
    return T.Add(first, T.Cast("uint32", T.Mul(step.tir, const(2 * count, step.dtype))))


def _load(c: Context, name: str, to: Tir, source: Tir) -> None:
    c.scope.add(T.Evaluate(T.call_extern("int32", name, to, source)))


def _address(buffer: TirBuffer, place: Tir | int) -> Tir:
    at = const(place, "int32") if isinstance(place, int) else place
    return T.address_of(T.BufferLoad(buffer, [at]))
