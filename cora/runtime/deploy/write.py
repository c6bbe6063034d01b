"""`deploy`: the folder of a program."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cora.codegen.load import runtime_path
from cora.errors import UnsupportedError, UserError
from cora.runtime.code import LibraryCode, join_library, own_version, write_atomically
from cora.runtime.deploy.manifest import FORMAT, kernel_data, program_data, target_data
from cora.runtime.deploy.program import KernelCall, arrays_of
from cora.runtime.kernel import Kernel

MANIFEST = "manifest.json"
LOADER = Path(__file__).with_name("cora_deploy.py")
HASH_DIGITS = 12


def deploy(
    folder: str | Path,
    kernels: Kernel | Mapping[str, Kernel],
    calls: Sequence[KernelCall] | None = None,
    *,
    name: str = "program",
    about: Mapping[str, Any] = MappingProxyType({}),
    runtime: bool = False,
) -> Path:
    """Write what runs `calls` without cora: a library for each kernel, manifest.json, and cora_deploy.py to read it.

    kernels: by the names that calls use; or one kernel, which is called once on arrays named like its tensors. about:
    whatever a reader of the manifest should know, as JSON. runtime: also copy TVM's run time library.

    A library is named by its content, and the manifest is written last: whoever reads the folder meanwhile has the old
    program or the new one. Libraries that only an older manifest names are removed. Gives the path of the manifest.
    Raises UserError or UnsupportedError for a program that is none (`arrays_of`), kernels for different processors, and
    a folder that cannot be written.
    """
    path = Path(folder)
    if isinstance(kernels, Kernel):
        own = [s.tensor.name for s in kernels.artifact.slots if s.role != "workspace"]
        kernels, calls = {name: kernels}, [KernelCall(name, {tensor: tensor for tensor in own})]
    steps = tuple(calls or ())
    arrays = arrays_of(kernels, steps)
    used = {step.kernel: kernels[step.kernel] for step in steps}
    targets = {kernel.artifact.target for kernel in used.values()}
    if len(targets) > 1:
        raise UserError(f"deploy: the kernels are for different processors: {'; '.join(sorted(targets))}")
    data = {
        "format": FORMAT,
        "cora": own_version().decode(),
        "name": name,
        "about": dict(about),
        "target": target_data(next(iter(used.values())).artifact),
        "program": program_data(used, steps, arrays),
    }
    try:
        json.dumps(data["about"])
    except (TypeError, ValueError) as error:
        raise UserError(f"deploy: about: expected what JSON can hold; {error}") from error
    try:
        path.mkdir(parents=True, exist_ok=True)
        before = _libraries(path)
        data["kernels"] = {key: _write_kernel(path, key, kernel) for key, kernel in used.items()}
        write_atomically(path / LOADER.name, LOADER.read_bytes())
        if runtime:
            write_atomically(path / runtime_path().name, runtime_path().read_bytes())
        text = json.dumps(data, indent=1) + "\n"
        write_atomically(path / MANIFEST, text.encode())
        for old in before - _libraries(path):
            (path / old).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"deploy: cannot write {path}: {error}") from error
    return path / MANIFEST


def _write_kernel(folder: Path, name: str, kernel: Kernel) -> dict[str, Any]:
    """Write the library of a kernel, which `cora.load` reads too; gives what the manifest says of it."""
    match kernel.code:
        case LibraryCode(library=library, metadata=metadata):
            content = join_library(library.path.read_bytes(), metadata)
        case _:
            raise UnsupportedError("deploy: no linker was found (ld or g++)")
    digest = hashlib.sha256(content).hexdigest()
    file = f"{name}-{digest[:HASH_DIGITS]}.so"
    write_atomically(folder / file, content)
    return {"library": file, "sha256": digest, **kernel_data(kernel.artifact)}


def _libraries(folder: Path) -> set[str]:
    """The libraries that the manifest in a folder names; none where there is no manifest."""
    try:
        kernels = json.loads((folder / MANIFEST).read_text())["kernels"]
        names = {str(kernel["library"]) for kernel in kernels.values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()
    return {name for name in names if Path(name).name == name}
