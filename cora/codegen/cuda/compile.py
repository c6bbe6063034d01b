"""CUDA C++ to machine code by NVRTC, which needs neither a GPU nor a driver nor a toolkit.

Arithmetic is exact: no fast-math, and products are fused with sums only where the program says so.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from cora.codegen.cuda.resources import Resources, parse_log
from cora.errors import InternalError, UnsupportedError

_LIBRARY: Final = "libnvrtc.so.13"
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
    nvrtc = open_nvrtc()
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
    program = ctypes.c_void_p()
    nvrtc.call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
    try:
        given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        code = nvrtc.library.nvrtcCompileProgram(program, len(options), given)
        log = nvrtc.bytes_of("nvrtcGetProgramLog", program).decode(errors="replace").rstrip("\0")
        if code != 0:
            if "gpu-architecture" in log:
                raise UnsupportedError(f"target: this NVRTC has no code for {arch!r}: {log.strip()}")
            raise InternalError(f"NVRTC refuses what was generated for {arch}:\n{log}")
        cubin = nvrtc.bytes_of("nvrtcGetCUBIN", program)
    finally:
        nvrtc.library.nvrtcDestroyProgram(ctypes.byref(program))
    return Cubin(cubin, arch, parse_log(log, arch, threads))


class Nvrtc:
    """NVIDIA's run-time compiler, by ctypes."""

    def __init__(self, path: Path) -> None:
        """Load the library; OSError if that fails."""
        for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(builtins))  # NVRTC looks for it by name alone
        self.library = ctypes.CDLL(str(path))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: object) -> None:
        """Call a function; InternalError with its words if it fails."""
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise InternalError(f"{name} failed: {self.library.nvrtcGetErrorString(code).decode()}")

    def bytes_of(self, name: str, program: ctypes.c_void_p) -> bytes:
        """What a pair of functions `<name>Size` and `<name>` gives."""
        size = ctypes.c_size_t()
        self.call(f"{name}Size", program, ctypes.byref(size))
        content = ctypes.create_string_buffer(max(size.value, 1))
        self.call(name, program, content)
        return content.raw[: size.value]


@cache
def open_nvrtc() -> Nvrtc:
    """The compiler from pip's packages, loaded once; UnsupportedError if it is not installed."""
    folders = _folders()
    for folder in folders:
        path = folder / "lib" / _LIBRARY
        if path.exists():
            return Nvrtc(path)
    raise UnsupportedError(
        f"target 'cuda': NVRTC, which compiles CUDA C++, is missing; expected nvidia/cu13/lib/{_LIBRARY}: {_INSTALL}"
    )


def _folders() -> list[Path]:
    """Where pip's packages of CUDA 13 lie."""
    spec = importlib.util.find_spec("nvidia")
    return [Path(f, "cu13") for f in (spec.submodule_search_locations or ())] if spec is not None else []


def _include() -> Path:
    """The folder of CUDA's headers, from pip's packages."""
    for folder in _folders():
        include = folder / "include"
        if all(Path(include, header).exists() for header in _HEADERS):
            return include
    raise UnsupportedError(
        f"target 'cuda': CUDA's headers ({', '.join(_HEADERS)}) are missing; expected them in nvidia/cu13/include: "
        f"{_INSTALL}"
    )
