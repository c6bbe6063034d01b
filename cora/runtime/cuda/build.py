"""From a schedule to a kernel for a GPU, through the cache."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from cora.codegen.cache import Cache
from cora.codegen.cuda.compile import compile_cubin
from cora.codegen.cuda.launches import Launch, launches
from cora.codegen.cuda.target import CudaTarget
from cora.codegen.link import find_linker, link
from cora.codegen.target import HostTarget, detect
from cora.errors import UnsupportedError
from cora.lower.pipeline import lower
from cora.runtime.artifact import make_artifact
from cora.runtime.code import private_copy, write_atomically
from cora.runtime.cuda.artifact import Call, CudaArtifact, cuda_artifact, make_calls
from cora.runtime.cuda.kernel import CudaCode, CudaKernel
from cora.runtime.names import check_names, kernel_name
from cora.runtime.wanted import Wanted
from cora.schedule.schedule import Schedule
from cora.settings import Settings


def build_cuda(
    wanted: Wanted,
    target: CudaTarget,
    settings: Settings,
    cache: Cache | None,
    describe: Callable[[Schedule], str],
    prelude_objects: Callable[..., tuple[bytes, ...]],
) -> CudaKernel:
    """Compile a program for a GPU; no GPU is needed.

    describe, prelude_objects: see `cora.runtime.build`. Raises UnsupportedError where the compiler (NVRTC) or a linker
    is missing.
    """
    host = detect()
    entry = None if cache is None or settings.dump is not None else wanted.find(cache)
    tir = functools.partial(_tir, wanted, settings, target)
    if entry is not None:
        artifact = CudaArtifact.from_bytes(entry.metadata)
        assert isinstance(artifact, CudaArtifact)
        return CudaKernel(artifact, CudaCode(entry.path, artifact, entry.metadata, tir))
    scheduled = wanted.schedule
    check_names(scheduled.tensors)
    artifact, text = _compile(scheduled, target, settings, host, describe)
    linker = find_linker()
    if linker is None:
        raise UnsupportedError(
            "build for 'cuda': no linker was found (ld or g++) for the code that runs on the host"
        )
    library = link(prelude_objects(artifact.prelude, host, cache), linker)
    metadata = artifact.to_bytes()
    path = private_copy(library) if cache is None else wanted.store(cache, library, metadata)
    if settings.dump is not None:
        _dump(artifact, text, settings.dump)
    return CudaKernel(artifact, CudaCode(path, artifact, metadata, tir))


def _compile(
    scheduled: Schedule,
    target: CudaTarget,
    settings: Settings,
    host: HostTarget,
    describe: Callable[[Schedule], str],
) -> tuple[CudaArtifact, str]:
    """The artifact and the TIR."""
    from cora.codegen.cuda.source import (
        cuda_source,
        with_registers,
    )  # imports TVM, which a cached kernel does not need

    lowered = lower(scheduled, settings, kernel_name(scheduled.outputs), gpu=True)
    base = make_artifact(lowered, repr(scheduled), describe(scheduled), f"{target.key}|{host.key}")
    own = launches(lowered.kernel)
    checks: tuple[Launch, ...] = () if lowered.check is None else launches(lowered.check)
    every = (*own, *checks)
    source, tir = cuda_source(every, target) if every else ("", "")
    threads = {launch.name: launch.threads for launch in every}
    cubin = compile_cubin(source, target.arch, threads)
    spilling = {taken.kernel for taken in cubin.resources if taken.spills}
    if spilling:  # the compiler has preferred more blocks at once
        for launch in every:
            source = with_registers(source, launch) if launch.name in spilling else source
        cubin = compile_cubin(source, target.arch, threads)
    calls = make_calls(lowered.kernel, base.kernel, own)
    check_calls: tuple[Call, ...] = ()
    if lowered.check is not None and base.check is not None:
        check_calls = make_calls(lowered.check, base.check, checks)
    return cuda_artifact(base, calls, check_calls, source, cubin, target.index_bits), tir


def _tir(wanted: Wanted, settings: Settings, target: CudaTarget, kind: str) -> str:
    """The TIR, emitted again."""
    from cora.codegen.cuda.source import cuda_source

    assert kind == "tir"
    lowered = lower(wanted.schedule, settings, kernel_name(wanted.schedule.outputs), gpu=True)
    return cuda_source(launches(lowered.kernel), target)[1]


def _dump(artifact: CudaArtifact, tir: str, folder: Path) -> None:
    """Write every stage as a text file."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {**artifact.stages, "tir": tir, "cuda": artifact.source}
    for number, (stage, text) in enumerate(texts.items()):
        write_atomically(folder / f"{artifact.name}.{number}.{stage}.txt", text.encode())
