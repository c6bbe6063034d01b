"""A program of five operators with a schedule of forty steps: softmax of ragged scores, scaled and projected."""

from __future__ import annotations

import cora

M = cora.size("M")
batch = cora.Dim("batch", M)
lens, kv = cora.lengths("lens", batch), cora.lengths("kv", batch)
pos, key = cora.Dim("pos", lens[batch]), cora.Dim("key", kv[batch])
inner, out = cora.Dim("inner", 40), cora.Dim("out", 70)
X = cora.placeholder("X", [batch, pos, inner])
Y = cora.placeholder("Y", [batch, key, inner])
V = cora.placeholder("V", [batch, key, out])
bias = cora.placeholder("bias", [out])
score = cora.compute(
    "score", [batch, pos, key], cora.sum(X[batch, pos, inner] * Y[batch, key, inner], over=inner) * 0.25
)
total = cora.compute("total", [batch, pos], cora.sum(cora.exp(score[batch, pos, key]), over=key))
weight = cora.compute("weight", [batch, pos, key], cora.exp(score[batch, pos, key]) / total[batch, pos])
mixed = cora.compute(
    "mixed", [batch, pos, out], cora.sum(weight[batch, pos, key] * V[batch, key, out], over=key)
)
result = cora.compute("result", [batch, pos, out], cora.tanh(mixed[batch, pos, out] + bias[out]))


def forty_steps() -> cora.Schedule:
    """Attention without heads: scores, their sums, weights and a panel of V are stages of a block of rows."""
    s = cora.schedule(result).inline(mixed).hoist_loads()
    s = s.split_dim(Y, key, 16, names=("yo", "yi")).reorder_dims(Y, batch, "yo", inner, "yi")
    s = s.fuse_dims(X, batch, pos, name="token").pad_dim(bias, out, 64)
    s = s.split(result, pos, 24, names=("block", "within"), tail="balanced")
    s = s.split(result, "within", 6, names=("tile", "row"), tail="balanced")
    s = s.split(result, out, 64, names=("panel", "column"))
    s = s.split(result, key, 128, names=("keys", "step"), tail="balanced")
    s = s.reorder(result, "block", "keys", "panel", "tile", "row", "column", "step")
    s = s.fuse(result, batch, "block", name="share").remap(result, "share", "descending")
    s = s.tensorize(result, "row")
    for stage in (weight, total, score):
        s = s.compute_at(stage, result, "share").set_scope(stage, "scratch")
    s = s.cache_read(result, V, "keys", "values")
    s = s.split_dim("values", out, 64, names=("vo", "vi")).reorder_dims("values", batch, "vo", key, "vi")
    s = s.split("values", out, 64, names=("vo", "vi")).reorder("values", "vo", key, "vi")
    s = s.vectorize("values", "vi", 64)
    s = s.split(score, key, 16, names=("so", "si")).split(score, pos, 4, names=("po", "pi"))
    s = s.split(score, inner, 8, names=("io", "ii"))
    s = s.reorder(score, "po", "so", "io", "ii", "pi", "si").unroll(score, "pi").vectorize(score, "si", 16)
    s = s.unroll(score, "ii").peel(weight, pos, last=1)
    s = s.split(weight, key, 16, names=("wo", "wi")).vectorize(weight, "wi", 16)
    s = s.split(total, pos, 4, tail="balanced")
    s = s.split(total, key, 16, names=("to", "ti")).vectorize(total, "ti", 16)
    return s.parallel(result, "share")
