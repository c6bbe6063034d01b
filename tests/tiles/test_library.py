"""What the micro-kernels are compiled to, how they are linked, and which family a CPU gets."""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cora.codegen.link import find_linker, link
from cora.errors import UnsupportedError, UserError
from cora.tiles import ARGUMENTS, SYMBOL, TileFamily, object_code, select
from cora.tiles.family import Isa
from cora.tiles.library import assembly

AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
AVX2 = frozenset({"avx2", "fma"})

#: A CPU without anything newer than the family asks for; the multiply-add, a vector register and the stack.
COMPILED: list[tuple[Isa, str, str, str, str]] = [
    ("avx512", "skylake-avx512", r"vfmadd\d+ps", r"%zmm", r"\(%rsp"),
    ("avx2", "haswell", r"vfmadd\d+ps", r"%ymm", r"\(%rsp"),
    ("neon", "", r"fmla", r"\bq\d+", r"\[sp"),
]


@pytest.mark.parametrize(
    ("features", "isa"),
    [
        (AVX512 | AVX2, "avx512"),
        (AVX512 | AVX2 - {"avx512dq"}, "avx512"),
        ((AVX512 | AVX2) - {"avx512dq"}, "avx2"),
        (AVX2, "avx2"),
        (frozenset({"neon", "dotprod"}), "neon"),
        (AVX2 - {"fma"}, None),
        (frozenset(), None),
    ],
)
def test_the_best_family_that_a_cpu_can_run(features: frozenset[str], isa: Isa | None) -> None:
    assert select(features) == (None if isa is None else TileFamily(isa))


def test_a_data_type_may_need_more_features() -> None:
    assert select(AVX512 | AVX2, "bfloat16") is None
    assert select(AVX512 | {"avx512bf16"}, "bfloat16") == TileFamily("avx512", "bfloat16")
    assert select(AVX512 | AVX2, "int64") is None


def test_families_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no micro-kernels for avx2 bfloat16; have avx512 float32"):
        TileFamily("avx2", "bfloat16")


@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon"])
def test_the_largest_tile_fits_the_registers(isa: Isa) -> None:
    family = TileFamily(isa)
    mr, nv = family.shapes[-1]
    mask = family.tail == "mask vector"
    assert mr * nv + nv + 1 + mask <= family.registers


def functions(text: str) -> dict[str, list[str]]:
    """The instructions and labels of each function in an assembly text."""
    found = {}
    for match in re.finditer(r"^(\w+):.*?\n(.*?)^\.Lfunc_end", text, re.MULTILINE | re.DOTALL):
        lines = (line.strip() for line in match[2].splitlines())
        found[match[1]] = [line for line in lines if not line.startswith(".") or line.endswith(":")]
    return found


def loops(lines: list[str]) -> Iterator[list[str]]:
    """The lines between each label and a jump back to it, where there is no other label between: loops of one block."""
    labels = {line.removesuffix(":"): number for number, line in enumerate(lines) if line.endswith(":")}
    for number, line in enumerate(lines):
        first = labels.get(line.split()[-1])
        if first is not None and first < number:
            body = lines[first:number]
            if not any(line.endswith(":") for line in body[1:]):
                yield body


@pytest.mark.parametrize(
    ("isa", "cpu", "fma", "register", "stack"), COMPILED, ids=[isa for isa, *_ in COMPILED]
)
def test_loops_hold_nothing_but_the_tile(isa: Isa, cpu: str, fma: str, register: str, stack: str) -> None:
    """Two loops per function, each with its mr * nv multiply-adds, no spilled vector and no call.

    Where lanes are clamped, panels are written in a loop of their own.
    """
    family = TileFamily(isa)
    found = functions(assembly(family, cpu, ""))
    tiles = {name: lines for name, lines in found.items() if name.startswith("tile_")}
    assert len(tiles) == len(family.shapes) * (1 if isa == "avx512" else 2)
    for name, lines in tiles.items():
        mr, nv = map(int, re.findall(r"\d+", name)[:2])
        bodies = [b for b in loops(lines) if any(re.match(fma, line) for line in b)]
        assert len(bodies) == (1 if isa == "neon" and name.endswith("_partial") else 2), name
        for body in bodies:
            assert sum(bool(re.match(fma, line)) for line in body) == mr * nv, name
            spilled = [line for line in body if re.search(stack, line) and re.search(register, line)]
            assert not spilled, (name, spilled)
        calls = [line for line in lines if re.match(r"call|blr?\s", line)]
        assert not calls, (name, calls)


def test_full_neon_tiles_spill_no_vector_at_all() -> None:
    for name, lines in functions(assembly(TileFamily("neon"), "", "")).items():
        if not name.endswith("_partial"):
            assert not [line for line in lines if re.search(r"\bq\d+.*\[sp", line)], name


def test_code_is_the_same_every_time() -> None:
    family = TileFamily("avx2")
    fresh = object_code.__wrapped__(family, "haswell", "")
    assert fresh == object_code(family, "haswell", "")
    assert fresh != object_code(family, "skylake-avx512", "")


def test_features_must_not_exclude_what_the_family_needs() -> None:
    with pytest.raises(UserError, match="features exclude fma, which avx2 needs"):
        object_code(TileFamily("avx2"), "haswell", "+avx,-fma")


def test_native_is_this_machine() -> None:
    isa: Isa = "avx2" if platform.machine() == "aarch64" else "neon"
    with pytest.raises(UserError, match="'native' is"):
        object_code(TileFamily(isa), "native", "")


def test_a_library_calls_its_tiles_and_hides_them(tmp_path: Path) -> None:
    """The object is position-independent, complete, and found by another object of the same library only."""
    from llvmlite import binding

    linker = find_linker()
    host = binding.get_host_cpu_features()
    family = select(frozenset(name for name, present in host.items() if present))
    if linker is None or family is None:
        pytest.skip("no linker, or no micro-kernels for this CPU")
    parameters = ", ".join(f"{kind} %{name}" for name, kind in ARGUMENTS.items())
    caller = binding.parse_assembly(
        f"declare i32 @{SYMBOL}({parameters})\n"
        f"define i32 @caller({parameters}) {{\n"
        f"  %result = call i32 @{SYMBOL}({parameters})\n  ret i32 %result\n}}\n"
    )
    machine = binding.Target.from_default_triple().create_target_machine(reloc="pic", codemodel="default")
    path = tmp_path / "library.so"
    path.write_bytes(link([machine.emit_object(caller), object_code(family, "native", "")], linker))
    library = ctypes.CDLL(str(path))
    assert not hasattr(library, SYMBOL)
    a, c = np.full((2, 3), 2, np.float32), np.zeros((2, family.lanes), np.float32)
    b = np.full((3, family.lanes), 5, np.float32)
    numbers = dict.fromkeys(ARGUMENTS, 0) | {"mr": 2, "nv": 1, "nrem": family.lanes, "k": 3}
    numbers |= {"A": a.ctypes.data, "a_row": 3, "a_k": 1, "B": b.ctypes.data, "b_k": family.lanes}
    numbers |= {"C": c.ctypes.data, "c_row": family.lanes}
    assert library.caller(*(ctypes.c_int64(number) for number in numbers.values())) == 0
    assert (c == 30).all()
