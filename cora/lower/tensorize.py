"""Pattern of a dense tile: the innermost loops of an operator as a call of a micro-kernel.

Every part of the pattern is checked, never assumed; what does not match is refused with the reason. What the element
is beyond a sum of products with a row and a matrix added is computed in loops over the tile, behind the call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cora.errors import ScheduleError
from cora.ir.bounds import bounds
from cora.ir.expr import (
    ONE,
    TRUE,
    ZERO,
    Binary,
    Call,
    Const,
    Expr,
    Read,
    Reduce,
    Select,
    Var,
    binary,
    ceildiv,
    conjunction,
    select,
)
from cora.ir.poly import linear_in, stride_in
from cora.ir.simplify import Simplifier, simplify
from cora.ir.stmt import Buffer, Fill, For, If, LoopKind, Operand, Stmt, Store, Tile, block
from cora.ir.ufun import Scan
from cora.ir.visit import free_vars, substitute, walk
from cora.lower.first_use import Filled, Use, first_use
from cora.lower.flatten import Flat
from cora.lower.guards import Guards
from cora.lower.loops import existing, first_and_last
from cora.lower.operation import Operation, context_of, simplifier_of
from cora.lower.tile_bounds import TileLoops, from_zero, guarded_read, guards_of_products, without_guards
from cora.prove import Outcome
from cora.schedule.nest import Leaf, LoopNest

NO_VAR = Var("%none")
#: Of the loops behind a tile: one 64-byte vector of float32.
LANES = 16


def make_tile(
    op: Operation, flat: Flat, guards: Guards, filled: Filled | None = None
) -> tuple[Stmt, tuple[Expr, ...]]:
    """The tile of an operation over flat buffers, and the conditions that stay around it.

    filled: a copy that the tile fills, and the same operation without it.

    Raises ScheduleError if the body, an access or a condition does not fit a micro-kernel.
    """
    for buffer in (flat.buffer, *(n.buffer for n in walk(flat.body) if isinstance(n, Read))):
        if buffer.scope == "local":
            raise ScheduleError(
                f"tensorize: '{buffer.name}' is in registers, and a micro-kernel reads and writes memory; "
                f'set_scope("{buffer.name}", "scratch")'
            )
    loops = _loops(op, flat, guards)
    if filled is None:
        return _Matcher(op, guards, loops).stmt()
    assert filled.flat is not None
    direct = _loops(filled.direct, filled.flat, guards)
    both = tuple(dict.fromkeys((*loops.conditions, *direct.conditions)))
    matcher, other = (
        _Matcher(of, guards, replace(own, conditions=both))
        for of, own in ((op, loops), (filled.direct, direct))
    )
    return matcher.stmt(filled.copy, other)


def _loops(op: Operation, flat: Flat, guards: Guards) -> TileLoops:
    """The innermost loops of an operation; where every guard is kept, guards of loads are conditions on them."""
    loops = TileLoops(op.nest.leaves[-op.nest.tile :], flat, op.conditions)
    return without_guards(loops, simplifier_of(op.nest)) if guards.keep_all else loops


@dataclass(frozen=True, slots=True)
class _Terms:
    """A sum of products and what is added to it: the product, a row and a matrix."""

    product: Expr
    start: Operand | None
    residual: Operand | None


@dataclass(frozen=True, slots=True)
class _Limits:
    """How many rows, columns and products of a tile exist; row r has `depth + step * r` products, `limit` at most."""

    rows: Expr
    columns: Expr
    depth: Expr
    step: int
    limit: Expr


class _Matcher:
    def __init__(self, op: Operation, guards: Guards, loops: TileLoops) -> None:
        self.op = op
        self.guards = guards
        self.simplifier: Simplifier = simplifier_of(op.nest)
        self.conditions = loops.conditions
        own = {leaf.var for leaf in loops.leaves}
        implied = tuple(c for c in loops.conditions if free_vars(c) & own and self._implied(c))
        others = tuple(c for c in loops.conditions if c not in implied)
        loops = from_zero(replace(loops, conditions=others, held=implied), self.simplifier)
        self.flat, self.conditions = loops.flat, loops.conditions
        self.row: Leaf | None = loops.leaves[0] if len(loops.leaves) == 3 else None
        self.column, self.depth = loops.leaves[-2:]
        self.known = frozenset(self.simplifier(c) for c in (*self.conditions, *loops.held))

    def refuse(self, reason: str) -> ScheduleError:
        return ScheduleError(f"tensorize: the tile of '{self.op.tensor.name}' has no micro-kernel: {reason}")

    def stmt(
        self, copy: LoopNest | None = None, direct: _Matcher | None = None
    ) -> tuple[Stmt, tuple[Expr, ...]]:
        """The call, and behind it what is made of its result; `copy` is filled with what `direct` reads instead."""
        flat = self.flat
        if flat.buffer.dtype != "float32":
            raise self.refuse(f"the output is {flat.buffer.dtype}, not float32")
        core, terms = self._core(flat.body)
        target = self._operand(flat.buffer, flat.offset, self._row_var, self.column.var, "the output")
        first, last = first_and_last(self.op.nest.blocks)
        start, residual = terms.start, terms.residual
        if self.op.nest.accumulates:  # the body is a bare sum: every block adds to what is there
            first = Const(False, "bool")
        a, b, products = self._factors(terms.product)
        limits, outside = self._limits(products)
        left = self._operand(a.buffer, a.offset, self._row_var, self.depth.var, "the left operand", left=True)
        right = self._operand(b.buffer, b.offset, self.depth.var, self.column.var, "the right operand")
        if limits.step < 0:
            target, left = (_reversed(operand, limits.rows) for operand in (target, left))
            residual = None if residual is None else _reversed(residual, limits.rows)
        self._check_routine(limits, left)
        tile = Tile(
            limits.rows,
            limits.columns,
            limits.depth,
            abs(limits.step),
            limits.limit,
            1 if self.row is None else self._largest(0),
            self._largest(-2),
            target,
            left,
            right,
            start,
            residual,
            first,
            last,
            self.op.nest.routine,
            None
            if copy is None or direct is None
            else self._fill(copy, direct, limits, outside, left, right),
        )
        if core == flat.body:
            return tile, outside
        behind = self._behind(flat, core, limits)
        return block([tile, If(last, behind) if last != TRUE else behind]), outside

    def _fill(
        self,
        copy: LoopNest,
        direct: _Matcher,
        limits: _Limits,
        outside: tuple[Expr, ...],
        left: Operand,
        right: Operand,
    ) -> Fill:
        """What the first use of a part of `copy` reads in its place, and when that is."""
        where = f"fill_at_use of '{copy.name}'"
        if right.buffer.name != copy.tensor.name or left.buffer.name == copy.tensor.name:
            raise ScheduleError(f"{where}: it must be what the micro-kernel reads in vectors, and that alone")
        _, terms = direct._core(direct.flat.body)
        _, read, products = direct._factors(terms.product)
        if direct._limits(products) != (limits, outside):
            raise ScheduleError(f"{where}: without the copy the tile would have other bounds")
        source = direct._operand(
            read.buffer, read.offset, self.depth.var, self.column.var, f"what '{copy.name}' is copied from"
        )
        use = Use(
            limits.rows,
            limits.columns,
            limits.depth,
            limits.step,
            limits.limit,
            (right.offset, right.row),
            outside,
        )
        return Fill(source, first_use(copy, self.op.nest, use, self.guards, self.simplifier))

    def _check_routine(self, limits: _Limits, left: Operand) -> None:
        """Refuse what a routine that is not ours cannot be asked for."""
        routine = self.op.nest.routine
        if routine is None:
            return
        if left.bend != ZERO:
            raise self.refuse(
                f"{routine.name} takes rows that are evenly apart; those of the left operand grow"
            )
        if routine.convention == "cblas":
            if limits.step < 0:
                raise self.refuse(
                    f"{routine.name} takes rows in their order; a reduction that shrinks reverses them"
                )
            if ONE not in (left.row, left.column):
                raise self.refuse(
                    f"{routine.name} takes rows or columns that are adjacent; in the left operand rows are "
                    f"{left.row} apart and columns {left.column}"
                )

    def _behind(self, flat: Flat, core: Expr, limits: _Limits) -> Stmt:
        """The element made of what the micro-kernel has stored, over the whole tile, in vector lanes."""
        vector, lane = Var(f"{self.column.name}_vector"), Var(f"{self.column.name}_lane")
        place: dict[Expr, Expr] = {self.column.var: vector * LANES + lane}
        offset = self.simplifier(substitute(flat.offset, place))
        body = substitute(flat.body, {core: Read(flat.buffer, flat.offset)})
        store = Store(flat.buffer, offset, self.simplifier(substitute(body, place)))
        exists = If(vector * LANES + lane < limits.columns, store)
        lanes = For(lane, ZERO, Const(LANES), LoopKind.VECTOR, exists)
        columns = For(vector, ZERO, simplify(ceildiv(limits.columns, LANES)), LoopKind.SERIAL, lanes)
        if self.row is None:
            return columns
        return For(self.row.var, ZERO, limits.rows, LoopKind.SERIAL, columns)

    @property
    def _row_var(self) -> Var:
        return NO_VAR if self.row is None else self.row.var

    def _largest(self, place: int) -> int:
        """A constant bound of the extent of a row or column loop of the tile."""
        leaf = self.op.nest.leaves[-self.op.nest.tile :][place]
        if leaf.bound is not None:
            return leaf.bound
        high = bounds(leaf.extent)[1]
        if isinstance(leaf.extent, Const) or high is not None:
            return int(high or 0)
        for limit in (8, 16, 32, 64, 128, 256):
            goal = binary("le", leaf.extent, limit)
            if self.guards.proof(self.simplifier(goal), context_of(self.op.nest)).outcome is Outcome.PROVED:
                return limit
        raise self.refuse(f"the extent {leaf.extent} of loop '{leaf.name}' has no constant bound: split it")

    def _core(self, body: Expr) -> tuple[Expr, _Terms]:
        """The largest part of `body` that a micro-kernel computes, and its terms."""
        reductions = {e for e in walk(body) if isinstance(e, Reduce)}
        if len(reductions) != 1:
            raise self.refuse(f"expected one sum; got {body}")
        (reduction,) = reductions
        sums = [
            e for e in walk(body) if isinstance(e, Binary) and e.op == "add" and reduction in set(walk(e))
        ]
        if self.op.nest.routine is not None:
            sums = []  # the routine computes the bare sum
        sums.sort(key=lambda e: sum(1 for _ in walk(e)), reverse=True)
        for part in sums:
            rest = substitute(body, {part: Var("%core", part.dtype)})
            if reduction not in set(walk(rest)):
                try:
                    return part, self._terms(part)
                except ScheduleError:
                    continue
        return reduction, self._terms(reduction)

    def _terms(self, body: Expr) -> _Terms:
        """The product under the sum, and the row and the matrix that are added to it."""
        product: Expr | None = None
        start: Operand | None = None
        residual: Operand | None = None
        for term in _summands(body):
            match term:
                case Reduce(op="sum", body=inner) if product is None:
                    product = inner
                case Read() | Select() if (read := self._term(term)) is not None:
                    operand = self._operand(
                        read.buffer, read.offset, self._row_var, self.column.var, f"the term {term}"
                    )
                    if operand.row == ZERO and start is None:
                        start = operand
                    elif residual is None:
                        residual = operand
                    else:
                        raise self.refuse(f"more than a row and a matrix are added: {term}")
                case _:
                    raise self.refuse(f"expected a sum of products plus float32 terms; got the term {term}")
        if product is None:
            raise self.refuse("there is no sum")
        return _Terms(product, start, residual)

    def _term(self, term: Expr) -> Read | None:
        """A term that is read wherever the tile is; None if it is none such."""
        found = guarded_read(term)
        if found is None or found[0].buffer.dtype != "float32":
            return None
        read, guards = found
        stored = frozenset(c for c in self.known if self.depth.var not in free_vars(c))
        return read if all(self.simplifier(c) in (TRUE, *stored) for c in guards) else None

    def _factors(self, product: Expr) -> tuple[Read, Read, list[Expr]]:
        """The factor that does not depend on the column, and the one that does not depend on the row; which products
        there are."""
        match product:
            case Binary(op="mul", a=a, b=b):
                x, y = guarded_read(a), guarded_read(b)
                for one, other in ((x, y), (y, x)):
                    if one is None or other is None:
                        continue
                    (left, _), (right, _) = one, other
                    by_row = self.column.var not in free_vars(left.offset)
                    by_column = self._row_var not in free_vars(right.offset)
                    if by_row and by_column and left.buffer.dtype == right.buffer.dtype == "float32":
                        fixed = frozenset({self._row_var, self.column.var})
                        products = guards_of_products(
                            (one, other), self.known, fixed, self.simplifier, self.refuse
                        )
                        return left, right, products
        raise self.refuse(
            f"expected a product of two float32 reads, one per row, one per column; got {product}"
        )

    def _operand(
        self, buffer: Buffer, offset: Expr, row: Var, column: Var, what: str, *, left: bool = False
    ) -> Operand:
        """The operand that is read or written at `offset`; only the left one may have columns apart, and bend."""
        bend: Expr = ZERO
        if left:
            offset, bend = self._opened(offset, row)
        strides = [stride_in(offset, var) for var in (row, column)]
        tile_vars = (self._row_var, self.column.var, self.depth.var)
        if strides[0] is None or strides[1] is None:
            raise self.refuse(f"{what} does not move evenly: {offset}")
        if not left and strides[1] != ONE:
            raise self.refuse(f"the columns of {what} are {strides[1]} apart, not adjacent")
        base = self.simplifier(substitute(offset, dict.fromkeys(tile_vars, ZERO)))
        row_stride, column_stride = (self.simplifier(stride) for stride in strides if stride is not None)
        return Operand(buffer, base, row_stride, column_stride, bend)

    def _opened(self, offset: Expr, row: Var) -> tuple[Expr, Expr]:
        """`offset` with row starts from a table made linear in `row`, and what is left: bend * row * (row - 1) / 2.

        start(x + row) = start(x) + row * size(x) + s * row * (row - 1) / 2, where each row is s longer than the last.
        """
        bend: Expr = ZERO
        opened: dict[Expr, Expr] = {}
        for call in walk(offset):
            match call:
                case Call(fun=fun, args=(*outer, last)) if isinstance(fun.definition, Scan):
                    first = self.simplifier(substitute(last, {row: ZERO}))
                    if (
                        row not in free_vars(last)
                        or stride_in(last, row) != ONE
                        or stride_in(offset, call) is None
                    ):
                        continue
                    formals: dict[Expr, Expr] = dict(zip(fun.domain, outer, strict=False))
                    size = self._size_of_row(
                        substitute(fun.definition.body, {**formals, fun.definition.index: last})
                    )
                    step, times = stride_in(size, row), stride_in(offset, call)
                    if not isinstance(step, Const) or times is None or row in free_vars(times):
                        continue
                    opened[call] = fun(*outer, first) + row * self.simplifier(substitute(size, {row: ZERO}))
                    bend = bend + times * step
        return self.simplifier(substitute(offset, opened)), self.simplifier(bend)

    def _size_of_row(self, size: Expr) -> Expr:
        """The length of a row that there is: one that is proved not to be negative is not cut off at 0."""
        size = self.simplifier(size)
        match size:
            case Binary(op="max", a=length, b=Const(value=0)):
                here = context_of(self.op.nest, self.conditions)
                if self.guards.proof(binary("le", 0, length), here).outcome is Outcome.PROVED:
                    return length
        return size

    def _limits(self, products: list[Expr]) -> tuple[_Limits, tuple[Expr, ...]]:
        """What of the tile exists, and the conditions that have nothing to do with its loops.

        products: further conditions, on products alone.
        """
        loops = [leaf for leaf in (self.row, self.column, self.depth) if leaf is not None]
        ends: dict[Var, list[Expr]] = {leaf.var: [leaf.extent] for leaf in loops}
        blocks = {leaf.var for leaf in self.op.nest.blocks}
        outside: list[Expr] = []
        exist: list[Expr] = list(existing(self.op.nest.blocks))
        for condition in (*self.conditions, *products):
            inside = [var for var in reversed(ends) if var in free_vars(condition)]
            if inside:
                ends[inside[0]].append(self._end(condition, inside[0]))
            elif condition in products or blocks & free_vars(condition):
                exist.append(condition)  # the others of a block's iterations store what there is
            else:
                outside.append(condition)
        rows = ONE if self.row is None else self._least(ends[self.row.var])
        depth, step, limit = self._depths(ends[self.depth.var], rows)
        if exist:
            depth, limit = (select(conjunction(exist), e, ZERO) for e in (depth, limit))
        columns = self._least([self._widest(end, rows) for end in ends[self.column.var]])
        return _Limits(rows, columns, depth, step, limit), tuple(outside)

    def _end(self, condition: Expr, var: Var) -> Expr:
        """The end of the loop over `var` where `condition` is `var < end`."""
        match condition:
            case Binary(op="lt" | "le" as op, a=a, b=b):
                split = linear_in(self.simplifier(b - a), var)
                if split is not None and split[0] == -1:
                    return split[1] if op == "lt" else self.simplifier(split[1] + 1)
        raise self.refuse(f"the condition {condition} is no bound of one of its loops")

    def _implied(self, condition: Expr) -> bool:
        """Whether `condition`, `x < ceildiv(b, f)`, follows from another one, `f * x + t < b` with t >= 0."""
        match condition:
            case Binary(op="lt", a=Var() as x, b=count):
                for other in self.conditions:
                    if not isinstance(other, Binary) or other.op != "lt" or other == condition:
                        continue
                    split = linear_in(self.simplifier(other.a), x)
                    if split is not None and split[0] > 0:
                        parts = self.simplifier(ceildiv(other.b, split[0]))
                        if parts == self.simplifier(count) and self._never_negative(split[1]):
                            return True
        return False

    def _never_negative(self, e: Expr) -> bool:
        ranges: dict[Expr, Expr] = {leaf.var: leaf.extent for leaf in self.op.nest.scope}
        return (bounds(e, ranges)[0] or 0) >= 0 and bounds(e, ranges)[0] is not None

    def _least(self, ends: list[Expr]) -> Expr:
        """The least of the ends of a row or column loop, which no other loop of the tile may change."""
        least = ends[0]
        for end in ends[1:]:
            least = binary("min", least, end)
        least = self.simplifier(least)
        if free_vars(least) & {self._row_var, self.column.var, self.depth.var}:
            raise self.refuse(f"the end {least} of a loop of the tile depends on another loop of the tile")
        return least

    def _widest(self, end: Expr, rows: Expr) -> Expr:
        """The end of the column loop in the widest row, if its result has room for that in every row."""
        step = stride_in(end, self._row_var)
        if step == ZERO or self._row_var not in free_vars(end):
            return end
        if not self.op.nest.scratch or not isinstance(step, Const):
            raise self.refuse(f"the number of columns, {end}, changes from row to row")
        row = rows - 1 if step.value > 0 else ZERO
        return self.simplifier(substitute(end, {self._row_var: row}))

    def _unclamped(self, end: Expr) -> Expr:
        """`x - t` for `max(x, 0) - t` with t >= 0: a depth below 0 is one of 0 anyway."""
        ranges: dict[Expr, Expr] = {leaf.var: leaf.extent for leaf in self.op.nest.scope}
        for atom in walk(end):
            match atom:
                case Binary(op="max", a=x, b=Const(value=0)):
                    most = bounds(self.simplifier(end - atom), ranges)[1]
                    if most is not None and most <= 0:
                        return self.simplifier(end - atom + x)
        return end

    def _depths(self, ends: list[Expr], rows: Expr) -> tuple[Expr, int, Expr]:
        """The depth of row 0, how it grows from row to row, and its limit."""
        by_step: dict[int, list[Expr]] = {}
        for end in ends:
            moves = stride_in(self.simplifier(self._unclamped(end)), self._row_var)
            if moves not in (Const(-1), ZERO, ONE):
                raise self.refuse(f"the end {end} of the reduction loop does not move evenly from row to row")
            assert isinstance(moves, Const)
            by_step.setdefault(int(moves.value), []).append(self._unclamped(end))
        flat = by_step.pop(0, [])
        if not by_step:
            depth = binary("max", self._least(flat), ZERO)
            return self.simplifier(depth), 0, self.simplifier(depth)
        if len(by_step) > 1:
            raise self.refuse("the reduction loop ends at bounds that grow and at bounds that shrink")
        ((step, moving),) = by_step.items()
        row = ZERO if step > 0 else rows - 1  # of a shrinking depth the last row comes first
        depth = self._least([substitute(end, {self._row_var: row}) for end in moving])
        limit = self._least(flat) if flat else depth + rows
        return depth, step, self.simplifier(binary("max", limit, ZERO))


def _reversed(operand: Operand, rows: Expr) -> Operand:
    """An operand with its last row first."""
    last = rows - 1
    bent = binary("floordiv", last * (rows - 2), Const(2)) * operand.bend
    row = ZERO - operand.row - operand.bend * (rows - 2)
    offset = simplify(operand.offset + last * operand.row + bent)
    return Operand(operand.buffer, offset, simplify(row), operand.column, operand.bend)


def _summands(e: Expr) -> list[Expr]:
    match e:
        case Binary(op="add", a=a, b=b):
            return [*_summands(a), *_summands(b)]
        case _:
            return [e]
