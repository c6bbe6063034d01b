"""The prelude as data: which tables a kernel needs, each after those that it is computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cora.errors import InternalError
from cora.ir.expr import Expr
from cora.ir.ufun import (
    Cuts,
    Descending,
    FusedInner,
    FusedOuter,
    Given,
    Lists,
    Maximum,
    Owners,
    Scan,
    Starts,
    UFun,
)
from cora.prelude.keys import Keys, called, expressions, functions, kind, sizes


@dataclass(frozen=True)
class Table:
    """The table of `fun`: a flat array of `size` entries of type `fun.dtype`.

    `offset` is the position of the entry at the formals of the domain; `key` names the function's meaning,
    the same in every process (`cora.prelude.keys`).
    """

    fun: UFun
    size: Expr
    offset: Expr
    key: str

    @property
    def given(self) -> bool:
        """Whether the caller supplies the table (a length array)."""
        return isinstance(self.fun.definition, Given)

    @property
    def kind(self) -> str:
        """given, scan, ffo, ffi, cuts...: see `cora.prelude.keys.kind`."""
        return kind(self.fun)

    def describe(self) -> str:
        """Shape, type, meaning and key in one line."""
        fun = self.fun
        extents = ", ".join(f"{dim} < {dim.extent}" for dim in fun.domain)
        match fun.definition:
            case Given(permutation=True):
                meaning = "a permutation, given"
            case Given():
                meaning = "given"
            case Scan(index=index, body=body):
                meaning = f"running sum of {body} over {index} < {index.extent}"
            case FusedOuter(offset=offset):
                meaning = f"outer index of a fused iteration, rows start at {offset}"
            case FusedInner(offset=offset):
                meaning = f"inner index of a fused iteration, rows start at {offset}"
            case Maximum(over=over, body=body):
                meaning = f"maximum of {body} over {', '.join(f'{d} < {d.extent}' for d in over)}"
            case Cuts(cost=cost, parts=parts):
                meaning = f"balanced cuts by {cost} into {parts} parts"
            case Descending(cost=cost):
                meaning = f"rows of {cost} by descending cost"
            case Owners(order=order, parts=parts):
                meaning = f"worker of each row, of {parts}, longest first by {order}"
            case Starts(owners=owners):
                meaning = f"where the rows of each worker start, by {owners}"
            case Lists(owners=owners):
                meaning = f"the rows of each worker, by {owners}"
        return f"{fun.name}[{extents}] {fun.dtype} x {self.size}: {meaning} ({self.key})"


@dataclass(frozen=True)
class PreludeSpec:
    """What the prelude of a kernel computes from the lengths of a batch.

    tables: in dependency order; sizes: names of the run-time sizes used, sorted; lengths: the Given
    functions, in the order of their tables.
    """

    tables: tuple[Table, ...]
    sizes: tuple[str, ...]
    lengths: tuple[UFun, ...]

    def position(self, fun: UFun) -> int:
        """Which of `tables` is that of `fun`; found by meaning, so that names play no part.

        Raises InternalError if there is none.
        """
        key = Keys().of(fun)
        for position, table in enumerate(self.tables):
            if table.key == key:
                return position
        raise InternalError(f"prelude: '{fun}' ({key}) is not among the tables of the specification")

    def describe(self) -> str:
        """One line for each table, in the order of computation."""
        return "\n".join(table.describe() for table in self.tables)


def specify(
    funs: Iterable[UFun],
    table_offset: Callable[[UFun, Sequence[Expr]], Expr],
    table_size: Callable[[UFun], Expr],
) -> PreludeSpec:
    """The tables of `funs` and of everything that they are computed from, each function once.

    `table_offset(fun, args)` is the position of an entry in the table of `fun`, `table_size(fun)` the
    number of entries; both may call further functions, whose tables are included. The result depends on the
    set of functions only, not on their order. Raises UnsupportedError for a definition that is not integer
    arithmetic, InternalError if a function needs its own table.
    """
    keys = Keys()
    tables: dict[str, Table] = {}
    open_keys: set[str] = set()

    def visit(fun: UFun) -> None:
        key = keys.of(fun)
        if key in tables:
            return
        if key in open_keys:
            raise InternalError(f"prelude: the table of '{fun}' is needed to compute or to address itself")
        open_keys.add(key)
        size, offset = table_size(fun), table_offset(fun, fun.domain)
        for needed in (*functions(fun), *called(size), *called(offset)):
            visit(needed)
        open_keys.remove(key)
        tables[key] = Table(fun, size, offset, key)

    for fun in sorted(funs, key=lambda f: (f.name, keys.of(f))):
        visit(fun)
    ordered = tuple(tables.values())
    named = {
        name
        for table in ordered
        for e in (*expressions(table.fun), table.size, table.offset)
        for name in sizes(e)
    }
    given = tuple(table.fun for table in ordered if table.given)
    return PreludeSpec(ordered, tuple(sorted(named)), given)
