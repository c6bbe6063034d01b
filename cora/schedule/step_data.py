"""Steps as plain JSON data, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

from cora.errors import UserError
from cora.schedule.steps import Step

_BY_NAME = {kind.__name__: kind for kind in get_args(Step)}


def to_data(step: Step) -> dict[str, Any]:
    """`step` as plain JSON data: its fields, and its kind under "step"."""
    data: dict[str, Any] = {"step": type(step).__name__}
    for field in fields(step):
        value = getattr(step, field.name)
        data[field.name] = list(value) if isinstance(value, tuple) else value
    return data


def from_data(data: dict[str, Any]) -> Step:
    """The step that `to_data` wrote; UserError if `data` is not one."""
    kind = _BY_NAME.get(str(data.get("step")))
    if kind is None:
        raise UserError(f"schedule step: expected one of {', '.join(_BY_NAME)}; got {data.get('step')!r}")
    names = {field.name: field.type for field in fields(kind)}
    given = {k: v for k, v in data.items() if k != "step"}
    if set(given) != set(names):
        raise UserError(f"{kind.__name__}: expected the fields {', '.join(names)}; got {', '.join(given)}")
    for name, value in given.items():
        kinds = {"str": str, "int": int, "bool": bool, "tuple[str, ...]": list}
        expected = kinds.get(str(names[name]), str)
        if type(value) is not expected:
            raise UserError(f"{kind.__name__}.{name}: expected {expected.__name__}; got {value!r}")
        if isinstance(value, list) and not all(isinstance(v, str) for v in value):
            raise UserError(f"{kind.__name__}.{name}: expected a list of str; got {value!r}")
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    step: Step = kind(**plain)
    return step
