"""Names: that of a kernel, and what a call names with keywords, where inputs, sizes and lengths share one namespace."""

from __future__ import annotations

from collections.abc import Sequence

from cora.errors import UserError
from cora.ir.expr import Expr
from cora.ir.tensor import Tensor
from cora.ir.ufun import UFun
from cora.lang.check import reductions_of
from cora.storage.lengths import inputs_of

#: Keywords of `Kernel.__call__` and `plan` that mean something else.
RESERVED = ("self", "kernels", "threads", "device")


def kernel_name(outputs: Sequence[Tensor]) -> str:
    """What the kernel of a program is called in its library."""
    return "kernel_" + "_".join(t.name for t in outputs)


def check_names(tensors: Sequence[Tensor], permutations: Sequence[UFun] = ()) -> None:
    """Each input, size, length function and permutation of a program has a name of its own. UserError otherwise."""
    exprs: list[Expr] = []
    for tensor in tensors:
        exprs.extend(d.extent for d in tensor.dims)
        if tensor.body is not None:
            exprs.append(tensor.body)
            exprs.extend(d.extent for r in reductions_of(tensor.body) for d in r.over)
    sizes, functions = inputs_of(exprs)
    inputs = [t for t in tensors if t.body is None]
    named: list[tuple[str, str, object]] = [
        *((name, "a size", name) for name in sizes),
        *((fun.name, f"lengths over {_domain(fun)}", fun) for fun in functions),
        *((t.name, "an input", t) for t in inputs),
        *((fun.name, f"a permutation over {_domain(fun)}", fun) for fun in permutations),
    ]
    known: dict[str, tuple[str, object]] = {}
    for name, what, meaning in named:
        if name in RESERVED:
            raise UserError(
                f"'{name}' names {what}, but is a keyword of calls; "
                f"the reserved names are {', '.join(RESERVED)}"
            )
        first, other = known.setdefault(name, (what, meaning))
        if first != what or other != meaning:
            raise UserError(f"'{name}' names {first} and {what}: give them different names")


def _domain(fun: UFun) -> str:
    return f"[{', '.join(str(d.extent) for d in fun.domain)}]"
