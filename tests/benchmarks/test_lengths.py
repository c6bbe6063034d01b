"""Drawn lengths are distributed as the datasets are; stored ones are read in order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.lengths import DATASETS, PADDED_MAXIMUM, draw_lengths, read_lengths
from cora.errors import UserError

# Mean, root mean square and maximum of the lengths of the datasets themselves.
FACTS = {
    "race": (361.04, 375.38, 512),
    "wiki512": (370.99, 411.08, 512),
    "squad": (190.81, 203.03, 384),
    "wiki128": (113.69, 116.95, 128),
    "mnli": (43.34, 47.68, 128),
    "xnli": (70.17, 78.37, 128),
    "mrpc": (59.24, 61.01, 112),
    "cola": (12.82, 13.61, 48),
}


@pytest.mark.parametrize("dataset", DATASETS)
def test_mean_and_root_mean_square(dataset: str) -> None:
    mean, rms, _ = FACTS[dataset]
    lengths = draw_lengths(dataset, 100_000).astype(np.float64)
    assert lengths.mean() == pytest.approx(mean, rel=0.015)
    assert np.sqrt((lengths**2).mean()) == pytest.approx(rms, rel=0.015)


@pytest.mark.parametrize("dataset", DATASETS)
def test_range_and_type(dataset: str) -> None:
    lengths = draw_lengths(dataset, 10_000)
    assert lengths.dtype == np.int32
    assert lengths.shape == (10_000,)
    assert lengths.min() >= 1
    assert lengths.max() <= PADDED_MAXIMUM[dataset] == FACTS[dataset][2]


def test_every_dataset_has_a_padded_maximum() -> None:
    assert set(PADDED_MAXIMUM) == set(DATASETS)


def test_the_seed_decides() -> None:
    first = draw_lengths("mnli", 64, seed=7)
    assert np.array_equal(first, draw_lengths("mnli", 64, seed=7))
    assert not np.array_equal(first, draw_lengths("mnli", 64, seed=8))
    assert draw_lengths("mnli", 4).tolist() == [48, 30, 16, 13]


def test_none_at_all() -> None:
    assert draw_lengths("cola", 0).shape == (0,)


def test_unknown_dataset_and_negative_count() -> None:
    with pytest.raises(UserError, match=r"unknown dataset 'imdb'.*race"):
        draw_lengths("imdb", 3)
    with pytest.raises(UserError, match="at least 0, got -1"):
        draw_lengths("mnli", -1)


def test_stored_lengths_come_in_order(tmp_path: Path) -> None:
    np.save(tmp_path / "mrpc.npy", np.array([5, 0, 9, 2], dtype=np.int16))
    lengths = read_lengths(tmp_path, "mrpc", 3)
    assert lengths.dtype == np.int32
    assert lengths.tolist() == [5, 0, 9]


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (np.array([1, 2], dtype=np.int16), "holds 2 lengths, 3 were asked for"),
        (np.ones(3), "one-dimensional array of integers, got float64"),
        (np.ones((3, 3), dtype=np.int32), r"got int32 of shape \(3, 3\)"),
        (np.array([1, 2, -7]), "entry 2 .* is -7"),
        (np.array([1, 2**40, 7]), "entry 1 .* not a 32-bit length"),
    ],
)
def test_unfit_files(
    tmp_path: Path, stored: np.ndarray[tuple[int, ...], np.dtype[np.generic]], message: str
) -> None:
    np.save(tmp_path / "cola.npy", stored)
    with pytest.raises(UserError, match=message):
        read_lengths(tmp_path, "cola", 3)


def test_missing_and_broken_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*race\.npy"):
        read_lengths(tmp_path, "race", 1)
    (tmp_path / "race.npy").write_bytes(b"not an array")
    with pytest.raises(UserError, match=r"cannot read .*race\.npy"):
        read_lengths(tmp_path, "race", 1)
