"""Statements under construction: names, bindings and local arrays of one block."""

from __future__ import annotations

import re

import tvm_ffi
from tvm import tirx as T  # noqa: N812

from cora.codegen.nodes import Tir, TirBuffer, TirStmt, filled, i64, intrinsic, ramp, type_of

#: Local arrays are aligned to a cache line, which is also the widest vector register.
_LOCAL_ALIGNMENT = 64
#: TVM's analyzer replaces variables by what they are bound to: chains of bindings would grow exponentially.
_MAX_EXPANDED = 32


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


class Block:
    """Statements of one block, appended in order, and fresh variables."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._stmts: list[TirStmt] = []

    def add(self, stmt: TirStmt) -> None:
        """Append a statement."""
        self._stmts.append(stmt)

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


class Scope(Block):
    """A block of a kernel for a CPU: values are bound to variables that live to its end."""

    def __init__(self, names: Names, sizes: dict[str, int] | None = None) -> None:
        super().__init__(names)
        self._sizes: dict[str, int] = {} if sizes is None else sizes

    def child(self) -> Scope:
        """A block inside this one, to be placed by the caller."""
        return Scope(self._names, self._sizes)

    def bind(self, value: Tir, hint: str = "t") -> Tir:
        """Compute `value` here, once; variables and literals are returned as they are."""
        if isinstance(value, (T.Var, T.IntImm, T.FloatImm)):
            return value
        dtype = type_of(value)
        size = self._expanded_size(value)
        if size > _MAX_EXPANDED:
            value, size = self._through_memory(value, dtype, hint), 1
        if dtype.startswith("boolx"):
            # TVM's analyzer, which sees every binding, fails on comparisons of vectors. A call is opaque to
            # it, and the number of ones in a single bit is that bit: LLVM removes the call.
            value = intrinsic(dtype, "ctpop", value)
        var = self.var(hint, dtype)
        self._sizes[var.name] = size
        self.add(T.Bind(var, value))
        return var

    def _expanded_size(self, value: Tir) -> int:
        """How many leaves `value` has once each variable is replaced by what it is bound to."""
        sizes: list[int] = []
        tvm_ffi.structural_walk(value, (T.Var, lambda v: sizes.append(self._sizes.get(v.name, 1))))
        return sum(sizes) or 1

    def _through_memory(self, value: Tir, dtype: str, hint: str) -> Tir:
        """`value`, stored to the stack and loaded again: opaque to TVM's analyzer, undone by LLVM."""
        scalar, _, lanes = dtype.partition("x")
        count = int(lanes or 1)
        place = ramp(i64(0), 1, count)
        if scalar == "bool":
            slot = self.alloc(hint, "int8", count)
            bits = T.Select(value, filled(1, "int8", count), filled(0, "int8", count))
            self.add(T.BufferStore(slot, bits, [place]))
            return T.Not(T.EQ(T.BufferLoad(slot, [place]), filled(0, "int8", count)))
        slot = self.alloc(hint, scalar, count)
        self.add(T.BufferStore(slot, value, [place]))
        return T.BufferLoad(slot, [place])

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
