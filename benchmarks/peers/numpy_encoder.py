"""An encoder layer in NumPy: what it should compute, sequence by sequence in float64; and padded, as fast as NumPy can.

It knows nothing of cora but the names of the weights.
"""

from __future__ import annotations

import ctypes
import math
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.peers.torch_encoder import Array, Lengths, Way
from cora import UnsupportedError
from cora.kernels import LayerConfig, LayerWeights

Wide = npt.NDArray[np.float64]


def reference(config: LayerConfig, w: LayerWeights, x: Array, lengths: Lengths) -> Wide:
    """The layer on packed tokens [tokens, hidden], in float64; for relu, in either order of the norms."""
    _check(config)
    wide = {name: np.asarray(getattr(w, name), np.float64) for name in config.shapes()}
    out = np.empty(x.shape, np.float64)
    end = 0
    for length in lengths.tolist():
        own = slice(end, end := end + length)
        out[own] = _sequence(config, wide, x[own].astype(np.float64))
    return out


def _sequence(config: LayerConfig, w: dict[str, Wide], x: Wide) -> Wide:
    """The layer on one sequence."""

    def norm(number: int, t: Wide) -> Wide:
        centred = t - t.mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + config.epsilon)
        return np.asarray(scaled * w[f"norm{number}_gamma"] + w[f"norm{number}_beta"])

    def attended(t: Wide) -> Wide:
        q, k, v = np.split(t @ w["qkv"] + w["qkv_bias"], 3, axis=1)
        heads = []
        for h in range(config.heads):
            part = slice(h * config.head_size, (h + 1) * config.head_size)
            scores = q[:, part] @ k[:, part].T / math.sqrt(config.head_size)
            e = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
            heads.append(e @ v[:, part] / e.sum(axis=1, keepdims=True))
        return np.asarray(np.concatenate(heads, axis=1) @ w["out"] + w["out_bias"])

    def fed(t: Wide) -> Wide:
        return np.asarray(np.maximum(t @ w["inner"] + w["inner_bias"], 0.0) @ w["outer"] + w["outer_bias"])

    if config.norm == "post":
        x = norm(1, x + attended(x))
        return norm(2, x + fed(x))
    x = x + attended(norm(1, x))
    return x + fed(norm(2, x))


def padded(config: LayerConfig, w: LayerWeights, x: Array, lengths: Lengths) -> Way:
    """The layer on sequences padded to the longest; arrays between the operators exist beforehand.

    Only for relu and norms after the residuals: raises UnsupportedError for other layers.
    """
    _check(config)
    if config.norm != "post":
        raise UnsupportedError("numpy_encoder: norms before the products")
    count, longest, h = len(lengths), int(lengths.max(initial=0)), config.hidden
    valid = np.arange(longest)[None] < lengths[:, None]
    tokens = np.zeros((count * longest, h), np.float32)
    tokens[valid.reshape(-1)] = x
    hidden_keys = np.where(valid, np.float32(0), np.float32(np.finfo(np.float32).min))[:, None, None]
    scale = np.float32(config.head_size**-0.5)
    rows = count * longest
    qkv, inner = np.empty((rows, 3 * h), np.float32), np.empty((rows, config.inner), np.float32)
    first, second, out = (np.empty((rows, h), np.float32) for _ in range(3))
    scores = np.empty((count, config.heads, longest, longest), np.float32)
    split = qkv.reshape(count, longest, 3, config.heads, config.head_size)
    queries, keys, values = (split[:, :, part].transpose(0, 2, 1, 3) for part in range(3))

    def call() -> None:
        np.matmul(tokens, w.qkv, out=qkv)
        np.add(qkv, w.qkv_bias, out=qkv)
        np.matmul(queries, keys.transpose(0, 1, 3, 2), out=scores)
        np.multiply(scores, scale, out=scores)
        np.add(scores, hidden_keys, out=scores)
        np.subtract(scores, scores.max(axis=-1, keepdims=True), out=scores)
        np.exp(scores, out=scores)
        np.divide(scores, scores.sum(axis=-1, keepdims=True), out=scores)
        mixed = np.matmul(scores, values).transpose(0, 2, 1, 3).reshape(rows, h)
        np.matmul(mixed, w.out, out=first)
        np.add(first, w.out_bias, out=first)
        np.add(first, tokens, out=first)
        _norm(first, w.norm1_gamma, w.norm1_beta, config.epsilon, second)
        np.matmul(second, w.inner, out=inner)
        np.add(inner, w.inner_bias, out=inner)
        np.maximum(inner, 0.0, out=inner)
        np.matmul(inner, w.outer, out=first)
        np.add(first, w.outer_bias, out=first)
        np.add(first, second, out=first)
        _norm(first, w.norm2_gamma, w.norm2_beta, config.epsilon, out)

    return Way(call, lambda: out[valid.reshape(-1)])


def _norm(x: Array, gamma: Array, beta: Array, epsilon: float, out: Array) -> None:
    """Layer norm over the last axis; x is overwritten."""
    np.subtract(x, x.mean(axis=-1, keepdims=True), out=x)
    variance = np.square(x, out=out).mean(axis=-1, keepdims=True)
    np.divide(x, np.sqrt(variance + np.float32(epsilon)), out=out)
    np.multiply(out, gamma, out=out)
    np.add(out, beta, out=out)


def _check(config: LayerConfig) -> None:
    if config.activation != "relu":
        raise UnsupportedError(f"numpy_encoder: activation {config.activation!r}; expected 'relu'")


def set_threads(threads: int) -> bool:
    """How many threads NumPy's own products use from now on; False where its library is not OpenBLAS."""
    maps = Path("/proc/self/maps").read_text()
    for path in dict.fromkeys(re.findall(r"/\S*numpy\S*openblas\S*\.so\S*", maps)):
        library = ctypes.CDLL(path)
        for name in (
            "scipy_openblas_set_num_threads64_",
            "scipy_openblas_set_num_threads",
            "openblas_set_num_threads",
        ):
            if hasattr(library, name):
                getattr(library, name)(ctypes.c_int(threads))
                return True
    return False
