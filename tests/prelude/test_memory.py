"""Arenas: addresses that stay, growth, sharing; objects linked into libraries; threads."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cora.errors import InternalError
from cora.ir.expr import Dim, Size, round_up
from cora.ir.ufun import Given, UFun, formal, fusion_maps, scan
from cora.prelude import Arena, NativePrelude, jit, llvm_ir, load, object_code, shared_code, specify
from cora.storage.offsets import table_offset, table_size

ROOT = Path(__file__).resolve().parent.parent.parent
M = Size("M")
B = Dim("b", M)
LENS = UFun("lens", (formal(0, M),), Given())
OFFSET = scan((), B, LENS(B))
FFO, FFI = fusion_maps(OFFSET)
SPEC = specify([FFO, FFI], table_offset, table_size)


@pytest.fixture(scope="module")
def native() -> NativePrelude:
    return jit(SPEC)


def batch(*lens: int) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    return {"M": len(lens)}, {"lens": np.array(lens, np.int32)}


def addresses(tables: list[np.ndarray]) -> list[int]:
    return [table.ctypes.data for table in tables]


def test_batches_of_similar_size_reuse_the_addresses(native: NativePrelude) -> None:
    arena = Arena()
    first = addresses(native.compute(*batch(100, 200, 300), arena))
    assert all(address % 64 == 0 for address in first)
    for lens in ((300, 200, 100), (0, 0, 1), (90, 200), (250, 250, 200)):
        assert addresses(native.compute(*batch(*lens), arena)) == first


def test_the_arena_grows_and_settles(native: NativePrelude) -> None:
    arena = Arena(64)
    rng = np.random.default_rng(0)
    batches = [batch(*rng.integers(0, 30, rng.integers(1, 60))) for _ in range(30)]
    for sizes, lengths in batches:
        native.compute(sizes, lengths, arena, check="full")
    before = arena.address, arena.used_bytes
    for sizes, lengths in batches:
        native.compute(sizes, lengths, arena)
    assert before == (arena.address, arena.used_bytes)
    largest = max(4 * len(x["lens"]) + 8 * x["lens"].sum() for _, x in batches)
    assert arena.used_bytes < 8 * largest


def test_arrays_of_before_a_growth_stay_valid(native: NativePrelude) -> None:
    arena = Arena(64)
    small = native.compute(*batch(1, 2), arena)
    native.compute(*batch(*[1000] * 50), arena)
    assert small[1].tolist() == [0, 1, 3]


def test_tables_of_another_prelude_are_shared(native: NativePrelude) -> None:
    padded = scan((), B, round_up(LENS(B), 4))
    other = jit(specify([*fusion_maps(padded), FFO], table_offset, table_size))
    arena = Arena()
    sizes, lengths = batch(3, 0, 5)
    first = native.compute(sizes, lengths, arena)
    known = {table.key: array for table, array in zip(SPEC.tables, first, strict=True)}
    second = other.compute(sizes, lengths, arena, filled=known, check="full")
    shared = [array for array in second if any(array is x for x in first)]
    assert len(shared) == 2  # OFFSET and FFO; lengths are copied again
    assert len({array.ctypes.data for array in (*first, *second)}) == 4 + 3
    native.validate(sizes, first, check="full")


def test_one_prelude_serves_several_threads(native: NativePrelude) -> None:
    def work(seed: int) -> None:
        rng, arena = np.random.default_rng(seed), Arena()
        for _ in range(50):
            lens = rng.integers(0, 50, 20)
            *_, ffi, ffo = native.compute(*batch(*lens), arena)
            assert ffo.tolist() == np.repeat(np.arange(20), lens).tolist()
            assert len(ffi) == len(ffo)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))


def test_a_linked_object_gives_the_same_tables(native: NativePrelude, tmp_path: Path) -> None:
    from llvmlite import binding

    cpu, features = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    other = specify([OFFSET], table_offset, table_size)
    for name, spec in (("a_", SPEC), ("b_", other)):
        code = object_code(spec, cpu=cpu, features=features, prefix=name)
        (tmp_path / f"{name}.o").write_bytes(code)
    (tmp_path / "shared.o").write_bytes(shared_code(cpu, features))
    library = tmp_path / "tables.so"
    subprocess.run(
        ["ld", "-shared", "--no-undefined", "-o", library, *sorted(tmp_path.glob("*.o"))], check=True
    )
    loaded = ctypes.CDLL(str(library))
    a, b = load(SPEC, loaded, prefix="a_"), load(other, loaded, prefix="b_")
    for lens in ((), (0, 3, 0, 0), (17, 400, 1)):
        expected = native.compute(*batch(*lens), Arena())
        for got in (a.compute(*batch(*lens), Arena()), b.compute(*batch(*lens), Arena())):
            for x, y in zip(expected, got, strict=False):
                assert x.tolist() == y.tolist()
    with pytest.raises(InternalError, match="does not define prelude_compute"):
        load(SPEC, loaded)


def test_only_one_symbol_is_public(tmp_path: Path) -> None:
    (tmp_path / "x.o").write_bytes(object_code(SPEC, cpu="x86-64", features="", prefix="k_"))
    (tmp_path / "shared.o").write_bytes(shared_code("x86-64", ""))
    library = tmp_path / "tables.so"
    subprocess.run(["ld", "-shared", "-z", "defs", "-o", library, *sorted(tmp_path.glob("*.o"))], check=True)
    symbols = subprocess.run(
        ["nm", "--dynamic", library], check=True, capture_output=True, text=True
    ).stdout.split()
    assert symbols[1:] == ["T", "k_prelude_compute"]


def test_the_same_specification_gives_the_same_code() -> None:
    assert llvm_ir(SPEC) == llvm_ir(specify([FFI, FFO], table_offset, table_size))


def test_loading_needs_no_compiler() -> None:
    program = "import sys, cora.prelude; sys.exit('cora.prelude.emit' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
