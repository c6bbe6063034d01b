"""`build`: from a schedule to a kernel, through the cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from cora.codegen.cache import Cache
from cora.codegen.cuda.target import resolve_cuda
from cora.codegen.load import load as load_code
from cora.codegen.load import without_torch
from cora.codegen.target import FEATURES, HostTarget, detect, resolve
from cora.errors import UnsupportedError, UserError
from cora.ir.fingerprint import fingerprint
from cora.ir.stmt import Stmt, Tile, statements
from cora.ir.tensor import Tensor
from cora.prelude import PreludeSpec, object_code, shared_code
from cora.prove import Effort, Method
from cora.runtime.artifact import Artifact, make_artifact
from cora.runtime.code import Code, LibraryCode, MemoryCode, load_library, private_copy, write_atomically
from cora.runtime.kernel import Kernel
from cora.runtime.names import check_names, kernel_name
from cora.runtime.routines import given_objects, libraries, prepare
from cora.runtime.versions import versions
from cora.runtime.wanted import Deferred, Wanted
from cora.schedule.balance import permutations_of
from cora.schedule.schedule import Schedule
from cora.settings import Settings
from cora.tiles import object_code as tile_code
from cora.tiles import select


def build(
    program: Schedule | Tensor | Sequence[Tensor] | Deferred,
    target: object = "llvm",
    settings: Settings | None = None,
) -> Kernel:
    """Compile a program once, for every batch.

    program: a schedule, computed tensors, which get the default schedule of the target, or a `Deferred` schedule, which
    is made only where the cache does not have its kernel. target: "llvm" (this machine), "cuda" (an NVIDIA GPU, sm_80),
    or a TVM target of one of these kinds (of kind cuda with an arch). Compiled kernels are kept on disk, by the
    structure of program, schedule, settings and target, and by versions and sources. Raises UserError, ScheduleError
    or UnsupportedError, with the reason.
    """
    chosen = settings or Settings()
    if not isinstance(chosen, Settings):
        raise UserError(f"build: settings must be a cora.Settings; got {type(settings).__name__}")
    cuda = resolve_cuda(target)
    # where a kernel is kept, or its stages are written, changes nothing about it
    choices = (chosen.guards, chosen.solver, chosen.solver_rlimit, chosen.check_indices)
    cache = Cache(chosen.cache_dir) if chosen.cache else None
    if cuda is not None:
        from cora.runtime.cuda.build import build_cuda  # the CPU's kernels need none of this

        about = (choices, cuda.key, detect().key, *versions())
        return build_cuda(
            Wanted(program, gpu=True, about=about), cuda, chosen, cache, define, prelude_objects
        )
    host = resolve(target)
    wanted = Wanted(program, gpu=False, about=(choices, host.key, *versions()))

    def text(kind: str) -> str:
        return _Built(wanted.schedule, host, chosen, cache).source(kind)

    entry = None if cache is None or chosen.dump is not None else wanted.find(cache)
    if entry is not None:
        artifact = Artifact.from_bytes(entry.metadata)
        prepare(artifact.nests)
        return Kernel(artifact, LibraryCode(load_code(entry.path), entry.metadata, text))
    built = _Built(wanted.schedule, host, chosen, cache)
    if chosen.dump is not None:
        built.dump(chosen.dump)
    return Kernel(built.artifact, built.code(cache, wanted))


def load(path: str | Path) -> Kernel:
    """The kernel that `Kernel.export` wrote. Raises UserError if the file is none, damaged, or of another version.

    An exported file is code: load only what you trust.
    """
    if not isinstance(path, (str, Path)):
        raise UserError(f"load: expected a path; got {type(path).__name__}: {path!r}")
    artifact, code = load_library(Path(path))
    if artifact.target.startswith("cuda|"):
        from cora.runtime.cuda.kernel import exported

        return exported(artifact, code)
    return Kernel(artifact, code)


class _Built:
    """A program compiled now, in this process."""

    def __init__(
        self,
        scheduled: Schedule,
        host: HostTarget,
        settings: Settings,
        cache: Cache | None,
    ) -> None:
        with without_torch():
            from cora.codegen.build import compile_functions  # a cached kernel needs none of this
        from cora.lower.pipeline import lower

        check_names(scheduled.tensors, permutations_of(scheduled.nests))
        begin = time.perf_counter()
        lowered = lower(scheduled, settings, kernel_name(scheduled.outputs))
        lowering_seconds = time.perf_counter() - begin
        self.artifact = make_artifact(lowered, repr(scheduled), define(scheduled), host.key)
        functions = [lowered.kernel, *([lowered.check] if lowered.check is not None else [])]
        with ThreadPoolExecutor(1) as other:  # both compilers release the interpreter's lock
            tasks = [other.submit(prelude_objects, self.artifact.prelude, host, cache)]
            if any(has_tile(f.body) for f in functions):
                tasks.append(other.submit(tile_objects, host, cache))
            given = given_objects(scheduled.steps, host)
            objects = chain(given, (code for task in tasks for code in task.result()))
            self._compiled = compile_functions(functions, host, objects, libraries(lowered.nests))
        compiling_seconds = time.perf_counter() - begin - lowering_seconds
        self._times = _times(lowering_seconds, compiling_seconds, lowered.effort)

    def source(self, kind: str) -> str:
        """The code as text."""
        return self._compiled.source(kind)

    def code(self, cache: Cache | None, wanted: Wanted) -> Code:
        """The code, stored in the cache if there is one."""
        prepare(self.artifact.nests)
        library = self._compiled.library
        if library is None:
            return MemoryCode(self._compiled.function, self.source)
        metadata = self.artifact.to_bytes()
        path = private_copy(library) if cache is None else wanted.store(cache, library, metadata)
        return LibraryCode(load_code(path), metadata, self.source)

    def dump(self, folder: Path) -> None:
        """Write every stage as a text file, and what the build took."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {**self.artifact.stages, **{k: self.source(k) for k in ("tir", "ll", "asm")}}
        texts["times"] = self._times
        for number, (stage, text) in enumerate(texts.items()):
            write_atomically(folder / f"{self.artifact.name}.{number}.{stage}.txt", text.encode())


def _times(lowering_seconds: float, compiling_seconds: float, effort: Mapping[Method, Effort]) -> str:
    """What a build took, and the share of the proofs by method, as text."""
    proofs = sum(e.seconds for e in effort.values())
    lines = [f"lowering_ms {1e3 * lowering_seconds:.1f}", f"proofs_ms {1e3 * proofs:.1f}"]
    lines += [
        f"proofs_{method}_ms {1e3 * e.seconds:.1f} asked {e.queries} settled {e.settled}"
        for method, e in effort.items()
    ]
    return "\n".join([*lines, f"compiling_ms {1e3 * compiling_seconds:.1f}", ""])


def prelude_objects(spec: PreludeSpec, host: HostTarget, cache: Cache | None) -> tuple[bytes, ...]:
    """The prelude as object files for the same processor as the kernel: its own, and what all preludes share."""
    features = ",".join(f"{'+' if f in host.features else '-'}{f}" for f in FEATURES[host.arch])
    shared = _once(("prelude", host.key), cache, lambda: shared_code(host.cpu, features))
    return object_code(spec, cpu=host.cpu, features=features), shared


def tile_objects(host: HostTarget, cache: Cache | None) -> tuple[bytes, ...]:
    """The micro-kernels for the processor as an object file."""
    family = select(host.features)
    if family is None:
        raise UnsupportedError(f"tensorize: no micro-kernels for {host.key}")
    return (_once(("tiles", family, host.key), cache, lambda: tile_code(family, host.cpu, "")),)


def _once(about: tuple[object, ...], cache: Cache | None, compiled: Callable[[], bytes]) -> bytes:
    """Code that depends on the processor alone: compiled once per machine."""
    if cache is None:
        return compiled()
    key = fingerprint(*about, *versions())
    entry = cache.load(key)
    if entry is not None:
        return entry.path.read_bytes()
    code = compiled()
    cache.store(key, code, b"")
    return code


def has_tile(s: Stmt) -> bool:
    """Whether a statement calls micro-kernels."""
    return any(isinstance(part, Tile) for part in statements(s))


def define(scheduled: Schedule) -> str:
    """The program as text: dims, inputs, operators."""
    dims = dict.fromkeys(d for t in scheduled.tensors for d in t.dims)
    lines = [f"dim {d.name} < {d.extent}" for d in dims]
    for tensor in scheduled.tensors:
        shape = f"{tensor.name}[{', '.join(d.name for d in tensor.dims)}]: {tensor.dtype}"
        lines.append(f"input {shape}" if tensor.body is None else f"{shape} = {tensor.body}")
    return "\n".join(lines)
