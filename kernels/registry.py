"""The kernels of the library as data: a definition, and for each back end the schedules that suit it.

A definition knows nothing of schedules, and a schedule names the loops of a definition. So a tuner, another back
end or a user can take one and replace the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import cora


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of running a kernel.

    make: the schedule of what was defined; its keyword arguments are choices of storage and of block sizes.
    summary: what it does, in a line.
    """

    make: Callable[..., cora.Schedule]
    summary: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """A kernel of the library.

    Attributes:
        name: what it is called in the registry, in benchmarks and in tuning records.
        summary: what it computes, in a line.
        define: gives the output, or all operators that the variants schedule; its keyword arguments are choices of
            what is computed.
        variants: for each back end ("llvm", ...) its schedules by name; the first is the one to use.
    """

    name: str
    summary: str
    define: Callable[..., Any]
    variants: Mapping[str, Mapping[str, Variant]]

    def variant(self, target: str = "llvm", name: str | None = None) -> Variant:
        """A schedule by name, the back end's first by default.

        Raises UnsupportedError where the back end has none, UserError where it has none of this name.
        """
        found = self.variants.get(target)
        if not found:
            raise cora.UnsupportedError(
                f"{self.name}: no schedule for target {target!r}; there are some for {', '.join(self.variants)}"
            )
        if name is None:
            return next(iter(found.values()))
        if name not in found:
            raise cora.UserError(
                f"{self.name}: no schedule {name!r} for {target!r}; expected one of {', '.join(found)}"
            )
        return found[name]

    def schedule(
        self, defined: Any, *, target: str = "llvm", variant: str | None = None, **choices: Any
    ) -> cora.Schedule:
        """The schedule of what `define` gave; `choices` go to the variant. Raises as `variant` does."""
        return self.variant(target, variant).make(defined, **choices)

    def build(
        self,
        *,
        target: str = "llvm",
        variant: str | None = None,
        settings: cora.Settings | None = None,
        definition: Mapping[str, Any] = MappingProxyType({}),
        schedule: Mapping[str, Any] = MappingProxyType({}),
    ) -> cora.Kernel:
        """Define, schedule and build.

        Args:
            target: back end.
            variant: name of the schedule; the back end's first by default.
            settings: of the build.
            definition: keyword arguments of `define`.
            schedule: keyword arguments of the variant.
        """
        chosen = self.variant(target, variant)

        def make() -> cora.Schedule:
            return chosen.make(self.define(**definition), **schedule)

        names = tuple(_name(f) for f in (self.define, chosen.make))
        program = cora.Deferred((*names, definition, schedule), make) if all(names) else make()
        return cora.build(program, target=target, settings=settings or cora.Settings())


def _name(function: Callable[..., Any]) -> str | None:
    """The name of a function of cora's own; None for others, whose code the name does not decide."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "<")
    own = module.startswith(f"{cora.__name__}.") and "<" not in name
    return f"{module}.{name}" if own else None
