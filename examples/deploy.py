"""An encoder layer in a process without cora: only NumPy and TVM's run time are imported.

    python -m cora build encoder --out results/lib
    python examples/deploy.py results/lib

The folder holds the kernels, what they compute (manifest.json), and the module that reads it (cora_deploy.py). The
layer runs on batches of several sizes, and each result is compared with NumPy in float64.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import numpy as np

BATCHES = ([3, 0, 5], [], [0, 0], [1], [7, 128, 33, 64, 65], [40] * 16)
#: What building the kernels takes, and running them does not.
COMPILERS = {"cora", "tvm", "llvmlite", "z3", "torch"}


def layer_norm(x, gamma, beta, epsilon):
    """Over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon) * gamma + beta


def activation(kind, x):
    """What is between the feed-forward products."""
    match kind:
        case "none":
            return x
        case "relu":
            return np.maximum(x, 0.0)
        case "gelu_tanh":
            return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1.0 + np.frompyfunc(math.erf, 1, 1)(x / math.sqrt(2.0)).astype(np.float64))


def attention(x, w, lengths, heads):
    """Of each sequence for itself, with the projections before and after."""
    queries, keys, values = np.split(x @ w["qkv"] + w["qkv_bias"], 3, axis=1)
    mixed = np.zeros_like(queries)
    size = queries.shape[1] // heads
    end = 0
    for length in lengths:
        own = slice(end, end := end + length)
        for head in range(heads):
            part = (own, slice(head * size, (head + 1) * size))
            scores = queries[part] @ keys[part].T / math.sqrt(size)
            e = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
            mixed[part] = e @ values[part] / e.sum(axis=1, keepdims=True)
    return mixed @ w["out"] + w["out_bias"]


def encoder_layer(config, w, x, lengths):
    """The layer in float64: what the kernels should compute."""

    def norm(number, t):
        return layer_norm(t, w[f"norm{number}_gamma"], w[f"norm{number}_beta"], config["epsilon"])

    def feed_forward(t):
        return (
            activation(config["activation"], t @ w["inner"] + w["inner_bias"]) @ w["outer"] + w["outer_bias"]
        )

    if config["norm"] == "post":
        x = norm(1, x + attention(x, w, lengths, config["heads"]))
        return norm(2, x + feed_forward(x))
    x = x + attention(norm(1, x), w, lengths, config["heads"])
    return x + feed_forward(norm(2, x))


def main(folder: Path) -> bool:
    """Run the layer in `folder` on all batches; whether every result is right."""
    sys.path.insert(0, str(folder))
    import cora_deploy

    start = time.perf_counter()
    layer = cora_deploy.load(folder)
    load_ms = 1e3 * (time.perf_counter() - start)
    rng = np.random.default_rng(0)
    weights = {}
    for name in layer.inputs:
        shape = layer.arrays[name]["shape"]
        if shape is not None:  # dense: a weight
            values = rng.standard_normal(shape, np.float32)
            scale = 0.1 if len(shape) == 1 else shape[0] ** -0.5
            weights[name] = values * np.float32(scale) + np.float32(name.endswith("gamma"))
    wide = {name: values.astype(np.float64) for name, values in weights.items()}
    weights = layer.pack(**weights)
    session = layer.session()
    off = 0.0
    for lengths in BATCHES:
        x = rng.standard_normal((sum(lengths), layer.about["hidden"]), np.float32)
        y = np.full_like(x, np.nan)
        session.run(x=x, lens=lengths, **weights, outputs={"y": y})
        expected = encoder_layer(layer.about, wide, x.astype(np.float64), lengths)
        off = max(off, float(np.nan_to_num(np.abs(y - expected), nan=np.inf).max(initial=0.0)))
    run_ms = math.inf
    for _ in range(5):
        start = time.perf_counter()
        session.run(x=x, lens=lengths, **weights, outputs={"y": y})
        run_ms = min(run_ms, 1e3 * (time.perf_counter() - start))
    loaded = sorted(COMPILERS & {name.partition(".")[0] for name, module in sys.modules.items() if module})
    assert not loaded, f"imported: {', '.join(loaded)}"
    right = off < 1e-4
    print(f"{'right' if right else 'WRONG'}: off by at most {off:.1e} on {len(BATCHES)} batches")
    print(f"loaded in {load_ms:.0f} ms; {len(x)} tokens in {run_ms:.1f} ms on {session.threads} thread(s)")
    return right


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(
            "usage: python examples/deploy.py FOLDER (that `python -m cora build encoder --out FOLDER` wrote)"
        )
    sys.exit(0 if main(Path(sys.argv[1])) else 1)
