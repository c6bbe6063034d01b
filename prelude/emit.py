"""Integer expressions over sizes, tables and formals as LLVM IR.

All integers are 64 bits wide. Arithmetic that leaves them, and division by zero, do not trap: they set a
bit of the function's status (`OVERFLOW`, `ZERO_DIVISION`) and go on with some value. Only what is evaluated
counts: branches of a Select that are not taken, and tables read outside their domain, do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from cora.errors import InternalError
from cora.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Select,
    Size,
    Unary,
    binary,
)
from cora.ir.ufun import UFun
from cora.ir.visit import substitute, walk
from cora.prelude.spec import Table
from cora.prelude.status import OVERFLOW, ZERO_DIVISION

I1 = ir.IntType(1)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
PTR = ir.PointerType()

# llvmlite has no types: its values are Any here, and named for the reader.
Value = Any
Env = Mapping[Expr, Value]

_INT64_MIN = -(2**63)


def const(value: int) -> Value:
    """A 64-bit literal."""
    return ir.Constant(I64, value)


class Cell:
    """A local variable that the optimiser turns into a register."""

    def __init__(self, emitter: Emitter, start: Value) -> None:
        self._b = emitter.builder
        self._type = start.type
        with self._b.goto_entry_block():
            self._slot = self._b.alloca(self._type)
        self._b.store(start, self._slot)

    def get(self) -> Value:
        return self._b.load(self._slot, typ=self._type)

    def set(self, value: Value) -> None:
        self._b.store(value, self._slot)


class Emitter:
    """Emits into one function, whose sizes and tables are values already.

    `tables` are the tables that may be read with their addresses; `find` gives the position of a function's
    table.
    """

    def __init__(
        self,
        builder: Value,
        sizes: Mapping[str, Value],
        tables: Sequence[tuple[Table, Value]],
        find: Callable[[UFun], int],
    ) -> None:
        self.builder = builder
        self._sizes = sizes
        self._tables = tables
        self._find = find
        self._status = Cell(self, const(0))
        self._dims: dict[Expr, tuple[Dim, ...]] = {}
        self._known: list[dict[object, Value]] = [{}]

    # control flow

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Around code that need not run, or runs again: what was evaluated in it is not known behind it."""
        self._known.append({})
        yield
        self._known.pop()

    @contextmanager
    def loop(self, count: Value) -> Iterator[Value]:
        """`for i in 0..count`, nothing where count <= 0."""
        b = self.builder
        before = b.block
        head, body, after = (b.append_basic_block(name) for name in ("loop", "body", "after"))
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(I64)
        i.add_incoming(const(0), before)
        b.cbranch(b.icmp_signed("<", i, count), body, after)
        b.position_at_end(body)
        with self.scope():
            yield i
        i.add_incoming(b.add(i, const(1), flags=("nsw",)), b.block)
        b.branch(head)
        b.position_at_end(after)

    @contextmanager
    def while_(self, condition: Callable[[], Value]) -> Iterator[None]:
        """Repeats while the value that `condition` emits holds."""
        b = self.builder
        head, body, after = (b.append_basic_block(name) for name in ("while", "body", "after"))
        b.branch(head)
        b.position_at_end(head)
        b.cbranch(condition(), body, after)
        b.position_at_end(body)
        with self.scope():
            yield
        b.branch(head)
        b.position_at_end(after)

    @contextmanager
    def loops(self, dims: Sequence[Dim], env: Env) -> Iterator[Env]:
        """The nest of loops over `dims`, outer first; gives `env` with their indices."""
        if not dims:
            yield env
            return
        first, *rest = dims
        with self.loop(self.count(first.extent, env)) as i, self.loops(rest, {**env, first: i}) as e:
            yield e

    def lazily(self, condition: Value, then: Callable[[], Value], other: Callable[[], Value]) -> Value:
        """The value of `then` or of `other`; the one not taken is not evaluated."""
        b = self.builder
        with b.if_else(condition) as (yes, no):
            with yes, self.scope():
                a = then()
                a_block = b.block
            with no, self.scope():
                c = other()
                c_block = b.block
        result = b.phi(a.type)
        result.add_incoming(a, a_block)
        result.add_incoming(c, c_block)
        return result

    # status

    def flag(self, condition: Value, bit: int) -> None:
        """Set `bit` of the status where `condition` holds."""
        b = self.builder
        self._status.set(b.or_(self._status.get(), b.select(condition, const(bit), const(0))))

    def status(self) -> Value:
        """The status so far; 0: everything fits."""
        return self._status.get()

    # expressions

    def count(self, extent: Expr, env: Env) -> Value:
        """The number of iterations of `extent`: a negative one counts as 0."""
        return self.larger(self.value(extent, env), const(0))

    def smaller(self, x: Value, y: Value) -> Value:
        """The smaller of two integers."""
        return self.builder.select(self.builder.icmp_signed("<", x, y), x, y)

    def larger(self, x: Value, y: Value) -> Value:
        """The larger of two integers."""
        return self.builder.select(self.builder.icmp_signed(">", x, y), x, y)

    def value(self, e: Expr, env: Env) -> Value:
        """The value of `e`: 64 bits for integers, one for bool; `env` holds the dims.

        What was evaluated before, where that has run, is not evaluated again: costs of iterations and the guards of
        tables repeat most of their parts.
        """
        if isinstance(e, (Const, Size, Dim)):
            return self._evaluated(e, env)
        if e not in self._dims:
            self._dims[e] = tuple(x for x in walk(e) if isinstance(x, Dim))
        key = (e, *(env[dim] for dim in self._dims[e]))
        for known in self._known:
            if key in known:
                return known[key]
        result = self._evaluated(e, env)
        self._known[-1][key] = result
        return result

    def _evaluated(self, e: Expr, env: Env) -> Value:
        b = self.builder
        match e:
            case Const(value=value):
                return ir.Constant(I1, int(value)) if e.dtype == "bool" else const(int(value))
            case Size(name=name):
                return self._sizes[name]
            case Dim():
                return env[e]
            case Binary(op=op, a=a, b=c):
                return self._binary(op, self.value(a, env), self.value(c, env))
            case Unary(op="not", a=a):
                return b.not_(self.value(a, env))
            case Unary(op="neg", a=a):
                return self._checked("sub", const(0), self.value(a, env))
            case Unary(op="abs", a=a):
                x = self.value(a, env)
                negative = b.icmp_signed("<", x, const(0))
                return b.select(negative, self._checked("sub", const(0), x), x)
            case Cast(a=a):
                x = self.value(a, env)
                return b.zext(x, I64) if x.type == I1 else x
            case Select(cond=c, then=then, other=other):
                return self.lazily(
                    self.value(c, env), lambda: self.value(then, env), lambda: self.value(other, env)
                )
            case Call(fun=fun, args=args):
                return self._call(fun, args, env)
        raise InternalError(f"prelude: cannot compute {e} ({type(e).__name__})")

    def _binary(self, op: str, x: Value, y: Value) -> Value:
        b = self.builder
        match op:
            case "add" | "sub" | "mul":
                return self._checked(op, x, y)
            case "floordiv" | "mod":
                return self._divided(op, x, y)
            case "min":
                return self.smaller(x, y)
            case "max":
                return self.larger(x, y)
            case "lt" | "le" | "eq" | "ne":
                return b.icmp_signed({"lt": "<", "le": "<=", "eq": "==", "ne": "!="}[op], x, y)
            case "and":
                return b.and_(x, y)
            case "or":
                return b.or_(x, y)
        raise InternalError(f"prelude: '{op}' is not an operation on integers")

    def _checked(self, op: str, x: Value, y: Value) -> Value:
        b = self.builder
        with_overflow = {
            "add": b.sadd_with_overflow,
            "sub": b.ssub_with_overflow,
            "mul": b.smul_with_overflow,
        }
        pair = with_overflow[op](x, y)
        self.flag(b.extract_value(pair, 1), OVERFLOW)
        return b.extract_value(pair, 0)

    def add(self, x: Value, y: Value) -> Value:
        """`x + y`, checked."""
        return self._checked("add", x, y)

    def _divided(self, op: str, x: Value, y: Value) -> Value:
        """Division rounding to minus infinity: `x // y` or `x % y`, as in Python."""
        b = self.builder
        literal = y.constant if isinstance(y, ir.Constant) else None
        if literal is not None and literal > 0 and literal & (literal - 1) == 0:
            if op == "mod":
                return b.and_(x, const(literal - 1))
            return b.ashr(x, const(literal.bit_length() - 1))
        if literal is None or literal in (0, -1):
            zero = b.icmp_signed("==", y, const(0))
            self.flag(zero, ZERO_DIVISION)
            # INT64_MIN // -1 is the one quotient that does not fit, and traps on some machines
            wraps = b.and_(b.icmp_signed("==", x, const(_INT64_MIN)), b.icmp_signed("==", y, const(-1)))
            self.flag(wraps, OVERFLOW)
            y = b.select(b.or_(zero, wraps), const(1), y)
        remainder = b.srem(x, y)
        signs_differ = b.icmp_signed("<", b.xor(remainder, y), const(0))
        down = b.and_(b.icmp_signed("!=", remainder, const(0)), signs_differ)
        if op == "mod":
            return b.add(remainder, b.select(down, y, const(0)))
        return b.sub(b.sdiv(x, y), b.zext(down, I64))

    # tables

    def _call(self, fun: UFun, args: Sequence[Expr], env: Env) -> Value:
        """The value of `fun` at `args`: 0 outside its domain."""
        values = [self.value(arg, env) for arg in args]
        table = self.table(fun)
        formals: dict[Expr, Value] = dict(zip(table.fun.domain, values, strict=True))
        symbols: dict[Expr, Expr] = dict(zip(table.fun.domain, args, strict=True))

        def inside(position: int) -> Value:
            if position == len(values):
                return self.entry(table, formals)
            extent, arg = table.fun.domain[position].extent, args[position]
            tests = self._tests(values[position], arg, extent, substitute(extent, symbols), formals)
            if tests is None:
                return inside(position + 1)
            return self.lazily(tests, lambda: inside(position + 1), lambda: const(0))

        return inside(0)

    def _tests(self, value: Value, arg: Expr, extent: Expr, bound: Expr, formals: Env) -> Value | None:
        """Whether 0 <= value < extent; None where `arg` and `bound` (the extent in its terms) show it.

        A dim in scope is within its own extent; a size is not negative.
        """
        b = self.builder
        tests = []
        own = arg.extent if isinstance(arg, Dim) else None
        if own is None and not isinstance(arg, Size) and not (isinstance(arg, Const) and arg.value >= 0):
            tests.append(b.icmp_signed(">=", value, const(0)))
        below_by_dim = own is not None and bound in (own, binary("add", own, 1))
        if not below_by_dim and bound != binary("add", arg, 1):
            tests.append(b.icmp_signed("<", value, self.value(extent, formals)))
        if not tests:
            return None
        return tests[0] if len(tests) == 1 else b.and_(*tests)

    def entry(self, table: Table, formals: Env) -> Value:
        """The entry of `table` at `formals`, which are inside its domain."""
        position = self.value(table.offset, formals)
        return self.load(stored_type(table.fun), self.address(table.fun), position)

    def table(self, fun: UFun) -> Table:
        """The table of `fun`; the function in it may have other names than `fun`."""
        return self._tables[self._find(fun)][0]

    def address(self, fun: UFun) -> Value:
        """Where the table of `fun` lies."""
        return self._tables[self._find(fun)][1]

    def start(self, fun: UFun, outer: Env) -> Value:
        """Where a row of `fun`'s table starts; `outer` holds all formals but the last."""
        table = self.table(fun)
        return self.value(table.offset, {**outer, table.fun.domain[-1]: const(0)})

    def load(self, stored: Value, address: Value, position: Value) -> Value:
        """The entry of type `stored` at `position`, as 64 bits."""
        b = self.builder
        entry = b.load(self.at(address, position, stored), align=stored.width // 8, typ=stored)
        return b.sext(entry, I64) if stored.width < 64 else entry

    def store(self, stored: Value, address: Value, position: Value, value: Value) -> None:
        """Write an entry of type `stored`, which holds the value: rows and positions are below 2^31."""
        b = self.builder
        entry = b.trunc(value, stored) if stored.width < 64 else value
        b.store(entry, self.at(address, position, stored), align=stored.width // 8)

    def store_vector(self, address: Value, position: Value, vector: Value) -> None:
        """Write 32-bit entries from `position` on."""
        self.builder.store(vector, self.at(address, position, I32), align=4)

    def at(self, address: Value, position: Value, stored: Value) -> Value:
        """The address of entry `position`."""
        return self.builder.gep(address, [position], inbounds=True, source_etype=stored)


def no_tables(builder: Value) -> Emitter:
    """An emitter for code that reads neither sizes nor tables by name."""

    def find(fun: UFun) -> int:
        raise InternalError(f"prelude: '{fun}' is not available here")

    return Emitter(builder, {}, (), find)


def stored_type(fun: UFun) -> Value:
    """The LLVM type of the entries of `fun`'s table."""
    return I64 if fun.dtype == "int64" else I32
