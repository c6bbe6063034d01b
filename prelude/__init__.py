"""Auxiliary arrays (tables of uninterpreted functions), computed once per batch in native code.

    spec = specify(funs, table_offset, table_size)         which tables, as data
    native = jit(spec)                                     or: object_code(spec, ...) and shared_code(...), linked;
                                                           load(spec, library)
    tables = native.compute(sizes, lengths, arena)

Only what compiles imports llvmlite.
"""

from cora.prelude.arena import Arena
from cora.prelude.evaluate import NativePrelude, load
from cora.prelude.native import jit, llvm_ir, object_code, shared_code
from cora.prelude.spec import PreludeSpec, Table, specify

__all__ = [
    "Arena",
    "NativePrelude",
    "PreludeSpec",
    "Table",
    "jit",
    "llvm_ir",
    "load",
    "object_code",
    "shared_code",
    "specify",
]
