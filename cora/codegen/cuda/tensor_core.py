"""Products by the tensor cores: a warp loads the operands' blocks from shared memory, 8 x 8 elements at a time."""

from __future__ import annotations

from tvm import tirx as T  # noqa: N812

from cora.codegen.cuda.expr import Context, evaluate, find
from cora.codegen.nodes import Tir, TirBuffer, TirStmt, const, int_value
from cora.ir import dtypes
from cora.ir.expr import ONE, Expr
from cora.ir.stmt import Operand, WarpProduct

_SUFFIX = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32"}


def emit_warp_product(c: Context, s: WarpProduct, lane: Tir) -> None:
    """Append the loads of all blocks of both operands, then the products.

    One load takes four matrices of 8 rows of 16 bytes, of which lane l gives the address of row l % 8 of matrix l // 8.
    They are: of a, rows 0 and 8 at columns 0, then the same behind them; of b, for two blocks of columns, both halves
    of the steps. A product takes rows of 32 bytes: 16 steps of halves, 8 of tf32, which is therefore done twice.
    """
    block = c.child()
    a = block.scope.alloc("a_blocks", "uint32", 4 * s.rows)
    b = block.scope.alloc("b_blocks", "uint32", 2 * (s.columns + s.columns % 2))
    place = _Lane(block, lane)
    dtype = s.a.buffer.dtype
    itemsize = dtypes.itemsize(dtype)
    wide = itemsize == 4  # tf32
    after = T.shift_right(place.high8, const(1, "int32")) if wide else place.high8
    first = _first(block, s.a, place.low16, after)
    # beyond the last of an odd number of blocks of columns the one before it is loaded again
    second = const(0, "int32") if s.columns == 1 else place.high8
    across = s.b.column == ONE
    if across:
        first_b = _matrix_element(block, s.b, lane) if wide else _first(block, s.b, place.low16, second)
    else:
        middle = T.shift_right(place.middle8, const(1, "int32")) if wide else place.middle8
        first_b = _first(block, s.b, middle, T.Add(second, place.low8))
    out, slot = find(block, s.out), evaluate(block, s.slot).tir
    steps = 32 // itemsize
    for step in range(0, 16, steps):
        here = _later(block, first, s.a, s.a.column, step)
        for row in range(s.rows):
            _load(block, "cora_ldmatrix", _address(a, 4 * row), _later(block, here, s.a, s.a.row, 16 * row))
            if wide:
                block.scope.add(_call("cora_round_to_tf32", _address(a, 4 * row)))
        if wide and across:
            _load_elements(block, s, b, first_b, step)
        else:
            name = "cora_ldmatrix_trans" if across else "cora_ldmatrix"
            here = _later(block, first_b, s.b, s.b.row, step)
            for pair in range((s.columns + 1) // 2):
                at = _address(b, 4 * pair)
                _load(block, name, at, _later(block, here, s.b, s.b.column, 16 * pair))
                if wide:
                    block.scope.add(_call("cora_round_to_tf32", at))
        for row in range(s.rows):
            for column in range(s.columns):
                sums = T.Add(slot, const(4 * (row * s.columns + column), "int32"))
                arguments = _address(out, sums), _address(a, 4 * row), _address(b, 2 * column)
                block.scope.add(_call(f"cora_mma_{_SUFFIX[dtype]}", *arguments))
    c.scope.add(block.scope.stmt())


def _matrix_element(c: Context, operand: Operand, lane: Tir) -> Tir:
    """The place of a lane's first element of b, which lies at step l % 4 of column l // 4."""
    base, along = evaluate(c, operand.offset), evaluate(c, operand.row)
    step, column = T.bitwise_and(lane, const(3, "int32")), T.shift_right(lane, const(2, "int32"))
    if c.index != "int32":
        step, column = T.Cast(c.index, step), T.Cast(c.index, column)
    return c.scope.bind(T.Add(T.Add(base.tir, T.Mul(step, along.tir)), column), "element_at")


def _load_elements(c: Context, s: WarpProduct, b: TirBuffer, first: Tir, step: int) -> None:
    """The blocks of b, element by element, rounded: matrices of 32 bits are not turned by the hardware."""
    along = evaluate(c, s.b.row)
    for column in range(s.columns):
        for half in range(2):
            down = T.Mul(along.tir, const(step + 4 * half, along.dtype))
            place = T.Add(T.Add(first, down), const(8 * column, along.dtype))
            element = T.BufferLoad(find(c, s.b.buffer), [place])
            value = T.call_extern("uint32", "cora_to_tf32", element)
            c.scope.add(T.BufferStore(b, value, [const(2 * column + half, "int32")]))


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


def _later(c: Context, first: Tir, operand: Operand, along: Expr, count: int) -> Tir:
    """The address of what lies `count` rows or columns further."""
    if count == 0:
        return first
    bytes_ = count * dtypes.itemsize(operand.buffer.dtype)
    step = evaluate(c, along)
    known = int_value(step.tir)
    if known is not None:
        return T.Add(first, const(bytes_ * known, "uint32"))
    return T.Add(first, T.Cast("uint32", T.Mul(step.tir, const(bytes_, step.dtype))))


def _load(c: Context, name: str, to: Tir, source: Tir) -> None:
    c.scope.add(_call(name, to, source))


def _call(name: str, *arguments: Tir) -> TirStmt:
    return T.Evaluate(T.call_extern("int32", name, *arguments))


def _address(buffer: TirBuffer, place: Tir | int) -> Tir:
    at = const(place, "int32") if isinstance(place, int) else place
    return T.address_of(T.BufferLoad(buffer, [at]))
