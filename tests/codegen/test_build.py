"""From functions to loaded libraries: targets, linking, and processes without the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cora.codegen import build as build_module
from cora.codegen.build import compile_functions
from cora.codegen.link import find_linker, link
from cora.codegen.load import SPIN_COUNT, load
from cora.codegen.target import HostTarget, detect, resolve
from cora.errors import InternalError, UnsupportedError, UserError
from cora.ir.expr import Const, Read, binary, unary
from cora.ir.stmt import For, Function, If, LoopKind, Store
from tests.codegen.harness import K, N, V, buffer, call, compiled, function, lanes, output, serial


def exponential(dtype: str, name: str = "f", lane_count: int = 8) -> Function:
    a, o = buffer("A", dtype), output(dtype=dtype)
    at = K * lane_count + V
    body = If(binary("lt", at, N), Store(o, at, unary("exp", Read(a, at))))
    tiles = (N + (lane_count - 1)) // lane_count
    loop = For(K, Const(0), tiles, LoopKind.PARALLEL, lanes(lane_count, body))
    return function(loop, buffers=(a, o), name=name)


def check(f: object, dtype: str) -> None:
    x = np.linspace(-5, 5, 37).astype(dtype)
    result = call(f, [x, np.zeros_like(x)], 37)[1]  # type: ignore[arg-type]
    assert np.allclose(result, np.exp(x), rtol=1e-6)


@pytest.fixture
def no_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "find_linker", lambda: None)


def test_several_functions_in_one_library() -> None:
    fs = compiled(exponential("float32", "one"), exponential("float64", "two"))
    check(fs["one"], "float32")
    check(fs["two"], "float64")


def test_functions_need_different_names() -> None:
    with pytest.raises(InternalError, match="different names"):
        compile_functions([exponential("float32"), exponential("float64")], detect())


def test_without_a_linker_code_runs_from_memory(no_linker: None) -> None:
    code = compile_functions([exponential("float32")], detect())
    assert code.library is None
    check(code.function("f"), "float32")
    with pytest.raises(InternalError, match="no function 'g'"):
        code.function("g")


def test_sources() -> None:
    code = compile_functions([exponential("float32")], detect())
    assert "T.parallel" in code.source("tir")
    assert "llvm.masked.load" in code.source("ll")
    assert ".text" in code.source("asm")
    with pytest.raises(InternalError, match="source form"):
        code.source("wasm")


def test_only_wide_enough_vectors_and_no_guards_in_the_kernel() -> None:
    """A masked loop becomes masked vector operations, not one branch per lane."""
    text = compile_functions([exponential("float32", lane_count=16)], detect()).source("ll")
    loads = [line for line in text.splitlines() if "call <16 x float> @llvm.masked.load" in line]
    assert loads
    assert all("zeroinitializer" in line for line in loads), "lanes that do not run must hold 0"
    assert "@llvm.masked.store.v16f32" in text
    assert "extractelement <16 x i1>" not in text


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_older_processors(cpu: str) -> None:
    if detect().arch != "x86_64":
        pytest.skip("x86 processors")
    try:
        target = resolve({"kind": "llvm", "mcpu": cpu})
    except UnsupportedError:
        pytest.skip(f"{cpu} has more than this machine")
    assert target.vector_bytes == {"x86-64-v3": 32, "x86-64-v4": 64}.get(cpu, 16)
    f, h = exponential("float32"), exponential("float64", "g")
    half = function(
        serial(K, N, Store(output(dtype="float16"), K, Read(buffer("A", "float16"), K))),
        buffers=(buffer("A", "float16"), output(dtype="float16")),
        name="half",
    )
    fs = compiled(f, h, half, target=target)
    check(fs["f"], "float32")
    check(fs["g"], "float64")
    x = np.linspace(-5, 5, 9).astype(np.float16)
    assert np.array_equal(call(fs["half"], [x, np.zeros_like(x)], 9)[1], x)


def test_targets() -> None:
    assert resolve("llvm") == resolve({"kind": "llvm"}) == detect()
    assert resolve(detect()) is detect()
    import tvm

    assert resolve(tvm.target.Target("llvm")) == detect()
    keys = {detect().key, HostTarget("x86_64", "znver4", frozenset()).key}
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ({"kind": "cuda"}, UnsupportedError, "kind 'cuda'"),
        ({"kind": "llvm", "fast-math": True}, UnsupportedError, "fast-math"),
        ({"kind": "llvm", "mtriple": "riscv64-linux-gnu"}, UnsupportedError, "mtriple"),
        ({"kind": "llvm", "mattr": ["+no-such"]}, UnsupportedError, "mattr"),
        (17, UserError, "got int: 17"),
        ("cuda", UserError, "got str"),
    ],
)
def test_wrong_targets(target: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        resolve(target)


def test_features_that_the_machine_lacks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    here = detect()
    poor = HostTarget(here.arch, here.cpu, frozenset(), here.machine)
    monkeypatch.setattr("cora.codegen.target.detect", lambda: poor)
    cpu = "x86-64-v3" if here.arch == "x86_64" else "neoverse-v1"
    with pytest.raises(UnsupportedError, match="lacks"):
        resolve({"kind": "llvm", "mcpu": cpu})


def test_a_missing_symbol_is_an_error_when_loading(tmp_path: Path) -> None:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    text = "declare void @no_such_symbol()\ndefine void @g() { call void @no_such_symbol()\n ret void }"
    machine = binding.Target.from_default_triple().create_target_machine(reloc="pic", codemodel="default")
    linker = find_linker()
    assert linker is not None
    path = tmp_path / "k.so"
    path.write_bytes(link([machine.emit_object(binding.parse_assembly(text))], linker))
    with pytest.raises(UserError, match="no_such_symbol"):
        load(path)


def test_linking_reports_the_linkers_words() -> None:
    linker = find_linker()
    assert linker is not None
    with pytest.raises(InternalError, match="linking with"):
        link([b"this is no object"], linker)


@pytest.mark.parametrize("name", ["ld", "ld.lld", "ld.gold", "cc", "g++", "clang"])
def test_linkers(name: str, tmp_path: Path) -> None:
    import shutil

    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name} here")
    code = compile_functions([exponential("float64")], detect())
    library = tmp_path / "k.so"
    library.write_bytes(link([build_module._object(code._module)], path))
    check(load(library).function("f"), "float64")


def test_unknown_function_of_a_library(tmp_path: Path) -> None:
    code = compile_functions([exponential("float32")], detect())
    assert code.library is not None
    path = tmp_path / "k.so"
    path.write_bytes(code.library)
    with pytest.raises(InternalError, match="has no function 'g'"):
        load(path).function("g")
    with pytest.raises(UserError, match="cannot load"):
        load(tmp_path / "missing.so")


WITHOUT_TVM = """
import sys, os
import numpy as np
from pathlib import Path
from cora.codegen.abi import Frame
from cora.codegen.load import load
f = load(Path(sys.argv[1])).function("f")
x = np.linspace(-5, 5, 1000)
y = np.zeros_like(x)
f(Frame([x.ctypes.data, y.ctypes.data, 1000]).pointer)
assert np.allclose(y, np.exp(x), rtol=1e-12)
assert "tvm" not in sys.modules and "llvmlite" not in sys.modules
spin = os.environ["TVM_THREAD_POOL_SPIN_COUNT"]
print(os.environ["TVM_NUM_THREADS"], len(os.sched_getaffinity(0)), os.environ["TVM_BIND_THREADS"], spin)
"""


@pytest.mark.parametrize(("threads", "spin"), [(None, None), ("1", None), ("3", "0")])
def test_a_fresh_process_needs_the_run_time_alone(
    threads: str | None, spin: str | None, tmp_path: Path
) -> None:
    code = compile_functions([exponential("float64")], detect())
    assert code.library is not None
    path = tmp_path / "k.so"
    path.write_bytes(code.library)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TVM_", "OMP_"))}
    if threads is not None:
        env["TVM_NUM_THREADS"] = threads
    if spin is not None:
        env["TVM_THREAD_POOL_SPIN_COUNT"] = spin
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TVM, str(path)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    set_to, allowed, bound, spinning = done.stdout.split()
    assert set_to == (threads or allowed)
    assert bound == "0"
    assert spinning == (spin or SPIN_COUNT)
