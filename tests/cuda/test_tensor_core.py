"""Products by tensor cores: shapes of a warp's tile, both orders of the second operand, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import cora
from tests.cuda.built import Built
from tests.cuda.test_emulator import caught, mutant
from tests.operators.harness import TF32_ULPS, Array, Batch, Case, check, work_of

batch = cora.Dim("batch", cora.size("M"))
pos = cora.Dim("pos", cora.lengths("lens", batch)[batch])
BATCHES = tuple(Batch({"lens": n}, {"M": len(n)}) for n in ((), (0,), (0, 3, 0, 0), (1, 31, 32, 33), (70,)))


def product(columns: int, depth: int, *, turned: bool, dtype: str = "float16") -> cora.Tensor:
    """Tokens times a matrix, or, turned, times the transpose of one."""
    n, k = cora.Dim("n", columns), cora.Dim("k", depth)
    X = cora.placeholder("X", [batch, pos, k], dtype=dtype)
    W = cora.placeholder("W", [n, k] if turned else [k, n], dtype=dtype)
    value = X[batch, pos, k] * (W[n, k] if turned else W[k, n])
    return cora.compute("C", [batch, pos, n], cora.sum(value, over=k) * 2)


def tiled(
    C: cora.Tensor, rows: int, columns: int, depth: int, pad: int = 8, *, tf32: bool = False
) -> cora.Schedule:
    """A tile of two warps side by side, `rows` x `columns` each."""
    s = cora.schedule(C).fuse(C, batch, pos, name="token").split(C, "token", rows, names=("it", "row"))
    s = s.split(C, "n", 2 * columns, names=("jt", "two")).split(C, "two", columns, names=("warp", "column"))
    s = s.split(C, "k", depth, names=("ko", "ki")).reorder(C, "it", "jt", "ko", "warp", "row", "column", "ki")
    s = s.cache_read(C, "X", "ko", name="Xs").cache_read(C, "W", "ko", name="Ws")
    s = s.tensor_core(C, "row", "column", "ki", tf32=tf32)
    for stage in ("Xs", "Ws"):
        inner = s.nest(stage).leaves[-1].name
        s = s.pad_dim(stage, inner, pad) if pad > 1 else s
        s = s.split(stage, inner, 32, names=("turn", "x")).bind(stage, "x", "threadIdx.x")
        outer = s.nest(stage).leaves[0].name
        s = s.split(stage, outer, 2, names=("rows", "y")).bind(stage, "y", "threadIdx.y")
    return s.bind(C, "warp", "threadIdx.y").bind(C, "it", "blockIdx.x").bind(C, "jt", "blockIdx.y")


@pytest.mark.parametrize(
    ("columns", "shape", "turned", "dtype", "stages"),
    [
        (48, (32, 24, 16), False, "float16", 1),
        (32, (16, 8, 32), False, "bfloat16", 2),
        (48, (16, 24, 32), True, "float16", 2),
        (16, (32, 8, 16), True, "bfloat16", 1),
        (16, (16, 8, 16), False, "float16", 3),
        (16, (16, 8, 32), True, "float16", 4),
    ],
)
def test_products(
    columns: int, shape: tuple[int, int, int], turned: bool, dtype: str, stages: int, built: Built, order: int
) -> None:
    C = product(columns, 64, turned=turned, dtype=dtype)

    def schedule(_: cora.Schedule) -> cora.Schedule:
        s = tiled(C, *shape)
        return s.pipeline(C, "ko", stages) if stages > 1 else s

    case = Case(
        f"tensor_core_{columns}_{turned}_{dtype}_{stages}", (C,), BATCHES, {"warps": schedule}, ulps=8
    )
    kernel = built.get(case, "warps")
    assert re.search(r"cora_mma_b?f16\(\(", kernel.source())
    for number in range(len(case.batches)):
        check(case, kernel, work_of(case, number))


@pytest.mark.parametrize(
    ("columns", "shape", "turned", "stages"),
    [
        (48, (32, 24, 16), False, 1),
        (32, (16, 8, 32), False, 2),
        (48, (16, 24, 32), True, 3),
        (16, (32, 8, 16), True, 4),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_products_in_tf32(
    columns: int,
    shape: tuple[int, int, int],
    turned: bool,
    stages: int,
    exact: bool,
    built: Built,
    order: int,
) -> None:
    """exact: operands have 11 bits, so that they lose nothing."""
    C = product(columns, 64, turned=turned, dtype="float32")

    def schedule(_: cora.Schedule) -> cora.Schedule:
        s = tiled(C, *shape, tf32=True)
        return s.pipeline(C, "ko", stages) if stages > 1 else s

    fills = {"X": short, "W": short} if exact else {}
    case = Case(
        f"tf32_{columns}_{turned}", (C,), BATCHES, {"warps": schedule}, fills, ulps=8 if exact else TF32_ULPS
    )
    kernel = built.get(case, "warps")
    for number in range(len(case.batches)):
        check(case, kernel, work_of(case, number))


def short(rng: np.random.Generator, batch: Batch, indices: Array) -> Array:
    """Numbers of 11 bits."""
    return rng.integers(-1024, 1025, len(indices)).astype(np.float32) / 64


def test_tf32_rounds_to_nearest(built: Built) -> None:
    """Numbers are 1 + n / 2^13, of which bits behind the tenth are rounded, ties away from 0."""
    C = product(32, 64, turned=False, dtype="float32")
    case = Case("tf32_rounds", (C,), BATCHES, {"warps": lambda _: tiled(C, 16, 16, 16, tf32=True)})
    kernel = built.get(case, "warps")
    lens = [1, 31, 32, 33]
    for eighths, rounded in ((0, 0), (3, 0), (4, 8), (5, 8), (12, 16)):
        x = np.full((sum(lens), 64), 1 + eighths / 2**13, np.float32)
        rows = cora.RaggedArray.empty(case.inputs[0], {"lens": lens}, {"M": len(lens)})
        rows.values[:] = x.ravel()
        result = kernel(rows, np.ones((64, 32), np.float32))
        assert (result.packed() == 128 * (1 + rounded / 2**13)).all()


@pytest.mark.parametrize(
    ("old", "new"),
    [("cora_ldmatrix_trans\\(", "cora_ldmatrix("), (r"threadIdx\.x\) & 15", "threadIdx.x) & 7")],
)
def test_wrong_places_are_caught(
    old: str, new: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device != "emulator":
        pytest.skip("this is about the emulator")
    C = product(32, 32, turned=False)
    case = Case("mutant", (C,), BATCHES[3:], {"warps": lambda _: tiled(C, 16, 16, 16)}, ulps=8)
    kernel = mutant(case, "warps", lambda text: kernels_changed(text, old, new), tmp_path)
    assert caught(case, kernel, monkeypatch)


def kernels_changed(text: str, old: str, new: str) -> str:
    """The source with the kernels changed, not the helpers before them."""
    helpers, mark, kernels = text.partition('extern "C"')
    return helpers + mark + re.sub(old, new, kernels)


def test_what_is_refused() -> None:
    C = product(48, 64, turned=False)
    plain = cora.schedule(C).split(C, pos, 16, names=("it", "row")).split(C, "n", 24, names=("jt", "column"))
    plain = plain.reorder(C, "it", "jt", "row", "column", "k")
    for make, reason in (
        (lambda: plain.tensor_core(C, "column", "row", "k"), "expected the three innermost, in this order"),
        (lambda: plain.tensor_core(C, "jt", "row", "column"), "expected the three innermost"),
        (
            lambda: plain.split(C, "row", 8).tensor_core(C, "row_i", "column", "k"),
            "the extent of 'row_i' must be",
        ),
        (
            lambda: cora.build(plain.tensor_core(C, "row", "column", "k"), "cuda"),
            r"in shared memory \(cache_read\)",
        ),
        (lambda: build(tiled(C, 32, 24, 16, pad=20)), "rows of 'Xs' must begin at multiples of 8 elements"),
        (lambda: build(tiled(product(48, 40, turned=False), 32, 24, 16)), "every step of the sum must exist"),
        (
            lambda: build(tiled(product(48, 64, turned=False, dtype="float32"), 32, 24, 16)),
            "'Xs' is float32, shared; tf32=True rounds float32 to 11 bits",
        ),
        (lambda: build(tiled(C, 32, 24, 16, tf32=True)), "must be float32, with tf32, in shared memory"),
        (
            lambda: build(
                tiled(product(48, 64, turned=False, dtype="float32"), 32, 24, 16, pad=18, tf32=True)
            ),
            "rows of 'Xs' must begin at multiples of 4 elements",
        ),
        (lambda: cora.build(tiled(C, 32, 24, 16)), "which is for target 'cuda'"),
    ):
        with pytest.raises(cora.ScheduleError, match=reason):
            make()


def build(s: cora.Schedule) -> cora.Kernel:
    return cora.build(s, "cuda", cora.Settings(cache=False))
