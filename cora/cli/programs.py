"""What `python -m cora build` can build: programs by name, and their parameters."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import cora
from cora.errors import UserError
from cora.kernels import RECIPES, LayerConfig, Recipe, deploy_attention, deploy_encoder
from cora.kernels.triangular import Triangle


@dataclass(frozen=True, slots=True)
class Parameter:
    """kind: int, float, bool or str. default: None where it is required, or follows from others (`optional`)."""

    kind: type
    default: int | float | bool | str | None = None
    optional: bool = False

    @property
    def required(self) -> bool:
        """Whether there is no program without it."""
        return self.default is None and not self.optional

    def describe(self, name: str) -> str:
        """The parameter as it is given: name=default, or its kind where there is none."""
        if self.default is None:
            return f"[{name}={self.kind.__name__}]" if self.optional else f"{name}={self.kind.__name__}"
        return f"{name}={self.default if self.kind is str else json.dumps(self.default)}"


@dataclass(frozen=True, slots=True)
class Program:
    """Something to build. write: takes a folder, `target`, `runtime` and the parameters; gives the manifest's path."""

    name: str
    summary: str
    parameters: Mapping[str, Parameter]
    write: Callable[..., Path]


def programs() -> dict[str, Program]:
    """All programs by name: the encoder layer, attention, and the recipes of the library."""
    found = [
        Program(
            "encoder",
            "a transformer encoder layer on packed tokens",
            {
                "hidden": Parameter(int, 512),
                "heads": Parameter(int, 8),
                "inner": Parameter(int, 2048),
                "activation": Parameter(str, "gelu"),
                "norm": Parameter(str, "post"),
                "epsilon": Parameter(float, 1e-5),
            },
            _write_encoder,
        ),
        Program(
            "attention",
            "attention of ragged sequences",
            {
                "heads": Parameter(int, 8),
                "head_size": Parameter(int, 64),
                "kv_heads": Parameter(int, optional=True),
                "value_size": Parameter(int, optional=True),
                "causal": Parameter(str, "no"),
                "window": Parameter(int, optional=True),
                "scale": Parameter(float, optional=True),
                "one_length": Parameter(bool, True),
                "lse": Parameter(bool, False),
            },
            deploy_attention,
        ),
    ]
    own = {program.name: program for program in found}
    others = (r for r in RECIPES.values() if r.variants.get("llvm") and r.name not in own)
    return own | {recipe.name: _of_recipe(recipe) for recipe in others}


def find(name: str) -> Program:
    """The program of a name; UserError if there is none."""
    known = programs()
    if name not in known:
        raise UserError(f"build: no program '{name}'; expected one of {', '.join(known)}")
    return known[name]


def arguments(program: Program, given: Sequence[str]) -> dict[str, Any]:
    """The values of all parameters, from texts `name=value`.

    Raises UserError for a name that the program lacks or that comes twice, a value of another type, and one missing.
    """
    values: dict[str, Any] = {}
    where = f"build {program.name}"
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in program.parameters:
            known = ", ".join(program.parameters)
            raise UserError(f"{where}: expected name=value, with a name of {known}; got {text!r}")
        if name in values:
            raise UserError(f"{where}: '{name}' is given twice")
        values[name] = _value(f"{where}: {name}", program.parameters[name], value)
    for name, parameter in program.parameters.items():
        if name not in values and parameter.required:
            raise UserError(f"{where}: {parameter.describe(name)} is missing")
        values.setdefault(name, parameter.default)
    return values


def _value(where: str, parameter: Parameter, text: str) -> Any:
    """The value of a text: texts as they are, others as JSON; whole numbers are floats, too."""
    if parameter.kind is str:
        return text
    wanted = UserError(f"{where}: expected a value of type {parameter.kind.__name__}; got {text!r}")
    try:
        value = json.loads(text)
    except ValueError:
        raise wanted from None
    if parameter.kind is float and type(value) is int:
        return float(value)
    if type(value) is not parameter.kind:
        raise wanted
    return value


def _write_encoder(folder: Path, *, target: Any, runtime: bool, **parameters: Any) -> Path:
    return deploy_encoder(folder, LayerConfig(**parameters), target=target, runtime=runtime)


def _of_recipe(recipe: Recipe) -> Program:
    """The parameters of a recipe are those of its definition, and the name of its schedule."""

    def write(folder: Path, *, target: Any, runtime: bool, variant: str, **given: Any) -> Path:
        choices: dict[str, Any] = {}
        if "triangle" in inspect.signature(recipe.variant(name=variant).make).parameters:
            choices["triangle"] = Triangle(**{field.name: given[field.name] for field in fields(Triangle)})
        kernel = cora.build(
            recipe.schedule(recipe.define(**given), variant=variant, **choices), target=target
        )
        about = {**given, "variant": variant}
        return cora.deploy(folder, kernel, name=recipe.name, about=about, runtime=runtime)

    kinds = {"int": int, "float": float, "bool": bool, "str": str}
    parameters = {
        name: Parameter(kinds[str(p.annotation)], None if p.default is p.empty else p.default)
        for name, p in inspect.signature(recipe.define).parameters.items()
    }
    first = next(iter(recipe.variants["llvm"]))
    return Program(recipe.name, recipe.summary, {**parameters, "variant": Parameter(str, first)}, write)
