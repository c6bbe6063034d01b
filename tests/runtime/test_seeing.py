"""What a kernel tells about itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cora
from tests.runtime.programs import UNCACHED, A, B, I, batch, first_program, kernel, pos, scaled


class TestExplain:
    def test_first_program(self) -> None:
        text = kernel("first").explain()
        for title in ("definition", "schedule", "loops", "guards", "storage", "auxiliary arrays"):
            assert f"\n{title}:\n" in text
        assert "waste" not in text
        assert all(repr(step) in text for step in first_program().steps)
        assert "O[batch: M][pos: lens[batch] padded to 64]" in text

    def test_every_guard_is_told_with_its_argument(self) -> None:
        for name in ("first", "scale", "add", "gather", "chain"):
            k = kernel(name)
            text = k.explain()
            for guard in k.artifact.guards:
                assert str(guard) in text, name

    def test_a_kept_guard_comes_with_its_counterexample(self) -> None:
        kept = [g for g in kernel("first").artifact.guards if g.kept]
        assert [(g.where, g.method) for g in kept] == [("load A.pos", "counterexample")]
        found = re.search(r"false for lens=\[([\d, ]+)\], M=(\d+), fo=(\d+), fi=(\d+)", kept[0].reason)
        assert found is not None
        lengths = [int(x) for x in found[1].split(",")]
        size, fo, fi = map(int, found.groups()[1:])
        assert size == len(lengths)
        padded = [(row, i) for row, n in enumerate(lengths) for i in range(-(-n // 32) * 32)]
        row, inner = padded[fo * 32]
        assert inner + fi >= lengths[row]

    def test_with_a_plan(self) -> None:
        plan = cora.plan(kernel("first"), lens=[3, 1, 0], threads=2)
        text = kernel("first").explain(plan)
        assert text.startswith(kernel("first").explain().split("auxiliary arrays:")[0])
        assert "Plan(kernel_O; M=3; threads=2)" in text
        assert f"waste:\n  {kernel('first').waste(plan)}" in text
        assert re.search(r"ffo.* = 64 entries", text)


class TestWaste:
    def test_first_program(self) -> None:
        """Rows of 3, 1 and 0: loops padded to 32 + 32 + 0, storage to 64 + 64 + 0."""
        waste = kernel("first").waste(cora.plan(kernel("first"), lens=[3, 1, 0]))
        assert (waste.executed_flops, waste.useful_flops) == (64, 4)
        assert (waste.stored_bytes, waste.useful_bytes) == (4 * (4 + 128), 4 * (4 + 4))
        assert (waste.flops_ratio, waste.bytes_ratio) == (16.0, 16.5)
        assert str(waste) == ("FLOPs executed 64 / useful 4 = 16.000; bytes stored 528 / useful 32 = 16.500")

    def test_reduction_split_by_four(self) -> None:
        """One addition and one multiplication each; rows of 3, 1, 0, 5 run as 4, 4, 0, 8."""
        S = cora.compute("S", [batch], cora.sum(A[batch, pos] * B[batch, pos], over=pos))
        k = cora.build(cora.schedule(S).split(S, pos, 4), settings=UNCACHED)
        waste = k.waste(cora.plan(k, lens=[3, 1, 0, 5]))
        assert (waste.executed_flops, waste.useful_flops) == (2 * 16, 2 * 9)
        assert waste.stored_bytes == waste.useful_bytes == 4 * (9 + 9 + 4)

    def test_padded_to_the_longest(self) -> None:
        O = scaled(2)  # noqa: E741
        k = cora.build(cora.schedule(O).pad_dim(O, pos, to_max=True), settings=UNCACHED)
        waste = k.waste(cora.plan(k, lens=[3, 1, 0]))
        assert (waste.executed_flops, waste.useful_flops) == (4, 4)
        assert (waste.stored_bytes, waste.useful_bytes) == (4 * (4 + 9), 4 * (4 + 4))

    def test_nothing(self) -> None:
        waste = kernel("first").waste(cora.plan(kernel("first"), lens=[]))
        assert (waste.executed_flops, waste.useful_flops, waste.stored_bytes, waste.useful_bytes) == (
            0,
            0,
            0,
            0,
        )
        assert (waste.flops_ratio, waste.bytes_ratio) == (1.0, 1.0)


class TestStages:
    def test_ir(self) -> None:
        k = kernel("first")
        assert "O[batch, pos]: float32 = 2.0 * A[batch, pos]" in k.ir("definition")
        assert k.ir("schedule") == repr(first_program())
        for stage in ("loops", "tables", "hoisted", "lowered"):
            assert "# vectorize" in k.ir(stage)
            assert "# parallel" in k.ir(stage)
        assert "def kernel_O" in k.ir("tir")
        with pytest.raises(cora.UserError, match=r"ir: the stages are definition, .*tir; got 'x'"):
            k.ir("x")

    def test_source(self) -> None:
        assert "define" in kernel("first").source()
        assert "kernel_O" in kernel("first").source("asm")
        with pytest.raises(cora.UserError, match="source: kind must be 'll' or 'asm'; got 'c'"):
            kernel("first").source("c")

    def test_dump(self, tmp_path: Path) -> None:
        folder = tmp_path / "deep" / "stages"
        for given in (folder, str(folder)):
            k = cora.build(first_program(), settings=cora.Settings(cache=False, dump=given))  # type: ignore[arg-type]
            written = {path.name.split(".")[2]: path.read_text() for path in folder.iterdir()}
            assert set(written) == {*k.artifact.stages, "tir", "ll", "asm", "times"}
            names = [line.split()[0] for line in written["times"].splitlines()]
            assert names[:2] == ["lowering_ms", "proofs_ms"]
            assert names[-1] == "compiling_ms"
            assert "proofs_interval_ms" in names
            assert written["lowered"] == k.ir("lowered")
            assert written["asm"] == k.source("asm")

    def test_dump_comes_with_a_cached_kernel_too(self, tmp_path: Path) -> None:
        cora.build(scaled(2), settings=cora.Settings(cache_dir=tmp_path / "cache"))
        settings = cora.Settings(cache_dir=tmp_path / "cache", dump=tmp_path / "dump")
        cora.build(scaled(2), settings=settings)
        assert any((tmp_path / "dump").iterdir())


def test_repr() -> None:
    assert repr(kernel("gather")) == "Kernel kernel_O(T, I) -> O"
    assert repr(cora.plan(kernel("dense"), N=3, threads=1)) == "Plan(kernel_O; N=3; threads=1)"
    assert "RaggedArray I" in repr(cora.ragged([[1]], I))
