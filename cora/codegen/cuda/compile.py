"""CUDA C++ to machine code by NVRTC, which needs neither a GPU nor a driver nor a toolkit.

Arithmetic is exact: no fast-math, and products are fused with sums only where the program says so.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cora.codegen.cuda.resources import Resources, parse_log
from cora.errors import InternalError, UnsupportedError

_INSTALL: Final = "pip install 'cora-ragged[cuda]'"
#: What the generated code includes, and the folder of pip's packages that has it.
_HEADERS: Final = ("cccl/cuda/std/cstdint", "cccl/cuda/std/type_traits")


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code of some kernels for one architecture, and what each of them takes."""

    code: bytes
    arch: str
    resources: tuple[Resources, ...]


def compile_cubin(source: str, arch: str, threads: Mapping[str, int]) -> Cubin:
    """The machine code of CUDA C++; `threads` are the sizes of the blocks of its kernels, by name.

    Raises UnsupportedError where NVRTC or the headers are missing or do not know the architecture, InternalError with
    the compiler's message where it refuses the code.
    """
    nvrtc = _nvrtc()
    include = _include()
    options = [
        f"--gpu-architecture={arch}",
        "--std=c++17",
        "--fmad=false",
        "-default-device",
        f"-I{include}",
        f"-I{include / 'cccl'}",
        "--ptxas-options=-v",
        "-diag-suppress=177",
    ]
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, None, None))
    try:
        (result,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        log = _text(nvrtc, program)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            if "gpu-architecture" in log:
                raise UnsupportedError(f"target: this NVRTC has no code for {arch!r}: {log.strip()}")
            raise InternalError(f"NVRTC refuses what was generated for {arch}:\n{log}")
        size = _checked(nvrtc, nvrtc.nvrtcGetCUBINSize(program))
        code = bytearray(size)
        _checked(nvrtc, nvrtc.nvrtcGetCUBIN(program, code))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Cubin(bytes(code), arch, parse_log(log, arch, threads))


def _checked(nvrtc: Any, answer: tuple[Any, ...]) -> Any:
    result, *values = answer
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise InternalError(f"NVRTC: {result}")
    return values[0] if values else None


def _text(nvrtc: Any, program: Any) -> str:
    log = bytearray(_checked(nvrtc, nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
    return log.decode(errors="replace").rstrip("\0")


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            f"target 'cuda': NVRTC, which compiles CUDA C++, is missing ({error}): {_INSTALL}"
        ) from error
    return nvrtc


def _include() -> Path:
    """The folder of CUDA's headers, from pip's packages."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        include = Path(folder, "cu13", "include")
        if all(Path(include, header).exists() for header in _HEADERS):
            return include
    raise UnsupportedError(
        f"target 'cuda': CUDA's headers ({', '.join(_HEADERS)}) are missing; expected nvidia/cu13/include in "
        f"{folders or 'package nvidia'}: {_INSTALL}"
    )
