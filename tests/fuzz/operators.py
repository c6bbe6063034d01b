"""Random operators: accesses that are legal by construction, element-wise bodies, reductions, chains.

Values are kept where rounding decides nothing: floats are compared only where they are exact (inputs, and minima,
maxima, negatives of inputs), integers stay far from the limits of 32 bits, functions stay inside their domains.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cora.ir import dtypes
from cora.ir.expr import Const, Dim, Expr
from cora.ir.simplify import simplify
from cora.ir.tensor import Tensor
from cora.ir.visit import free_dims, substitute
from tests.fuzz.choices import Choices
from tests.fuzz.dims import Dims
from tests.fuzz.program import Program

Kind = Literal["float", "int", "bool"]

FLOATS = [*5 * ["float32"], "float64", "float16", "bfloat16"]
INTS = ["int32", "int64", "int8"]
INDICES = ["int32", "int64", "int8"]


@dataclass(frozen=True)
class Source:
    """A tensor that may be read; `wild`: its integers may be anything, so that it is not read any further."""

    tensor: Tensor
    wild: bool = False

    @property
    def kind(self) -> Kind:
        dtype = self.tensor.dtype
        return "float" if dtypes.is_float(dtype) else "int" if dtypes.is_int(dtype) else "bool"


class Operators:
    """The tensors of a program."""

    def __init__(self, choices: Choices, program: Program, dims: Dims) -> None:
        self.choices = choices
        self.program = program
        self.dims = dims
        self.sources: list[Source] = []
        self.index_ranges: dict[str, int] = {}
        # conditions that will stand around the reduction that is being made, and the dims they may use
        self.outside: list[str] | None = None
        self.outside_names: set[str] = set()

    @property
    def computed(self) -> list[Tensor]:
        """The operators, in order."""
        return [s.tensor for s in self.sources if s.tensor.body is not None]

    def add(self) -> None:
        """One more operator, over some of the dims; the later ones read the earlier ones more often than not."""
        choices, dims = self.choices, self.dims
        loops = dims.closed(choices.subset(dims.known[:6], 75) or dims.known[:1])
        over = self._reduced(loops) if choices.chance(50) else []
        own = [d for d in loops if d not in over]
        body = Body(self, own, over)
        before = [s for s in self.sources if s.tensor.body is not None and not s.wild and s.kind != "bool"]
        kind: Kind = choices.pick(["float", "float", "float", "int", "bool"])
        chained = bool(before) and choices.chance(70)
        if chained:
            kind = before[-1].kind
        text, wild = body.reduced(kind) if over else (body.value(kind, choices.integer(1, 3)), False)
        if chained and not wild:
            found = self._access_of(before[-1].tensor, own)
            text = f"({text}) + {found}" if found else text
        stored = {
            "float": [*8 * [""], "float64", "float16", "bfloat16", "float32"],
            "int": [*4 * [""], "int64", "int8"],
            "bool": [""],
        }[kind]
        dtype = choices.pick(stored)
        order = dims.ordered(own) if choices.chance(30) else own
        name = self.program.fresh("T")
        given = f', dtype="{dtype}"' if dtype else ""
        text = f'cora.compute("{name}", [{_names(order)}], {text}{given})'
        self.sources.append(Source(self.program.assign(name, text), wild))

    def _reduced(self, loops: Sequence[Dim]) -> list[Dim]:
        """One or two dims on which no other one depends."""
        over: list[Dim] = []
        for _ in range(self.choices.integer(1, 2)):
            rest = [d for d in loops if d not in over]
            free = [d for d in rest if not any(d in free_dims(other.extent) for other in rest)]
            if free:
                over.append(self.choices.pick(free))
        return [d for d in loops if d in over]

    def access(self, kind: Kind, scope: Sequence[Dim], exact: bool = False) -> str:
        """An access of an earlier tensor of the kind, or of a new input: by `plain` indices at the least."""
        usable = [
            s for s in self.sources if s.kind == kind and not s.wild and not (exact and _rounded(s.tensor))
        ]
        order = self.choices.shuffled(usable)
        if self.choices.chance(60):  # what was computed first
            order.sort(key=lambda s: s.tensor.body is None)
        for source in order:
            if self.choices.chance(60):
                text = self._access_of(source.tensor, scope)
                if text is not None:
                    return text
        choices, dims = self.choices, self.dims
        plain = dims.closed(choices.subset(scope, 80))
        plain = dims.ordered(plain) if choices.chance(30) else plain
        chosen = dims.twins(plain) if plain and choices.chance(15) else plain
        if choices.chance(10):
            chosen = [*chosen, dims.define(str(choices.integer(1, 4)))]
        dtype = choices.pick({"float": FLOATS, "int": INTS, "bool": ["bool"]}[kind])
        tensor = self.input("A", chosen, dtype)
        indices = [d.name for d in plain] + ["0"] * (len(chosen) - len(plain))
        return self._access_of(tensor, scope) or f"{tensor.name}[{', '.join(indices) or '()'}]"

    def input(self, prefix: str, dims: Sequence[Dim], dtype: str) -> Tensor:
        """A new input; those named A may be read by other operators too."""
        name = self.program.fresh(prefix)
        tensor: Tensor = self.program.assign(name, f'cora.placeholder("{name}", [{_names(dims)}], "{dtype}")')
        if prefix == "A":
            self.sources.append(Source(tensor))
        return tensor

    def _access_of(self, tensor: Tensor, scope: Sequence[Dim]) -> str | None:
        """An access that stays inside the tensor for all values of the dims in `scope`; None if none is found."""
        indices: list[str] = []
        conditions: list[str] = []
        at: dict[Expr, Expr] = {}
        for dim in tensor.dims:
            target = simplify(substitute(dim.extent, at))
            inner = any(dim in free_dims(other.extent) for other in tensor.dims)
            found = self._index(dim, target, scope, inner, conditions)
            if found is None:
                return None
            indices.append(found)
            at[dim] = self.program.value(found)
        text = f"{tensor.name}[{', '.join(indices) if indices else '()'}]"
        if tensor.body is not None and dtypes.is_int(tensor.dtype):
            text = f"({text} % 7)"
        if conditions and self._moved_outside(conditions):
            return text
        if conditions:
            other = {"float": "-1.5", "int": "3", "bool": "False"}[Source(tensor).kind]
            text = f"cora.where({' & '.join(conditions)}, {text}, {other})"
        return text

    def _moved_outside(self, conditions: list[str]) -> bool:
        """Whether a reduction around the access stands under its conditions, in place of the access."""
        names = {name for condition in conditions for name in re.findall(r"\bd\d+\b", condition)}
        if self.outside is None or not names <= self.outside_names or not self.choices.chance(50):
            return False
        self.outside += conditions
        return True

    def _index(
        self, dim: Dim, target: Expr, scope: Sequence[Dim], plain: bool, conditions: list[str]
    ) -> str | None:
        """An index below `target`: one of the loops, if `plain`; a shifted one may add to `conditions`."""
        pick, chance = self.choices.pick, self.choices.chance
        alike = [d for d in scope if simplify(d.extent) == target]
        if alike:
            chosen = dim if dim in alike and not chance(20) else pick(alike)
            name, extent = chosen.name, self.dims.extent(chosen)
            if plain or target == Const(0) or chance(75):
                return name
            match pick(["shift", "shift", "reverse", "halve", "gather", "first"]):
                case "shift":
                    window = [f"{name} + {d.name} - 1" for d in scope if d.name != name]
                    shifted = pick([f"{name} - 1", f"{name} + 1", f"{name} + 2", f"2 * {name}", *window])
                    conditions += [f"({shifted} >= 0)", f"({shifted} < {extent})"]
                    return shifted
                case "reverse":
                    return f"{extent} - 1 - {name}"
                case "halve":
                    return f"{name} // 2"
                case "first":
                    conditions += [] if isinstance(target, Const) else [f"(0 < {extent})"]
                    return pick(["0", f"{extent} - 1"])
                case _:
                    return f"{self._gather(scope, 50, conditions)} % {extent}"
        if isinstance(target, Const) and int(target.value) > 0:
            n = int(target.value)
            below = [d.name for d in scope if isinstance(d.extent, Const) and int(d.extent.value) <= n]
            return self._gather(scope, n, conditions) if chance(30) else pick([str(n - 1), *below])
        return None

    def _gather(self, scope: Sequence[Dim], end: int, conditions: list[str]) -> str:
        """An index in 0..end-1 read from a new input; where that is shifted, `conditions` gets one more."""
        dims = self.dims.closed(self.choices.subset(scope))
        tensor = self.input("I", dims, self.choices.pick(INDICES))
        self.index_ranges[tensor.name] = end
        indices = [d.name for d in dims]
        if dims and self.choices.chance(20):
            conditions.append(f"({indices[-1]} >= 1)")
            indices[-1] += " - 1"
        return f"{tensor.name}[{', '.join(indices) or '()'}]"


class Body:
    """Random expressions over the dims `own` of an operator and those it reduces `over`."""

    def __init__(self, operators: Operators, own: Sequence[Dim], over: Sequence[Dim]) -> None:
        self.operators = operators
        self.choices = operators.choices
        self.own = list(own)
        self.over = list(over)
        self.scope = self.own

    def reduced(self, kind: Kind) -> tuple[str, bool]:
        """A body with reductions, and whether its integers may be anything."""
        operators = self.operators
        over = _names(self.over)
        over = over if len(self.over) == 1 else f"[{over}]"
        self.scope = [*self.own, *self.over]
        operators.outside, operators.outside_names = [], {d.name for d in self.own}
        text, wild = self._reduction(kind, over)
        conditions, operators.outside = operators.outside, None
        self.scope = self.own
        conditions += [self.condition(1)] if self.choices.chance(10) else []
        if conditions:
            other = {"float": "2.5", "int": "-1", "bool": "True"}[kind]
            text = f"cora.where({' & '.join(conditions)}, {text}, {other})"
        if kind == "float" and self.choices.chance(40):
            text = self._float_op(text, self.value("float", 0))
        return text, wild

    def _reduction(self, kind: Kind, over: str) -> tuple[str, bool]:
        depth = self.choices.integer(0, 2)
        if kind == "bool":
            return f"({self.choices.integer(0, 2)} < cora.sum({self.condition(1)}, over={over}))", False
        if kind == "int":
            return self._int_reduction(over, depth)
        last = self.own[-1:]
        independent = last and not any(last[0] in free_dims(d.extent) for d in self.scope)
        if independent and self.choices.chance(60):
            return self._product(over), False
        op = self.choices.pick(["sum", "sum", "sum", "max", "min", "mean", "prod"])
        text = f"cora.{op}({self.value('float', depth)}, over={over})"
        if self.choices.chance(25):
            second = f"cora.sum(abs({self.value('float', 0)}), over={over})"
            text = self.choices.pick([f"{text} / (1 + {second})", f"{text} - {second}"])
        return text, False

    def _product(self, over: str) -> str:
        """A product of matrices, as micro-kernels compute it."""
        *outer, column = self.own
        rows = self.operators.dims.closed([*outer, *self.over])
        columns = [d for d in self.operators.dims.closed([*self.over, column]) if d != column]
        a = self.operators.input("A", rows, "float32")
        b = self.operators.input("A", [*columns, column], "float32")
        return f"cora.sum({a.name}[{_names(rows)}] * {b.name}[{_names([*columns, column])}], over={over})"

    def _int_reduction(self, over: str, depth: int) -> tuple[str, bool]:
        choices = self.choices
        if len(self.over) == 1 and choices.chance(50):
            op = choices.pick(["argmax", "argmin"])
            body = self.exact_float() if choices.chance(70) else self.value("int", depth)
            return f"cora.{op}({body}, over={over})", False
        op = choices.pick(["sum", "max", "min", "prod"])
        value = self.value("int", depth)
        if op == "prod":
            return f"cora.prod(({value}) % 3 - 1, over={over})", False
        text = f"cora.{op}({value}, over={over})"
        if op == "sum":
            other = f"cora.sum({self.value('int', 0)}, over={over})"
            return choices.pick([text, f"{text} + {other}", f"{text} % 5", f"2 * {text}"]), False
        if choices.chance(30):
            return text, True  # the lowest value of the type where nothing is reduced
        return f"cora.minimum(cora.maximum({text}, -99), 99)", False

    def value(self, kind: Kind, depth: int) -> str:
        """An expression of the kind."""
        if kind == "bool":
            return self.condition(depth)
        if depth == 0 or self.choices.chance(10):
            return self._leaf(kind)
        if self.choices.chance(15):
            other = self.value(kind, 0)
            return f"cora.where({self.condition(1)}, {self.value(kind, depth - 1)}, {other})"
        a, b = self.value(kind, depth - 1), self.value(kind, 0)
        return self._float_op(a, b) if kind == "float" else self._int_op(a, b)

    def _leaf(self, kind: Kind) -> str:
        choices = self.choices
        if kind == "float":
            if choices.chance(12):
                return choices.pick(["0.5", "2.0", "-1.5", "0.1"])
            if choices.chance(6):
                return f'cora.cast({self._leaf("int")}, "float32")'
            return self.operators.access("float", self.scope)
        if choices.chance(25):
            return choices.pick([*(d.name for d in self.scope), "1", "-2", "3"])
        if choices.chance(10):
            return f'cora.cast({self.operators.access("bool", self.scope)}, "int32")'
        return self.operators.access("int", self.scope)

    def _float_op(self, a: str, b: str) -> str:
        return self.choices.pick(
            [
                f"{a} + {b}",
                f"{a} * {b}",
                f"({a} - {b})",
                f"2 * ({a})",
                f"({a}) * ({b})",
                f"cora.maximum({a}, {b})",
                f"cora.minimum({a}, {b})",
                f"({a}) / (abs({b}) + 1)",
                f"-({a})",
                f"cora.abs({a})",
                f"cora.exp(cora.minimum({a}, 2.0))",
                f"cora.log(abs({a}) + 1)",
                f"cora.sqrt(abs({a}))",
                f"cora.rsqrt(abs({a}) + 1)",
                f"cora.tanh({a})",
                f"cora.erf({a})",
                f"cora.sigmoid({a})",
                f"cora.gelu({a})",
                f'cora.gelu({a}, approximate="tanh")',
            ]
        )

    def _int_op(self, a: str, b: str) -> str:
        divisor = self.choices.pick(["2", "3", "4", "-3"])
        return self.choices.pick(
            [
                f"{a} + {b}",
                f"({a} - {b})",
                f"({a}) * ({b})",
                f"3 * ({a})",
                f"({a}) // {divisor}",
                f"({a}) % {divisor}",
                f"cora.maximum({a}, {b})",
                f"cora.minimum({a}, {b})",
                f"-({a})",
                f"abs({a})",
            ]
        )

    def exact_float(self) -> str:
        """A float expression without rounding."""
        a = self.operators.access("float", self.scope, exact=True)
        b = self.operators.access("float", self.scope, exact=True) if self.choices.chance(30) else "0.25"
        return self.choices.pick(
            [a, a, f"-{a}", f"abs({a})", f"cora.maximum({a}, {b})", f"cora.minimum({a}, {b})"]
        )

    def condition(self, depth: int) -> str:
        """A bool expression, in parentheses."""
        choices = self.choices
        if depth > 1 and choices.chance(40):
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return choices.pick([f"({a} & {b})", f"({a} | {b})", f"(~{a})"])
        if self.scope and choices.chance(40):
            d, e = choices.pick(self.scope).name, choices.pick(self.scope).name
            c = choices.integer(0, 4)
            return choices.pick(
                [f"({d} < {c})", f"({d} <= {e})", f"cora.equal({d} % 2, 0)", f"({e} < {d} + {c})"]
            )
        match choices.pick(["float", "int", "bool"]):
            case "float":
                a, b = self.exact_float(), self.exact_float()
                return choices.pick([f"({a} < {b})", f"({a} >= {b})", f"cora.not_equal({a}, {b})"])
            case "int":
                a, b = self.operators.access("int", self.scope), self.value("int", 0)
                return choices.pick([f"({a} < {b})", f"cora.equal({a}, {b})"])
            case _:
                return self.operators.access("bool", self.scope)


def _rounded(tensor: Tensor) -> bool:
    return tensor.body is not None and dtypes.is_float(tensor.dtype)


def _names(dims: Sequence[Dim]) -> str:
    return ", ".join(d.name for d in dims)
