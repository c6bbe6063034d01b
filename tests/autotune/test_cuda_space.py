"""Candidates for GPUs: legal, different from one another, each next to others of the space."""

from __future__ import annotations

from typing import Any

import pytest

import cora
from cora.autotune.spaces.cuda import cuda_space
from cora.autotune.spaces.lookup import space_of
from cora.kernels import RECIPES
from cora.lower.pipeline import lower

USES: dict[str, tuple[dict[str, Any], frozenset[str]]] = {
    "vgemm": ({}, frozenset({"library:tiles"})),
    "linear": ({"features_in": 64, "features_out": 128}, frozenset({"library:tiles"})),
    "trmm": ({}, frozenset({"library:tiled", "library:tiled_small", "library:rows"})),
    "tradd": ({}, frozenset({"library:flat"})),
}


@pytest.mark.parametrize("name", USES)
def test_candidates(name: str) -> None:
    definition, library = USES[name]
    outputs = (RECIPES[name].define(**definition),)
    space = cuda_space(outputs, name)
    ids = [c.id for c in space.candidates]
    assert ids[0] == "default"
    assert library <= set(ids)
    assert len(set(ids)) == len({c.steps for c in space.candidates}) == len(ids)
    for candidate in space.candidates:
        assert all(other.id in ids and other.id != candidate.id for other in space.neighbors(candidate.id))
    for candidate in (*space.candidates[:3], space.candidates[-1]):
        lower(candidate.schedule(outputs), cora.Settings(), gpu=True)


def test_tensor_cores_are_for_16_bits() -> None:
    wide = RECIPES["linear"].define(features_in=64, features_out=128)
    half = RECIPES["linear"].define(features_in=64, features_out=128, dtype="bfloat16")
    assert "library:tensor_cores" not in [c.id for c in cuda_space((wide,), "linear").candidates]
    assert "library:tensor_cores" in [c.id for c in cuda_space((half,), "linear").candidates]


def test_the_target_chooses_the_space() -> None:
    outputs = (RECIPES["trmm"].define(),)
    on_gpu = {c.id for c in space_of(outputs, "trmm", target={"kind": "cuda", "arch": "sm_90"}).candidates}
    assert "library:rows" in on_gpu
    assert not any(id.startswith("library:tiled_fine") for id in on_gpu)
    assert any(c.id == "library:tiled_fine" for c in space_of(outputs, "trmm").candidates)


def test_a_program_that_is_not_of_the_library_and_a_limit() -> None:
    batch = cora.Dim("batch", cora.size("M"))
    X = cora.placeholder("X", [batch])
    assert [c.id for c in cuda_space((cora.compute("Y", [batch], X[batch] + 1),)).candidates] == ["default"]
    assert len(cuda_space((RECIPES["trmm"].define(),), "trmm", limit=3).candidates) == 3
