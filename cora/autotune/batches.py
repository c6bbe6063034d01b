"""Batches: the lengths and sizes that a program runs on, by value; and those that schedules get wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cora.errors import CoraError, UserError
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Dim, Expr, Size
from cora.ir.tensor import Tensor
from cora.ir.ufun import UFun
from cora.lang.check import program, reductions_of
from cora.runtime.count import useful_iterations
from cora.schedule.nest import initial_nest
from cora.storage.lengths import inputs_of, validate_lengths, validate_size
from cora.storage.offsets import table_size

__all__ = ["Batch", "Needs", "batch_of", "hostile", "needs_of", "resampled"]

#: More iterations of the definition than this take the interpreter seconds.
MAX_ITERATIONS = 1_500_000

#: Lengths at which schedules go wrong: none, empty rows, rows that are shorter or longer than a tile by one, a giant.
_PATTERNS = (
    (), (0, 0), (0, 3, 0, 0), (1,), (15, 16, 17), (31, 32, 33, 5), (70, 1, 0, 2, 1), (8, 8, 8, 8, 8), (63, 65, 64),
)  # fmt: skip
#: The same for programs without lengths, and for sizes that no lengths determine.
_SIZES = (0, 1, 2, 5, 15, 16, 17, 33, 70)


@dataclass(frozen=True)
class Batch:
    """The lengths (flat, row-major) and the run-time sizes of one batch, by name and sorted."""

    lengths: tuple[tuple[str, tuple[int, ...]], ...]
    sizes: tuple[tuple[str, int], ...] = ()

    @property
    def named(self) -> dict[str, Any]:
        """As keyword arguments of `cora.plan`."""
        return {**dict(self.sizes), **self.arrays}

    @cached_property
    def arrays(self) -> dict[str, npt.NDArray[np.int32]]:
        """The lengths as arrays."""
        return {name: np.array(values, np.int32) for name, values in self.lengths}

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits that tell batches apart."""
        return hashlib.sha256(repr((self.lengths, self.sizes)).encode()).hexdigest()[:12]

    def __str__(self) -> str:
        shown = [f"{n}={list(v) if len(v) < 9 else f'<{len(v)} lengths>'}" for n, v in self.lengths]
        return ", ".join([*shown, *(f"{n}={v}" for n, v in self.sizes)]) or "(no lengths)"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a program must know of a batch: run-time sizes, and length functions, each after those of its domain."""

    sizes: tuple[str, ...]
    functions: tuple[UFun, ...]

    @property
    def counted(self) -> frozenset[str]:
        """The sizes that the number of lengths determines."""
        domains = [f.domain for f in self.functions]
        return frozenset(d[0].extent.name for d in domains if len(d) == 1 and isinstance(d[0].extent, Size))


def needs_of(outputs: Sequence[Tensor]) -> Needs:
    """What the program that computes `outputs` needs."""
    extents: dict[Expr, None] = {}
    for tensor in program(outputs):
        dims: list[Dim] = list(tensor.dims)
        if tensor.body is not None:
            dims += [d for r in reductions_of(tensor.body) for d in r.over]
            extents[tensor.body] = None
        extents.update(dict.fromkeys(d.extent for d in dims))
    return Needs(*inputs_of(list(extents)))


def batch_of(outputs: Sequence[Tensor], given: object) -> Batch:
    """A batch of the program from what a user writes.

    given: lengths and sizes by name, `{"lens": [3, 0, 5], "N": 64}`; or the lengths alone, where the program has one
    length function; or a Batch. Raises UserError for what is missing, unknown or invalid.
    """
    needs = needs_of(outputs)
    if isinstance(given, Batch):
        given = given.named
    if not isinstance(given, Mapping):
        if len(needs.functions) != 1:
            names = ", ".join([*(f.name for f in needs.functions), *needs.sizes])
            raise UserError(
                f"lengths: expected a mapping of lengths and sizes by name ({names}); got {given!r}"
            )
        given = {needs.functions[0].name: given}
    named: Mapping[str, Any] = given
    functions = {f.name for f in needs.functions}
    unknown = [name for name in named if name not in functions and name not in needs.sizes]
    if unknown:
        known = ", ".join([*functions, *needs.sizes]) or "(none)"
        raise UserError(f"lengths: the program has no lengths or size {unknown[0]!r}; it has {known}")
    missing = [n for n in (*functions, *(s for s in needs.sizes if s not in needs.counted)) if n not in named]
    if missing:
        raise UserError(f"lengths: the batch must have {missing[0]!r}")
    lengths = {n: validate_lengths(n, named[n]) for n in sorted(functions)}
    sizes = {n: validate_size(n, named[n]) for n in sorted(needs.sizes) if n in named}
    _check_counts(needs, lengths, sizes)
    return Batch(tuple((n, tuple(int(x) for x in v)) for n, v in lengths.items()), tuple(sizes.items()))


def _check_counts(
    needs: Needs, lengths: Mapping[str, npt.NDArray[np.int32]], sizes: Mapping[str, int]
) -> None:
    bound = dict(sizes)
    for function in needs.functions:
        have = len(lengths[function.name])
        match function.domain:
            case (Dim(extent=Size(name=name)),):
                bound.setdefault(name, have)
        expected = max(int(Evaluator(bound, lengths).value(table_size(function))), 0)
        if expected != have:
            raise UserError(f"lengths: '{function.name}': expected {expected} entries; got {have}")


def hostile(outputs: Sequence[Tensor]) -> tuple[Batch, ...]:
    """Small batches of the program at which schedules go wrong, few enough elements for the interpreter.

    Of a pattern that would take it too long the lengths are halved until it does not. Where a program has several
    length functions, some batches give each its own order of the pattern.
    """
    needs = needs_of(outputs)
    found: dict[Batch, None] = {}
    patterns: list[tuple[tuple[int, ...], int]] = [(p, 0) for p in _PATTERNS]
    if len(needs.functions) > 1:
        patterns += [(p, 1) for p in _PATTERNS if len(set(p)) > 1]
    if not needs.functions:
        patterns = [((), 0)] * (len(_SIZES) if needs.sizes else 1)
    for number, (pattern, turn) in enumerate(patterns):
        for batch in _smaller(needs, number, pattern, turn):
            if _iterations(outputs, batch) <= MAX_ITERATIONS:
                found[batch] = None
                break
    return tuple(found)


def _smaller(needs: Needs, number: int, pattern: tuple[int, ...], turn: int) -> Iterator[Batch]:
    """A batch with a pattern of lengths, then with ever shorter ones."""
    for shift in range(5):
        values = tuple((x + (1 << shift) - 1) >> shift for x in pattern)
        sizes = {
            name: _SIZES[(number + place) % len(_SIZES)] >> shift
            for place, name in enumerate(n for n in needs.sizes if n not in needs.counted)
        }
        lengths: dict[str, npt.NDArray[np.int32]] = {}
        bound = dict(sizes)
        for place, function in enumerate(needs.functions):
            match function.domain:
                case (Dim(extent=Size(name=name)),):
                    bound.setdefault(name, len(values))
            count = max(int(Evaluator(bound, lengths).value(table_size(function))), 0)
            turned = np.roll(np.array(values, np.int32), turn * place)
            lengths[function.name] = np.resize(turned, count) if len(values) else np.zeros(count, np.int32)
        yield Batch(
            tuple((n, tuple(int(x) for x in v)) for n, v in sorted(lengths.items())),
            tuple(sorted((n, v) for n, v in bound.items() if n not in needs.counted or not lengths)),
        )


def _iterations(outputs: Sequence[Tensor], batch: Batch) -> int:
    """Iterations of the definition on a batch; more than any limit if they cannot be counted."""
    needs = needs_of(outputs)
    sizes = dict(batch.sizes)
    for function in needs.functions:
        match function.domain:
            case (Dim(extent=Size(name=name)),):
                sizes.setdefault(name, len(batch.arrays[function.name]))
    evaluator = Evaluator(sizes, batch.arrays)
    total = 0
    for tensor in program(outputs):
        if tensor.body is not None:
            try:
                total += useful_iterations(initial_nest(tensor), evaluator)
            except CoraError:
                return MAX_ITERATIONS + 1
    return total


def resampled(batch: Batch, seed: int) -> Batch:
    """Another batch of the same kind: the entries of all length functions drawn anew, together, with replacement.

    So each drawn sequence is one that occurs, and counts stay. Functions with other numbers of entries than the
    first are permuted among themselves. The same arguments give the same batch.
    """
    rng = np.random.default_rng(seed)
    picks: dict[int, npt.NDArray[np.int64]] = {}
    drawn: dict[str, tuple[int, ...]] = {}
    for name, values in batch.lengths:
        count = len(values)
        if not drawn or count in picks:
            which = picks.setdefault(count, rng.integers(0, max(count, 1), count))
        else:
            which = rng.permutation(count)
        drawn[name] = tuple(values[i] for i in which)
    return Batch(tuple(drawn.items()), batch.sizes)
