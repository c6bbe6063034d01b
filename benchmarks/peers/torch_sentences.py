"""A sentence encoder in PyTorch: its modules one by one, and the fast path of torch.nn.TransformerEncoder."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.peers.sentences import Array, Library, Padded, Prepare
from benchmarks.peers.torch_encoder import encoder_layer, hush_nested
from cora.kernels import SentenceEncoder


def _load(model: SentenceEncoder, threads: int) -> dict[str, Prepare]:
    """ "torch": linear layers, scaled_dot_product_attention and norms, as models of BERT are written. "torch fast
    path": torch.nn.TransformerEncoder, which computes a layer in one operator, on nested tensors where texts are
    padded.
    """
    torch = import_module("torch")
    torch.set_num_threads(threads)
    hush_nested(torch)
    config = model.encoder.config
    layers = [encoder_layer(config, weights) for weights in model.encoder.layers]
    fast = torch.nn.TransformerEncoder(layers[0], len(layers)).eval()
    fast.layers = torch.nn.ModuleList(layers)

    def encode(x: Any, valid: Any) -> Any:
        return fast(x) if valid is None else fast(x, src_key_padding_mask=~valid)

    def compute(x: Any, valid: Any) -> Any:
        mask = None if valid is None else valid[:, None, None, :]
        for layer in layers:
            x = _layer(torch, config.heads, layer, x, mask)
        return x

    embed = _embedding(torch, model)
    return {
        "torch": lambda padded: _prepare(torch, embed, compute, padded),
        "torch fast path": lambda padded: _prepare(torch, embed, encode, padded),
    }


TORCH = Library("PyTorch", ("torch",), _load)


def _embedding(torch: Any, model: SentenceEncoder) -> Callable[[Any], Any]:
    functional = torch.nn.functional
    e = model.embeddings
    word, gamma, beta = (torch.from_numpy(np.ascontiguousarray(a)) for a in (e.word, e.gamma, e.beta))
    place = torch.from_numpy(e.position + e.kind)
    hidden, epsilon = model.encoder.config.hidden, model.encoder.config.epsilon

    def embed(ids: Any) -> Any:
        x = functional.embedding(ids, word) + place[: ids.shape[1]]
        return functional.layer_norm(x, (hidden,), gamma, beta, epsilon)

    return embed


def _prepare(
    torch: Any, embed: Callable[[Any], Any], encode: Callable[[Any, Any], Any], padded: Padded
) -> Callable[[], Array]:
    ids, shares = torch.from_numpy(padded.ids), torch.from_numpy(padded.shares)
    valid = None if padded.full else shares[:, 0] > 0

    def call() -> Array:
        with torch.inference_mode():
            mean = torch.bmm(shares, encode(embed(ids), valid))[:, 0]
            return np.asarray(torch.nn.functional.normalize(mean, dim=1).numpy())

    return call


def _layer(torch: Any, heads: int, layer: Any, x: Any, mask: Any) -> Any:
    functional = torch.nn.functional
    attention = layer.self_attn
    qkv = functional.linear(x, attention.in_proj_weight, attention.in_proj_bias)
    q, k, v = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
    first = layer.norm1(attention.out_proj(mixed) + x)
    return layer.norm2(layer.linear2(functional.gelu(layer.linear1(first))) + first)
