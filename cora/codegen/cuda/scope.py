"""Statements of a kernel under construction: names, bindings and local arrays of one block."""

from __future__ import annotations

from tvm import tirx as T  # noqa: N812

from cora.codegen.nodes import Tir, TirBuffer, type_of
from cora.codegen.scope import Block


class CudaScope(Block):
    """A block of a kernel for a GPU: values are bound to variables that live to its end."""

    def child(self) -> CudaScope:
        """A block inside this one, to be placed by the caller."""
        return CudaScope(self._names)

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
