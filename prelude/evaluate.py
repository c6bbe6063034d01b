"""Computing the tables of a batch with native code that is in the process already.

Nothing here imports llvmlite: a kernel that comes from the cache brings its compiled prelude along.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from cora.errors import CoraError, InternalError, UserError
from cora.prelude.arena import Arena, address_of
from cora.prelude.spec import PreludeSpec
from cora.prelude.status import (
    FACT_VIOLATED,
    MAX_ENTRIES,
    NO_ROOM,
    OVERFLOW,
    PER_TABLE,
    TOO_LARGE,
    WRONG_COUNT,
    ZERO_DIVISION,
)

_INT32: Final = np.dtype(np.int32)
_INT64_MAX: Final = 2**63 - 1

IntArray = NDArray[Any]


class NativePrelude:
    """The compiled prelude of `spec`. Any number of threads may use it at once: it remembers of a batch no more than
    how much room its tables took, as a hint.
    """

    __slots__ = (
        "_alike",
        "_compute",
        "_dtypes",
        "_frame",
        "_given",
        "_keys",
        "_owner",
        "_pack",
        "_permutations",
        "_usual",
        "spec",
    )

    def __init__(self, spec: PreludeSpec, address: int, owner: object) -> None:
        """`address` is that of the entry point `prelude_compute`; `owner` keeps its code in memory."""
        self.spec = spec
        self._owner = owner
        self._compute = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)
        self._keys = tuple(table.key for table in spec.tables)
        self._dtypes = tuple(np.dtype(table.fun.dtype) for table in spec.tables)
        # tables whose sizes are one expression get room together
        self._alike = tuple(
            tuple(t for t, other in enumerate(spec.tables) if other.size == table.size and not other.given)
            for table in spec.tables
        )
        self._given = tuple((t, e.fun.name, e.key) for t, e in enumerate(spec.tables) if e.given)
        self._permutations = frozenset(t for t, e in enumerate(spec.tables) if e.kind == "permutation")
        arguments = len(spec.sizes) + 2 * len(spec.tables)
        self._frame = ctypes.c_int64 * (arguments + len(spec.tables) + 1)
        self._pack = struct.Struct(f"={arguments}q").pack_into
        self._usual = [0] * len(spec.tables)  # entries in the last batch: what a new arena makes room for

    def compute(
        self,
        sizes: Mapping[str, int],
        lengths: Mapping[str, IntArray],
        arena: Arena,
        *,
        filled: Mapping[str, IntArray] | None = None,
        check: Literal["quick", "full"] = "quick",
    ) -> list[IntArray]:
        """The tables of one batch, in the order of `spec.tables`: flat arrays of types `fun.dtype`.

        `sizes` gives every name in `spec.sizes`; `lengths` a flat int32 array for each function in
        `spec.lengths`, in row-major order of its domain. Further names are ignored. All tables, the lengths
        among them, lie in `arena` until it is used for the next batch. Those in `filled` (by key: tables of
        this batch that another prelude has computed) are returned as they are. The address of an empty
        table has no meaning.

        check: "quick" tests the facts that proofs rest on where that costs little (lengths not negative,
        row starts not decreasing, first and last entry of each map); "full" compares every entry with the
        reference `cora.ir.evaluate`, slowly.

        Raises UserError for a size or lengths that are missing or unfit, a table of more than 2^31 - 1
        entries, values that do not fit their type, a division by zero; InternalError if a computed table
        violates a fact.
        """
        values = self._size_values(sizes)
        known = self._take_lengths(lengths, arena)
        others: dict[int, IntArray] = {}
        if filled:
            for t, key in enumerate(self._keys):
                if key in filled and t not in known:
                    others[t] = _checked(filled[key], self._dtypes[t], f"table {key}")
        counts = self._fill(values, known, others, arena)
        slots = arena.slots(self._keys)
        tables = [
            (arena.int32 if dtype is _INT32 else arena.int64)[first : first + count]
            for dtype, first, count in zip(self._dtypes, slots.first, counts, strict=True)
        ]
        for t, array in others.items():
            tables[t] = array
        if check == "full":
            self._compare(sizes, tables)
        return tables

    def validate(
        self,
        sizes: Mapping[str, int],
        tables: Sequence[IntArray],
        *,
        check: Literal["quick", "full"] = "quick",
    ) -> None:
        """Check tables that `compute` has returned; the errors and the meaning of `check` are the same."""
        for array, dtype, key in zip(tables, self._dtypes, self._keys, strict=True):
            _checked(array, dtype, f"table {key}")
        addresses = [address_of(array) for array in tables]
        self._call(self._size_values(sizes), addresses, [~len(array) for array in tables])
        if check == "full":
            self._compare(sizes, tables)

    def _size_values(self, sizes: Mapping[str, int]) -> list[int]:
        values = []
        for name in self.spec.sizes:
            if name not in sizes:
                raise UserError(f"size '{name}': no value was given")
            try:
                value = operator.index(sizes[name])
            except TypeError:
                raise UserError(f"size '{name}': expected an integer; got {sizes[name]!r}") from None
            if not 0 <= value <= _INT64_MAX:
                raise UserError(f"size '{name}': expected a value from 0 to 2^63 - 1; got {value}")
            values.append(value)
        return values

    def _take_lengths(self, lengths: Mapping[str, IntArray], arena: Arena) -> dict[int, int]:
        """Copy lengths to the arena; gives their number by position of the table."""
        known: dict[int, int] = {}
        for t, name, key in self._given:
            if name not in lengths:
                raise UserError(f"lengths '{name}': no values were given")
            array = lengths[name]
            if not isinstance(array, np.ndarray) or array.dtype != _INT32 or array.ndim != 1:
                _checked(array, _INT32, f"lengths '{name}'")
            if t in self._permutations:
                _check_permutation(array, name)
            count = known[t] = len(array)
            first = arena.reserve(key, count, _INT32)
            arena.int32[first : first + count] = array
        return known

    def _fill(
        self, values: list[int], known: dict[int, int], others: dict[int, IntArray], arena: Arena
    ) -> list[int]:
        """Compute the tables, making room where there is too little; gives the number of entries of each."""
        if 0 in arena.slots(self._keys).capacity:
            self._guess(known, others, arena)
        while True:
            slots = arena.slots(self._keys)
            addresses, room = slots.addresses, slots.capacity.copy()
            for t, count in known.items():
                room[t] = ~count
            if others:
                addresses = addresses.copy()
                for t, array in others.items():
                    addresses[t], room[t] = address_of(array), ~len(array)
            counts, short = self._call(values, addresses, room)
            if short is None:
                self._usual = counts
                return counts
            for t in self._alike[short]:
                if t not in others:
                    arena.reserve(self._keys[t], counts[short], self._dtypes[t])
            known.update((t, counts[t]) for t in range(short) if t not in others)

    def _guess(self, known: dict[int, int], others: dict[int, IntArray], arena: Arena) -> None:
        """Make room in a new arena for tables as long as the lengths, as most are, or as in the last batch.

        It saves repetitions of the computation.
        """
        entries = max(known.values(), default=0) + 1
        for t, (key, usual) in enumerate(zip(self._keys, self._usual, strict=True)):
            if t not in known and t not in others:
                arena.reserve(key, max(entries, usual), self._dtypes[t])

    def _call(self, values: list[int], addresses: list[int], room: list[int]) -> tuple[list[int], int | None]:
        """Run the native code: the entries of each table, and the table that has too little room."""
        frame = self._frame()
        self._pack(frame, 0, *values, *addresses, *room)
        result = self._compute(frame)
        counts: list[int] = frame[len(values) + 2 * len(room) : -1]
        if result == 0:
            return counts, None
        t, fault = result // PER_TABLE - 1, result % PER_TABLE
        if fault == NO_ROOM:
            return counts, t
        raise self._error(t, fault, counts[t], ~room[t], addresses[t], frame[-1])

    def _error(self, t: int, fault: int, count: int, given: int, address: int, entry: int) -> CoraError:
        table = self.spec.tables[t]
        given_as = "permutation" if table.kind == "permutation" else "lengths"
        what = f"{given_as} '{table.fun}'" if table.given else f"prelude: table of '{table.fun}'"
        match fault:
            case _ if fault == WRONG_COUNT:
                extents = ", ".join(str(dim.extent) for dim in table.fun.domain)
                return UserError(
                    f"{what}: expected {count} values, one for each index of [{extents}]; got {given}"
                )
            case _ if fault == TOO_LARGE:
                return UserError(f"{what}: expected at most {MAX_ENTRIES} entries; got {count}")
            case _ if fault == FACT_VIOLATED:
                place = address + entry * self._dtypes[t].itemsize
                value = _C_TYPES[table.fun.dtype].from_address(place).value
                if table.given:
                    return UserError(f"{what}: a length must be >= 0; got {value} at {entry}")
                return InternalError(
                    f"{what}: entry {entry} is {value}, which violates a fact that proofs rest on; "
                    f"expected {_FACTS[table.kind]} ({table.describe()})"
                )
            case _ if fault & ZERO_DIVISION:
                return UserError(f"{what}: integer division by zero ({table.describe()})")
            case _ if fault & OVERFLOW:
                return UserError(
                    f"{what}: expected values that fit in 64 bits; got a larger one on the way "
                    f"({table.describe()})"
                )
        return InternalError(f"{what}: the native code failed with {fault} ({table.describe()})")

    def _compare(self, sizes: Mapping[str, int], tables: Sequence[IntArray]) -> None:
        """Compare every entry with the reference."""
        from cora.ir.evaluate import Evaluator

        lengths = {name: tables[t] for t, name, _ in self._given}
        reference = Evaluator(sizes, lengths)
        for table, array in zip(self.spec.tables, tables, strict=True):
            expected = reference.table(table.fun)
            if array.tolist() != expected:
                entry = next(i for i, e in enumerate(expected) if array[i] != e)
                raise InternalError(
                    f"prelude: table of '{table.fun}': entry {entry} is {array[entry]}; "
                    f"expected {expected[entry]} ({table.describe()})"
                )


def _checked(array: IntArray, dtype: np.dtype[Any], what: str) -> IntArray:
    """`array` if it is a contiguous array of one axis and type `dtype`; UserError otherwise."""
    if not isinstance(array, np.ndarray):
        raise UserError(f"{what}: expected a NumPy array; got {type(array).__name__}")
    if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
        raise UserError(
            f"{what}: expected a contiguous array of one axis and type {dtype}; "
            f"got shape {array.shape}, strides {array.strides}, type {array.dtype}"
        )
    return array


def _check_permutation(array: IntArray, name: str) -> None:
    """UserError unless the values are 0..n-1 in some order."""
    n = len(array)
    times = np.bincount(array[(array >= 0) & (array < n)], minlength=n)
    if n and (times != 1).any():
        wrong = int(np.argmax(times != 1))
        raise UserError(
            f"permutation '{name}': expected each of 0..{n - 1} once; {wrong} is there {int(times[wrong])} times"
        )


_C_TYPES: Final = {"int32": ctypes.c_int32, "int64": ctypes.c_int64}

_FACTS: Final = {
    "scan": "sums that start at 0 and do not decrease",
    "ffo": "the row whose start is not after the iteration and whose end is after it",
    "ffi": "a position from 0 to that of the iteration",
    "cuts": "cuts that go from 0 to the number of rows and do not decrease",
    "starts": "starts that go from 0 to the number of rows and do not decrease",
    "order": "rows, each below their number",
    "lists": "rows, each below their number",
}


def entry_point(prefix: str) -> str:
    """The name of the function that computes all tables (`cora.prelude.native`)."""
    return f"{prefix}prelude_compute"


def load(spec: PreludeSpec, library: ctypes.CDLL, *, prefix: str = "") -> NativePrelude:
    """The prelude of `spec` in a loaded library that `object_code(spec, prefix=prefix)` was linked into.

    Raises InternalError if the library does not have it.
    """
    name = entry_point(prefix)
    try:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        raise InternalError(f"prelude: the library {library} does not define {name}") from None
    assert address is not None
    return NativePrelude(spec, address, owner=library)
