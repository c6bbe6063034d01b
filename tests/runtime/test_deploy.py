"""Deployed programs, in this process: what they compute, what they refuse, and what lies in their folder."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cora
import cora.kernels
from cora import KernelCall
from cora.codegen import build as build_module
from cora.kernels.gemm import Blocking
from cora.prelude import status
from cora.runtime.deploy import cora_deploy, manifest, write
from cora.runtime.deploy.cora_deploy import DeployError
from cora.storage.lengths import LARGEST
from tests.runtime.programs import UNCACHED, batch, kernel, n, pos, rows, scaled

HOSTILE = ([], [0, 0], [0, 3, 0, 0], [1], [31, 32, 33], [63, 64, 65, 1], [2, 500, 1], [20] * 7)


def loaded(folder: Path, kernels: Any, *more: Any, **options: Any) -> cora_deploy.Program:
    """A program, written and read."""
    cora.deploy(folder, kernels, *more, **options)
    return cora_deploy.load(folder)


def refused(match: str) -> Any:
    return pytest.raises(DeployError, match=match)


@cache
def built(name: str) -> cora.Kernel:
    """Kernels that ask the loader for more than those of `kernel`."""
    half = cora.placeholder("H", [batch, pos], "bfloat16")
    flags = cora.placeholder("F", [batch, pos], "bool")
    inner = cora.Dim("inner", cora.lengths("inner", batch, pos)[batch, pos])
    deep = cora.placeholder("D", [batch, pos, inner])
    programs: dict[str, Any] = {
        "remap": cora.schedule(scaled(2)).remap("O", "batch", table="order").parallel("O", "batch"),
        "longest_first": cora.schedule(scaled(2)).parallel("O", "batch", balance="longest_first"),
        "bfloat16": cora.compute("O", [batch, pos], half[batch, pos] * 2.0, dtype="bfloat16"),
        "bool": cora.compute("O", [batch, pos], ~flags[batch, pos]),
        "deep": cora.compute("O", [batch, pos], cora.sum(deep[batch, pos, inner], over=inner)),
        "packed": cora.schedule(scaled(2)).pad_dim("A", "pos", 16),
    }
    return cora.build(programs[name], settings=UNCACHED)


def compare(own: cora.Kernel, program: cora_deploy.Program, given: dict[str, Any], threads: int = 2) -> None:
    """The outputs of a kernel and of its program have the same bits, padding included."""
    expected = own(**given, threads=threads)
    results = program(**given, threads=threads)
    several = expected if isinstance(expected, tuple) else (expected,)
    for name, array in zip(own.outputs, several, strict=True):
        result = results if len(several) == 1 else results[name]
        np.testing.assert_array_equal(result.reshape(-1).view(np.uint8), array.values.view(np.uint8))


class TestPrograms:
    @pytest.mark.parametrize("name", ["scale", "first", "two", "chain"])
    def test_on_hostile_batches(self, name: str, tmp_path: Path) -> None:
        program = loaded(tmp_path, kernel(name))
        rng = np.random.default_rng(0)
        for lengths in HOSTILE:
            compare(
                kernel(name), program, {"A": rng.standard_normal(sum(lengths), np.float32), "lens": lengths}
            )

    def test_lengths_over_two_dims(self, tmp_path: Path) -> None:
        program = loaded(tmp_path, built("deep"))
        for lengths, inner in (([], []), ([0, 0], []), ([2, 0, 1], [3, 0, 70]), ([1], [0])):
            values = np.random.default_rng(0).standard_normal(sum(inner), np.float32)
            compare(built("deep"), program, {"D": values, "lens": lengths, "inner": np.int64(inner)})
        with refused("'inner': expected 3 values; got 2"):
            program(D=np.zeros(3, np.float32), lens=[2, 0, 1], inner=[3, 0])

    @pytest.mark.parametrize("threads", [1, 2, 5])
    def test_shares_of_workers(self, threads: int, tmp_path: Path) -> None:
        program = loaded(tmp_path, built("longest_first"))
        for lengths in HOSTILE:
            values = np.arange(sum(lengths), dtype=np.float32)
            compare(built("longest_first"), program, {"A": values, "lens": lengths}, threads)

    def test_a_permutation(self, tmp_path: Path) -> None:
        program = loaded(tmp_path, built("remap"))
        values = np.arange(6, dtype=np.float32)
        compare(built("remap"), program, {"A": values, "lens": [3, 1, 2], "order": [2, 0, 1]})
        with refused(r"permutation 'order': expected each of 0..2 once"):
            program(A=values, lens=[3, 1, 2], order=[2, 0, 0])

    def test_types_that_numpy_lacks(self, tmp_path: Path) -> None:
        program = loaded(tmp_path / "half", built("bfloat16"))
        half = cora.ragged(
            [[1, 2, 3], [4]], cora.placeholder("H", [batch, pos], "bfloat16"), dtype="bfloat16"
        )
        bits = program(H=half.values, lens=[3, 1])
        assert bits.dtype == np.uint16
        np.testing.assert_array_equal(bits, program(H=half.values.view(np.uint16), lens=[3, 1]))
        np.testing.assert_array_equal(bits.view(half.values.dtype), np.float32([2, 4, 6, 8]))
        program = loaded(tmp_path / "bool", built("bool"))
        assert program(F=np.array([True, False, True]), lens=[3]).tolist() == [False, True, False]

    def test_sizes_by_shape_and_by_name(self, tmp_path: Path) -> None:
        program = loaded(tmp_path, kernel("dense"))
        np.testing.assert_array_equal(program(T=np.float32([1, 2])), [2, 3])
        np.testing.assert_array_equal(program(T=np.float32([1, 2]), N=2), [2, 3])
        assert program(T=np.zeros(0, np.float32)).shape == (0,)
        with refused("size 'N' is 3 by name, but 2 by the shape of 'T'"):
            program(T=np.float32([1, 2]), N=3)
        with refused("size 'N': expected an integer from 0; got -1"):
            program(T=np.float32([1, 2]), N=-1)

    def test_indices_are_checked(self, tmp_path: Path) -> None:
        program = loaded(tmp_path, kernel("gather"))
        table, index = np.float32([10, 20, 30]), np.int32([0, 2, 1])
        compare(kernel("gather"), program, {"T": table, "I": index, "lens": [2, 1]})
        with pytest.raises(cora.UserError) as own:
            kernel("gather")(T=table, I=np.int32([0, 3, -1]), lens=[2, 1])
        with pytest.raises(DeployError) as theirs:
            program(T=table, I=np.int32([0, 3, -1]), lens=[2, 1])
        assert str(own.value) == str(theirs.value)
        assert "it is not for 2 of the indices" in str(own.value)
        compare(kernel("gather"), program, {"T": table, "I": index, "lens": [2, 1]})

    def test_several_kernels_and_what_is_between_them(self, tmp_path: Path) -> None:
        kernels = {"twice": kernel("scale"), "thrice": kernel("triple"), "sum": kernel("add")}
        calls = [
            KernelCall("twice", {"A": "x", "O": "doubled"}),
            KernelCall("twice", {"A": "doubled", "O": "quadrupled"}),
            KernelCall("thrice", {"A": "quadrupled", "O": "twelve"}),
            KernelCall("sum", {"A": "twelve", "B": "x", "O": "y"}),
        ]
        program = loaded(tmp_path, kernels, calls)
        x = np.arange(4, dtype=np.float32)
        np.testing.assert_array_equal(program(x=x, lens=[3, 0, 1]), 13 * x)
        buffers = {name: array["buffer"] for name, array in program.arrays.items()}
        assert buffers["doubled"] != buffers["quadrupled"]
        assert buffers["doubled"] == buffers["twelve"]
        assert buffers["x"] is buffers["y"] is None


class TestSessions:
    def test_memory_grows_and_stays(self, tmp_path: Path) -> None:
        program = loaded(tmp_path, kernel("chain"))
        session = program.session(threads=1)
        small = np.arange(4, dtype=np.float32)
        large = np.arange(100_000, dtype=np.float32)
        first = session.run(A=small, lens=[3, 1])
        before = session.memory_bytes
        session.run(A=large, lens=[1] * 100_000)
        grown = session.memory_bytes
        assert grown > before + 100_000
        np.testing.assert_array_equal(session.run(A=small, lens=[3, 1]), first)
        assert session.memory_bytes == grown

    def test_a_batch_that_fails_leaves_nothing_behind(self, tmp_path: Path) -> None:
        session = loaded(tmp_path, built("deep")).session()
        good = {"D": np.float32([1, 2, 3]), "lens": [2], "inner": [1, 2]}
        np.testing.assert_array_equal(session.run(**good), [1, 5])
        with refused("expected 3 values"):
            session.run(**{**good, "lens": [3]})
        with refused("expected 3 values"):
            session.run(**{**good, "lens": [3]})
        np.testing.assert_array_equal(session.run(**good), [1, 5])

    def test_outputs_that_are_given(self, tmp_path: Path) -> None:
        program = loaded(tmp_path, kernel("first"))
        out = np.full(64, np.nan, np.float32)
        assert program(A=np.float32([1, 2]), lens=[2], outputs={"O": out}) is out
        np.testing.assert_array_equal(out, [2, 4] + [0] * 62)

    def test_one_run_at_a_time(self, tmp_path: Path) -> None:
        session = loaded(tmp_path, kernel("scale")).session()
        with session._lock, refused("the session is running already"):
            session.run(A=np.zeros(1, np.float32), lens=[1])

    def test_a_program_in_several_threads(self, tmp_path: Path) -> None:
        program = loaded(tmp_path, kernel("chain"))
        wrong: list[int] = []

        def work(seed: int) -> None:
            for size in range(1, 60):
                values = np.full(size, seed, np.float32)
                result = program(A=values, lens=[size], threads=1 + seed % 2)
                if not np.array_equal(result, values + seed * size):
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_another_number_of_workers_is_another_session(self, tmp_path: Path) -> None:
        program = loaded(tmp_path, kernel("first"))
        used = []
        for threads in (1, 3, 3):
            program(A=np.float32([1, 2]), lens=[2], threads=threads)
            used.append(program._local.session)
        assert [session.threads for session in used] == [1, 3, 3]
        assert used[1] is used[2]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"lens": [2, -1]}, r"lengths 'lens': expected values from 0 to 2\^31 - 1; got -1 at 1"),
            ({"lens": [2, LARGEST + 1]}, r"got 2147483648 at 1"),
            ({"lens": [2.0]}, "lengths 'lens': expected integers; got float64"),
            ({"lens": [True, True]}, "lengths 'lens': expected integers; got bool"),
            (
                {"lens": [3]},
                r"'A': \[batch: M\]\[pos: lens\[batch\]\] has 3 elements|expected the shape \(3,\)",
            ),
            ({"M": 2}, "size 'M' is 2 by name, but 1 by lengths 'lens'"),
            ({"A": [1.0, 2.0]}, "'A': expected a NumPy array; got list"),
            ({"A": np.zeros(2)}, "'A': expected values of type float32; got float64"),
            ({"A": np.zeros(4, np.float32)[::2]}, "'A': the array must be C-contiguous and aligned"),
            ({"A": np.zeros((1, 2), np.float32), "lens": [3]}, "has 3 elements on this batch; got 2"),
            ({"B": 1}, "unknown argument 'B'; expected A, lens, M"),
            ({"threads": 0}, "threads: expected an integer from 1 to 4096; got 0"),
            ({"threads": True}, "threads: expected an integer"),
            ({"outputs": {"P": np.zeros(2, np.float32)}}, "no output 'P'; expected O"),
            ({"outputs": {"O": np.zeros(3, np.float32)}}, r"'O': expected the shape \(2,\)"),
            ({"outputs": {"O": np.zeros(2, np.int32)}}, "'O': expected values of type float32; got int32"),
            ({"outputs": {"O": [0.0, 0.0]}}, "'O': expected a NumPy array; got list"),
            (
                {"outputs": {"O": np.broadcast_to(np.float32(0), 1)}, "lens": [1], "A": np.ones(1, "f4")},
                "writable",
            ),
        ],
    )
    def test_arguments_that_do_not_fit(self, change: dict[str, Any], message: str, tmp_path: Path) -> None:
        program = loaded(tmp_path, kernel("scale"))
        given = {"A": np.float32([1, 2]), "lens": [2]}
        with refused(message):
            program(**{**given, **change})
        np.testing.assert_array_equal(program(**given), [2, 4])

    def test_arguments_that_are_missing_or_overlap(self, tmp_path: Path) -> None:
        program = loaded(tmp_path, kernel("two"))
        a = np.float32([1, 2])
        with refused("argument 'lens' is missing"):
            program(A=a)
        with refused("argument 'A' is missing"):
            program(lens=[2])
        with refused("output 'O' overlaps 'A' in memory"):
            program(A=a, lens=[2], outputs={"O": a})
        shared = np.zeros(3, np.float32)
        with refused("overlaps"):
            program(A=a, lens=[2], outputs={"O": shared[:2], "S": shared[1:2]})
        program(A=a, lens=[2], outputs={"O": shared[:2], "S": shared[2:]})
        np.testing.assert_array_equal(shared, [2, 4, 3])

    def test_rows_of_another_width(self, tmp_path: Path) -> None:
        k = cora.Dim("k", 4)
        X = cora.placeholder("X", [batch, pos, k])
        own = cora.build(cora.compute("O", [batch, pos, k], X[batch, pos, k] + 1), settings=UNCACHED)
        program = loaded(tmp_path, own)
        assert program(X=np.zeros((3, 4), np.float32), lens=[3]).shape == (3, 4)
        assert program(X=np.zeros((0, 4), np.float32), lens=[]).shape == (0, 4)
        with refused(r"'X': expected the shape \(3, 4\) on this batch; got \(4, 3\)"):
            program(X=np.zeros((4, 3), np.float32), lens=[3])


class TestFolder:
    def test_its_files(self, tmp_path: Path) -> None:
        path = cora.deploy(
            tmp_path / "a" / "b", kernel("scale"), name="scale", about={"factor": 2}, runtime=True
        )
        assert path == tmp_path / "a" / "b" / "manifest.json"
        data = json.loads(path.read_text())
        (library,) = path.parent.glob("scale-*.so")
        assert data["kernels"]["scale"]["library"] == library.name
        assert data["about"] == {"factor": 2}
        names = {"manifest.json", "cora_deploy.py", "libtvm_runtime.so", library.name}
        assert {p.name for p in path.parent.iterdir()} == names
        assert (path.parent / "cora_deploy.py").read_text() == Path(cora_deploy.__file__).read_text()
        assert cora.load(library)(rows([1], [2])).to_list() == [[2], [4]]

    def test_writing_again_replaces_the_program(self, tmp_path: Path) -> None:
        first = loaded(tmp_path, {"k": kernel("scale")}, [KernelCall("k", {"A": "x", "O": "y"})])
        (tmp_path / "mine.so").write_bytes(b"not of the program")
        second = loaded(tmp_path, {"k": kernel("positions")}, [KernelCall("k", {"O": "y"})])
        assert len(list(tmp_path.glob("k-*.so"))) == 1
        assert (tmp_path / "mine.so").exists()
        assert first(x=np.float32([1, 2]), lens=[2]).tolist() == [2, 4]
        assert second(lens=[3]).tolist() == [0, 1, 2]

    def test_another_manifest_cannot_remove_files_elsewhere(self, tmp_path: Path) -> None:
        folder, other = tmp_path / "lib", tmp_path / "other.so"
        path = cora.deploy(folder, kernel("scale"))
        data = json.loads(path.read_text())
        data["kernels"]["program"]["library"] = "../other.so"
        path.write_text(json.dumps(data))
        other.write_bytes(b"")
        cora.deploy(folder, kernel("triple"))
        assert other.exists()

    def test_folders_that_cannot_be_loaded(self, tmp_path: Path) -> None:
        with refused("no manifest"):
            cora_deploy.load(tmp_path)
        path = cora.deploy(tmp_path, kernel("scale"))
        good = json.loads(path.read_text())

        def load_with(**changes: Any) -> None:
            path.write_text(json.dumps({**good, **changes}))
            cora_deploy.load(tmp_path)

        with refused("expected a manifest of format 1"):
            load_with(format=2)
        with refused("the code is for riscv64; this machine is"):
            load_with(target={**good["target"], "arch": "riscv64"})
        with refused("needs a processor with avx1024, which this one lacks"):
            load_with(target={**good["target"], "needs": ["avx1024"]})
        path.write_text("{")
        with refused("no manifest"):
            cora_deploy.load(tmp_path)
        path.write_text(json.dumps(good))
        (library,) = tmp_path.glob("program-*.so")
        content = library.read_bytes()
        library.unlink()
        with refused("cannot read"):
            cora_deploy.load(tmp_path)
        library.write_bytes(content[:-1])
        with refused("is not the file of the manifest"):
            cora_deploy.load(tmp_path)

    def test_folders_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(cora.UserError, match="deploy: cannot write"):
            cora.deploy(tmp_path / "file", kernel("scale"))

    def test_what_cannot_be_told(self, tmp_path: Path) -> None:
        with pytest.raises(cora.UserError, match="deploy: about: expected what JSON can hold"):
            cora.deploy(tmp_path / "lib", kernel("scale"), about={"weights": np.zeros(1)})
        assert not (tmp_path / "lib").exists()

    def test_kernels_without_a_library(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build_module, "find_linker", lambda: None)
        with pytest.raises(cora.UnsupportedError, match="deploy: no linker was found"):
            cora.deploy(tmp_path, cora.build(scaled(5), settings=UNCACHED))
        assert not (tmp_path / "manifest.json").exists()

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            ("cuda|sm_80|||", "is for CUDA"),
            ("riscv64|native||", "the kernels are for different processors: "),
        ],
    )
    def test_kernels_for_something_else(
        self, target: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = cora.build(scaled(3), settings=UNCACHED)
        monkeypatch.setattr(other, "artifact", replace(other.artifact, target=target))
        calls = [KernelCall("scale", {"A": "x", "O": "t"}), KernelCall("other", {"A": "t", "O": "y"})]
        with pytest.raises(cora.CoraError, match=message):
            cora.deploy(tmp_path, {"scale": kernel("scale"), "other": other}, calls)

    def test_a_folder_may_be_moved(self, tmp_path: Path) -> None:
        cora.deploy(tmp_path / "a", kernel("scale"))
        shutil.move(tmp_path / "a", tmp_path / "b")
        assert cora_deploy.load(tmp_path / "b")(A=np.float32([1]), lens=[1]).tolist() == [2]

    def test_tensors_in_another_order_are_flat(self, tmp_path: Path) -> None:
        k = cora.Dim("k", 3)
        X = cora.placeholder("X", [n, k])
        own = cora.build(
            cora.schedule(cora.compute("O", [n, k], X[n, k] + 1)).reorder_dims("X", "k", "n"),
            settings=UNCACHED,
        )
        program = loaded(tmp_path, own)
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        assert (program(X=np.ascontiguousarray(x.T).reshape(-1), N=2) == x + 1).all()
        with refused(r"'X': expected flat values, stored as \[k: 3\]\[n: N\]"):
            program(X=x, N=2)


def layouts() -> dict[str, cora.Layout]:
    """Layouts of a dense tensor of 7 x 10 x 3 elements that are not the order of its indices."""
    dims = [cora.Dim("a", 7), cora.Dim("b", cora.size("B")), cora.Dim("c", 3)]
    plain = cora.Layout.packed(dims)
    panels = plain.with_split("b", 4, "bo", "bi")
    return {
        "padded": plain.with_pad("b", 8).with_pad("a", 2),
        "reordered": plain.with_order(["c", "a", "b"]),
        "panels": panels.with_order(["bo", "a", "c", "bi"]),
        "padded blocks": panels.with_pad("b", 3)
        .with_pad("bo", 2)
        .with_pad("bi", 5)
        .with_order(["bo", "bi", "c", "a"]),
        "blocks of blocks": panels.with_split("bo", 2, "boo", "boi").with_order(
            ["boo", "c", "boi", "a", "bi"]
        ),
        "fused": plain.with_order(["a", "c", "b"])
        .with_fused("a", "c", "ac")
        .with_pad("ac", 4)
        .with_order(["ac", "b"]),
        "fused after padding": plain.with_pad("b", 4).with_fused("a", "b", "ab").with_order(["c", "ab"]),
        "split after fused": plain.with_fused("b", "c", "bc")
        .with_split("bc", 8, "x", "y")
        .with_order(["x", "a", "y"]),
    }


class TestPacking:
    @pytest.mark.parametrize("name", layouts())
    @pytest.mark.parametrize("size", [10, 8, 1, 0])
    def test_as_cora_lays_it_out(self, name: str, size: int) -> None:
        layout = layouts()[name]
        dense = np.random.default_rng(0).standard_normal((7, size, 3), np.float32)
        own = cora.RaggedArray.from_padded(dense, layout, {}, {"B": size}).values
        np.testing.assert_array_equal(cora_deploy._packed(dense, manifest._pack(layout)), own)

    def test_weights_in_panels(self, tmp_path: Path) -> None:
        recipe = cora.kernels.RECIPES["linear"]
        blocking = Blocking(rows=6, columns=64, column_block=512)
        own = recipe.build(definition={"features_in": 5, "features_out": 70}, schedule={"blocking": blocking})
        program = loaded(tmp_path, own)
        rng = np.random.default_rng(0)
        X, W = rng.standard_normal((8, 5), np.float32), rng.standard_normal((5, 70), np.float32)
        packed = program.pack(W=W)
        assert packed["W"].shape == (5 * 128,)
        expected = own(X=X, W=cora.ragged(W, own.layout("W")), lens=[3, 5]).values
        np.testing.assert_array_equal(program(X=X, **packed, lens=[3, 5]), expected.reshape(8, 70))
        with refused(
            r"'W': expected flat values, .*; got shape \(5, 70\): pack it once, with pack\(W=array\)"
        ):
            program(X=X, W=W, lens=[3, 5])
        with refused(r"pack: 'W': expected the shape \(5, 70\); got \(70, 5\)"):
            program.pack(W=W.T)
        with refused("pack: 'X' is no dense array"):
            program.pack(X=X)
        with refused("'W': expected values of type float32; got float64"):
            program.pack(W=W.astype(np.float64))

    def test_what_is_in_order_is_not_copied(self, tmp_path: Path) -> None:
        program = loaded(tmp_path, kernel("dense"))
        table = np.zeros(3, np.float32)
        assert program.pack(T=table)["T"] is table


class TestProgramsThatAreRefused:
    @pytest.mark.parametrize(
        ("calls", "message"),
        [
            ([], "expected at least one call"),
            ([("double", {"A": "x", "O": "y"})], "no kernel 'double'; there are scale, gather"),
            ([("scale", {"A": "x"})], "call of 'scale': expected arrays for A, O; got some for A"),
            ([("scale", {"A": "x", "O": "y", "P": "z"})], "got some for A, O, P"),
            ([("scale", {"A": "x", "O": "x"})], "array 'x' is written after it was read"),
            (
                [("scale", {"A": "x", "O": "y"})] * 2,
                "array 'y' is written after it was read or written before",
            ),
            (
                [("scale", {"A": "x", "O": "y"}), ("scale", {"A": "y", "O": "x"})],
                "array 'x' is written after it was read",
            ),
            ([("scale", {"A": "lens", "O": "y"})], "array 'lens': expected an identifier"),
            ([("scale", {"A": "outputs", "O": "y"})], "array 'outputs': expected an identifier"),
            ([("scale", {"A": "a b", "O": "y"})], "array 'a b': expected an identifier"),
            ([("gather", {"T": "x", "I": "x", "O": "y"})], "'T' is of type float32, 'I' of int32"),
        ],
    )
    def test_calls(self, calls: list[tuple[str, dict[str, str]]], message: str, tmp_path: Path) -> None:
        kernels = {"scale": kernel("scale"), "gather": kernel("gather")}
        with pytest.raises(cora.UserError, match=message):
            cora.deploy(tmp_path, kernels, [KernelCall(*call) for call in calls])
        assert not list(tmp_path.iterdir())

    def test_layouts_that_do_not_fit(self, tmp_path: Path) -> None:
        calls = [KernelCall("first", {"A": "x", "O": "t"}), KernelCall("scale", {"A": "t", "O": "y"})]
        with pytest.raises(cora.UserError, match=r"array 't': 'O' has the layout .* padded to 64\], 'A' has"):
            cora.deploy(tmp_path, {"first": kernel("first"), "scale": kernel("scale")}, calls)

    def test_arrays_of_other_sizes(self, tmp_path: Path) -> None:
        other = cora.build(cora.compute("O", [n], cora.placeholder("T", [n])[n] + 1), settings=UNCACHED)
        calls = [KernelCall("scale", {"A": "x", "O": "t"}), KernelCall("other", {"T": "t", "O": "y"})]
        program = loaded(tmp_path, {"scale": kernel("scale"), "other": other}, calls)
        assert program(x=np.float32([1, 2]), lens=[2], N=2).tolist() == [3, 5]
        with refused("'t' has 2 elements, and 3 in"):
            program(x=np.float32([1, 2]), lens=[2], N=3)


class TestTheLoader:
    def test_it_knows_the_codes_of_the_prelude(self) -> None:
        assert cora_deploy.PER_TABLE == status.PER_TABLE
        assert (cora_deploy.NO_ROOM, cora_deploy.WRONG_COUNT) == (status.NO_ROOM, status.WRONG_COUNT)
        known = {status.OVERFLOW, status.ZERO_DIVISION, status.TOO_LARGE, status.FACT_VIOLATED}
        assert set(cora_deploy.FAULTS) == known
        assert cora_deploy.FORMAT == manifest.FORMAT
        assert cora_deploy.__file__ == str(write.LOADER)

    def test_it_imports_numpy_and_the_ffi_alone(self) -> None:
        names = set()
        for node in ast.walk(ast.parse(Path(cora_deploy.__file__).read_text())):
            match node:
                case ast.Import(names=found):
                    names |= {alias.name.partition(".")[0] for alias in found}
                case ast.ImportFrom(module=str(module), level=0):
                    names.add(module.partition(".")[0])
        assert names - set(sys.stdlib_module_names) == {"numpy", "tvm_ffi"}

    def test_numbers_that_do_not_fit(self, tmp_path: Path) -> None:
        program = loaded(tmp_path, kernel("chain"))
        with refused(rf"'A': expected the shape \({2**20 * LARGEST},\) on this batch; got \(1,\)"):
            program(A=np.zeros(1, np.float32), lens=np.full(2**20, LARGEST), threads=1)
        a = np.float32([1, 2])
        assert program(A=a, lens=[2]).tolist() == [4, 5]

    def test_one_run_time_for_several_folders(self, tmp_path: Path) -> None:
        """Also where this process has one already, as here: two would end it."""
        programs = [loaded(tmp_path / name, kernel(name), runtime=True) for name in ("scale", "triple")]
        assert [program(A=np.float32([1]), lens=[1]).tolist() for program in programs] == [[2], [3]]

    def test_a_run_time_that_is_not_there(self, tmp_path: Path) -> None:
        cora.deploy(tmp_path, kernel("scale"))
        program = "import sys; import cora_deploy; cora_deploy.load('.', runtime='none.so')"
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "DeployError: TVM's run time was not found" in done.stderr
