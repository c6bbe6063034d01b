"""The three fusion axioms (paper section 5.1) and the tile lemma, both sides evaluated on random lengths."""

from __future__ import annotations

import random

import pytest

import cora
from cora.ir.evaluate import Evaluator
from cora.ir.expr import Call, Const, Expr, Var
from cora.ir.simplify import simplify
from cora.ir.ufun import UFun, fusion_maps
from cora.schedule.schedule import Schedule

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])
inner = cora.lengths("inner", batch, pos)
q = cora.Dim("q", inner[batch, pos])
band = cora.Dim("band", cora.minimum(batch + 1, 3))
low = cora.Dim("low", lens[batch] - 3)
F = Var("f")


def fused(outer: cora.Tensor, loops: tuple[str, str], pad: int = 1) -> tuple[UFun, UFun, UFun]:
    """The functions offset, ffo, ffi of two fused loops, the inner one padded."""
    s: Schedule = cora.schedule(outer)
    if pad > 1:
        s = s.pad_loop(outer, loops[1], pad)
    nest = s.fuse(outer, *loops, name="f").nest(outer)
    by_name = {dim.name: value for dim, value in nest.values.items()}
    ffo = by_name[loops[0]]
    assert isinstance(ffo, Call)
    offset = ffo.fun.definition.offset  # type: ignore[union-attr]
    return offset, *fusion_maps(offset)


def operator(*dims: object) -> cora.Tensor:
    return cora.compute("T", dims, cora.cast(dims[-1], "float32"))  # type: ignore[arg-type]


def random_rows(seed: int) -> list[int]:
    rng = random.Random(seed)
    longest = rng.choice([1, 2, 5, 12])
    return [rng.choice([0, 1, longest, rng.randint(0, longest)]) for _ in range(rng.choice([0, 1, 2, 5, 8]))]


def evaluator(rows: list[int]) -> Evaluator:
    rng = random.Random(len(rows))
    nested = [rng.randint(0, 4) for n in rows for _ in range(n)]
    return Evaluator({"M": len(rows)}, {"lens": rows, "inner": nested})


PAIRS = [
    (operator(batch, pos), ("batch", "pos"), 1),
    (operator(batch, pos), ("batch", "pos"), 4),
    (operator(batch, band), ("batch", "band"), 1),
    (operator(batch, low), ("batch", "low"), 1),
    (operator(batch, pos, q), ("pos", "q"), 1),
    (operator(batch, pos, q), ("pos", "q"), 2),
]


@pytest.mark.parametrize(("op", "loops", "pad"), PAIRS, ids=str)
def test_the_three_axioms(op: cora.Tensor, loops: tuple[str, str], pad: int) -> None:
    offset, ffo, ffi = fused(op, loops, pad)
    definition = offset.definition
    iterations = 0
    for seed in range(40):
        e = evaluator(random_rows(seed))
        for around in e.points(offset.domain[:-1]):
            scope: dict[Expr, int] = dict(zip(offset.domain, around, strict=False))
            rows = max(e.value(definition.index.extent, scope), 0)  # type: ignore[union-attr]
            f = 0
            for o in range(rows):
                length = e.value(definition.body, {**scope, definition.index: o})  # type: ignore[union-attr]
                for i in range(length):
                    # ffo(foif(o, i)) = o, ffi(foif(o, i)) = i, and foif(ffo(f), ffi(f)) = f
                    assert e.call(offset, (*around, o)) + i == f
                    assert e.call(ffo, (*around, f)) == o
                    assert e.call(ffi, (*around, f)) == i
                    f += 1
            assert e.call(offset, (*around, rows)) == f
            assert e.call(ffo, (*around, f)) == e.call(ffi, (*around, f)) == 0  # outside its domain
            iterations += f
    assert iterations > 100


@pytest.mark.parametrize(("op", "loops", "pad"), PAIRS, ids=str)
def test_the_third_axiom_simplifies(op: cora.Tensor, loops: tuple[str, str], pad: int) -> None:
    offset, ffo, ffi = fused(op, loops, pad)
    around = tuple(Var(f"a{k}") for k in range(len(offset.domain) - 1))
    joined = offset(*around, ffo(*around, F)) + ffi(*around, F)
    assert simplify(joined) == F
    assert simplify(joined * 3 + 1) == F * 3 + 1


@pytest.mark.parametrize("k", [2, 4, 8])
@pytest.mark.parametrize("pad", [8, 16, 24])
def test_the_tile_lemma(k: int, pad: int) -> None:
    """If k divides every padded inner extent: ffo(k*t + r) = ffo(k*t), ffi(k*t + r) = ffi(k*t) + r for r < k."""
    _, ffo, ffi = fused(operator(batch, pos), ("batch", "pos"), pad)
    tile, rest = Var("t"), Var("r")
    outer_goal = simplify(ffo(tile * k + rest), {rest: Const(k)})
    inner_goal = simplify(ffi(tile * k + rest), {rest: Const(k)})
    assert outer_goal == ffo(tile * k)
    assert inner_goal == ffi(tile * k) + rest
    for seed in range(20):
        e = evaluator(random_rows(seed))
        total = sum(-(-n // pad) * pad for n in random_rows(seed))
        for t in range(total // k):
            for r in range(k):
                env: dict[Expr, int] = {tile: t, rest: r}
                assert e.value(ffo(tile * k + rest), env) == e.value(outer_goal, env)
                assert e.value(ffi(tile * k + rest), env) == e.value(inner_goal, env)


@pytest.mark.parametrize(("pad", "k"), [(8, 3), (8, 16), (1, 2), (12, 8)])
def test_no_tile_lemma_where_the_tile_does_not_divide(pad: int, k: int) -> None:
    _, ffo, ffi = fused(operator(batch, pos), ("batch", "pos"), pad)
    tile, rest = Var("t"), Var("r")
    for fun in (ffo, ffi):
        goal = simplify(fun(tile * k + rest), {rest: Const(k)})
        e = evaluator([1, 2, 3, 9])
        total = sum(-(-n // pad) * pad for n in (1, 2, 3, 9))
        for t in range(-(-total // k)):
            for r in range(k):
                if t * k + r < total:
                    env: dict[Expr, int] = {tile: t, rest: r}
                    assert e.value(fun(tile * k + rest), env) == e.value(goal, env)
