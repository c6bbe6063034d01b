"""Z3: refutation of the negated goal under the facts, written as SMT-LIB 2 text.

Uninterpreted functions of the lengths are uninterpreted functions of the solver; the ground facts
about their applications are all it knows of them. The limit is a number of solver steps (`rlimit`),
never a clock, and every query has a solver context of its own: the same question has the same answer.
"""

from __future__ import annotations

from cora.errors import InternalError
from cora.ir import dtypes
from cora.ir.expr import ZERO, Binary, Call, Cast, Const, Dim, Expr, Select, Size, Unary, Var
from cora.ir.facts import closure
from cora.ir.ufun import UFun
from cora.prove.context import Context

_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "eq": "=", "and": "and", "or": "or"}


def script(goal: Expr, context: Context) -> str:
    """The query as SMT-LIB 2: unsatisfiable if and only if the facts imply `goal` in `context`."""
    exprs = [goal, *(r.end for r in context.ranges), *context.assumptions]
    hypotheses = [e for r in context.ranges for e in (r.var >= ZERO, r.var < r.end)]
    return write([*hypotheses, *context.assumptions, *closure(exprs)], goal)


def write(hypotheses: list[Expr], goal: Expr) -> str:
    """`hypotheses` and the negation of `goal` as SMT-LIB 2 text, without a command to check them."""
    writer = _Writer()
    asserted = [writer.text(e) for e in hypotheses]
    asserted.append(f"(not {writer.text(goal)})")
    return "\n".join([*writer.declarations, *(f"(assert {t})" for t in [*writer.definitions, *asserted])])


def is_unsatisfiable(query: str, rlimit: int) -> bool | None:
    """Whether `query` is unsatisfiable; None if the solver gave up. Raises ImportError without Z3."""
    import z3

    solver = z3.Solver(ctx=z3.Context())
    solver.set("rlimit", rlimit)
    solver.set("random_seed", 0)
    solver.from_string(query)
    answer = solver.check()
    return True if answer == z3.unsat else False if answer == z3.sat else None


class _Writer:
    """Text of expressions; names and quotients are declared as they come up."""

    def __init__(self) -> None:
        self.declarations: list[str] = []
        self.definitions: list[str] = []
        self._memo: dict[Expr, str] = {}
        self._functions: dict[UFun, str] = {}
        self._quotients: dict[tuple[str, str], str] = {}

    def text(self, e: Expr) -> str:
        """`e` as an SMT-LIB term."""
        found = self._memo.get(e)
        if found is None:
            found = self._memo[e] = self._term(e)
        return found

    def _term(self, e: Expr) -> str:
        match e:
            case Const(value=bool(v)):
                return "true" if v else "false"
            case Const(value=int(v)):
                return str(v) if v >= 0 else f"(- {-v})"
            case Var(type="bool"):
                return self._declare("Bool")
            case Size():
                name = self._declare("Int")
                self.definitions.append(f"(<= 0 {name})")
                return name
            case Var() | Dim():
                return self._declare("Int")
            case Call(fun=fun, args=args):
                name = self._function(fun)
                return f"({name} {' '.join(self.text(a) for a in args)})" if args else name
            case Binary(op="floordiv", a=a, b=b):
                return self._quotient(self.text(a), b)
            case Binary(op="mod", a=a, b=b):
                x = self.text(a)
                return f"(- {x} (* {self.text(b)} {self._quotient(x, b)}))"
            case Binary(op="min", a=a, b=b):
                x, y = self.text(a), self.text(b)
                return f"(ite (<= {x} {y}) {x} {y})"
            case Binary(op="max", a=a, b=b):
                x, y = self.text(a), self.text(b)
                return f"(ite (<= {x} {y}) {y} {x})"
            case Binary(op="ne", a=a, b=b):
                return f"(not (= {self.text(a)} {self.text(b)}))"
            case Binary(op=op, a=a, b=b) if op in _OPERATORS:
                return f"({_OPERATORS[op]} {self.text(a)} {self.text(b)})"
            case Unary(op="not", a=a):
                return f"(not {self.text(a)})"
            case Unary(op="neg", a=a):
                return f"(- {self.text(a)})"
            case Unary(op="abs", a=a):
                x = self.text(a)
                return f"(ite (<= 0 {x}) {x} (- {x}))"
            case Cast(a=a) if a.dtype == "bool":
                return f"(ite {self.text(a)} 1 0)"
            case Cast(a=a) if dtypes.is_int(a.dtype):
                return self.text(a)
            case Select(cond=c, then=a, other=b):
                return f"(ite {self.text(c)} {self.text(a)} {self.text(b)})"
        raise InternalError(f"smt: {e} is not an expression of integers and truth values")

    def _declare(self, sort: str, parameters: str = "") -> str:
        name = f"v{len(self.declarations)}"
        self.declarations.append(f"(declare-fun {name} ({parameters}) {sort})")
        return name

    def _function(self, fun: UFun) -> str:
        name = self._functions.get(fun)
        if name is None:
            name = self._functions[fun] = self._declare("Int", " ".join(["Int"] * len(fun.domain)))
        return name

    def _quotient(self, x: str, divisor: Expr) -> str:
        """A new constant q with k*q <= x < k*q + k (for k < 0: k*q >= x > k*q + k)."""
        k = self.text(divisor)
        q = self._quotients.get((x, k))
        if q is None:
            q = self._quotients[x, k] = self._declare("Int")
            product = f"(* {k} {q})"
            up = f"(and (<= {product} {x}) (< {x} (+ {product} {k})))"
            down = f"(and (>= {product} {x}) (> {x} (+ {product} {k})))"
            if isinstance(divisor, Const):
                self.definitions.append(up if divisor.value > 0 else down)
            else:
                self.definitions.append(f"(=> (> {k} 0) {up})")
                self.definitions.append(f"(=> (< {k} 0) {down})")
        return q
