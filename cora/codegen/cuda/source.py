"""CUDA C++ from lowered functions, by TVM's printer alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import tvm
from tvm.target import Target

from cora.codegen.cuda.emit import emit
from cora.codegen.cuda.helpers import HELPERS
from cora.codegen.cuda.launches import Launch, check_shared
from cora.codegen.cuda.predicate import predicate
from cora.codegen.cuda.target import CudaTarget
from cora.codegen.cuda.uniform import check_uniform

_LOCK: Final = threading.Lock()
#: Blocks of so many threads are compiled so that two fit on a multiprocessor, one computing while the other waits: for
#: 128 registers a thread, which the compiler's own choice may exceed.
_LARGE_BLOCKS: Final = range(192, 257)
_REGISTERS_OF_MULTIPROCESSOR: Final = 1 << 16
#: Where it is set, TVM prints the source and compiles nothing.
_PRINT_ONLY: Final = "TVM_COMPILE_FORCE_FALLBACK"


def cuda_source(launches: Sequence[Launch], target: CudaTarget) -> tuple[str, str]:
    """The CUDA C++ of the kernels, and their TIR as text."""
    launches = [replace(launch, body=predicate(launch.body)) for launch in launches]
    for launch in launches:
        check_uniform(launch)
        check_shared(launch)
    tvm_target = Target({"kind": "cuda", "arch": target.arch})
    functions = {launch.name: emit(launch, tvm_target, target.index) for launch in launches}
    with _printing_only():
        module = tvm.get_global_func("target.build.cuda")(tvm.IRModule(functions), tvm_target)
    tir = "\n\n".join(f.script() for f in functions.values())
    text = str(module.inspect_source("cuda"))
    for launch in launches:
        if launch.threads in _LARGE_BLOCKS:
            text = with_registers(text, launch)
    return HELPERS + text, tir


def with_registers(source: str, launch: Launch) -> str:
    """The source with room for 128 registers in each thread of a kernel, if it leaves the choice to the compiler."""
    blocks = _REGISTERS_OF_MULTIPROCESSOR // (128 * launch.threads)
    bounds = f"__launch_bounds__({launch.threads}"
    return source.replace(f"{bounds}) {launch.name}(", f"{bounds}, {max(blocks, 1)}) {launch.name}(")


@contextmanager
def _printing_only() -> Iterator[None]:
    """TVM would compile for the device of this machine where it finds one; compiling is done elsewhere."""
    with _LOCK:
        before = os.environ.get(_PRINT_ONLY)
        os.environ[_PRINT_ONLY] = "1"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_PRINT_ONLY]
            else:
                os.environ[_PRINT_ONLY] = before
