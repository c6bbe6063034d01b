"""What must hold of every program, schedule and batch; a reproducer calls `check` itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import cora
from cora import Kernel, RaggedArray, ScheduleError, Settings, Tensor, UnsupportedError
from cora.interp import Reference
from cora.ir import dtypes
from cora.ir.evaluate import Evaluator
from cora.ir.fingerprint import fingerprint
from cora.schedule.balance import permutations_of
from cora.schedule.default import default_schedule
from cora.schedule.schedule import Schedule
from cora.storage.layout import Layout
from tests.guard_pages import guarded
from tests.reference import assert_matches, assert_padding_zero

PROVE = Settings(cache=False)
KEEP = Settings(cache=False, guards="keep")
UNSOLVED = Settings(cache=False, solver="off")
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan]

Batch = Mapping[str, "int | Sequence[int]"]


class RefusedError(Exception):
    """`build` refused a schedule, with its reason."""


def check(
    program: Schedule | Sequence[Tensor],
    batches: Sequence[Batch],
    *,
    seed: int = 0,
    ranges: Mapping[str, int] | None = None,
    special: bool = False,
    ulps: float = 4,
) -> None:
    """Build `program` (outputs: with the default schedule), run it on `batches`, compare with the interpreter.

    batches: sizes and lengths by name. ranges: inputs that hold indices, and the end of what they hold.
    special: whether the inputs hold infinities and NaN. ulps: see `assert_matches`. Raises AssertionError, or
    what cora raises, for a mismatch; RefusedError if a given schedule cannot be built.
    """
    given = isinstance(program, Schedule)
    s = program if isinstance(program, Schedule) else default_schedule(cora.schedule(*program))
    _check_json(s)
    try:
        kernel = cora.build(s, settings=PROVE)
    except (ScheduleError, UnsupportedError) as error:
        if given:
            raise RefusedError(str(error)) from error
        raise
    others = {"keeps every guard": KEEP}
    if seed % 4 == 0:
        others["is built without the solver"] = UNSOLVED
    built = {what: _built_too(s, settings) for what, settings in others.items()}
    for number, batch in enumerate(batches):
        try:
            rng = np.random.default_rng([seed, number])
            _Run(s, batch, rng, ranges or {}, special).check(kernel, built, ulps)
        except Exception as error:
            error.args = (f"on the batch {dict(batch)}: {error}",)
            raise


def _built_too(s: Schedule, settings: Settings) -> Kernel | None:
    """What can be built by proofs, with fewer of them; None where a tile cannot: a guard that stays is no bound of it,
    or that its panel is filled is not proved."""
    try:
        return cora.build(s, settings=settings)
    except ScheduleError as error:
        if not str(error).startswith(("tensorize: the tile of", "fill_at_use of")):
            raise
        return None


def _check_json(s: Schedule) -> None:
    again = cora.from_json(s.outputs, s.to_json())
    assert again == s, f"JSON gives another schedule: {again!r}"
    assert hash(again) == hash(s)
    assert again.state == s.state, "the replayed schedule has other loops or layouts"
    assert fingerprint(again.outputs, again.steps) == fingerprint(s.outputs, s.steps), "another cache key"


class _Run:
    """One batch: its inputs, and what they must give."""

    def __init__(self, s: Schedule, batch: Batch, rng: Any, ranges: Mapping[str, int], special: bool) -> None:
        self.s = s
        self.sizes = {name: v for name, v in batch.items() if isinstance(v, int)}
        self.lengths = {name: np.array(v, np.int32) for name, v in batch.items() if not isinstance(v, int)}
        self.inputs: dict[str, RaggedArray] = {}
        for tensor in s.tensors:
            if tensor.body is None:
                array = self._empty(tensor, Layout.packed(tensor.dims))
                array.values[:] = _values(
                    tensor.dtype, len(array.values), rng, ranges.get(tensor.name), special
                )
                self.inputs[tensor.name] = array
        self.permutations = self._permutations(rng)
        self.references = cora.interpret(list(s.outputs), self.inputs, sizes=self.sizes, lengths=self.lengths)

    def _permutations(self, rng: Any) -> dict[str, Any]:
        """The permutations by which loops run."""
        evaluator = Evaluator(self.sizes, self.lengths)
        extents = {f.name: evaluator.value(f.domain[0].extent) for f in permutations_of(self.s.nests)}
        return {name: rng.permutation(max(n, 0)) for name, n in extents.items()}

    def check(self, kernel: Kernel, others: Mapping[str, Kernel | None], ulps: float) -> None:
        """The kernel, twice on one plan, with one worker and with three; the others give the same bits."""
        plan = self._plan(kernel, 1)
        first = self._outputs(kernel, plan, "end")
        for reference, array in zip(self.references, first, strict=True):
            self._check_output(reference, array, ulps)
        self._check_same(first, self._outputs(kernel, plan, "begin"), "the second run of one plan")
        self._check_same(first, self._outputs(kernel, self._plan(kernel, 3), "end"), "a run with 3 workers")
        for what, other in others.items():
            if other is None:
                continue
            outputs = self._outputs(other, self._plan(other, 2), "end")
            self._check_same(first, outputs, f"the kernel that {what}")

    def _check_output(self, reference: Reference, array: RaggedArray, ulps: float) -> None:
        assert_matches(reference, array, ulps=ulps)
        if array.name not in self.s.state.undefined_padding:
            assert_padding_zero(array)

    def _check_same(self, first: list[RaggedArray], second: list[RaggedArray], what: str) -> None:
        """The same bits, in the padding too where it is defined."""
        for a, b in zip(first, second, strict=True):
            defined = a.name not in self.s.state.undefined_padding
            x, y = (a.values, b.values) if defined else (a.packed(), b.packed())
            same = _bits(x) == _bits(y)
            if not same.all():
                at = int(np.argmin(same))
                raise AssertionError(
                    f"{a.name}: {what} differs in {np.count_nonzero(~same)} of {len(x)} elements; "
                    f"the first, at {'offset' if defined else 'position'} {at}: {x[at]!r} and {y[at]!r}"
                )

    def _plan(self, kernel: Kernel, threads: int) -> cora.Plan:
        named: dict[str, Any] = {n: v for n, v in self.sizes.items() if n in kernel.size_names}
        arrays = {**self.lengths, **self.permutations}  # of these a kernel may need some only
        named |= {n: v for n, v in arrays.items() if n in kernel.length_domains}
        return cora.plan(kernel, threads=threads, **named)

    def _outputs(self, kernel: Kernel, plan: cora.Plan, side: Literal["begin", "end"]) -> list[RaggedArray]:
        """The outputs, written over garbage; inputs have garbage in their padding.

        All arrays begin or end at a page that may not be touched.
        """
        arrays = []
        for name in kernel.inputs:
            array = self.inputs[name]
            padded = array.to_layout(kernel.layout(name), _garbage(array.dtype))
            arrays.append(replace(padded, values=guarded(padded.values, side)))
        outputs = {t.name: self._empty(t, kernel.layout(t.name)) for t in self.s.outputs}
        outputs = {n: replace(a, values=guarded(a.values, side)) for n, a in outputs.items()}
        kernel.run(plan, *arrays, outputs=outputs)
        return list(outputs.values())

    def _empty(self, tensor: Tensor, layout: Layout) -> RaggedArray:
        return RaggedArray.empty(
            layout,
            self.lengths,
            self.sizes,
            fill=_garbage(tensor.dtype),
            dtype=tensor.dtype,
            name=tensor.name,
        )


def _garbage(dtype: str) -> float:
    return float("nan") if dtypes.is_float(dtype) else 1 if dtype == "bool" else 101


def _values(dtype: str, count: int, rng: Any, end: int | None, special: bool) -> Any:
    if end is not None:
        return rng.integers(0, end, count)
    if not dtypes.is_float(dtype):
        return rng.integers(0, 2, count) if dtype == "bool" else rng.integers(-4, 5, count)
    values = rng.normal(size=count)
    ties = rng.random(count) < 0.3
    values[ties] = np.round(values[ties])
    if special:
        where = rng.random(count) < 0.15
        values[where] = rng.choice(SPECIAL, np.count_nonzero(where))
    return values.astype(dtypes.to_numpy(dtype))


def _bits(values: Any) -> Any:
    """The elements as integers, one for all NaN."""
    if values.dtype == np.bool_:
        return values
    plain = values.copy()
    plain[values != values] = 0  # NaN stands where NaN stands: `assert_matches` sees to that
    return np.where(values != values, -1, plain.view(f"i{values.dtype.itemsize}"))
