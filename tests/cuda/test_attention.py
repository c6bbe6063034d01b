"""Attention on a GPU or its emulator against NumPy: every variant, hostile lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import cora
from cora.kernels.attention import cuda, flash
from cora.kernels.attention.definition import Attention, define, packed_qkv
from cora.kernels.attention.recipe import ATTENTION
from tests.kernels import reference
from tests.reference import assert_matches

SELF = ((), (0,), (0, 3, 0, 0), (1,), (63, 64, 65), (1, 130, 2))
CROSS = (((), ()), ((0, 3, 5, 0), (4, 0, 5, 0)), ((1, 70, 2), (66, 1, 17)))


@dataclass(frozen=True)
class Use:
    """A kind of attention, how it is scheduled, and the lengths that it is tried on."""

    kind: Attention
    schedule: str
    batches: tuple[Any, ...]
    packed: bool = False


def kind(heads: int, groups: int, size: int, value_size: int, **more: Any) -> Attention:
    return Attention(heads, groups, size, value_size, size**-0.5, block=cuda.ROWS, **more)


USES = {
    "plain": Use(kind(2, 2, 64, 64), "stored", SELF),
    "packed_causal": Use(kind(1, 1, 16, 16, causal="bottom-right", window=40), "stored", SELF, packed=True),
    "cross_grouped": Use(
        kind(4, 2, 20, 72, causal="bottom-right", one_length=False, lse=True), "stored", CROSS
    ),
    "flash_plain": Use(kind(2, 2, 64, 64), "flash", SELF),
    "flash_causal": Use(kind(2, 1, 32, 40, causal="bottom-right", lse=True), "flash", SELF),
    "flash_packed_window": Use(
        kind(1, 1, 16, 16, causal="bottom-right", window=40), "flash", SELF, packed=True
    ),
    "flash_cross_grouped": Use(
        kind(4, 2, 20, 72, causal="bottom-right", one_length=False, lse=True), "flash", CROSS
    ),
    "flash_wide_values": Use(kind(1, 1, 68, 132, one_length=False), "flash", CROSS),
    "flash_large_blocks": Use(
        Attention(1, 1, 8, 8, 0.3, causal="top-left", one_length=False, lse=True, block=96), "flash", CROSS
    ),
}
SCHEDULES = {"stored": cuda.stored, "flash": flash.flash}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> cora.Settings:
    return cora.Settings(cache_dir=tmp_path_factory.mktemp("attention"))


def schedule(use: Use) -> cora.Schedule:
    program = define(use.kind, packed_qkv) if use.packed else define(use.kind)
    make = SCHEDULES[use.schedule]
    return make(program, queries="QKV", values="QKV") if use.packed else make(program)


@pytest.mark.parametrize("name", USES)
def test_against_numpy(
    name: str, device: str, settings: cora.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    use = USES[name]
    kernel = cora.build(schedule(use), "cuda", settings)
    for number, lengths in enumerate(use.batches):
        monkeypatch.setenv("CORA_EMULATOR_ORDER", str((0, 1, 7, 2, 3)[number % 5]))
        check(
            use,
            kernel,
            lengths if use.kind.one_length else lengths[0],
            lengths if use.kind.one_length else lengths[1],
        )


def check(use: Use, kernel: cora.Kernel, lens: tuple[int, ...], kv_lens: tuple[int, ...]) -> None:
    spec, rng = use.kind, np.random.default_rng(sum(lens))
    q = rng.standard_normal((sum(lens), spec.heads, spec.head_size), np.float32)
    k = rng.standard_normal((sum(kv_lens), spec.kv_heads, spec.head_size), np.float32)
    v = rng.standard_normal((sum(kv_lens), spec.kv_heads, spec.value_size), np.float32)
    named: dict[str, Any] = {"lens": list(lens)}
    if not spec.one_length:
        named["kv_lens"] = list(kv_lens)
    if use.packed:
        named["QKV"] = np.stack([q, k, v], axis=1)
    else:
        named.update(Q=q, K=k, V=v)
    result = kernel(**named)
    expected, sums = reference.attention(q, k, v, lens, kv_lens, spec.scale, spec.causal, spec.window)
    out, lse = result if spec.lse else (result, None)
    np.testing.assert_allclose(out.values.reshape(expected.shape), expected, rtol=2e-6, atol=4e-6)
    if lse is not None:
        np.testing.assert_allclose(lse.values.reshape(sums.shape), sums, rtol=2e-6, atol=4e-6)


@pytest.mark.parametrize("lengths", [(), (0, 3), (1, 70, 34)])
def test_bias_and_mask_in_one_pass(lengths: tuple[int, ...], device: str, settings: cora.Settings) -> None:
    """Whole tiles of keys that are not seen come before, between and after visible ones."""
    spec = kind(
        1,
        1,
        8,
        8,
        bias=lambda at: cora.cast(at.j - at.i, "float32") * 0.25,
        mask=lambda at: ((at.j >= 32) | (at.i < 2)) & (at.j % 7 < 5),
    )
    s = flash.flash(define(spec))
    inputs = [t for t in s.tensors if t.body is None]
    arrays = [cora.RaggedArray.empty(t, {"lens": lengths}, {"batch_size": len(lengths)}) for t in inputs]
    for array in arrays:
        array.values[:] = np.random.default_rng(array.values.size).standard_normal(array.values.size)
    kernel = cora.build(s, "cuda", settings)
    assert_matches(cora.interpret(s.outputs[0], arrays), kernel(*arrays))


def test_sums_that_several_blocks_continue_are_refused() -> None:
    with pytest.raises(cora.UnsupportedError, match="use the variant 'stored'"):
        flash.flash(define(kind(1, 1, 8, 132, lse=True)))
    s = flash.flash(define(kind(1, 1, 8, 132)))
    with pytest.raises(cora.ScheduleError, match="'top' is the same for several iterations of 'part'"):
        cora.build(s.set_scope("top", "memory"), "cuda")


def test_the_default_takes_every_kind() -> None:
    chosen = ATTENTION.variant("cuda").make
    for spec, made in (
        (kind(1, 1, 8, 132, lse=True), cuda.stored),
        (kind(1, 1, 8, 128, lse=True), flash.flash),
    ):
        program = define(spec)
        assert chosen(program) == made(program)
