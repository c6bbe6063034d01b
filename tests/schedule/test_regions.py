"""Operators computed inside a loop of their consumer: for an interval, in scratch memory, as copies."""

from __future__ import annotations

import numpy as np
import pytest

import cora
from cora.schedule.schedule import Schedule
from tests.guard_pages import guarded
from tests.reference import assert_matches

SETTINGS = cora.Settings(cache=False)
LENGTHS = ([], [0, 0], [0, 3, 0, 0], [1], [5, 6, 7], [63, 64, 65], [130, 1, 1, 0, 2])

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
i = cora.Dim("i", lens[batch])
j = cora.Dim("j", lens[batch])
A = cora.placeholder("A", [batch, i])


def check(s: Schedule, tensors: list[cora.Tensor], threads: int = 2) -> cora.Kernel:
    """On all lengths; inputs end at an inaccessible page, outputs start as NaN."""
    kernel = cora.build(s, settings=SETTINGS)
    output = s.outputs[0]
    rng = np.random.default_rng(5)
    for lengths in LENGTHS:
        known, sizes = {"lens": lengths}, {"M": len(lengths)}
        arrays = {}
        for tensor in tensors:
            values = rng.standard_normal(cora.RaggedArray.empty(tensor, known, sizes).values.size)
            memory = guarded(values.astype(np.float32))
            arrays[tensor.name] = cora.RaggedArray.from_values(memory, tensor, known, sizes)
        reference = cora.interpret(output, arrays, lengths=known, sizes=sizes)
        plan = cora.plan(kernel, lens=lengths, threads=threads)
        out = cora.RaggedArray.empty(output, known, sizes, fill=np.nan)
        ordered = [arrays[name] for name in kernel.inputs]
        assert_matches(reference, kernel.run(plan, *ordered, outputs={output.name: out}))
    return kernel


def neighbours() -> tuple[cora.Tensor, cora.Tensor]:
    """A difference of neighbours of an intermediate: each tile of the consumer reads one element more."""
    p = cora.compute("P", [batch, i], cora.exp(A[batch, i] * 0.1))
    before = cora.where(i > 0, p[batch, i - 1], 0.0)
    return p, cora.compute("O", [batch, i], p[batch, i] - before)


@pytest.mark.parametrize("tail", ["guard", "balanced", "anchored"])
@pytest.mark.parametrize("scope", ["memory", "scratch", "register"])
def test_an_interval_is_computed(tail: str, scope: str) -> None:
    p, o = neighbours()
    s = cora.schedule(o).split(o, i, 4, names=("io", "ii"), tail=tail).compute_at(p, o, "io")  # type: ignore[arg-type]
    kernel = check(s.set_scope(p, scope), [A])  # type: ignore[arg-type]
    assert "for i_P in 0..lens" not in kernel.ir("lowered")


def test_scratch_memory_is_one_tile_for_each_worker() -> None:
    p, o = neighbours()
    s = cora.schedule(o).split(o, i, 16, names=("io", "ii")).compute_at(p, o, "io").set_scope(p, "scratch")
    with pytest.raises(cora.ScheduleError, match="the same for several iterations"):
        cora.build(s.set_scope(p, "memory").parallel(o, "io"), settings=SETTINGS)
    s = s.vectorize(p, i).parallel(o, batch)
    kernel = check(s, [A], threads=2)
    plan = cora.plan(kernel, lens=[1000, 2000], threads=2)
    assert plan.prepared(kernel).workspace_bytes == 2 * 32 * 4


def test_registers_are_variables_of_the_iteration() -> None:
    p, o = neighbours()
    s = cora.schedule(o).split(o, i, 16, names=("io", "ii")).compute_at(p, o, "io").set_scope(p, "register")
    kernel = check(s.vectorize(p, i).vectorize(o, "ii").parallel(o, batch), [A], threads=2)
    assert "local P[17]: float32" in kernel.ir("lowered")
    plan = cora.plan(kernel, lens=[1000, 2000], threads=2)
    assert plan.prepared(kernel).workspace_bytes == 0


def test_registers_around_accumulators() -> None:
    """Tiles of a product are finished in registers: the product, and what is made of it."""
    h, k = cora.Dim("h", 40), cora.Dim("k", 24)
    x, w = cora.placeholder("X", [batch, i, k]), cora.placeholder("W", [k, h])
    p = cora.compute("P", [batch, i, h], cora.sum(x[batch, i, k] * w[k, h], over=k))
    q = cora.compute("Q", [batch, i, h], p[batch, i, h] / (1 + cora.exp(-p[batch, i, h])))
    s = cora.schedule(q).split(q, i, 4, names=("io", "ii")).split(q, h, 16, names=("ho", "hi"))
    s = s.reorder(q, batch, "io", "ho", "ii", "hi").vectorize(q, "hi", 16).unroll(q, "ii").parallel(q, batch)
    s = s.compute_at(p, q, "ho").set_scope(p, "register").split(p, h, 16, names=("po", "pi"))
    kernel = check(s.reorder(p, i, "po", k, "pi").vectorize(p, "pi", 16), [x, w])
    assert "local P[64]: float32" in kernel.ir("lowered")


def test_what_registers_cannot_hold() -> None:
    p, o = neighbours()
    s = cora.schedule(o).compute_at(p, o, batch).set_scope(p, "register")
    with pytest.raises(cora.ScheduleError, match="must have a constant size; that of 'P' is longest"):
        cora.build(s, settings=SETTINGS)
    with pytest.raises(cora.ScheduleError, match="'shared' is for target 'cuda'"):
        cora.build(s.set_scope(p, "shared"), settings=SETTINGS)
    k, h = cora.Dim("k", 8), cora.Dim("h", 8)
    x, w = cora.placeholder("X", [batch, i, k]), cora.placeholder("W", [k, h])
    product = cora.compute("P", [batch, i, h], cora.sum(x[batch, i, k] * w[k, h], over=k))
    q = cora.compute("Q", [batch, i, h], cora.exp(product[batch, i, h]))
    s = cora.schedule(q).split(q, i, 4).compute_at(product, q, "i_o").set_scope(product, "register")
    with pytest.raises(cora.ScheduleError, match="tensorize: 'P' is in registers"):
        cora.build(s.tensorize(product, i), settings=SETTINGS)


def test_fused_loops_give_no_interval() -> None:
    """Where rows meet inside a tile, an interval is not known: everything of the operator that is read there."""
    p, o = neighbours()
    s = cora.schedule(o).fuse(o, batch, i, name="f").split(o, "f", 4, names=("fo", "fi"))
    check(s.compute_at(p, o, "fo").set_scope(p, "scratch"), [A])


def test_only_what_is_computed_in_a_loop_can_be_scratch() -> None:
    p, o = neighbours()
    with pytest.raises(cora.ScheduleError, match="compute_at first"):
        cora.schedule(o).set_scope(p, "scratch")
    with pytest.raises(
        cora.ScheduleError, match="scope must be one of 'memory', 'scratch', 'register', 'shared'; got"
    ):
        cora.schedule(o).compute_at(p, o, batch).set_scope(p, "cache")  # type: ignore[arg-type]


k = cora.Dim("k", lens[batch])
X = cora.placeholder("X", [batch, i, k])
Y = cora.placeholder("Y", [batch, k, j])
C = cora.compute("C", [batch, i, j], cora.sum(X[batch, i, k] * Y[batch, k, j], over=k))


@pytest.mark.parametrize("parallel", ["batch", "jc", "fused"])
def test_copies_of_both_operands(parallel: str) -> None:
    """Blocks of a product with both operands copied: panels of Y for a block, rows of X for a tile."""
    s = cora.schedule(C).split(C, i, 6, names=("it", "ir"), tail="balanced")
    s = s.split(C, j, 32, names=("jc", "jr")).split(C, "jr", 16, names=("jp", "jv"))
    s = s.split(C, k, 20, names=("kc", "kk"), tail="balanced")
    s = s.reorder(C, "jc", "kc", "it", "jp", "ir", "jv", "kk").tensorize(C, "ir")
    if parallel == "fused":
        s = s.fuse(C, batch, "jc", name="fused")
    s = s.cache_read(C, Y, "kc").cache_read(C, X, "it", "rows").vectorize("Y_copy", j).parallel(C, parallel)
    kernel = check(s, [X, Y])
    assert "@ Y_copy" in kernel.ir("lowered")
    with pytest.raises(cora.ScheduleError, match="is taken, or no identifier"):
        s.cache_read(C, "Y_copy", "it", "rows")
    with pytest.raises(cora.ScheduleError, match="'C' reads rows, Y_copy"):
        s.cache_read(C, X, "it", "other")


def test_a_copy_in_another_order() -> None:
    """Y is stored by columns and copied so that the columns of a tile are adjacent."""
    Yt = cora.placeholder("Yt", [batch, j, k])
    c = cora.compute("C", [batch, i, j], cora.sum(X[batch, i, k] * Yt[batch, j, k], over=k))
    s = cora.schedule(c).split(c, i, 6, names=("it", "ir")).split(c, j, 64, names=("jp", "jv"))
    s = s.reorder(c, "it", "jp", "ir", "jv", k).tensorize(c, "ir").cache_read(c, Yt, batch, "turned")
    check(s.reorder_dims("turned", batch, k, j).parallel(c, batch), [X, Yt])


heads = cora.Dim("head", 2)
depth = cora.Dim("d", 5)
width = cora.Dim("e", 20)
Q = cora.placeholder("Q", [batch, i, heads, depth])
K = cora.placeholder("K", [batch, j, heads, depth])
V = cora.placeholder("V", [batch, j, heads, width])


def attention(causal: bool) -> dict[str, cora.Tensor]:
    keys = cora.Dim("key", i + 1) if causal else j
    scores = cora.sum(Q[batch, i, heads, depth] * K[batch, keys, heads, depth], over=depth) * 0.4
    S = cora.compute("S", [batch, heads, i, keys], scores)
    top = cora.compute("top", [batch, heads, i], cora.max(S[batch, heads, i, keys], over=keys))
    E = cora.compute("E", [batch, heads, i, keys], cora.exp(S[batch, heads, i, keys] - top[batch, heads, i]))
    total = cora.compute("total", [batch, heads, i], cora.sum(E[batch, heads, i, keys], over=keys))
    weighted = cora.sum(E[batch, heads, i, keys] * V[batch, keys, heads, width], over=keys)
    out = cora.compute("O", [batch, i, heads, width], weighted / total[batch, heads, i])
    return {"S": S, "top": top, "E": E, "total": total, "O": out}


@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention(causal: bool) -> None:
    """Scores of a block of rows stay in scratch memory, and are made and used by micro-kernels."""
    t = attention(causal)
    o, scores = t["O"], t["S"]
    keys = scores.dims[-1].name
    s = (
        cora.schedule(o)
        .split(o, i, 6, names=("it", "ir"), tail="balanced")
        .reorder(o, heads, "it", "ir", width, keys)
    )
    s = s.tensorize(o, "ir").fuse(o, batch, heads, name="bh").parallel(o, "bh")
    for name in ("total", "E", "top", "S"):
        s = s.compute_at(t[name], o, "it").set_scope(t[name], "scratch")
    s = s.cache_read(scores, K, "bh", "turned").reorder_dims("turned", batch, heads, depth, j)
    s = (
        s.split(scores, keys, 64, names=("jp", "jv"))
        .reorder(scores, "jp", i, "jv", depth)
        .tensorize(scores, i)
    )
    for name in ("total", "E", "top"):
        s = s.vectorize(t[name], keys)
    kernel = check(s, [Q, K, V])
    assert kernel.ir("lowered").count("# tile") == 2


def test_scratch_of_a_scalar_and_of_split_storage() -> None:
    k = cora.Dim("k", 5)
    source, scale = cora.placeholder("source", [k]), cora.placeholder("scale", [])
    half = cora.compute("half", [], scale[()] * 0.5)
    doubled = cora.compute("doubled", [k], source[k] * 2.0)
    total = cora.compute("total", [k], doubled[k] + half[()])
    s = cora.schedule(total).compute_at(half, total, k).set_scope(half, "scratch")
    s = s.split_dim(doubled, k, 2).compute_at(doubled, total, k).set_scope(doubled, "scratch")
    x = np.arange(5, dtype=np.float32)
    out = cora.build(s.parallel(total, k), settings=SETTINGS)(x, np.array(3.0, np.float32))
    assert out.to_list() == (2 * x + 1.5).tolist()


def test_what_cannot_be_copied() -> None:
    index = cora.placeholder("index", [batch], "int32")
    gathered = cora.compute("gathered", [batch], cora.sum(A[batch, i], over=i) + A[batch, index[batch]])
    s = cora.schedule(gathered)
    with pytest.raises(cora.ScheduleError, match="its values are indices"):
        s.cache_read(gathered, index, batch)
    shift = cora.placeholder("shift", [batch])
    shifted = cora.compute("shifted", [batch], cora.sum(A[batch, i], over=i) + shift[batch])
    with pytest.raises(cora.ScheduleError, match="'shifted' reads it after its reduction"):
        cora.schedule(shifted).cache_read(shifted, shift, i)
    once = cora.compute("once", [batch, i], A[batch, i] * 2.0)
    twice = cora.compute("twice", [batch, i], once[batch, i] + 1.0)
    s = cora.schedule(twice).compute_at(once, twice, i)
    with pytest.raises(cora.ScheduleError, match="'once' is computed at a loop further inside"):
        s.cache_read(twice, once, batch)


def test_what_is_read_behind_the_reduction_is_not_copied() -> None:
    """The copy is made in iterations of the reduction, of which there may be none."""
    c = cora.compute(
        "c", [batch], cora.sum(A[batch, i], over=i) + 10.0 * cora.where(lens[batch] > 0, A[batch, 0], 1.0)
    )
    kernel = check(cora.schedule(c).split(c, i, 4).cache_read(c, A, "i_o", "own"), [A])
    assert "own[" in kernel.ir("loops")
    assert "10.0 * where(0 < lens[batch], A[" in kernel.ir("loops")


def test_loops_of_a_stage_are_not_named_like_loops_around_it() -> None:
    s = cora.schedule(C).split(C, j, 32, names=("jp", "jv")).reorder(C, "jp", i, "jv", k)
    s = s.cache_read(C, Y, "jp", "own")
    with pytest.raises(cora.ScheduleError, match="'own' has a loop 'jp' already"):
        s.split("own", j, 8, names=("jp", "place"))


def test_a_copy_in_panels() -> None:
    """The storage of a copy is split: rows of a panel are adjacent, whatever the matrix."""
    s = (
        cora.schedule(C)
        .split(C, j, 32, names=("jp", "jv"))
        .split(C, "jp", 2, names=("jc", "jr"), tail="balanced")
    )
    s = s.split(C, i, 6, names=("it", "ir"), tail="balanced")
    s = s.reorder(C, "jc", "it", "jr", "ir", "jv", k).tensorize(C, "ir")
    s = s.fuse(C, batch, "jc", name="block").cache_read(C, Y, "block", "panels")
    s = s.split_dim("panels", j, 32, names=("po", "pi")).reorder_dims("panels", batch, "po", k, "pi")
    s = s.split("panels", j, 32, names=("po", "pi")).vectorize("panels", "pi", 16)
    check(s.parallel(C, "block"), [X, Y])


def test_lanes_do_not_share_scratch() -> None:
    once = cora.compute("once", [batch, i], A[batch, i] * 2.0)
    twice = cora.compute("twice", [batch, i], once[batch, i] + 1.0)
    s = cora.schedule(twice).split(twice, i, 8).compute_at(once, twice, "i_i")
    check(s.vectorize(twice, "i_i"), [A])
    with pytest.raises(cora.ScheduleError, match="'once' is scratch, one for all lanes"):
        s.set_scope(once, "scratch").vectorize(twice, "i_i")
    with pytest.raises(cora.ScheduleError, match="runs in lanes, which would share the scratch"):
        s.vectorize(twice, "i_i").set_scope(once, "scratch")


def test_a_parallel_loop_whose_index_an_attached_operator_has() -> None:
    """Even parts depend on the length of the row, and so on the parallel loop; the rows are different ones."""
    p, o = neighbours()
    s = cora.schedule(o).split(o, i, 4, names=("io", "ii"), tail="balanced").compute_at(p, o, "io")
    check(s.parallel(o, batch), [A])
