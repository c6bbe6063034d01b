"""The processor that code is made for. Nothing here imports TVM until a TVM target is asked for."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from cora.errors import UnsupportedError, UserError
from cora.tiles.family import TileFamily
from cora.tiles.library import select

#: LLVM's names of the features that code generation and micro-kernels ask for, by architecture.
FEATURES: Final[Mapping[str, tuple[str, ...]]] = {
    "x86_64": (
        "avx", "avx2", "fma", "f16c", "bmi2",
        "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl",
        "avx512vnni", "avx512bf16", "avx512vbmi",
    ),
    "aarch64": ("neon", "fullfp16", "dotprod", "bf16", "i8mm"),
}  # fmt: skip

#: Linux's names where they differ from LLVM's by more than an underscore.
_LINUX_NAMES: Final = {"neon": "asimd", "fullfp16": "asimdhp", "dotprod": "asimddp"}

_TVM_ATTRIBUTES: Final = {"kind", "mcpu", "mattr", "mtriple", "keys", "tag", "host", "device"}


@dataclass(frozen=True, slots=True)
class HostTarget:
    """A CPU of this machine's architecture.

    cpu: LLVM's name of the model; "native" stands for the model that LLVM finds here.
    features: which of FEATURES[arch] may be used; all others are switched off.
    machine: what tells this model from others ("native" only), as far as Linux says.
    """

    arch: str
    cpu: str
    features: frozenset[str]
    machine: str = ""

    @property
    def vector_bytes(self) -> int:
        """The width of the vector registers to use: 64 with AVX-512, 32 with AVX2, else 16."""
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= self.features:
            return 64
        return 32 if "avx2" in self.features else 16

    def lanes(self, itemsize: int) -> int:
        """How many elements of `itemsize` bytes a vector register holds."""
        return self.vector_bytes // itemsize

    def has(self, *features: str) -> bool:
        """Whether all of `features` (LLVM's names) may be used."""
        return self.features.issuperset(features)

    @property
    def key(self) -> str:
        """Text that is equal for equal targets only; part of the key of cached code."""
        return "|".join((self.arch, self.cpu, self.machine, ",".join(sorted(self.features))))

    def tvm(self) -> Any:
        """The TVM target: the model, and every feature spelled out, so that none is used that is not here.

        A virtual machine may hide features that its model has. AVX-512 is used at its full width.
        Machine code is the same at all optimisation levels from 1; level 0 fails on some models.
        """
        from tvm.target import Target, codegen

        cpu = codegen.llvm_get_system_cpu() if self.cpu == "native" else self.cpu
        signs = [f"{'+' if f in self.features else '-'}{f}" for f in FEATURES[self.arch]]
        if self.vector_bytes == 64:
            signs.append("-prefer-256-bit")
        return Target({"kind": "llvm", "mcpu": cpu, "mattr": signs, "opt-level": 1})


@cache
def detect() -> HostTarget:
    """The CPU of this machine; read from Linux once per process.

    Raises UnsupportedError on an architecture without code generation.
    """
    arch = _arch()
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    info = _first_processor(text)
    present = set(info.get("flags", info.get("Features", "")).replace("_", "").split())
    found = frozenset(f for f in FEATURES[arch] if linux_name(f) in present)
    identity = (
        "vendor_id", "cpu family", "model", "model name", "stepping",
        "CPU implementer", "CPU architecture", "CPU variant", "CPU part",
    )  # fmt: skip
    machine = "/".join(info[k] for k in identity if k in info)
    return HostTarget(arch, "native", found, machine)


def tile_shape() -> tuple[int, int]:
    """Rows and columns of the largest float32 tile that this machine's micro-kernels compute at once.

    (6, 64) with AVX-512, (6, 16) with AVX2, (8, 12) with NEON: what `tensorize` cuts larger tiles into. Panels of so
    many columns are read from end to end. Where there are no micro-kernels, that of AVX2.
    """
    family = select(detect().features) or TileFamily("avx2")
    return family.max_rows, family.max_vectors * family.lanes


def linux_name(feature: str) -> str:
    """What Linux calls a feature in /proc/cpuinfo, but for underscores."""
    return _LINUX_NAMES.get(feature, feature).replace(".", "")


def _arch() -> str:
    arch = platform.machine()
    if arch not in FEATURES:
        raise UnsupportedError(f"target: no code generation for {arch}; have {', '.join(FEATURES)}")
    return arch


def _first_processor(text: str) -> dict[str, str]:
    """The fields of the first paragraph of /proc/cpuinfo."""
    info: dict[str, str] = {}
    for line in text.partition("\n\n")[0].splitlines():
        name, colon, value = line.partition(":")
        if colon:
            info[name.strip()] = value.strip()
    return info


def resolve(target: object) -> HostTarget:
    """The target that the user asked for: a HostTarget, "llvm" (this machine), or a TVM target of kind llvm.

    Of a TVM target (an object, or the dict that makes one) mcpu and mattr count; without mcpu it is this
    machine. Raises UserError for what is no target, UnsupportedError for another kind, another architecture,
    attributes that change what code means, and features that this machine lacks.
    """
    if isinstance(target, HostTarget):
        return target
    if target == "llvm":
        return detect()
    config = _config(target)
    if config.get("kind") != "llvm":
        raise UnsupportedError(f"target: kind {config.get('kind')!r}; the CPU's kind is 'llvm'")
    unknown = sorted(set(config) - _TVM_ATTRIBUTES)
    if unknown:
        raise UnsupportedError(
            f"target: attribute(s) {', '.join(unknown)}; only mcpu, mattr and mtriple may be given"
        )
    arch = _arch()
    triple = str(config.get("mtriple", arch))
    if triple.partition("-")[0] != arch:
        raise UnsupportedError(f"target: mtriple {triple!r}; this machine is {arch}")
    cpu = str(config.get("mcpu", ""))
    signs = [str(s) for s in config.get("mattr", ())]
    if not cpu and not signs:
        return detect()
    return _checked(arch, cpu, signs)


def _config(target: object) -> dict[str, Any]:
    if isinstance(target, Mapping):
        return dict(target)
    export = getattr(target, "export", None)
    if export is None:
        raise UserError(
            'target: expected "llvm", a TVM target or the dict of one; '
            f"got {type(target).__name__}: {target!r}"
        )
    config = {str(k): v for k, v in dict(export()).items()}
    return {k: v for k, v in config.items() if v not in (None, "")}


def _checked(arch: str, cpu: str, signs: list[str]) -> HostTarget:
    """The features that LLVM gives a model, with `signs` applied, compared with this machine's."""
    from tvm.target import Target, codegen

    name = cpu or codegen.llvm_get_system_cpu()
    if not codegen.llvm_is_valid_cpu(name, codegen.llvm_get_system_triple()):
        raise UserError(f"target: LLVM knows no processor {name!r} of architecture {arch}")
    given = {str(f) for f in codegen.llvm_get_cpu_features(Target({"kind": "llvm", "mcpu": name}))}
    for sign in signs:
        feature = sign[1:]
        if sign[:1] not in "+-" or feature not in FEATURES[arch]:
            raise UnsupportedError(
                f"target: mattr {sign!r}; expected '+' or '-' and one of {', '.join(FEATURES[arch])}"
            )
        (given.add if sign[0] == "+" else given.discard)(feature)
    features = frozenset(f for f in FEATURES[arch] if f in given)
    missing = sorted(features - detect().features)
    if missing:
        raise UnsupportedError(f"target: {name} uses {', '.join(missing)}, which this machine lacks")
    return HostTarget(arch, name, features)
