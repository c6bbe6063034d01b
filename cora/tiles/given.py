"""Micro-kernels that a user gives as LLVM IR: their contract, the checks of the text, and their machine code."""

from __future__ import annotations

import hashlib
import platform
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from cora.errors import UnsupportedError, UserError
from cora.tiles.library import machine_for

#: The parameters of a user's micro-kernel in order, with LLVM's types; it returns nothing.
GIVEN_ARGUMENTS: Final = {
    "rows": "i64",
    "columns": "i64",
    "depth": "i64",
    "a": "ptr",
    "a_row": "i64",
    "a_step": "i64",
    "b": "ptr",
    "b_row": "i64",
    "out": "ptr",
    "out_row": "i64",
    "adds": "i64",
}
SIGNATURE: Final = f"void ({', '.join(GIVEN_ARGUMENTS.values())})"

#: The largest tile that a micro-kernel may say it computes.
_MAX_SIZE: Final = 4096

#: Intrinsics of a processor, by the beginning of their names, and the feature that each asks for.
_NEEDS: Final = {
    "llvm.x86.avx512bf16.": "avx512bf16",
    "llvm.x86.avx512": "avx512f",
    "llvm.x86.avx2.": "avx2",
    "llvm.x86.avx.": "avx",
    "llvm.x86.fma.": "fma",
    "llvm.aarch64.neon.": "neon",
}
_OF_A_PROCESSOR: Final = re.compile(
    r"llvm\.(x86|aarch64|arm|nvvm|amdgcn|riscv|ppc|s390|hexagon|wasm|loongarch)\."
)

#: What compilers write about the processor that they made the text for.
_PROCESSOR: Final = re.compile(r'"(?:target-cpu|target-features|tune-cpu)"="[^"]*"')
_CONVENTION: Final = re.compile(r"\b(?:cc\s*\d+|(?!ccc\b)\w*cc)\b")


@dataclass(frozen=True, slots=True)
class MicroKernel:
    """A user's own micro-kernel: the inner tile of a float32 matrix product, for `Schedule.tensorize`.

        void name(i64 rows, i64 columns, i64 depth, ptr a, i64 a_row, i64 a_step, ptr b, i64 b_row,
                  ptr out, i64 out_row, i64 adds)

    must compute, for 0 <= r < rows and 0 <= c < columns,

        out[r * out_row + c] = s + sum over 0 <= j < depth of a[r * a_row + j * a_step] * b[j * b_row + c]

    where s is 0 if adds is 0 (then `out` must not be read: it may hold anything), and what was there if adds is 1.

    It is called with 1 <= rows <= `rows` and 1 <= columns <= `columns` (without `edges`: with exactly these), and
    depth >= 0; depth may be 0, which stores s. Strides count elements. Elements are aligned to 4 bytes. It reads and
    writes exactly the elements named, no others and no global state, since several workers call it at once. `out`
    overlaps neither a nor b. Sums may be added in any order.

    Attributes:
        name: of the function in the text.
        ir: LLVM IR that defines it, and all it calls but LLVM's intrinsics. It is compiled for the target's processor
            as it is, without passes that would optimize it: attributes that name another processor are left out.
        rows, columns: the largest tile that it computes.
        edges: whether it computes smaller tiles too. If not, cora's own micro-kernels compute those.

    Raises:
        UserError: the text does not parse, LLVM finds it ill-formed, it does not define the function or not with
            these parameters, it calls functions of elsewhere, or a size is out of range.
    """

    name: str
    ir: str = field(repr=False)
    rows: int
    columns: int
    edges: bool = True

    def __post_init__(self) -> None:
        where = "MicroKernel"
        for what in ("name", "ir"):
            if not isinstance(getattr(self, what), str):
                raise UserError(f"{where}: {what} must be a str; got {type(getattr(self, what)).__name__}")
        for what in ("rows", "columns"):
            size = getattr(self, what)
            if type(size) is not int or not 1 <= size <= _MAX_SIZE:
                raise UserError(
                    f"{where} '{self.name}': {what} must be an int of 1 to {_MAX_SIZE}; got {size!r}"
                )
        if type(self.edges) is not bool:
            raise UserError(f"{where} '{self.name}': edges must be a bool; got {self.edges!r}")
        _checked(self.name, self.ir)

    @property
    def digest(self) -> str:
        """The sha256 (hex) of name and text: equal for equal code."""
        return hashlib.sha256(f"{self.name}\n{self.ir}".encode()).hexdigest()

    @property
    def symbol(self) -> str:
        """What the function is called where it is linked: two functions of one name do not meet."""
        return f"cora_given_{self.digest[:16]}"


@cache
def given_code(kernel: MicroKernel, cpu: str, features: frozenset[str], signs: str) -> bytes:
    """A relocatable, position-independent object that defines `kernel.symbol` (hidden) and nothing else.

    cpu, signs: LLVM's names of the model and of features, as of `object_code`; features: those that there are. Raises
    UnsupportedError where the text asks for instructions that the processor lacks.
    """
    for name in _checked(kernel.name, kernel.ir):
        needed = next((need for head, need in _NEEDS.items() if name.startswith(head)), None)
        if needed is None or needed not in features:
            raise UnsupportedError(
                f"tensorize: micro-kernel '{kernel.name}' calls {name}, which needs "
                f"{needed or 'another processor'}; it is compiled for {cpu} with {', '.join(sorted(features))}"
            )
    machine = machine_for(f"{platform.machine()}-unknown-linux-gnu", cpu, signs)
    module = _parsed(kernel.name, kernel.ir)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    for defined in (*module.functions, *module.global_variables):
        if not defined.is_declaration and not defined.name.startswith("llvm."):
            defined.linkage = "internal"
    entry = module.get_function(kernel.name)
    entry.name = kernel.symbol
    entry.linkage, entry.visibility = "external", "hidden"
    module.verify()
    return bytes(machine.emit_object(module))


@cache
def _checked(name: str, ir: str) -> tuple[str, ...]:
    """The intrinsics of one processor that the text calls; UserError if it breaks the contract."""
    where = f"MicroKernel '{name}'"
    module = _parsed(name, ir)
    defined = {f.name: f for f in module.functions if not f.is_declaration}
    if name not in defined:
        raise UserError(f"{where}: the text defines no function of that name; it defines {_listed(defined)}")
    found = str(defined[name].global_value_type)
    if found != SIGNATURE:
        raise UserError(f"{where}: expected a function of type {SIGNATURE}; got {found}")
    head = re.search(r"^define (.*?)void @", str(defined[name]), re.MULTILINE)
    if head is not None and _CONVENTION.search(head[1]):
        raise UserError(f"{where}: expected the calling convention of C; got {head[1].strip()}")
    called = [f.name for f in module.functions if f.is_declaration]
    foreign = [n for n in called if not n.startswith("llvm.")]
    foreign += [g.name for g in module.global_variables if g.is_declaration]
    if foreign:
        raise UserError(
            f"{where}: the text must define all that it uses; it does not define {_listed(foreign)}"
        )
    special = [g.name for g in module.global_variables if g.name.startswith("llvm.global_")]
    if special:
        raise UserError(f"{where}: nothing may run when it is loaded; the text has {_listed(special)}")
    return tuple(n for n in called if _OF_A_PROCESSOR.match(n))


def _listed(names: object) -> str:
    return ", ".join(f"'{n}'" for n in names) or "none"  # type: ignore[attr-defined]


def _parsed(name: str, ir: str) -> Any:
    """The module, if LLVM takes it; UserError with LLVM's reason if not."""
    from llvmlite import binding

    try:
        module = binding.parse_assembly(_PROCESSOR.sub('"made-for"', ir))
        module.verify()
    except RuntimeError as error:
        raise UserError(f"MicroKernel '{name}': LLVM refuses the text: {str(error).strip()}") from error
    return module
