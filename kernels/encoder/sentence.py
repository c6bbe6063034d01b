"""Texts to vectors: embeddings of token numbers, encoder layers, and the mean over the tokens of each text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

import cora
from cora import UserError
from cora.kernels.arrays import Values
from cora.kernels.encoder.config import LayerConfig, LayerWeights
from cora.kernels.encoder.definition import tokens
from cora.kernels.encoder.layer import Encoder, EncoderPlan
from cora.kernels.encoder.schedules import LANES


def embedding(name: str, hidden: int, epsilon: float) -> tuple[cora.Tensor, cora.Tensor, cora.Tensor, Any]:
    """Layer norm of word[ids[b, i]] + position[i] + kind: average, variance, the result, and the sum before."""
    batch, i = tokens()
    n = cora.Dim("n", hidden)
    words, places = cora.Dim("words", cora.size("words")), cora.Dim("places", cora.size("places"))
    ids = cora.placeholder("ids", [batch, i], "int32")
    word, position = cora.placeholder("word", [words, n]), cora.placeholder("position", [places, n])
    kind, gamma, beta = (cora.placeholder(x, [n]) for x in ("kind", "gamma", "beta"))
    place = cora.where(i < places.extent, position[i, n], 0.0)
    total = cora.compute("total", [batch, i, n], word[ids[batch, i], n] + place + kind[n])
    average = cora.compute("average", [batch, i], cora.mean(total[batch, i, n], over=n))
    centred = total[batch, i, n] - average[batch, i]
    variance = cora.compute("variance", [batch, i], cora.mean(centred * centred, over=n))
    scaled = centred * cora.rsqrt(variance[batch, i] + epsilon)
    return average, variance, cora.compute(name, [batch, i, n], scaled * gamma[n] + beta[n]), total


def pooling(name: str, hidden: int) -> tuple[cora.Tensor, cora.Tensor, cora.Tensor]:
    """The mean over the tokens of each sequence, scaled to length 1: mean, its squared length, and the result.

    A sequence without tokens gives 0.
    """
    batch, i = tokens()
    n = cora.Dim("n", hidden)
    X = cora.placeholder("X", [batch, i, n])
    average = cora.compute("average", [batch, n], cora.mean(X[batch, i, n], over=i))
    square = cora.compute("square", [batch], cora.sum(average[batch, n] * average[batch, n], over=n))
    scale = cora.where(square[batch] > 0.0, cora.rsqrt(square[batch]), 0.0)
    return average, square, cora.compute(name, [batch, n], average[batch, n] * scale)


def sentence_schedules(config: LayerConfig) -> dict[str, cora.Schedule]:
    """The schedules of the kernels around an encoder: `embedded` and `pooled`."""
    average, variance, result, total = embedding("embedded", config.hidden, config.epsilon)
    embedded = cora.schedule(result).fuse(result, "batch", "i", name="token")
    for stage in (variance, average, total):
        embedded = embedded.compute_at(stage, result, "token")
    for stage in (total, average, variance, result):
        embedded = embedded.vectorize(stage, "n", LANES)
    mean, square, unit = pooling("pooled", config.hidden)
    pooled = cora.schedule(unit).compute_at(square, unit, "batch").compute_at(mean, unit, "batch")
    pooled = pooled.split(mean, "n", 4 * LANES, names=("no", "ni")).reorder(mean, "no", "i", "ni")
    pooled = pooled.vectorize(mean, "ni", 4 * LANES).vectorize(square, "n", LANES).vectorize(unit, "n", LANES)
    return {
        "embedded": embedded.parallel(result, "token"),
        "pooled": pooled.parallel(unit, "batch"),
    }


@lru_cache(maxsize=16)
def sentence_kernels(config: LayerConfig) -> dict[str, cora.Kernel]:
    """The built kernels of `sentence_schedules`."""
    return {name: cora.build(s) for name, s in sentence_schedules(config).items()}


@dataclass(frozen=True, slots=True, eq=False)
class Embeddings:
    """What token numbers become: word [words, hidden], position [places, hidden], kind [hidden], and a layer norm."""

    word: Values
    position: Values
    kind: Values
    gamma: Values
    beta: Values


@dataclass(frozen=True, slots=True, eq=False)
class SentencePlan:
    """The plans for one batch of lengths, and the memory between the kernels."""

    encoder: EncoderPlan
    around: cora.Plan
    embedded: Values
    encoded: Values


class SentenceEncoder:
    """A BERT-like model that turns each sequence of token numbers into one vector of length 1. Forward only."""

    def __init__(self, encoder: Encoder, embeddings: Embeddings) -> None:
        self.encoder = encoder
        self.embeddings = embeddings
        self.kernels = sentence_kernels(encoder.config)

    @classmethod
    def from_bert(
        cls, tensors: Mapping[str, npt.NDArray[Any]], *, heads: int, epsilon: float = 1e-12
    ) -> SentenceEncoder:
        """The model whose weights have the names that BERT's have in Hugging Face's checkpoints.

        tensors: by name, float32. Raises UserError for one that is missing.
        """

        def get(name: str) -> Values:
            if name not in tensors:
                raise UserError(f"from_bert: tensor '{name}' is missing")
            return np.asarray(tensors[name], np.float32)

        layers: list[LayerWeights] = []
        while f"encoder.layer.{len(layers)}.attention.self.query.weight" in tensors:
            layers.append(_bert_layer(get, f"encoder.layer.{len(layers)}."))
        word = get("embeddings.word_embeddings.weight")
        if not layers:
            raise UserError("from_bert: no tensor 'encoder.layer.0.attention.self.query.weight'")
        config = LayerConfig(
            word.shape[1], heads, layers[0].inner.shape[1], activation="gelu", epsilon=epsilon
        )
        embeddings = Embeddings(
            np.ascontiguousarray(word),
            np.ascontiguousarray(get("embeddings.position_embeddings.weight")),
            np.ascontiguousarray(get("embeddings.token_type_embeddings.weight")[0]),
            get("embeddings.LayerNorm.weight"),
            get("embeddings.LayerNorm.bias"),
        )
        return cls(Encoder(config, layers), embeddings)

    def plan(self, lengths: Any, threads: int | None = None) -> SentencePlan:
        """A plan for `run`. Raises UserError for a sequence longer than the table of positions."""
        encoder = self.encoder.plan(lengths, threads)
        places = len(self.embeddings.position)
        if int(encoder.lengths.max(initial=0)) > places:
            at = int(np.argmax(encoder.lengths))
            raise UserError(
                f"sentences: expected at most {places} tokens; sequence {at} has {encoder.lengths[at]}"
            )
        around = cora.plan(
            list(self.kernels.values()),
            lens=encoder.lengths,
            threads=threads,
            words=len(self.embeddings.word),
            places=places,
        )
        shape = (encoder.count, self.encoder.config.hidden)
        return SentencePlan(encoder, around, np.empty(shape, np.float32), np.empty(shape, np.float32))

    def run(self, plan: SentencePlan, ids: npt.NDArray[np.int32], out: Values) -> Values:
        """Write the vectors of the texts of a plan into `out` [batch, hidden]; ids: [tokens], packed."""
        e = self.embeddings
        arrays = {
            "ids": ids,
            "word": e.word,
            "position": e.position,
            "kind": e.kind,
            "gamma": e.gamma,
            "beta": e.beta,
        }
        kernel = self.kernels["embedded"]
        kernel.run(plan.around, *(arrays[n] for n in kernel.inputs), outputs={"embedded": plan.embedded})
        self.encoder.run(plan.encoder, plan.embedded, plan.encoded)
        self.kernels["pooled"].run(plan.around, plan.encoded, outputs={"pooled": out})
        return out

    def __call__(self, texts: Sequence[Sequence[int]], *, threads: int | None = None) -> Values:
        """The vectors [texts, hidden] of sequences of token numbers; of a text without tokens, 0.

        Makes a plan each time, and drops it: batches of texts rarely have the same lengths. Where they do, `plan` once
        and `run`. Raises UserError for what is not a sequence of integers below the number of words.
        """
        rows = [_row(number, text, len(self.embeddings.word)) for number, text in enumerate(texts)]
        ids = np.concatenate(rows, dtype=np.int32) if rows else np.empty(0, np.int32)
        out = np.empty((len(rows), self.encoder.config.hidden), np.float32)
        return self.run(self.plan([len(row) for row in rows], threads), ids, out)


def _row(number: int, text: Sequence[int], words: int) -> npt.NDArray[np.int32]:
    row = np.asarray(text)
    if row.shape == (0,):
        return np.empty(0, np.int32)
    if row.ndim != 1 or row.dtype.kind not in "iu":
        raise UserError(
            f"sentences: text {number}: expected a sequence of integers; got {row.dtype} of shape {row.shape}"
        )
    if row.min() < 0 or row.max() >= words:
        outside = row[(row < 0) | (row >= words)][0]
        raise UserError(
            f"sentences: text {number}: expected token numbers from 0 to {words - 1}; got {outside}"
        )
    return row.astype(np.int32)


def _bert_layer(get: Any, prefix: str) -> LayerWeights:
    def matrix(name: str) -> Values:
        return np.ascontiguousarray(get(f"{prefix}{name}.weight").T)

    def bias(name: str) -> Values:
        return np.ascontiguousarray(get(f"{prefix}{name}.bias"))

    projections = [f"attention.self.{name}" for name in ("query", "key", "value")]
    return LayerWeights(
        np.concatenate([matrix(name) for name in projections], axis=1),
        np.concatenate([bias(name) for name in projections]),
        matrix("attention.output.dense"),
        bias("attention.output.dense"),
        get(f"{prefix}attention.output.LayerNorm.weight"),
        bias("attention.output.LayerNorm"),
        matrix("intermediate.dense"),
        bias("intermediate.dense"),
        matrix("output.dense"),
        bias("output.dense"),
        get(f"{prefix}output.LayerNorm.weight"),
        bias("output.LayerNorm"),
    )
