"""CUDA C++ on a CPU: a stand-in for the driver, and g++ in place of NVRTC.

Nothing of `cora` knows about it. `install` loads the stand-in under the name that the real driver has, so that it must
come before anything else opens the driver; `compile_emulated` takes the place of `compile_cubin`. Tests ask for both
by a fixture, and only where CORA_CUDA_EMULATOR is set or no driver is found: a machine with a GPU never gets them
unasked.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from cora.codegen.cuda.compile import Cubin

HERE = Path(__file__).resolve().parent / "emulated"
ORDERS = (0, 1, 7, 2, 3)
_FLAGS = (
    "-std=c++17",
    "-O1",
    "-mf16c",
    "-mfma",
    "-ffp-contract=off",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-w",
)
_KERNEL = re.compile(
    r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\([^;{]*\)\s*\{'
)
#: PTX in the generated source, and what it is here.
_PTX = (
    (
        r'asm\("(max|min)\.NaN\.f32 %0, %1, %2;" : "=f"\((\w+)\) : "f"\((\w+)\), "f"\((\w+)\)\);',
        r"\2 = ptx_\1_nan(\3, \4);",
    ),
    (
        r'asm volatile\("\{[^;]*;[^;]*; @p cp\.async\.cg[^;]*, 16, %2;\}"[^;]*;',
        r"if (yes) ptx_copy_part(to, from, bytes);",
    ),
    (
        r'asm volatile\("\{[^;]*;[^;]*; @p cp\.async[^;]*, " #width ";\}"[^;]*;',
        r"if (yes) ptx_copy_async(to, from, width);",
    ),
    (
        r'asm volatile\("cp\.async\.cg\.shared\.global \[%0\], \[%1\], 16, %2;"[^;]*;',
        r"ptx_copy_part(to, from, bytes);",
    ),
    (
        r'asm volatile\("cp\.async\." level "\.shared\.global \[%0\], \[%1\], " #width ";"[^;]*;',
        r"ptx_copy_async(to, from, width);",
    ),
    (r'asm volatile\("ldmatrix[\w.]*\.trans[\w.]* [^;]*;"[^;]*;', r"ptx_ldmatrix(to, row, true);"),
    (r'asm volatile\("ldmatrix[\w.]* [^;]*;"[^;]*;', r"ptx_ldmatrix(to, row, false);"),
    (r'asm volatile\("mma\.sync\.aligned\.m16n8k8\.[^;]*;"[^;]*;', r"ptx_mma_tf32(c, a, b);"),
    (r'asm\("cvt\.rna\.tf32\.f32 %0, %1;" : "=r"\((\w+)\) : "f"\((\w+)\)\);', r"\1 = ptx_to_tf32(\2);"),
    (r'asm volatile\("mma\.sync\.aligned\.m16n8k16[^;]*;"[^;]*;', r"ptx_mma_##name(c, a, b);"),
    (r'asm volatile\("cp\.async\.commit_group;"[^;]*;', r"ptx_group_copies();"),
    (r'asm volatile\("cp\.async\.wait_group %0;"[^;]*;', r"ptx_await_copies_but(groups);"),
    (r'asm volatile\("cp\.async\.wait_all;"[^;]*;', r"ptx_await_copies();"),
    (r'asm\("cvt\.f32\.f16 %0, %1;" : "=f"\((\w+)\) : "h"\((\w+)\)\);', r"\1 = ptx_from_half(\2);"),
    (r'asm\("cvt\.rn\.f16\.f32 %0, %1;" : "=h"\((\w+)\) : "f"\((\w+)\)\);', r"\1 = ptx_to_half(\2);"),
)


@cache
def stand_in(folder: Path) -> Path:
    """The library that stands in for the driver, built in `folder`; only who asks for it by its path gets it."""
    library = folder / "emulated_driver.so"
    _compile([str(HERE / "driver.cpp"), "-ldl"], library)
    return library


def compile_emulated(source: str, arch: str, threads: Mapping[str, int], *, folder: Path) -> Cubin:
    """A module for the stand-in driver in place of machine code; it is kept in `folder` by its content."""
    text = prepare(source)
    headers = "".join(p.read_text() for p in sorted((HERE / "include").iterdir()))
    path = folder / f"{hashlib.sha256((headers + text).encode()).hexdigest()}.so"
    if not path.exists():
        _compile(["-x", "c++", "-"], path, text)
    return Cubin(b"EMULATED:" + os.fsencode(path) + b"\0", arch, ())


def prepare(source: str) -> str:
    """Generated CUDA C++ as C++ for the emulator: PTX replaced, an entry point for each kernel."""
    text = source
    for pattern, replacement in _PTX:
        text = re.sub(pattern, replacement, text)
    left = re.search(r"\basm\s*(?:volatile\s*)?\([^\n]*", text)
    if left is not None:
        raise NotImplementedError(f"the emulator does not know this PTX: {left[0]}")
    entries = "\n".join(f"EMULATED_KERNEL({name})" for name in _KERNEL.findall(source))
    return f'#include "device.h"\n{text}\n{entries}\n'


def _compile(arguments: list[str], output: Path, text: str | None = None) -> None:
    """Run g++ to make a shared library, which appears at once or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=output.parent, suffix=".tmp")
    os.close(handle)
    include = f"-I{HERE / 'include'}"
    command = ["g++", *_FLAGS, include, "-shared", "-fPIC", "-Wl,-Bsymbolic", "-o", name, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        Path(name).unlink(missing_ok=True)
        raise RuntimeError(f"g++ failed:\n{done.stderr[:4000]}")
    os.replace(name, output)
