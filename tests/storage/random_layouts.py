"""Random ragged layouts and batches, small enough to enumerate."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np

from cora.errors import UserError
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Dim, Expr, Size, binary
from cora.lang import define
from cora.storage.layout import Layout, Pad
from cora.storage.lengths import Lengths, bind


@dataclass(frozen=True)
class Case:
    """A layout with a batch for it."""

    layout: Layout
    sizes: dict[str, int]
    lengths: dict[str, Lengths]

    def evaluator(self) -> Evaluator:
        return Evaluator(self.sizes, self.lengths)

    def with_layout(self, layout: Layout) -> Case:
        return replace(self, layout=layout)


def random_case(rng: random.Random, *, padded: bool, reordered: bool = False, related: bool = False) -> Case:
    """Up to 5 dims; each depends on up to 3 outer ones through a table or an expression.

    related: some of them are split or fused in storage, the parts again, and padded.
    """
    dims: list[Dim] = []
    sizes: dict[str, int] = {}
    lengths: dict[str, Lengths] = {}
    for k in range(rng.choice([1, 2, 3, 4, 4, 5, 5])):
        parents = sorted(rng.sample(range(k), min(k, rng.choice([0, 1, 1, 2, 2, 3]))))
        extent = _extent(rng, f"d{k}", [dims[p] for p in parents], sizes, lengths, dims)
        dims.append(Dim(f"d{k}", extent))
    layout = Layout.packed(dims)
    if padded:
        pads = [rng.choice([Pad(), Pad(2), Pad(3), Pad(1, True), Pad(2, True)]) for _ in dims]
        layout = Layout(layout.dims, tuple(pads), layout.order)
    if reordered:
        layout = _reordered(rng, layout)
    if related:
        layout = _related(rng, layout, padded)
    return Case(layout, sizes, lengths)


def _extent(
    rng: random.Random,
    name: str,
    parents: list[Dim],
    sizes: dict[str, int],
    lengths: dict[str, Lengths],
    dims: list[Dim],
) -> Expr | int:
    if not parents:
        if rng.random() < 0.5:
            return rng.choice([0, 1, 2, 2, 3, 3, 3, 3, 3])
        sizes[f"N{name}"] = rng.choice([0, 1, 2, 2, 3, 3, 3, 3, 3])
        return Size(f"N{name}")
    if rng.random() < 0.6:
        domain = [d for d in dims if d in _closed(parents)]
        table = define.lengths(f"len_{name}", *domain)
        count = len(list(Evaluator(sizes, lengths).points(domain)))
        lengths[f"len_{name}"] = np.array([rng.choice([0, 1, 2, 3, 3]) for _ in range(count)], np.int32)
        return table[tuple(domain)]
    total: Expr | int = rng.randint(-1, 3)
    for parent in parents:
        total = total + parent if rng.random() < 0.7 else total - parent
    assert isinstance(total, Expr)
    return binary("min", total, 3)


def _closed(dims: list[Dim]) -> set[Dim]:
    from cora.ir.visit import free_dims

    found: set[Dim] = set()
    waiting = list(dims)
    while waiting:
        dim = waiting.pop()
        if dim not in found:
            found.add(dim)
            waiting += free_dims(dim.extent)
    return found


def _reordered(rng: random.Random, layout: Layout) -> Layout:
    for _ in range(10):
        order = list(layout.order)
        rng.shuffle(order)
        try:
            return replace(layout, order=tuple(order))
        except UserError:
            continue
    return layout


def _related(rng: random.Random, layout: Layout, padded: bool) -> Layout:
    for step in range(rng.randint(1, 4)):
        names = layout.stored_names
        place = rng.randrange(len(names))
        try:
            if rng.random() < 0.5:
                factor = rng.choice([1, 2, 2, 3, 4])
                layout = layout.with_split(names[place], factor, f"o{step}", f"i{step}")
            elif place + 1 < len(names):
                layout = layout.with_fused(names[place], names[place + 1], f"f{step}")
            if padded and layout.relations and rng.random() < 0.4:
                made = rng.choice([n for r in layout.relations for n in r.made])
                layout = layout.with_pad(made, rng.choice([1, 2, 3]), rng.random() < 0.3)
        except UserError:
            continue
        if rng.random() < 0.5:
            layout = _reordered(rng, layout)
    return layout


def bound(layout: Layout, sizes: dict[str, int] | None = None, **lengths: list[int]) -> Case:
    """A layout with lengths given by name."""
    return Case(layout, *bind(layout.dims, sizes, lengths, "test"))
