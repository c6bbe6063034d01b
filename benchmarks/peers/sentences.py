"""How other libraries are given texts of unequal lengths: all padded to the longest, or sorted, a few at a time.

Both are prepared beforehand; the computation alone is timed, the mean over each text's tokens and its scaling to
length 1 included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.peers.torch_encoder import Way
from cora.kernels import SentenceEncoder

Array = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Token numbers of texts, packed: ids [tokens], lengths [texts]."""

    ids: Integers
    lengths: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Padded:
    """Some of the texts, at least one, none of them empty, padded with token 0 to the longest of them.

    ids: [texts, longest]. lengths: [texts]. shares: [texts, 1, longest], what each token counts in its text's mean.
    """

    ids: Integers
    lengths: Integers
    shares: Array

    @staticmethod
    def of(rows: Sequence[Integers]) -> Padded:
        """The rows, padded."""
        lengths = np.array([len(row) for row in rows], np.int32)
        ids = np.zeros((len(rows), int(lengths.max())), np.int32)
        shares = np.zeros((len(rows), 1, ids.shape[1]), np.float32)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            shares[number, 0, : len(row)] = 1.0 / len(row)
        return Padded(ids, lengths, shares)

    @property
    def full(self) -> bool:
        """Whether nothing had to be padded."""
        return bool((self.lengths == self.ids.shape[1]).all())


#: What a library makes of padded texts: a call that computes their vectors [texts, hidden].
Prepare = Callable[[Padded], Callable[[], Array]]


@dataclass(frozen=True, slots=True)
class Library:
    """A library that may be there: `packages` are what it needs, `load` brings a model into it, for some threads.

    `load` gives, by name, what stands for a way of its own to run the model.
    """

    name: str
    packages: tuple[str, ...]
    load: Callable[[SentenceEncoder, int], dict[str, Prepare]]


def ways(name: str, prepare: Prepare, texts: Texts, hidden: int, sizes: Sequence[int]) -> dict[str, Way]:
    """Padded as a whole, and in micro-batches of each of the sizes that are smaller than the number of texts.

    Texts without tokens are not computed: their vectors are 0.
    """
    starts = np.cumsum(texts.lengths, dtype=np.int64)[:-1]
    rows = np.split(texts.ids, starts)
    there = [n for n in np.argsort(texts.lengths, kind="stable").tolist() if len(rows[n])]
    found = {f"{name} padded": _way(prepare, rows, [there] if there else [], hidden)}
    for size in sizes:
        if size < len(there):
            groups = [there[at : at + size] for at in range(0, len(there), size)]
            found[f"{name} micro-batches of {size}"] = _way(prepare, rows, groups, hidden)
    return found


def _way(prepare: Prepare, rows: Sequence[Integers], groups: Sequence[Sequence[int]], hidden: int) -> Way:
    calls = [prepare(Padded.of([rows[n] for n in group])) for group in groups]
    last: list[Array] = []

    def call() -> None:
        last[:] = [compute() for compute in calls]

    def result() -> Array:
        vectors = np.zeros((len(rows), hidden), np.float32)
        for group, computed in zip(groups, last, strict=True):
            vectors[list(group)] = computed
        return vectors

    return Way(call, result)
