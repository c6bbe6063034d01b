"""`python -m cora build`: what it lists, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import cora
from cora.cli.app import application
from cora.cli.programs import programs
from cora.kernels import vgemm
from cora.runtime.deploy import cora_deploy

SMALL = ("hidden=24", "heads=2", "inner=40")


def run(*arguments: object) -> str:
    """The output of `python -m cora build`."""
    result = CliRunner(env={"COLUMNS": "200"}).invoke(
        application(), ["build", *map(str, arguments)], catch_exceptions=False, prog_name="cora"
    )
    assert result.exit_code == 0, result.output
    return result.output


def test_list_names_programs_and_parameters() -> None:
    text = run("--list")
    for name, program in programs().items():
        assert name in text
        for parameter in program.parameters:
            assert parameter in text
    assert "[kv_heads=int]" in text


def test_the_defaults_are_the_layer_of_the_paper() -> None:
    defaults = {name: p.default for name, p in programs()["encoder"].parameters.items()}
    assert (defaults["hidden"], defaults["heads"], defaults["inner"]) == (512, 8, 2048)


def test_an_encoder(tmp_path: Path) -> None:
    text = run("encoder", *SMALL, "norm=pre", "--out", tmp_path / "lib", "--runtime")
    assert "calls: normed -> qkv -> attended -> projected -> normed -> inner -> outer" in text
    data = json.loads((tmp_path / "lib" / "manifest.json").read_text())
    assert (data["about"]["hidden"], data["about"]["norm"], data["about"]["activation"]) == (
        24,
        "pre",
        "gelu",
    )
    for kernel in data["kernels"].values():
        assert kernel["library"] in text
    assert (tmp_path / "lib" / "libtvm_runtime.so").exists()


def test_an_older_processor(tmp_path: Path) -> None:
    cpu = "x86-64-v2" if json.loads(_manifest(tmp_path / "here"))["target"]["arch"] == "x86_64" else "generic"
    data = json.loads(_manifest(tmp_path / "older", "--cpu", cpu))
    assert data["target"]["cpu"] == cpu
    assert not {"avx2", "avx512f", "dotprod"} & set(data["target"]["needs"])


def _manifest(folder: Path, *more: str) -> str:
    run("tradd", "--out", folder, *more)
    return (folder / "manifest.json").read_text()


def test_a_recipe_runs(tmp_path: Path) -> None:
    run("vgemm", "variant=generated", "bias=true", "--out", tmp_path)
    program = cora_deploy.load(tmp_path)
    assert program.about == {
        "alpha": False,
        "beta": False,
        "bias": True,
        "activation": "none",
        "variant": "generated",
    }
    m, n, k = [3, 0, 5], [2, 4, 7], [6, 1, 0]
    rng = np.random.default_rng(0)
    a = rng.standard_normal(int(np.dot(m, k)), np.float32)
    b = rng.standard_normal(int(np.dot(k, n)), np.float32)
    bias = rng.standard_normal(sum(n), np.float32)
    kernel = cora.build(cora.schedule(vgemm(bias=True)))
    named = dict(zip(kernel.inputs, (a, b, bias), strict=True))
    expected = kernel(**named, m=m, n=n, k=k)
    np.testing.assert_allclose(program(**named, m=m, n=n, k=k), expected.values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("unit", ["true", "false"])
@pytest.mark.parametrize("storage", ["dense", "packed"])
def test_triangles(side: str, unit: str, storage: str, tmp_path: Path) -> None:
    run("trmm", f"side={side}", f"unit={unit}", f"storage={storage}", "uplo=upper", "--out", tmp_path)
    program = cora_deploy.load(tmp_path)
    rng = np.random.default_rng(0)
    T = rng.standard_normal((70, 70), np.float32)
    B = rng.standard_normal((70, 9) if side == "left" else (9, 70), np.float32)
    upper = np.triu(T, 1) + np.eye(70) if unit == "true" else np.triu(T)
    given = T if storage == "dense" else T[~np.tri(70, k=-1, dtype=bool)]
    sizes = {} if storage == "dense" else {"n": 70}
    expected = upper @ B if side == "left" else B @ upper
    np.testing.assert_allclose(program(T=given, B=B, **sizes), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("encoder",), "expected a program and --out FOLDER"),
        (("--out", "lib"), "expected a program and --out FOLDER"),
        (("decoder", "--out", "lib"), "no program 'decoder'; expected one of encoder, attention, vgemm"),
        (
            ("encoder", "hidn=3", "--out", "lib"),
            "expected name=value, with a name of hidden, .*; got 'hidn=3'",
        ),
        (("encoder", "hidden", "--out", "lib"), "expected name=value"),
        (("encoder", "hidden=8", "hidden=8", "--out", "lib"), "'hidden' is given twice"),
        (("encoder", "hidden=8.5", "--out", "lib"), "hidden: expected a value of type int; got '8.5'"),
        (("encoder", "hidden=true", "--out", "lib"), "hidden: expected a value of type int; got 'true'"),
        (("encoder", "hidden=", "--out", "lib"), "hidden: expected a value of type int; got ''"),
        (("encoder", "hidden=9", "--out", "lib"), "hidden must be a multiple of heads"),
        (("encoder", "norm=none", "--out", "lib"), "norm: expected 'post' or 'pre'; got 'none'"),
        (("attention", "causal=yes", "--out", "lib"), "causal: expected 'no', "),
        (("attention", "scale=wide", "--out", "lib"), "scale: expected a value of type float; got 'wide'"),
        (("linear", "--out", "lib"), "build linear: features_in=int is missing"),
        (("vgemm", "variant=best", "--out", "lib"), "no schedule 'best' for 'llvm'"),
    ],
)
def test_what_is_refused(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(cora.UserError, match=message):
        run(*arguments)
    assert not (tmp_path / "lib").exists()


def test_whole_numbers_are_floats(tmp_path: Path) -> None:
    run("attention", "heads=1", "head_size=8", "scale=1", "--out", tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text())["about"]["scale"] == 1.0
