"""Looks a program up by name."""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from cora.autotune.batches import needs_of
from cora.errors import UserError
from cora.ir.tensor import Tensor

__all__ = ["Entry", "find", "names"]

#: Sequences in a batch that is made up, and the range of their lengths.
COUNT, SHORTEST, LONGEST = 24, 32, 256
SIZE = 128


@dataclass(frozen=True, slots=True)
class Entry:
    """name: as it was asked for, without a module. batches: lengths and sizes by name, one mapping each."""

    name: str
    outputs: tuple[Tensor, ...]
    batches: tuple[Any, ...]


def names() -> tuple[str, ...]:
    """The names of all entries."""
    found = {m.name for m in pkgutil.iter_modules([os.path.dirname(__file__)]) if m.name != "find"}
    return tuple(sorted(found))


def find(name: str) -> Entry:
    """The program called `name`: an entry of the catalogue, or `module:function` of the user's.

    The function takes nothing and gives the computed tensor, or several; a function `batches` beside it may give the
    batches to tune on, else some are made up. The module is looked for in the current folder, too.
    Raises UserError if there is no such program.
    """
    module, colon, function = name.partition(":")
    if not colon:
        if name not in names():
            raise UserError(
                f"tune: no operator {name!r}; there are {', '.join(names())}, and module:function for your own"
            )
        found, function = import_module(f"{__package__}.{name}"), "outputs"
    else:
        found = _imported(module)
    define: Callable[[], Tensor | Sequence[Tensor]] | None = getattr(found, function, None)
    if not callable(define):
        raise UserError(f"tune: module {module!r} has no function {function!r}")
    made = define()
    outputs = (made,) if isinstance(made, Tensor) else tuple(made)
    batches: Callable[[Sequence[Tensor]], Sequence[Any]] = getattr(found, "batches", made_up)
    return Entry(function if colon else name, outputs, tuple(batches(outputs)))


def _imported(module: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(f"tune: cannot import {module!r}: {error}") from error


def made_up(outputs: Sequence[Tensor], seed: int = 0) -> list[dict[str, Any]]:
    """One batch for any program whose length functions are all over one dim: uniformly distributed lengths.

    Raises UserError for a program that this does not suit.
    """
    needs = needs_of(outputs)
    if any(len(f.domain) != 1 for f in needs.functions):
        raise UserError("tune: the program has lengths over several dims: give batches")
    rng = np.random.default_rng(seed)
    lengths = {
        f.name: rng.integers(SHORTEST, LONGEST, COUNT, endpoint=True).tolist() for f in needs.functions
    }
    return [{**lengths, **{n: SIZE for n in needs.sizes if n not in needs.counted}}]
