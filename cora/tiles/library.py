"""Micro-kernels as machine code, by llvmlite (which is imported only when something is compiled)."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from cora.errors import UnsupportedError, UserError
from cora.tiles.contract import ARGUMENTS, SYMBOL
from cora.tiles.emit import module_text
from cora.tiles.family import Isa, TileFamily

#: Best first.
_PREFERENCE: Final[tuple[Isa, ...]] = ("avx512", "avx2", "neon")

#: Of code generation; higher levels give the same code, level 0 fails on some models.
_OPTIMIZATION: Final = 1

_CTYPES: Final = {"i64": ctypes.c_int64, "ptr": ctypes.c_void_p}


def select(features: frozenset[str], dtype: str = "float32") -> TileFamily | None:
    """The best family for a CPU with these features (LLVM's names); None if none can run on it."""
    families = (TileFamily(isa, dtype) for isa in _PREFERENCE if TileFamily.exists(isa, dtype))
    return next((family for family in families if family.features <= features), None)


@cache
def object_code(family: TileFamily, cpu: str, features: str) -> bytes:
    """A relocatable, position-independent object that defines `cora_tile` (hidden) and nothing else.

    `cpu` ("native": this machine's, "": any of the family's architecture) and `features` are LLVM's
    names ("znver4", "+avx2,-fma"); what the family needs is added. The target is Linux on the family's
    architecture. The same arguments give the same bytes. Raises UserError if `features` excludes what
    the family needs, or if "native" is of another architecture.
    """
    machine = _machine(family, cpu, features)
    return bytes(machine.emit_object(_parsed(family, machine)))


@cache
def assembly(family: TileFamily, cpu: str, features: str) -> str:
    """What `object_code` contains, as assembly."""
    machine = _machine(family, cpu, features)
    return str(machine.emit_assembly(_parsed(family, machine)))


@dataclass(frozen=True, slots=True)
class LoadedTiles:
    """The micro-kernels of a family in this process: a call is one of `cora_tile`."""

    family: TileFamily
    function: Any
    owner: Any

    def __call__(self, *arguments: int) -> int:
        """The result of `cora_tile`; the order is that of `contract.ARGUMENTS`, pointers are addresses."""
        return int(self.function(*arguments))


@cache
def jit(family: TileFamily) -> LoadedTiles:
    """Compile `family` for this machine, into this process.

    A portable family (NEON's) is compiled for whatever this machine is. Raises UnsupportedError if the
    CPU lacks what the family needs.
    """
    from llvmlite import binding

    present = binding.get_host_cpu_features()
    missing = sorted(name for name in family.features if not present.get(name))
    if missing and not family.portable:
        raise UnsupportedError(f"tiles: {family.isa} needs {', '.join(missing)}, which this CPU lacks")
    _initialize()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(),
        features=present.flatten(),
        opt=_OPTIMIZATION,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )
    engine = binding.create_mcjit_compiler(_parsed(family, machine), machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, *(_CTYPES[t] for t in ARGUMENTS.values()))
    return LoadedTiles(family, kind(engine.get_function_address(SYMBOL)), engine)


def _initialize() -> None:
    """Make LLVM's back ends known; doing it again is harmless."""
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


def _machine(family: TileFamily, cpu: str, features: str) -> Any:
    excluded = sorted(name for name in family.features if f"-{name}" in features.split(","))
    if excluded:
        raise UserError(f"tiles: features exclude {', '.join(excluded)}, which {family.isa} needs")
    if cpu == "native" and family.arch != platform.machine():
        raise UserError(f"tiles: cpu 'native' is {platform.machine()}, but {family.isa} is {family.arch}")
    needed = ",".join(f"+{name}" for name in sorted(family.features))
    return machine_for(f"{family.arch}-unknown-linux-gnu", cpu, ",".join(filter(None, (features, needed))))


def machine_for(triple: str, cpu: str, features: str) -> Any:
    """LLVM's code generator for a processor ("native": this machine's), making position-independent objects."""
    from llvmlite import binding

    _initialize()
    return binding.Target.from_triple(triple).create_target_machine(
        cpu=binding.get_host_cpu_name() if cpu == "native" else cpu,
        features=features,
        opt=_OPTIMIZATION,
        reloc="pic",
        codemodel="default",
    )


def _parsed(family: TileFamily, machine: Any) -> Any:
    """The module of `family` for `machine`, checked by LLVM; no pass has to run over it."""
    from llvmlite import binding

    module = binding.parse_assembly(module_text(family))
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    return module
