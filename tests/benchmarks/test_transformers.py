"""The experiments with transformers, on one small batch and with known times: their rows, and that errors show."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import cora
from benchmarks import (
    breakdown,
    encoder,
    masked_sdpa,
    memory,
    mha,
    pad_fusion,
    partial_padding,
    prelude,
    transformer,
    waste,
)
from benchmarks.lengths import DATASETS
from benchmarks.options import Options
from benchmarks.peers import torch_attention, torch_encoder
from benchmarks.peers.torch_encoder import Way
from benchmarks.timer import Timing
from benchmarks.transformer import OWN
from cora.kernels import EncoderLayer, LayerWeights
from cora.kernels.encoder.definition import tokens
from tests.benchmarks.small import CASE, LAYER, LENGTHS, PEAK_GFLOPS, over_cora, run, shrink, values

TOKENS = int(LENGTHS.sum())
PAIRS = int((LENGTHS.astype(int) ** 2).sum())
H, F = LAYER.hidden, LAYER.inner
USEFUL = 2 * TOKENS * H * (4 * H + 2 * F) + 4 * H * PAIRS
PEERS = {
    encoder: (torch_encoder, "ways", "layer"),
    mha: (torch_attention, "mha_ways", "mha"),
    masked_sdpa: (torch_attention, "sdpa_ways", "sdpa"),
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests of this file keep kernels."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, kernels: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(kernels))
    for module in (*PEERS, breakdown, memory, pad_fusion, partial_padding, prelude, waste):
        shrink(monkeypatch, module)
    for module in (torch_encoder, torch_attention):
        monkeypatch.setattr(module, "MICRO_BATCHES", (2, 4))


@pytest.mark.parametrize("module", PEERS, ids=lambda m: m.EXPERIMENT)
def test_pytorch_agrees_and_is_compared(module: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    right, output, rows = run(module, tmp_path)
    assert right, output
    ratios = over_cora(rows, PEERS[module][2])
    assert {"torch padded", "torch by sequence"} <= set(ratios)
    if module is not masked_sdpa:
        sizes = [name for name in ratios if "micro-batches" in name]
        assert sizes == ["torch micro-batches"]
    assert {r.unit for r in rows if r.metric == PEERS[module][2]} == {"ms"}


@pytest.mark.parametrize("module", PEERS, ids=lambda m: m.EXPERIMENT)
def test_without_pytorch(module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for peers in (torch_encoder, torch_attention):
        monkeypatch.setattr(peers, "installed", lambda: False)
    right, output, rows = run(module, tmp_path)
    assert right, output
    assert not [r for r in rows if r.variant.startswith("torch")]


@pytest.mark.parametrize("module", PEERS, ids=lambda m: m.EXPERIMENT)
@pytest.mark.parametrize("error", [1e-2, math.nan])
def test_a_wrong_peer_is_reported_and_left_out(
    module: ModuleType, error: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*_planted(module, {"honest": 0.0, "liar": error}))
    right, output, rows = run(module, tmp_path)
    assert not right
    assert "cola 32: liar gives another result" in output
    assert "honest gives" not in output
    assert "honest" in over_cora(rows, PEERS[module][2])
    assert not [r for r in rows if r.variant == "liar"]


def _planted(module: ModuleType, errors: dict[str, float]) -> tuple[ModuleType, str, object]:
    """What to replace the peers by: ways whose results are ours, but for an error in the last element."""
    peers, name, _ = PEERS[module]

    def way(expected: np.ndarray, error: float) -> Way:
        result = expected.copy()
        result.flat[-1] += error
        return Way(lambda: None, lambda: result)

    def ways(*arguments: object, **_: object) -> dict[str, Way]:
        expected = _by_numpy(module, *arguments)
        return {name: way(expected, error) for name, error in errors.items()}

    return peers, name, ways


def _by_numpy(module: ModuleType, *arguments: object) -> np.ndarray:
    """What the peers of an experiment are asked for."""
    if module is encoder:
        _, weights, x, lengths, _ = arguments
        return np.asarray(EncoderLayer(LAYER, weights)(x, lengths, threads=1))
    if module is mha:
        (w, b), (w_out, b_out), heads, x, lengths, _ = arguments
        q, k, v = np.split((x.astype(np.float64) @ w + b).reshape(len(x), 3 * heads, -1), 3, axis=1)
        return (_attention(q, k, v, lengths, False).reshape(len(x), -1) @ w_out + b_out).astype(np.float32)
    q, k, v, lengths, _ = arguments
    return _attention(q, k, v, lengths, True).astype(np.float32)


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, lengths: np.ndarray, causal: bool) -> np.ndarray:
    out = np.zeros(q.shape)
    for end, n in zip(np.cumsum(lengths), lengths, strict=True):
        at = slice(end - n, end)
        scores = np.einsum("ihd,jhd->hij", q[at].astype(np.float64), k[at]) * q.shape[2] ** -0.5
        if causal:
            scores[:, ~np.tri(n, dtype=bool)] = -np.inf
        weights = np.exp(scores - scores.max(axis=2, keepdims=True, initial=-np.inf)) if n else scores
        out[at] = np.einsum("hij,jhd->ihd", weights / weights.sum(axis=2, keepdims=True), v[at])
    return out


def test_encoder_counts_what_is_useful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*_planted(encoder, {"other": 0.0}))
    _, output, rows = run(encoder, tmp_path)
    value = values(rows)
    assert value[OWN, "tokens"] == TOKENS
    assert value[OWN, "layer"] == 2.0
    assert value[OWN, "share_of_fma_peak"] == pytest.approx(USEFUL / 2e6 / PEAK_GFLOPS)
    memory_bytes = EncoderLayer(LAYER, LayerWeights.random(LAYER)).plan(LENGTHS, 1).memory().total_bytes
    assert value[OWN, "plan_memory"] == memory_bytes
    assert over_cora(rows, "layer") == {"other": 2.0}
    assert "2.00" in next(line for line in output.splitlines() if "geomean" in line)


def test_mha_counts_what_is_useful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*_planted(mha, {"other": 0.0}))
    _, _, rows = run(mha, tmp_path)
    assert values(rows)[OWN, "useful_speed"] == pytest.approx((8 * TOKENS * H * H + 4 * H * PAIRS) / 2e6)
    assert over_cora(rows, "mha") == {mha.OFFLOADED: 2.0, "other": 3.0}


def test_a_wrong_projection_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    product = np.matmul
    monkeypatch.setattr(mha.np, "matmul", lambda a, b, out: product(a, 2 * b, out=out))
    right, output, _ = run(mha, tmp_path)
    assert not right
    assert f"{mha.OFFLOADED} gives another result" in output


def test_masked_sdpa_does_less_than_the_square(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*_planted(masked_sdpa, {"other": 0.0}))
    _, _, rows = run(masked_sdpa, tmp_path)
    value = values(rows)
    useful = 4 * H * (PAIRS + TOKENS) / 2
    assert value[OWN, "useful_speed"] == pytest.approx(useful / 2e6)
    executed = {v: value[v, "executed_over_useful_flops"] for v in (OWN, masked_sdpa.SQUARE)}
    assert executed[OWN] >= 1
    assert executed[masked_sdpa.SQUARE] >= 1
    assert over_cora(rows, "sdpa") == {masked_sdpa.SQUARE: 2.0, "other": 3.0}


def test_breakdown_adds_up(tmp_path: Path) -> None:
    right, output, rows = run(breakdown, tmp_path)
    assert right, output
    value = values(rows)
    kernels = tuple(breakdown.PAPER_KERNELS)
    assert {r.variant for r in rows} == {*kernels, OWN}
    whole = value[OWN, "layer"]
    assert whole == 14.0
    for number, kernel in enumerate(kernels, 1):
        assert value[kernel, "time"] == 2.0 * number * (2 if kernel == "normed" else 1)
        assert value[kernel, "share"] == pytest.approx(value[kernel, "time"] / whole)
    flops = sum(
        value[k, "share_of_fma_peak"] * PEAK_GFLOPS * 1e6 * value[k, "time"] for k in kernels if k != "normed"
    )
    assert flops == pytest.approx(USEFUL)
    assert ("normed", "share_of_fma_peak") not in value


def test_prelude_shares_tables(tmp_path: Path) -> None:
    right, _, rows = run(prelude, tmp_path)
    assert right
    value = values(rows)
    assert value[OWN, "prelude"] == 2.0
    assert value[prelude.REDUNDANT, "prelude"] == 4.0
    assert value[prelude.TREE, "storage"] == 6.0
    assert value[OWN, "share_of_a_layer"] == pytest.approx(2.0 / prelude.LAYERS / 8.0)
    assert 0 < value[OWN, "tables_bytes"] < value[prelude.REDUNDANT, "tables_bytes"] / prelude.LAYERS
    # an entry for each slice of both ragged levels
    tree = 4 * (len(LENGTHS) + TOKENS * LAYER.heads)
    assert value[prelude.TREE, "storage_bytes"] == tree
    starts, columns = prelude._tree(LENGTHS, LAYER.heads)
    assert 4 * (len(starts) - 1 + len(columns) - 1) == tree
    assert columns[-1] == PAIRS * LAYER.heads
    assert value[OWN, "storage_bytes"] < tree


def test_pad_fusion(tmp_path: Path) -> None:
    right, output, rows = run(pad_fusion, tmp_path)
    assert right, output
    assert over_cora(rows, "attention") == {pad_fusion.APART: 2.0}


def test_pad_fusion_reports_a_wrong_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def doubling() -> cora.Schedule:
        batch, i = tokens()
        parts, heads = cora.Dim("part", 3), cora.Dim("heads", LAYER.heads)
        dims = [batch, i, parts, heads, cora.Dim("d", LAYER.head_size)]
        packed = cora.placeholder("packed", dims)
        copied = cora.compute("QKV", dims, 2 * packed[tuple(dims)])
        return cora.schedule(copied).pad_dim("QKV", "i", pad_fusion.MULTIPLE)

    monkeypatch.setattr(pad_fusion, "_add_padding", doubling)
    right, output, _ = run(pad_fusion, tmp_path)
    assert not right
    assert "the two give different results" in output


def test_memory(tmp_path: Path) -> None:
    right, _, rows = run(memory, tmp_path)
    assert right
    value = values(rows)
    by_token = 3 * H + 3 * H + F + 2 * H
    assert value[OWN, "activations"] == 4 * (by_token * TOKENS + 2 * LAYER.heads * PAIRS)
    for variant, longest in ((memory.TO_LONGEST, 40), (memory.TO_MAXIMUM, 48)):
        stored = 4 * 32 * (by_token * longest + 2 * LAYER.heads * longest**2)
        assert value[variant, "activations"] == stored
        assert value[variant, "activations_over_cora"] == pytest.approx(stored / value[OWN, "activations"])
    assert value[OWN, "plan_workspace"] < value[OWN, "plan"]


def test_partial_padding(tmp_path: Path) -> None:
    right, _, rows = run(partial_padding, tmp_path)
    assert right
    value = values(rows)
    padded = -(-LENGTHS.astype(int) // 32) * 32
    tokens_padded = -(-TOKENS // 64) * 64
    scheme = (2 * tokens_padded * H * (4 * H + 2 * F) + 4 * H * (padded**2).sum()) / USEFUL
    assert value[partial_padding.SCHEME, "executed_over_useful_flops"] == pytest.approx(scheme)
    assert value[OWN, "executed_over_useful_flops"] >= 1


def test_waste(tmp_path: Path) -> None:
    """Sequences of 3 and 1 in turn, and a batch without tokens."""
    lengths = np.array([0, 0, *[3, 1] * 255], np.int32)
    for dataset in DATASETS:
        np.save(tmp_path / f"{dataset}.npy", lengths)
    right, _, rows = run(waste, tmp_path, lengths=tmp_path)
    assert right
    value = {r.batch_size: r.value for r in rows if r.dataset == "race"}
    assert tuple(value) == waste.BATCH_SIZES
    assert {(r.variant, r.metric, r.unit) for r in rows} == {
        (dataset, "padded_over_useful_flops", "") for dataset in DATASETS
    }
    per_token = 2 * H * (4 * H + 2 * F)
    assert value[1] == 1.0
    assert value[2] == pytest.approx(2 * (3 * per_token + 36 * H) / (4 * per_token + 40 * H))
    assert value[2] < value[128]


def test_cases_come_in_order() -> None:
    options = Options(True, Path(), None, 1)
    assert [(c.dataset, c.batch_size) for c in transformer.cases(options)] == [
        ("cola", 32),
        ("mnli", 32),
        ("squad", 32),
    ]
    full = transformer.cases(Options(False, Path(), None, 1))
    assert len(full) == len(DATASETS) * len(transformer.BATCH_SIZES)
    assert all(len(c.lengths) == c.batch_size for c in full)


def test_best_micro_batches() -> None:
    ms = {
        "cora": 3.0,
        "a micro-batches of 1": 5.0,
        "a micro-batches of 16": 2.0,
        "b micro-batches of 8": 7.0,
        "b padded": 1.0,
        "c of 3": 9.0,
    }
    timings = {name: Timing.of((time,)) for name, time in ms.items()}
    best = {name: timing.median_ms for name, timing in transformer.best_micro_batches(timings).items()}
    assert best == {
        "cora": 3.0,
        "a micro-batches": 2.0,
        "b micro-batches": 7.0,
        "b padded": 1.0,
        "c of 3": 9.0,
    }
    sizes = {name: size for name, (size, _) in transformer.best_sizes(timings).items()}
    assert sizes == {"a micro-batches": 16, "b micro-batches": 8}


def test_check_and_means() -> None:
    expected = np.array([100.0, 1.0], np.float32)
    assert transformer.check("", expected + np.float32(0.01), expected)
    assert not transformer.check("", expected + np.float32(0.03), expected)
    assert not transformer.check("", np.full(2, np.nan, np.float32), expected)
    assert transformer.check("", expected[:0], expected[:0])
    assert transformer.geomean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(transformer.geomean([]))
    assert CASE.label == "cola 32"
