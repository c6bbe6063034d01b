"""Tiles that are not computed by our own micro-kernels: what their code is linked with, and what it needs to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from cora.codegen.target import FEATURES, HostTarget
from cora.schedule.nest import LoopNest
from cora.schedule.steps import Step, TensorizeBy
from cora.tiles.given import MicroKernel, given_code
from cora.tiles.openblas import library_path, openblas


def given_objects(steps: Iterable[Step], host: HostTarget) -> list[bytes]:
    """The users' micro-kernels of a schedule as object files; UnsupportedError if the processor lacks instructions."""
    kernels = {
        MicroKernel(s.function, s.ir, s.rows, s.columns, s.edges): None
        for s in steps
        if isinstance(s, TensorizeBy)
    }
    signs = [f"{'+' if f in host.features else '-'}{f}" for f in FEATURES[host.arch]]
    if host.vector_bytes == 64:
        signs.append("-prefer-256-bit")
    by_symbol = {kernel.symbol: kernel for kernel in kernels}
    return [given_code(kernel, host.cpu, host.features, ",".join(signs)) for kernel in by_symbol.values()]


def libraries(nests: Mapping[str, LoopNest]) -> tuple[Path, ...]:
    """The shared libraries that the code calls; UnsupportedError if one is not installed."""
    return (library_path(),) if calls_library(nests) else ()


def prepare(nests: Mapping[str, LoopNest]) -> None:
    """Load what the code of a kernel calls, which must be there before the code itself is loaded.

    Raises UnsupportedError if it is not installed.
    """
    if calls_library(nests):
        openblas()


def launched(nests: Mapping[str, LoopNest], function: Callable[..., None]) -> Callable[..., None]:
    """`function`; around it a library's own threads rest, if it calls one."""
    if not calls_library(nests):
        return function
    library = openblas()

    def alone(*arguments: object) -> None:
        with library.on_one_thread():
            function(*arguments)

    return alone


def calls_library(nests: Mapping[str, LoopNest]) -> bool:
    """Whether the code calls OpenBLAS."""
    return any(n.routine is not None and n.routine.convention == "cblas" for n in nests.values())
