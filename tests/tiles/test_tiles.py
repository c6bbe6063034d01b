"""Every micro-kernel keeps its contract: values, footprint, aliasing, refusals, equal bits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cora.errors import UnsupportedError
from cora.tiles import ARGUMENTS, Flags, TileFamily, jit
from cora.tiles.family import Isa
from tests.tiles.harness import ALL_FLAGS, Array, Call, Runner

#: NEON's code is the same IR, compiled for whatever CPU this is.
ISAS: tuple[Isa, ...] = ("avx512", "avx2", "neon")
SHAPES = [(isa, shape) for isa in ISAS for shape in TileFamily(isa).shapes]
STEPS = (0, 1, 2, 7, 19)


@pytest.fixture(scope="module")
def runners() -> dict[str, Runner]:
    found: dict[str, Runner] = {}
    for isa in ISAS:
        try:
            found[isa] = Runner(jit(TileFamily(isa)))
        except UnsupportedError:
            continue
    return found


def runner_of(runners: dict[str, Runner], isa: str) -> Runner:
    if isa not in runners:
        pytest.skip(f"this CPU has no {isa}")
    return runners[isa]


@pytest.mark.parametrize(("isa", "shape"), SHAPES, ids=str)
def test_every_shape_mask_and_mode(runners: dict[str, Runner], isa: str, shape: tuple[int, int]) -> None:
    runner = runner_of(runners, isa)
    remainders = range(1, runner.family.lanes + 1)
    flags = itertools.cycle(ALL_FLAGS)  # 18, which has no factor in common with len(STEPS)
    for nrem, k in itertools.product(remainders, STEPS):
        runner.check(Call(*shape, nrem, k, next(flags)))
    for nrem, mode in itertools.product({1, runner.family.lanes - 1, runner.family.lanes}, ALL_FLAGS):
        runner.check(Call(*shape, nrem, 3, mode, slack=5, transposed=nrem == 1, side="begin"))
        runner.check(Call(*shape, nrem, 4, mode, slack=nrem, transposed=True))


@pytest.mark.parametrize("isa", ISAS)
def test_long_reductions(runners: dict[str, Runner], isa: str) -> None:
    runner = Runner(runner_of(runners, isa).tiles, elements=1 << 15)
    mr, nv = runner.family.shapes[-1]
    for k in (64, 500):
        runner.check(Call(mr, nv, runner.family.lanes, k, slack=1))
        runner.check(Call(mr, nv, 1, k, Flags.PACK | Flags.START_ROW))


class Product:
    """C = A B of a size that needs several tiles, computed by calls that a test chooses."""

    def __init__(self, runner: Runner, m: int, n: int, k: int) -> None:
        random = np.random.default_rng(3)
        self.runner, self.n, self.k = runner, n, k
        self.a = random.standard_normal((m, k)).astype(np.float32)
        self.b = random.standard_normal((k, n)).astype(np.float32)
        self.c = np.full((m, n), np.nan, np.float32)

    def call(
        self, rows: slice, columns: slice, steps: slice, flags: Flags = Flags.NONE, panel: Array | None = None
    ) -> None:
        """One call for a block of C."""
        a, b, c = self.a[rows, steps], self.b[steps, columns], self.c[rows, columns]
        lanes = self.runner.family.lanes
        nv = -(-c.shape[1] // lanes)
        numbers = dict.fromkeys(ARGUMENTS, 0)
        numbers |= {"mr": c.shape[0], "nv": nv, "nrem": c.shape[1] - (nv - 1) * lanes, "k": a.shape[1]}
        numbers |= {"A": a.ctypes.data, "a_row": self.k, "a_k": 1, "B": b.ctypes.data, "b_k": self.n}
        numbers |= {"C": c.ctypes.data, "c_row": self.n, "flags": int(flags)}
        if panel is not None:
            numbers |= {"packed": panel.ctypes.data, "p_row": self.n + 3}
            if Flags.PACK not in flags:
                numbers |= {"B": panel.ctypes.data, "b_k": self.n + 3}
        assert self.runner.tiles(*numbers.values()) == 0


@pytest.mark.parametrize("isa", ISAS)
def test_bits_depend_on_the_element_alone(runners: dict[str, Runner], isa: str) -> None:
    runner = runner_of(runners, isa)
    (m, vectors), lanes = runner.family.shapes[-1], runner.family.lanes
    n, k = vectors * lanes - 1, 37
    whole = Product(runner, m, n, k)
    whole.call(slice(0, m), slice(0, n), slice(0, k))
    single = Product(runner, m, n, k)
    for r, c in itertools.product(range(m), range(n)):
        single.call(slice(r, r + 1), slice(c, c + 1), slice(0, k))
    np.testing.assert_array_equal(single.c, whole.c)
    cut = Product(runner, m, n, k)
    cut.call(slice(0, m), slice(0, n), slice(0, 11))
    cut.call(slice(0, m), slice(0, n), slice(11, k), Flags.START_C)
    np.testing.assert_array_equal(cut.c, whole.c)
    packed, panel = Product(runner, m, n, k), np.full(k * (n + 3), np.nan, np.float32)
    packed.call(slice(0, m - 1), slice(0, n), slice(0, k), Flags.PACK, panel)
    packed.call(slice(m - 1, m), slice(0, n), slice(0, k), Flags.NONE, panel)
    np.testing.assert_array_equal(packed.c, whole.c)


def test_bits_are_the_same_in_every_family(runners: dict[str, Runner]) -> None:
    results = []
    for runner in runners.values():
        product = Product(runner, 4, 11, 50)
        lanes = runner.family.lanes
        for c in range(0, 11, lanes):
            product.call(slice(0, 4), slice(c, min(c + lanes, 11)), slice(0, 50))
        results.append(product.c)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def arguments(runner: Runner, c: Array, **numbers: int) -> list[int]:
    """A call for the largest full tile with k = 0 and C in `c`, but for `numbers`."""
    mr, nv = runner.family.shapes[-1]
    defaults = dict.fromkeys(ARGUMENTS, 0) | {"mr": mr, "nv": nv, "nrem": runner.family.lanes}
    defaults |= {"C": c.ctypes.data, "c_row": c.shape[1]}
    assert set(numbers) <= set(defaults)
    return list((defaults | numbers).values())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shift", [-3, 0, 1, 16])
def test_the_residual_and_the_start_may_overlap_the_result(
    runners: dict[str, Runner], isa: str, shift: int
) -> None:
    runner = runner_of(runners, isa)
    mr, nv = runner.family.shapes[-1]
    n = nv * runner.family.lanes
    memory = np.arange(mr * n + 64, dtype=np.float32)
    c = memory[32 : 32 + mr * n].reshape(mr, n)
    old = memory[32 + shift : 32 + shift + mr * n].reshape(mr, n).copy()
    start = memory[32 + n : 32 + 2 * n].copy()
    call = arguments(
        runner, c, R=c.ctypes.data + 4 * shift, r_row=n, start=c[1].ctypes.data,
        flags=Flags.RESIDUAL | Flags.START_ROW,
    )  # fmt: skip
    assert runner.tiles(*call) == 0
    np.testing.assert_array_equal(c, old + start)


@pytest.mark.parametrize("isa", ISAS)
def test_strides_may_be_zero_or_negative(runners: dict[str, Runner], isa: str) -> None:
    runner = runner_of(runners, isa)
    (mr, nv), k = runner.family.shapes[-1], 5
    n = nv * runner.family.lanes
    random = np.random.default_rng(5)
    a = random.integers(-9, 9, (mr, k)).astype(np.float32)
    b = random.integers(-9, 9, (1, n)).astype(np.float32)
    c = np.empty((mr, n), np.float32)
    call = arguments(
        runner, c, k=k, A=a[-1, -1:].ctypes.data, a_row=-k, a_k=-1, B=b.ctypes.data, b_k=0,
        C=c[-1].ctypes.data, c_row=-n, R=b.ctypes.data, r_row=0, flags=Flags.RESIDUAL,
    )  # fmt: skip
    assert runner.tiles(*call) == 0
    # Rows of both A and C run backwards.
    np.testing.assert_array_equal(c, a.sum(axis=1, keepdims=True) @ b + b)


WRONG = [
    {"mr": 0}, {"mr": 9}, {"mr": -1}, {"nv": 0}, {"nv": 5}, {"nrem": 0}, {"nrem": 17}, {"nrem": -1},
    {"k": -1}, {"flags": Flags.START_ROW | Flags.START_C}, {"flags": 32}, {"flags": -1},
    {"flags": Flags.PACK | Flags.TRIANGLE},
    {"mr": 1 << 32}, {"nv": (1 << 32) + 1}, {"mr": 1, "nv": 7},
]  # fmt: skip


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_arguments_are_refused(runners: dict[str, Runner], isa: str, wrong: dict[str, int]) -> None:
    runner = runner_of(runners, isa)
    c = np.full((8, 64), 7, np.float32)
    assert runner.tiles(*arguments(runner, c, **wrong)) == -1
    assert (c == 7).all()


def test_bfloat16_words_hold_two_operands() -> None:
    """The packing factor is a parameter: here two bfloat16 operands per float32 word."""
    import ml_dtypes

    try:
        runner = Runner(jit(TileFamily("avx512", "bfloat16")))
    except UnsupportedError:
        pytest.skip("this CPU has no AVX-512 BF16")
    (mr, nv), k = runner.family.shapes[-1], 9
    n = nv * runner.family.lanes - 3
    random = np.random.default_rng(11)
    a = random.standard_normal((mr, k, 2)).astype(ml_dtypes.bfloat16)
    b = random.standard_normal((k, n, 2)).astype(ml_dtypes.bfloat16)
    c = np.empty((mr, n), np.float32)
    call = arguments(
        runner, c, k=k, A=a.ctypes.data, a_row=k, a_k=1, B=b.ctypes.data, b_k=n,
        nrem=runner.family.lanes - 3,
    )  # fmt: skip
    assert runner.tiles(*call) == 0
    exact = np.einsum("rkp,kcp->rc", a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(c, exact, rtol=0, atol=1e-5)
