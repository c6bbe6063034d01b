"""Functions to native code: emission, a two-step TVM pipeline, LLVM, a linker."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from cora.codegen.emit import emit
from cora.codegen.link import find_linker, link
from cora.codegen.target import HostTarget
from cora.errors import InternalError
from cora.ir.stmt import Function
from cora.tiles import select


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """The code of some functions.

    library: a shared library, to be stored and loaded; None where the machine has no linker. Then `function`
    is the only way in, the code lives in this process alone, and the extra objects are not part of it.
    """

    library: bytes | None
    names: tuple[str, ...]
    _prim_funcs: tuple[Any, ...]
    _module: Any

    def function(self, name: str) -> Callable[..., None]:
        """The function `name`, compiled in memory (a second generation of code: prefer `library`)."""
        if name not in self.names:
            raise InternalError(f"no function '{name}' in this code; it has {', '.join(self.names)}")
        found: Callable[..., None] = self._module[name]
        return found

    def source(self, form: str) -> str:
        """The code as text: "tir" as emitted, "ll" after LLVM's passes, "asm" for the processor."""
        match form:
            case "tir":
                return "\n\n".join(f.script() for f in self._prim_funcs)
            case "ll":
                return _without_addresses(str(self._module.inspect_source(form)))
            case "asm":
                return str(self._module.inspect_source(form))
        raise InternalError(f"source form {form!r}: expected 'tir', 'll' or 'asm'")


def _without_addresses(source: str) -> str:
    """LLVM IR in which alias classes have numbers for names: TVM names them by the addresses of its objects."""
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f'!"buffer{len(numbers)}')

    return re.sub(r'!"0x[0-9a-f]+', number, source)


def compile_functions(
    functions: Sequence[Function],
    target: HostTarget,
    objects: Iterable[bytes] = (),
    libraries: Sequence[Path] = (),
) -> Compiled:
    """Native code of `functions` in one library together with `objects` (contents of ELF object files), which calls
    functions of shared `libraries`.

    `objects` is read last, so it may wait for what is compiled meanwhile.

    Raises InternalError if two functions share a name, or TVM, LLVM or the linker refuses what was emitted.
    """
    names = tuple(f.name for f in functions)
    if not names or len(set(names)) != len(names):
        raise InternalError(f"compile: expected functions of different names; got {names}")
    family = select(target.features)
    prim_funcs = tuple(emit(f, family) for f in functions)
    module = _lower(dict(zip(names, prim_funcs, strict=True)), target)
    linker = find_linker()
    library = None if linker is None else link([_object(module), *objects], linker, libraries)
    return Compiled(library, names, prim_funcs, module)


def _lower(prim_funcs: dict[str, Any], target: HostTarget) -> Any:
    """The packed calling convention, TVM's built-ins, and LLVM; nothing simplifies or proves anything."""
    to = target.tvm()
    passes = [
        tirx.transform.BindTarget(to.with_host(to)),
        tirx.transform.AnnotateEntryFunc(),
        tirx.transform.MakePackedAPI(),
        tirx.transform.LowerTVMBuiltin(),
    ]
    module = tvm.IRModule(prim_funcs)
    for step in passes:
        module = step(module)
    return tvm.get_global_func("target.build.llvm")(module, to)


def _object(module: Any) -> bytes:
    with tempfile.TemporaryDirectory(prefix="cora-") as folder:
        path = Path(folder, "code.o")
        module.write_to_file(str(path), "o")
        return path.read_bytes()
