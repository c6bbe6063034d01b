"""Statements under construction: names, bindings and local arrays of one block."""

from __future__ import annotations

import re

from tvm import tirx as T  # noqa: N812

from cora.codegen.nodes import Tir, TirBuffer, TirStmt, i64, intrinsic, type_of

#: Local arrays are aligned to a cache line, which is also the widest vector register.
_LOCAL_ALIGNMENT = 64


class Names:
    """Identifiers for generated code, each given out once."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """An unused identifier that resembles `hint`."""
        stem = re.sub(r"\W", "_", hint, flags=re.ASCII) or "v"
        stem = f"v{stem}" if stem[0].isdigit() else stem
        while True:
            count = self._used.get(stem, 0)
            self._used[stem] = count + 1
            name = stem if count == 0 else f"{stem}_{count}"
            if count == 0 or name not in self._used:
                self._used.setdefault(name, 1)
                return name


class Scope:
    """One block: statements are appended, values are bound to variables that live to its end."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._stmts: list[TirStmt] = []

    def add(self, stmt: TirStmt) -> None:
        """Append a statement."""
        self._stmts.append(stmt)

    def child(self) -> Scope:
        """A block inside this one, to be placed by the caller."""
        return Scope(self._names)

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

    def bind(self, value: Tir, hint: str = "t") -> Tir:
        """Compute `value` here, once; variables and literals are returned as they are."""
        if isinstance(value, (T.Var, T.IntImm, T.FloatImm)):
            return value
        dtype = type_of(value)
        if dtype.startswith("boolx"):
            # TVM's analyzer, which sees every binding, fails on comparisons of vectors. A call is opaque to
            # it, and the number of ones in a single bit is that bit: LLVM removes the call.
            value = intrinsic(dtype, "ctpop", value)
        var = self.var(hint, dtype)
        self.add(T.Bind(var, value))
        return var

    def alloc(self, hint: str, dtype: str, size: int) -> TirBuffer:
        """An uninitialised array of `size` elements that lives to the end of this block.

        Below 1024 bytes it is on the stack (in registers where LLVM can), above in TVM's workspace pool.
        """
        buffer = T.decl_buffer(
            (i64(max(size, 1)),),
            dtype,
            self._names.fresh(hint),
            scope="global",
            data_alignment=_LOCAL_ALIGNMENT,
        )
        self.add(T.AllocBuffer(buffer))
        return buffer
