"""Schedules that are made only where the cache does not have their kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import cora
from cora.kernels import RECIPES, Recipe
from cora.kernels.registry import Variant
from tests.runtime.programs import rows

a = rows([1, 2, 3], [4], [])


def times(factor: float) -> cora.Tensor:
    batch = cora.Dim("batch", cora.size("M"))
    pos = cora.Dim("pos", cora.lengths("lens", batch)[batch])
    X = cora.placeholder("X", [batch, pos])
    return cora.compute("Y", [batch, pos], factor * X[batch, pos])


class Maker:
    """Makes a schedule, and counts how often it was asked to."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.made = 0

    def __call__(self) -> cora.Schedule:
        self.made += 1
        return cora.schedule(times(self.factor))

    def build(self, folder: Path, *key: object, **settings: Any) -> list[list[float]]:
        given = cora.Settings(cache_dir=folder, **settings)
        return cora.build(cora.Deferred(key, self), settings=given)(a).to_list()


DOUBLED, TRIPLED = [[2, 4, 6], [8], []], [[3, 6, 9], [12], []]


def test_a_schedule_is_made_once_for_a_key(tmp_path: Path) -> None:
    make = Maker(2.0)
    assert [make.build(tmp_path, "times", 2.0) for _ in range(3)] == [DOUBLED] * 3
    assert make.made == 1


def test_keys_that_differ_are_different_programs(tmp_path: Path) -> None:
    double, triple = Maker(2.0), Maker(3.0)
    assert double.build(tmp_path, "times", 2.0) == DOUBLED
    assert triple.build(tmp_path, "times", 3.0) == TRIPLED
    assert double.build(tmp_path, "times", 2) == DOUBLED
    assert (double.made, triple.made) == (2, 1)


def test_settings_are_part_of_the_key(tmp_path: Path) -> None:
    make = Maker(2.0)
    for guards in ("prove", "keep"):
        assert make.build(tmp_path, "times", guards=guards) == DOUBLED
    assert make.made == 2


def test_what_a_key_does_not_say_is_made(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Choice:
        function: Callable[[], None]

    make = Maker(2.0)
    for key in (object(), print, {"f": len}, (1, [lambda: 0]), Choice(test_what_a_key_does_not_say_is_made)):
        before = make.made
        assert [make.build(tmp_path, key) for _ in range(2)] == [DOUBLED] * 2
        assert make.made == before + 2


def test_a_deferred_schedule_finds_the_kernel_of_one_that_was_made(tmp_path: Path) -> None:
    settings = cora.Settings(cache_dir=tmp_path)
    cora.build(cora.schedule(times(2.0)), settings=settings)
    libraries = list(tmp_path.glob("*.so"))
    make = Maker(2.0)
    assert [make.build(tmp_path, "times") for _ in range(2)] == [DOUBLED] * 2
    assert make.made == 1
    assert list(tmp_path.glob("*.so")) == libraries


def test_the_source_is_made_when_it_is_asked_for(tmp_path: Path) -> None:
    settings = cora.Settings(cache_dir=tmp_path)
    first, second = Maker(2.0), Maker(2.0)
    text = cora.build(cora.Deferred(("times",), first), settings=settings).source("ll")
    kernel = cora.build(cora.Deferred(("times",), second), settings=settings)
    assert second.made == 0
    assert kernel.source("ll") == text
    assert second.made == 1


def test_without_a_cache_the_schedule_is_made() -> None:
    make = Maker(2.0)
    for _ in range(2):
        assert (
            cora.build(cora.Deferred(("times",), make), settings=cora.Settings(cache=False))(a).to_list()
            == DOUBLED
        )
    assert make.made == 2


def test_what_makes_no_schedule_is_refused(tmp_path: Path) -> None:
    wrong: Any = lambda: times(2.0)  # noqa: E731
    with pytest.raises(cora.UserError, match="expected a deferred schedule; got Tensor"):
        cora.build(cora.Deferred(("wrong",), wrong), settings=cora.Settings(cache_dir=tmp_path))


def test_recipes_of_the_library_are_known_by_their_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, settings = RECIPES["tradd"], cora.Settings(cache_dir=tmp_path)
    source = recipe.build(settings=settings).source("ll")
    with monkeypatch.context() as patched:
        patched.setattr(cora.Schedule, "then", lambda *_: pytest.fail("a schedule was made"))
        kernel = recipe.build(settings=settings)
    assert kernel.source("ll") == source


def test_recipes_of_others_are_not(tmp_path: Path) -> None:
    """The name of a function says nothing about its code where that is not part of the key."""
    settings = cora.Settings(cache_dir=tmp_path)
    results = []
    for factor in (2.0, 3.0):
        maker = Maker(factor)
        variants = MappingProxyType({"plain": Variant(cora.schedule, "as defined")})
        recipe = Recipe(
            "times", "", lambda made=maker: times(made.factor), MappingProxyType({"llvm": variants})
        )
        results.append(recipe.build(settings=settings)(a).to_list())
    assert results == [DOUBLED, TRIPLED]


FACTOR = [2.0]


def by_factor() -> cora.Tensor:
    return times(FACTOR[0])


def test_the_name_of_a_function_of_others_says_nothing(tmp_path: Path) -> None:
    """Neither that of a module that is not cora's, nor one that several functions have."""
    settings = cora.Settings(cache_dir=tmp_path)
    variants = MappingProxyType({"llvm": MappingProxyType({"plain": Variant(cora.schedule, "as defined")})})
    anonymous = [lambda made=factor: times(made) for factor in (2.0, 3.0)]
    for function in anonymous:
        function.__module__ = "cora.kernels.made_up"
    results = []
    for factor, function in zip((2.0, 3.0), anonymous, strict=True):
        FACTOR[0] = factor
        for define in (by_factor, function):
            results.append(Recipe("times", "", define, variants).build(settings=settings)(a).to_list())
    assert results == [DOUBLED, DOUBLED, TRIPLED, TRIPLED]
