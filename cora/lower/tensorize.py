"""Pattern of a dense tile: the innermost loops of an operator as a call of a micro-kernel.

Every part of the pattern is checked, never assumed; what does not match is refused with the reason.
"""

from __future__ import annotations

from cora.errors import ScheduleError
from cora.ir.expr import ONE, ZERO, Binary, Const, Expr, Read, Reduce, Var, binary
from cora.ir.simplify import Simplifier, bounds, linear_in, stride_in
from cora.ir.stmt import Buffer, Operand, Tile
from cora.ir.visit import free_vars, substitute
from cora.lower.guards import Guards
from cora.lower.operation import Operation, context_of, simplifier_of
from cora.prove import Outcome
from cora.schedule.nest import Leaf

NO_VAR = Var("%none")


def make_tile(
    op: Operation, out: Buffer, offset: Expr, body: Expr, guards: Guards
) -> tuple[Tile, tuple[Expr, ...]]:
    """The tile of an operation over flat buffers, and the conditions that stay around it.

    Raises ScheduleError if the body, an access or a condition does not fit a micro-kernel.
    """
    return _Matcher(op, guards).tile(out, offset, body)


class _Matcher:
    def __init__(self, op: Operation, guards: Guards) -> None:
        self.op = op
        self.guards = guards
        leaves = op.nest.leaves[-op.nest.tile :]
        self.row: Leaf | None = leaves[0] if len(leaves) == 3 else None
        self.column, self.depth = leaves[-2], leaves[-1]
        self.simplifier: Simplifier = simplifier_of(op.nest)

    def refuse(self, reason: str) -> ScheduleError:
        return ScheduleError(f"tensorize: the tile of '{self.op.tensor.name}' has no micro-kernel: {reason}")

    def tile(self, out: Buffer, offset: Expr, body: Expr) -> tuple[Tile, tuple[Expr, ...]]:
        product, start, residual = self._terms(body)
        target = self._operand(out, offset, self._row_var, self.column.var, "the output")
        if self.op.nest.accumulates:  # the body is a bare sum, so the place of a residual is free
            residual = target
        a, b = self._factors(product)
        limits, outside = self._limits()
        rows = ONE if self.row is None else limits.get(self.row.var, self.row.extent)
        columns = limits.get(self.column.var, self.column.extent)
        depth = binary("max", limits.get(self.depth.var, self.depth.extent), ZERO)
        tile = Tile(
            self.simplifier(rows),
            self.simplifier(columns),
            self.simplifier(depth),
            1 if self.row is None else self._largest(self.row),
            self._largest(self.column),
            target,
            self._operand(
                a.buffer, a.offset, self._row_var, self.depth.var, "the left operand", any_column=True
            ),
            self._operand(b.buffer, b.offset, self.depth.var, self.column.var, "the right operand"),
            start,
            residual,
        )
        if tile.out.buffer.dtype != "float32":
            raise self.refuse(f"the output is {tile.out.buffer.dtype}, not float32")
        return tile, outside

    @property
    def _row_var(self) -> Var:
        return NO_VAR if self.row is None else self.row.var

    def _largest(self, leaf: Leaf) -> int:
        """A constant bound of the extent of a row or column loop."""
        high = bounds(leaf.extent)[1]
        if isinstance(leaf.extent, Const) or high is not None:
            return int(high or 0)
        for limit in (8, 16, 32, 64, 128, 256):
            goal = binary("le", leaf.extent, limit)
            if self.guards.proof(self.simplifier(goal), context_of(self.op.nest)).outcome is Outcome.PROVED:
                return limit
        raise self.refuse(f"the extent {leaf.extent} of loop '{leaf.name}' has no constant bound: split it")

    def _terms(self, body: Expr) -> tuple[Expr, Operand | None, Operand | None]:
        """The product under the sum, and the row and the matrix that are added to it."""
        reduction: Reduce | None = None
        start: Operand | None = None
        residual: Operand | None = None
        for term in _summands(body):
            match term:
                case Reduce(op="sum") if reduction is None:
                    reduction = term
                case Read(buffer=buffer, offset=offset) if buffer.dtype == "float32":
                    operand = self._operand(
                        buffer, offset, self._row_var, self.column.var, f"the term {term}"
                    )
                    if self.depth.var in free_vars(offset):
                        raise self.refuse(f"the term {term} depends on the reduction loop")
                    if operand.row == ZERO and start is None:
                        start = operand
                    elif residual is None:
                        residual = operand
                    else:
                        raise self.refuse(f"more than a row and a matrix are added: {term}")
                case _:
                    raise self.refuse(f"expected a sum of products plus float32 terms; got the term {term}")
        if reduction is None:
            raise self.refuse("there is no sum")
        return reduction.body, start, residual

    def _factors(self, product: Expr) -> tuple[Read, Read]:
        """The factor that does not depend on the column, and the one that does not depend on the row."""
        match product:
            case Binary(op="mul", a=Read() as x, b=Read() as y):
                for left, right in ((x, y), (y, x)):
                    by_row = self.column.var not in free_vars(left.offset)
                    by_column = self._row_var not in free_vars(right.offset)
                    if by_row and by_column and left.buffer.dtype == right.buffer.dtype == "float32":
                        return left, right
        raise self.refuse(
            f"expected a product of two float32 reads, one per row, one per column; got {product}"
        )

    def _operand(
        self, buffer: Buffer, offset: Expr, row: Var, column: Var, what: str, any_column: bool = False
    ) -> Operand:
        strides = [stride_in(offset, var) for var in (row, column)]
        tile_vars = (self._row_var, self.column.var, self.depth.var)
        if strides[0] is None or strides[1] is None:
            raise self.refuse(f"{what} does not move evenly: {offset}")
        if not any_column and strides[1] != ONE:
            raise self.refuse(f"the columns of {what} are {strides[1]} apart, not adjacent")
        base = self.simplifier(substitute(offset, dict.fromkeys(tile_vars, ZERO)))
        return Operand(buffer, base, self.simplifier(strides[0]), self.simplifier(strides[1]))

    def _limits(self) -> tuple[dict[Var, Expr], tuple[Expr, ...]]:
        """For each loop of the tile the number of its iterations that exist, and the conditions on none of them."""
        limits: dict[Var, Expr] = {}
        outside: list[Expr] = []
        loops = {leaf.var: leaf for leaf in (self.row, self.column, self.depth) if leaf is not None}
        for condition in self.op.conditions:
            inside = [var for var in loops if var in free_vars(condition)]
            if not inside:
                outside.append(condition)
                continue
            split = None
            match condition:
                case Binary(op="lt", a=a, b=b) if len(inside) == 1:
                    split = linear_in(self.simplifier(b - a), inside[0])
            if split is None or split[0] != -1:
                raise self.refuse(f"the condition {condition} is no bound of one of its loops")
            loop = loops[inside[0]]
            limits[loop.var] = binary("min", limits.get(loop.var, loop.extent), split[1])
        return limits, tuple(outside)


def _summands(e: Expr) -> list[Expr]:
    match e:
        case Binary(op="add", a=a, b=b):
            return [*_summands(a), *_summands(b)]
        case _:
            return [e]
