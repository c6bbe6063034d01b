"""Realistic batches: sequence lengths distributed as in eight public datasets.

`data/length_quantiles.csv` holds the length (in tokens) at each percent of each
dataset; `draw_lengths` inverts that distribution, and the mean and the root mean
square of many draws are within 1.5 % of the dataset's.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from cora.errors import UserError

DATASETS = ("race", "wiki512", "squad", "wiki128", "mnli", "xnli", "mrpc", "cola")

#: The length (in tokens) that a dense baseline pads every sequence of a dataset to.
PADDED_MAXIMUM: Mapping[str, int] = MappingProxyType(
    {
        "race": 512,
        "wiki512": 512,
        "squad": 384,
        "wiki128": 128,
        "mnli": 128,
        "xnli": 128,
        "mrpc": 112,
        "cola": 48,
    }
)

_QUANTILES = Path(__file__).parent / "data" / "length_quantiles.csv"


def draw_lengths(dataset: str, count: int, *, seed: int = 0) -> npt.NDArray[np.int32]:
    """Draw `count` lengths (in tokens, each at least 1) distributed as in `dataset`.

    The same arguments give the same lengths on every machine.

    Raises:
        UserError: an unknown dataset, or a negative count.
    """
    _check(dataset, count)
    percents, lengths = _quantiles(dataset)
    uniform = np.random.default_rng(seed).random(count)
    drawn: npt.NDArray[np.float64] = np.interp(100.0 * uniform, percents, lengths)
    return drawn.round().clip(1.0).astype(np.int32)


def read_lengths(directory: str | Path, dataset: str, count: int) -> npt.NDArray[np.int32]:
    """Read the first `count` lengths, in order, of `<directory>/<dataset>.npy`.

    The file holds one one-dimensional array of integers, each at least 0.

    Raises:
        UserError: an unknown dataset, a negative count, no readable file, another
            kind of array, fewer than `count` entries, or an entry out of range.
    """
    _check(dataset, count)
    path = Path(directory) / f"{dataset}.npy"
    try:
        stored = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"read_lengths: cannot read {path}: {error}") from error
    if not isinstance(stored, np.ndarray) or stored.ndim != 1 or stored.dtype.kind not in "iu":
        got = getattr(stored, "dtype", type(stored).__name__)
        shape = getattr(stored, "shape", ())
        raise UserError(
            f"read_lengths: {path} must hold a one-dimensional array of integers, got {got} of shape {shape}"
        )
    if len(stored) < count:
        raise UserError(f"read_lengths: {path} holds {len(stored)} lengths, {count} were asked for")
    first = stored[:count]
    outside = np.flatnonzero((first < 0) | (first > np.iinfo(np.int32).max))
    if outside.size:
        index = int(outside[0])
        raise UserError(f"read_lengths: entry {index} of {path} is {first[index]}, not a 32-bit length")
    return first.astype(np.int32)


def _check(dataset: str, count: int) -> None:
    if dataset not in DATASETS:
        raise UserError(f"unknown dataset {dataset!r}; expected one of {', '.join(DATASETS)}")
    if count < 0:
        raise UserError(f"the number of lengths must be at least 0, got {count}")


@cache
def _quantiles(dataset: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The percents 0 to 100, and the length (in tokens) at each of them."""
    with _QUANTILES.open(newline="") as file:
        rows = list(csv.DictReader(file))
    percents = np.array([float(row["percent"]) for row in rows])
    lengths = np.array([float(row[dataset]) for row in rows])
    return percents, lengths
