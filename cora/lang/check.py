"""What makes a definition well-formed."""

from __future__ import annotations

from collections.abc import Sequence

from cora.errors import UnsupportedError, UserError
from cora.ir.expr import Access, Dim, Expr, Reduce
from cora.ir.tensor import Tensor
from cora.ir.visit import free_dims, walk


def check_name(name: object, what: str) -> str:
    """Return `name` if it can name something in generated code; UserError otherwise."""
    if not isinstance(name, str) or not (name.isidentifier() and name.isascii()):
        raise UserError(f"{what}: the name must be an identifier in ASCII; got {name!r}")
    return name


def check_dims(dims: Sequence[Dim], where: str) -> None:
    """Names are unique, and every dim stands after the dims that its extent depends on."""
    seen: dict[str, Dim] = {}
    for position, dim in enumerate(dims):
        if not isinstance(dim, Dim):
            raise UserError(
                f"{where}: dims[{position}] must be a cora.Dim; got {type(dim).__name__}: {dim!r}"
            )
        if dim.name in seen:
            raise UserError(f"{where}: the dim name '{dim.name}' stands twice")
        for outer in sorted(free_dims(dim.extent), key=lambda d: d.name):
            if outer not in seen.values():
                raise UserError(
                    f"{where}: the extent of dim '{dim.name}' is {dim.extent}, so dim '{outer.name}' must stand "
                    f"before it; got [{', '.join(d.name for d in dims)}]"
                )
        seen[dim.name] = dim


def check_body(name: str, dims: tuple[Dim, ...], body: Expr) -> None:
    """Every dim is bound; reductions are well-formed, not nested, and all over the same dims."""
    where = f"compute '{name}'"
    unbound = free_dims(body) - frozenset(dims)
    if unbound:
        names = ", ".join(sorted(d.name for d in unbound))
        raise UserError(
            f"{where}: the body uses dim(s) {names}, which are neither dims of '{name}' "
            f"[{', '.join(d.name for d in dims)}] nor reduced over"
        )
    reductions = reductions_of(body)
    for reduction in reductions:
        check_dims((*dims, *reduction.over), where)
        if any(isinstance(inner, Reduce) for inner in walk(reduction.body)):
            raise UnsupportedError(f"{where}: a reduction inside a reduction; compute the inner one first")
        if reduction.over != reductions[0].over:
            raise UnsupportedError(
                f"{where}: reductions over different dims in one compute; compute one of them first"
            )
    _check_one_meaning_per_name(where, dims, body)


def reductions_of(body: Expr) -> tuple[Reduce, ...]:
    """The distinct reductions in `body`, in order of first occurrence."""
    return tuple(e for e in walk(body) if isinstance(e, Reduce))


def tensors_of(body: Expr) -> tuple[Tensor, ...]:
    """The distinct tensors accessed in `body`, in order of first occurrence."""
    return tuple(dict.fromkeys(e.tensor for e in walk(body) if isinstance(e, Access)))


def program(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Inputs and computed tensors that `outputs` need, each after what it reads.

    Raises UserError if two different tensors, or two different dims of one operator, share a name.
    """
    order: dict[Tensor, None] = {}

    def visit(tensor: Tensor) -> None:
        if tensor in order:
            return
        if tensor.body is not None:
            for source in tensors_of(tensor.body):
                visit(source)
        order.setdefault(tensor)

    for output in outputs:
        visit(output)
    by_name: dict[str, Tensor] = {}
    for tensor in order:
        if by_name.setdefault(tensor.name, tensor) != tensor:
            raise UserError(f"two different tensors are named '{tensor.name}'")
    return tuple(order)


def _check_one_meaning_per_name(where: str, dims: tuple[Dim, ...], body: Expr) -> None:
    meaning = {d.name: d for d in dims}
    for node in walk(body):
        used = node.over if isinstance(node, Reduce) else (node,) if isinstance(node, Dim) else ()
        for dim in used:
            if meaning.setdefault(dim.name, dim) != dim:
                raise UserError(f"{where}: two different dims are named '{dim.name}'")
