"""Statements of a kernel under construction: names, bindings and local arrays of one block."""

from __future__ import annotations

from tvm import tirx as T  # noqa: N812

from cora.codegen.nodes import Tir, TirBuffer, TirStmt, type_of
from cora.codegen.scope import Names


class CudaScope:
    """One block: statements are appended, values are bound to variables that live to its end."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._stmts: list[TirStmt] = []

    def add(self, stmt: TirStmt) -> None:
        """Append a statement."""
        self._stmts.append(stmt)

    def child(self) -> CudaScope:
        """A block inside this one, to be placed by the caller."""
        return CudaScope(self._names)

    @property
    def empty(self) -> bool:
        """Whether nothing was appended."""
        return not self._stmts

    def stmt(self) -> TirStmt:
        """The block as one statement."""
        match self._stmts:
            case []:
                return T.Evaluate(T.const(0, "int32"))
            case [one]:
                return one
            case many:
                return T.SeqStmt(many)

    def var(self, hint: str, dtype: str) -> Tir:
        """A fresh variable, to be bound by the caller."""
        return T.Var(self._names.fresh(hint), dtype)

    def bind(self, value: Tir, hint: str) -> Tir:
        """Compute `value` here, once; variables and literals are returned as they are."""
        if isinstance(value, (T.Var, T.IntImm, T.FloatImm)):
            return value
        var = self.var(hint, type_of(value))
        self.add(T.Bind(var, value))
        return var

    def alloc(self, hint: str, dtype: str, size: int, where: str = "local") -> TirBuffer:
        """An uninitialised array of a thread ("local") or of a block ("shared")."""
        shape = (T.const(max(size, 1), "int32"),)
        name = self._names.fresh(hint)
        buffer = T.decl_buffer(shape, dtype, name, scope=where, data_alignment=16)
        self.add(T.AllocBuffer(buffer))
        return buffer
