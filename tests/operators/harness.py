"""Runs operators under many schedules, on many batches, in poisoned memory between inaccessible pages.

A `Case` is an operator with its schedules, batches and data. A run of it has outputs, workspace and storage padding
filled with NaN (with an extreme value for types that have none), and every array, the prelude's tables included, ends
or begins exactly at an inaccessible page: an access one element too far kills the process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
import pytest

import cora
import cora.runtime.plan
from cora.interp import Reference
from cora.ir import dtypes
from cora.ir.evaluate import Evaluator
from cora.lang.check import program
from cora.storage.boxes import Batch as Bound
from cora.storage.boxes import scatter, stored_size
from cora.storage.lengths import bind
from tests.guard_pages import guarded
from tests.reference import assert_matches, assert_padding_zero

Array = np.ndarray[Any, Any]
Side = Literal["end", "begin"]
Guards = Literal["prove", "keep"]
Transform = Callable[[cora.Schedule], cora.Schedule]


@dataclass(frozen=True, eq=False)
class Batch:
    """The lengths (flat, row-major) and sizes of one batch."""

    lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join(f"{k}={list(v)}" for k, v in self.lengths.items()) + f" {dict(self.sizes)}"


#: Of a product whose operands are rounded to tf32, each by 2^-11 of itself at most, as roundings of float32.
TF32_ULPS = 2**14 + 8
#: Values for the elements of a tensor at the given index tuples ([count, ndim]) of a batch.
Fill = Callable[[np.random.Generator, Batch, Array], Array]


@dataclass(frozen=True, eq=False)
class Case:
    """An operator: what it computes, how it is scheduled, on what.

    schedules: besides "default" (none given). fills: the values of inputs by name, others are random.
    batch_dim: the name of the outermost dim whose entries must not influence one another, if there is one.
    ulps: see `tests.reference.assert_matches`. undefined_padding: outputs whose padding is not zeroed.
    """

    name: str
    outputs: tuple[cora.Tensor, ...]
    batches: tuple[Batch, ...]
    schedules: Mapping[str, Transform] = field(default_factory=dict)
    fills: Mapping[str, Fill] = field(default_factory=dict)
    batch_dim: str | None = "batch"
    ulps: float = 4
    undefined_padding: frozenset[str] = frozenset()

    @property
    def inputs(self) -> tuple[cora.Tensor, ...]:
        """The input tensors, in order of first use."""
        return tuple(t for t in program(self.outputs) if t.body is None)


@dataclass(frozen=True, eq=False)
class Work:
    """A case on one batch: the elements of each input, and what the interpreter makes of them."""

    batch: Batch
    elements: Mapping[str, Array]
    references: tuple[Reference, ...]


def every(cases: Sequence[Case], last_schedule: Sequence[Case] = ()) -> pytest.MarkDecorator:
    """Parametrizes a test over `cases` with each of their schedules, and `last_schedule` with their last one."""
    table = [(c, s) for c in cases for s in ("default", *c.schedules)]
    table += [(c, ["default", *c.schedules][-1]) for c in last_schedule]
    return pytest.mark.parametrize(("case", "schedule"), table, ids=[f"{c.name}-{s}" for c, s in table])


class Kernels:
    """The kernels of the cases, each built once; on disk, so that several test processes share them.

    Their tables lie between inaccessible pages.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[tuple[Case, str, Guards], cora.Kernel] = {}
        self._results: dict[tuple[Case, str, int], tuple[Array, ...]] = {}

    def get(self, case: Case, schedule: str, guards: Guards = "prove") -> cora.Kernel:
        """The kernel of a case under one of its schedules."""
        key = case, schedule, guards
        if key not in self._built:
            settings = cora.Settings(guards=guards, cache_dir=self._folder)
            program: Any = case.outputs
            if schedule != "default":
                program = case.schedules[schedule](cora.schedule(*case.outputs))
            kernel = cora.build(program, settings=settings)
            kernel.prelude = _GuardedPrelude(kernel.prelude)  # type: ignore[assignment]
            self._built[key] = kernel
        return self._built[key]

    def results(self, case: Case, schedule: str, number: int) -> tuple[Array, ...]:
        """The valid elements of the outputs on batch `number`, by two workers."""
        key = case, schedule, number
        if key not in self._results:
            work = work_of(case, number)
            arrays = run(case, self.get(case, schedule), work.batch, work.elements)
            self._results[key] = packed(arrays)
        return self._results[key]


@functools.cache
def work_of(case: Case, number: int) -> Work:
    """Batch `number` of a case with its data and references."""
    batch = case.batches[number]
    elements = draw(case, batch, number)
    arrays = {t.name: packed_array(t, batch, elements[t.name]) for t in case.inputs}
    references = cora.interpret(case.outputs, arrays, sizes=batch.sizes, lengths=batch.lengths)
    return Work(batch, elements, references)


def draw(case: Case, batch: Batch, seed: int) -> dict[str, Array]:
    """Elements for every input."""
    rng = np.random.default_rng(seed)
    return {t.name: _elements(case, t, batch, rng) for t in case.inputs}


def run(
    case: Case,
    kernel: cora.Kernel,
    batch: Batch,
    elements: Mapping[str, Array],
    *,
    threads: int = 2,
    side: Side = "end",
) -> tuple[cora.RaggedArray, ...]:
    """The outputs of `kernel`, in storage of their own; every array touches an inaccessible page."""
    inputs = [
        _poisoned(kernel, t, batch, elements[t.name], side) for t in case.inputs if t.name in kernel.inputs
    ]
    outputs = {t.name: _poisoned(kernel, t, batch, None, side) for t in case.outputs}

    def workspace(count: int, dtype: str) -> Array:
        return guarded(np.full(count, poison(dtype), dtypes.to_numpy(dtype)), side)

    named = {**batch.sizes, **batch.lengths}
    wanted = {k: v for k, v in named.items() if k in kernel.size_names or k in kernel.length_domains}
    with mock.patch.object(cora.runtime.plan, "allocate", workspace):
        plan = cora.plan(kernel, threads=threads, **wanted)
    kernel.run(plan, *inputs, outputs=outputs)
    return tuple(outputs[t.name] for t in case.outputs)


def check(case: Case, kernel: cora.Kernel, work: Work) -> None:
    """The outputs are those of the interpreter, their padding is zero."""
    arrays = run(case, kernel, work.batch, work.elements)
    for reference, array in zip(work.references, arrays, strict=True):
        assert_matches(reference, array, ulps=case.ulps)
        if array.name not in case.undefined_padding:
            assert_padding_zero(array)


def packed(arrays: Sequence[cora.RaggedArray]) -> tuple[Array, ...]:
    """The valid elements of arrays, copied."""
    return tuple(array.packed().copy() for array in arrays)


def same_bits(a: Sequence[Array], b: Sequence[Array]) -> bool:
    """Whether arrays hold the same bits."""
    return all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


def poison(dtype: str) -> Any:
    """What must not be read, or must be overwritten."""
    if dtypes.is_float(dtype):
        return float("nan")
    return True if dtype == "bool" else dtypes.lowest(dtype)


def packed_array(tensor: cora.Tensor, batch: Batch, elements: Array) -> cora.RaggedArray:
    """`elements`, row-major, as an array in the packed layout."""
    return cora.RaggedArray.from_values(elements, tensor, batch.lengths, batch.sizes)


def tuples_of(tensor: cora.Tensor, batch: Batch) -> Array:
    """The index tuples of the valid elements of a tensor, row-major: [count, ndim]."""
    sizes, lengths = bind(tensor.dims, batch.sizes, batch.lengths, tensor.name)
    points = list(Evaluator(sizes, lengths).points(tensor.dims))
    return np.array(points, np.int64).reshape(len(points), tensor.ndim)


def _poisoned(
    kernel: cora.Kernel, tensor: cora.Tensor, batch: Batch, elements: Array | None, side: Side
) -> cora.RaggedArray:
    """An array in the kernel's layout, poisoned, with `elements` if given."""
    layout = kernel.layout(tensor.name)
    sizes, lengths = bind(tensor.dims, batch.sizes, batch.lengths, tensor.name)
    bound = Bound(sizes, lengths)
    values = np.full(stored_size(layout, bound), poison(tensor.dtype), dtypes.to_numpy(tensor.dtype))
    if elements is not None:
        scatter(layout, bound, elements, values)
    return cora.RaggedArray(guarded(values, side), layout, lengths, sizes, tensor.name, tensor.dtype)


def _elements(case: Case, tensor: cora.Tensor, batch: Batch, rng: np.random.Generator) -> Array:
    fill = case.fills.get(tensor.name)
    kind = dtypes.to_numpy(tensor.dtype)
    if fill is not None:
        with np.errstate(over="ignore"):  # float16 takes large values for infinities
            return np.asarray(fill(rng, batch, tuples_of(tensor, batch))).astype(kind)
    sizes, lengths = bind(tensor.dims, batch.sizes, batch.lengths, tensor.name)
    count = stored_size(cora.Layout.packed(tensor.dims), Bound(sizes, lengths))
    if dtypes.is_float(tensor.dtype):
        return rng.standard_normal(count).astype(np.float32).astype(kind)
    if tensor.dtype == "bool":
        return rng.integers(0, 2, count).astype(kind)
    return rng.integers(-100, 100, count).astype(kind)


class _GuardedPrelude:
    """A prelude whose tables end exactly at inaccessible pages."""

    def __init__(self, prelude: Any) -> None:
        self._prelude = prelude
        self.spec = prelude.spec
        self.sizes = prelude.spec.sizes

    def compute(self, *args: Any, **named: Any) -> tuple[Array, ...]:
        """The tables, copied."""
        return tuple(guarded(table) for table in self._prelude.compute(*args, **named))
