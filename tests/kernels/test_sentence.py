"""Texts to vectors against NumPy, with a small BERT of random weights."""

from __future__ import annotations

import numpy as np
import pytest

import cora
from cora.kernels import SentenceEncoder
from tests.kernels import reference
from tests.kernels.reference import HOSTILE, Array

HIDDEN, INNER, HEADS, WORDS, PLACES = 24, 40, 2, 50, 140


def bert(layers: int = 2) -> dict[str, Array]:
    """Weights named as in Hugging Face's checkpoints."""
    rng = np.random.default_rng(0)

    def values(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32) * np.float32(0.3)

    tensors = {
        "embeddings.word_embeddings.weight": values(WORDS, HIDDEN),
        "embeddings.position_embeddings.weight": values(PLACES, HIDDEN),
        "embeddings.token_type_embeddings.weight": values(2, HIDDEN),
    }
    names = ["embeddings.LayerNorm"]
    for layer in range(layers):
        p = f"encoder.layer.{layer}"
        shapes = {
            "attention.self.query": (HIDDEN, HIDDEN),
            "attention.self.key": (HIDDEN, HIDDEN),
            "attention.self.value": (HIDDEN, HIDDEN),
            "attention.output.dense": (HIDDEN, HIDDEN),
            "intermediate.dense": (INNER, HIDDEN),
            "output.dense": (HIDDEN, INNER),
        }
        for name, shape in shapes.items():
            tensors[f"{p}.{name}.weight"] = values(*shape)
            tensors[f"{p}.{name}.bias"] = values(shape[0])
        names += [f"{p}.attention.output.LayerNorm", f"{p}.output.LayerNorm"]
    for name in names:
        tensors[f"{name}.weight"] = 1 + values(HIDDEN)
        tensors[f"{name}.bias"] = values(HIDDEN)
    return tensors


def expected(model: SentenceEncoder, text: list[int]) -> Array:
    """The vector of one text in float64."""
    e = model.embeddings
    x = e.word[text].astype(np.float64) + e.position[: len(text)] + e.kind
    x = reference.layer_norm(x, e.gamma, e.beta, 1e-12)
    for weights in model.encoder.layers:
        x = reference.encoder_layer(model.encoder.config, weights, x, [len(text)])
    mean = x.mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean))


@pytest.mark.parametrize("lengths", HOSTILE, ids=str)
def test_texts(lengths: tuple[int, ...]) -> None:
    model = SentenceEncoder.from_bert(bert(), heads=HEADS)
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, WORDS, n).tolist() for n in lengths]
    vectors = model(texts, threads=2)
    assert vectors.shape == (len(lengths), HIDDEN)
    for text, vector in zip(texts, vectors, strict=True):
        wanted = expected(model, text) if text else np.zeros(HIDDEN)
        np.testing.assert_allclose(vector, wanted, atol=3e-5)


def test_what_is_refused() -> None:
    model = SentenceEncoder.from_bert(bert(), heads=HEADS)
    with pytest.raises(cora.UserError, match="at most 140 tokens; sequence 1 has 141"):
        model([[1], [1] * 141])
    plan, out = model.plan([2], 1), np.empty((1, HIDDEN), np.float32)
    with pytest.raises(cora.UserError, match=r"the index .* of 'word'"):
        model.run(plan, np.array([1, WORDS], np.int32), out)
    tensors = bert()
    del tensors["encoder.layer.1.output.dense.bias"]
    with pytest.raises(cora.UserError, match=r"'encoder\.layer\.1\.output\.dense\.bias' is missing"):
        SentenceEncoder.from_bert(tensors, heads=HEADS)
    with pytest.raises(cora.UserError, match=r"no tensor 'encoder\.layer\.0"):
        SentenceEncoder.from_bert(bert(0), heads=HEADS)


@pytest.mark.parametrize("bad", [WORDS, -1, 2**40])
def test_numbers_that_are_no_words(bad: int) -> None:
    model = SentenceEncoder.from_bert(bert(), heads=HEADS)
    with pytest.raises(cora.UserError, match=f"text 1: expected token numbers from 0 to 49; got {bad}"):
        model([[], [3, bad, 3]])


@pytest.mark.parametrize("bad", [[1.5], ["a"], [True], 3, [[1, 2]], None], ids=str)
def test_texts_that_are_no_integers(bad: object) -> None:
    model = SentenceEncoder.from_bert(bert(), heads=HEADS)
    with pytest.raises(cora.UserError, match="text 1: expected a sequence of integers"):
        model([[3], bad])


def test_a_vector_depends_on_its_text_alone() -> None:
    """Bit for bit: not on the other texts, their order, the threads, or what was in memory."""
    model = SentenceEncoder.from_bert(bert(), heads=HEADS)
    rng = np.random.default_rng(4)
    lengths = [0, 1, PLACES, 3, 0, 17, 16, 15, 2, 2, 64, 65]
    texts = [rng.integers(0, WORDS, n).tolist() for n in lengths]
    together = model(texts, threads=1)
    assert np.array_equal(together, model(texts, threads=2))
    assert np.array_equal(together, model(texts[::-1], threads=2)[::-1])
    assert np.array_equal(together, np.concatenate([model([text]) for text in texts]))
    plan = model.plan(lengths, 2)
    ids = np.concatenate(texts).astype(np.int32)
    for _ in range(2):
        for memory in (
            plan.embedded,
            plan.encoded,
            *plan.encoder.between.values(),
            *plan.encoder.states,
        ):
            memory.fill(np.nan)
        out = np.full_like(together, np.nan)
        assert np.array_equal(model.run(plan, ids, out), together)


def test_texts_as_arrays() -> None:
    model = SentenceEncoder.from_bert(bert(), heads=HEADS)
    texts = np.arange(12).reshape(3, 4)
    expected = model(texts.tolist())
    for kind in (np.int64, np.uint8, np.int32):
        assert np.array_equal(model(list(texts.astype(kind))), expected)
        assert np.array_equal(model(texts.astype(kind)), expected)
