"""Compiles small functions and runs them on arrays next to inaccessible pages."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from cora.codegen.abi import Frame
from cora.codegen.build import compile_functions
from cora.codegen.load import load
from cora.codegen.target import HostTarget, detect
from cora.ir.expr import Const, Expr, Size, Var
from cora.ir.stmt import Block, Buffer, For, Function, LoopKind, Scope, Stmt
from tests.guard_pages import guarded

Array = np.ndarray[Any, Any]

N = Size("n")
K, J, V = Var("i"), Var("j"), Var("v")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def buffer(name: str, dtype: str = "float32", scope: Scope = "input", size: Expr = N) -> Buffer:
    return Buffer(name, dtype, size, scope)


def output(name: str = "O", dtype: str = "float32") -> Buffer:
    return buffer(name, dtype, "output")


def serial(var: Var, end: Expr, *body: Stmt) -> For:
    return For(var, Const(0), end, LoopKind.SERIAL, Block(body))


def lanes(count: int, *body: Stmt, var: Var = V) -> For:
    return For(var, Const(0), Const(count), LoopKind.VECTOR, Block(body))


def function(*body: Stmt, buffers: tuple[Buffer, ...], name: str = "f") -> Function:
    return Function(name, buffers, (N,), Block(body))


def compiled(*functions: Function, target: HostTarget | None = None) -> dict[str, Callable[..., None]]:
    """The functions, by name, from one shared library."""
    library = compile_functions(functions, target or detect()).library
    assert library is not None, "the tests need a linker"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "k.so")
        path.write_bytes(library)
        loaded = load(path)
    return {f.name: loaded.function(f.name) for f in functions}


def call(f: Callable[..., None], arrays: list[Array], *sizes: int) -> list[Array]:
    """`f` on guarded copies of `arrays`, once for each side of the guard; the arrays after the call.

    Both calls must give the same bits.
    """
    results: list[list[Array]] = []
    for side in ("end", "begin"):
        copies = [guarded(a, side) for a in arrays]  # type: ignore[arg-type]
        f(Frame([*(a.ctypes.data for a in copies), *sizes]).pointer)
        results.append(copies)
    for end, begin in zip(*results, strict=True):
        assert end.tobytes() == begin.tobytes()
    return results[0]


def run(*body: Stmt, buffers: tuple[Buffer, ...], arrays: list[Array], n: int) -> list[Array]:
    """Compile one function, run it, and return its arrays."""
    f = compiled(function(*body, buffers=buffers))["f"]
    return call(f, arrays, n)
