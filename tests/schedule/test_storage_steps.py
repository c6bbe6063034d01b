"""split_dim and fuse_dims: producers that write, and consumers that read, packed and tiled layouts."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cora
from cora.schedule.schedule import Schedule
from tests.guard_pages import guarded
from tests.reference import assert_matches, assert_padding_zero

SETTINGS = cora.Settings(cache=False)
KEEP = cora.Settings(cache=False, guards="keep")
HOSTILE = ([], [0, 0], [0, 3, 0, 0], [1], [31, 32, 33], [70, 1, 1], [8, 8])

M, N, D = (cora.size(name) for name in "MND")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
i = cora.Dim("i", lens[batch])
j = cora.Dim("j", lens[batch])
n = cora.Dim("n", N)
d = cora.Dim("d", D)
h = cora.Dim("h", 2)

X = cora.placeholder("X", [batch, i, d])
W = cora.placeholder("W", [d, n])
Y = cora.compute("Y", [batch, i, n], cora.sum(X[batch, i, d] * W[d, n], over=d))

A = cora.placeholder("A", [batch, i])
R = cora.compute("R", [batch, i], 2.0 * A[batch, i])

Q = cora.placeholder("Q", [batch, i, h, d])
K = cora.placeholder("K", [batch, j, h, d])
KT = cora.compute("KT", [batch, h, d, j], 0.5 * K[batch, j, h, d])
S = cora.compute("S", [batch, h, i, j], cora.sum(Q[batch, i, h, d] * KT[batch, h, d, j], over=d))

row = cora.Dim("row", M)
col = cora.Dim("col", row + 1)
T = cora.placeholder("T", [row, col])
U = cora.compute("U", [row, col], T[row, col] + 1.0)


def check(
    s: Schedule, sizes: Sequence[dict[str, int]] = ({},), *, lengths: bool = True, keep: bool = True
) -> cora.Kernel:
    """On hostile lengths, with NaN in padding and outputs. keep: all guards kept give the same bits."""
    kernels = [cora.build(s, settings=settings) for settings in ((SETTINGS, KEEP) if keep else (SETTINGS,))]
    rng = np.random.default_rng(0)
    for lens_of in HOSTILE if lengths else ([0], [1], [2], [7], [33]):
        for given in sizes:
            bound = {"M": len(lens_of) if lengths else lens_of[0], **given}
            named = {"lens": lens_of} if lengths else {}
            inputs: dict[str, cora.RaggedArray] = {}
            for name in kernels[0].inputs:
                tensor = next(t for t in s.tensors if t.name == name)
                inputs[name] = cora.RaggedArray.empty(tensor, named, bound)
                inputs[name].values[:] = rng.standard_normal(inputs[name].values.size)
            references = cora.interpret(list(s.outputs), inputs, lengths=named, sizes=bound)
            results: list[list[cora.RaggedArray]] = []
            for kernel in kernels:
                needed = {k: v for k, v in bound.items() if k in kernel.size_names}
                plan = cora.plan(kernel, threads=2, **named, **needed)
                arrays = [a.to_layout(kernel.layout(name), np.nan) for name, a in inputs.items()]
                arrays = [replace(a, values=guarded(a.values)) for a in arrays]
                outputs = {}
                for t in s.outputs:
                    out = cora.RaggedArray.empty(
                        kernel.layout(t.name), named, bound, fill=np.nan, name=t.name
                    )
                    outputs[t.name] = replace(out, values=guarded(out.values))
                kernel.run(plan, *arrays, outputs=outputs)
                results.append(list(outputs.values()))
            for reference, first in zip(references, results[0], strict=True):
                assert_matches(reference, first)
                assert_padding_zero(first)
            for one, other in zip(results[0], results[-1], strict=True):
                assert one.values.tobytes() == other.values.tobytes()
    return kernels[0]


SHAPES = ({"N": 0, "D": 3}, {"N": 65, "D": 5}, {"N": 130, "D": 1}, {"N": 1, "D": 0})


def panels(s: Schedule, columns: int = 64) -> Schedule:
    """W[d, n] as [n // columns][d][columns]."""
    return s.split_dim(W, n, columns, names=("no", "ni")).reorder_dims(W, "no", d, "ni")


def tiled(s: Schedule, columns: int = 64) -> Schedule:
    """Y by micro-kernels, on tiles of tokens of all sequences."""
    s = s.fuse(Y, batch, i, name="f").split(Y, "f", 6, names=("fo", "fi"))
    return s.split(Y, n, columns, names=("jo", "ji")).reorder(Y, "jo", "fo", "fi", "ji", d).tensorize(Y, "fi")


def test_weights_in_panels_feed_micro_kernels() -> None:
    kernel = check(tiled(panels(cora.schedule(Y))).parallel(Y, "jo"), SHAPES, keep=False)
    assert kernel.layout("W").describe() == "[no = n // 64: (N + 63) // 64][d: D][ni = n % 64: 64]"
    assert "W[D * jo * 64 : 64, 1]" in kernel.ir("lowered")
    kept = [
        guard for guard in kernel.artifact.guards if guard.kept
    ]  # bounds of the tiles: arguments of the calls
    assert {guard.where for guard in kept} == {"loop"}


def test_panels_wider_than_the_tiles() -> None:
    kernel = check(tiled(panels(cora.schedule(Y), 128), 32), SHAPES, keep=False)
    assert re.search(r"W\[.* : 128, 1\]  # tile", kernel.ir("lowered"))


def test_panels_narrower_than_the_tiles_are_refused() -> None:
    with pytest.raises(cora.ScheduleError, match="the right operand does not move evenly"):
        cora.build(tiled(panels(cora.schedule(Y), 16), 32), settings=SETTINGS)


def test_panels_with_room_between_their_rows() -> None:
    """Padding of the inner part: rows 72 apart."""
    s = tiled(panels(cora.schedule(Y)).pad_dim(W, "ni", 72).pad_dim(W, "no", 2))
    kernel = check(s, SHAPES, keep=False)
    assert "W[D * jo * 72 : 72, 1]" in kernel.ir("lowered")


def keys_in_blocks(s: Schedule) -> Schedule:
    """The keys of each sequence and head in blocks of 32, transposed: [batch][h][j // 32][d][32]."""
    return s.split_dim(KT, j, 32, names=("jo", "ji")).reorder_dims(KT, batch, h, "jo", d, "ji")


@pytest.mark.parametrize("outputs", [(S,), (S, KT)], ids=["workspace", "output"])
def test_transposed_keys_in_blocks(outputs: tuple[cora.Tensor, ...]) -> None:
    s = keys_in_blocks(cora.schedule(*outputs))
    s = s.split(KT, j, 32, names=("jo", "ji")).reorder(KT, batch, h, "jo", d, "ji").vectorize(KT, "ji", 16)
    s = s.split(S, j, 32, names=("jo", "ji")).split(S, i, 6, names=("io", "ii"))
    s = s.reorder(S, batch, h, "jo", "io", "ii", "ji", d).tensorize(S, "ii").parallel(S, batch)
    kernel = check(s, ({"D": 5}, {"D": 1}), keep=False)
    text = kernel.ir("lowered")
    assert re.search(r"KT\[.* : 32, 1\]  # tile", text)
    assert " // 32 * " not in text.split("# tile")[0].replace("(lens_2 + 31) // 32", "")


def test_blocks_of_keys_computed_inside_their_consumer() -> None:
    s = keys_in_blocks(cora.schedule(S)).compute_at(KT, S, batch)
    check(s.split(S, j, 32).vectorize(S, d, 8), ({"D": 5},))


def test_blocks_in_scratch_memory() -> None:
    """What one iteration of a loop computes or copies is laid out in blocks too, inside the memory of its worker."""
    s = keys_in_blocks(cora.schedule(S)).compute_at(KT, S, batch).set_scope(KT, "scratch").parallel(S, batch)
    check(s.split(S, j, 32).vectorize(S, d, 8), ({"D": 5},))
    t = cora.schedule(Y).split(Y, i, 12, names=("io", "ii")).cache_read(Y, X, "io", name="panel")
    t = t.split_dim("panel", i, 6, names=("po", "pi")).reorder_dims("panel", batch, "po", d, "pi")
    kernel = check(t.parallel(Y, batch), SHAPES)
    assert "d_panel * 6" in kernel.ir("lowered")


def test_blocks_of_a_loop_that_is_not_cut() -> None:
    """Any loop may read any layout; it costs divisions."""
    check(keys_in_blocks(cora.schedule(S, KT)), ({"D": 3},))
    check(panels(cora.schedule(Y)).split(Y, n, 16).reorder(Y, d, "n_i").vectorize(Y, "n_i"), SHAPES)


def test_fused_storage_is_accessed_at_the_fused_index() -> None:
    s = cora.schedule(R).fuse_dims(R, batch, i, name="f").fuse_dims(A, batch, i).fuse(R, batch, i, name="f")
    kernel = check(s.vectorize(R, "f", 16))
    assert "R[f_o * 16 + f_v] = 2.0 * A[f_o * 16 + f_v]" in kernel.ir("lowered")
    assert kernel.layout("R").describe() == "[f = (batch, i): offset[M]]"


def test_three_ragged_dims_fused() -> None:
    """The loop alone would read six tables in each iteration."""
    square = cora.placeholder("square", [batch, i, j])
    V = cora.compute("V", [batch, i, j], square[batch, i, j] * 2.0)
    s = cora.schedule(V).fuse(V, batch, i, j, name="f")
    for tensor in (V, square):
        s = s.fuse_dims(tensor, batch, i, j, name="f")
    assert "V[f] = square[f] * 2.0" in check(s).ir("lowered")
    check(s.pad_dim(V, "f", 32).split_dim(square, "f", 8).split(V, "f", 8).vectorize(V, "f_i"))


def test_tokens_in_blocks_across_sequences() -> None:
    """X as [f // 6][d][6], f over the tokens of all sequences: what a tile of the left operand wants to read."""
    s = tiled(panels(cora.schedule(Y))).fuse_dims(X, batch, i, name="f")
    s = s.split_dim(X, "f", 6, names=("fo", "fi")).reorder_dims(X, "fo", d, "fi")
    kernel = check(s, SHAPES, keep=False)
    assert re.search(r"X\[D \* fo \* 6 : 1, 6\] @", kernel.ir("lowered"))


def test_the_end_of_fused_storage_is_padded() -> None:
    s = cora.schedule(R).fuse_dims(R, batch, i, name="f").pad_dim(R, "f", 64)
    kernel = check(s.fuse(R, batch, i, name="f").bulk_pad(R, "f", 16))
    out = kernel(cora.ragged([[1, 2], [], [3]], A))
    assert out.values.size == 64
    assert out.to_list() == [[2, 4], [], [6]]


def test_padded_rows_fused() -> None:
    s = cora.schedule(R).pad_dim(R, i, 8).fuse_dims(R, batch, i, name="f").pad_loop(R, i, 8)
    s = s.fuse(R, batch, i, name="f").split(R, "f", 8, names=("fo", "fi")).vectorize(R, "fi")
    assert "R[fi + fo * 8] = " in check(s).ir("lowered")


def test_a_triangle_in_blocks_of_rows() -> None:
    s = cora.schedule(U).split_dim(U, row, 4, names=("ro", "ri")).split_dim(T, col, 8)
    check(s.split(U, row, 4, names=("ro", "ri")), lengths=False)
    check(s.fuse_dims(U, "ri", col, name="f").pad_dim(U, "f", 16), lengths=False)
    check(s.fuse_dims(T, row, "col_o", name="blocks").pad_dim(T, "col_o", to_max=True), lengths=False)


def test_a_loop_is_padded_as_far_as_the_blocks_go() -> None:
    s = cora.schedule(R).split_dim(R, i, 32)
    check(s.pad_loop(R, i, 16))
    check(s.pad_dim(R, "i_o", 3).pad_loop(R, i, 96))
    message = (
        "to a multiple of 48, its storage to a multiple of 32: a slice of length 1 would run to 48 but has"
    )
    with pytest.raises(cora.ScheduleError, match=message):
        cora.build(s.pad_loop(R, i, 48), settings=SETTINGS)
    message = "storage to a multiple of 5, then of 32: a slice of length 1 would run to 64"
    with pytest.raises(cora.ScheduleError, match=message):
        cora.build(s.pad_dim(R, i, 5).pad_loop(R, i, 64), settings=SETTINGS)


def test_padding_may_stay_undefined() -> None:
    s = cora.schedule(R).pad_dim(R, i, contents="undefined").split_dim(R, i, 8)
    assert "pad_worker" not in cora.build(s, settings=SETTINGS).ir("lowered")


def test_waste_and_explain_count_whole_blocks() -> None:
    kernel = cora.build(cora.schedule(R).split_dim(R, i, 32), settings=SETTINGS)
    plan = cora.plan(kernel, lens=[3, 40, 0])
    waste = kernel.waste(plan)
    assert (waste.stored_bytes, waste.useful_bytes) == (4 * (43 + 32 + 64), 4 * (43 + 43))
    assert "R[batch: M][i_o = i // 32: (lens[batch] + 31) // 32][i_i = i % 32: 32]" in kernel.explain()


def test_an_operand_is_packed_once() -> None:
    kernel = cora.build(tiled(panels(cora.schedule(Y))), settings=SETTINGS)
    rng = np.random.default_rng(1)
    w = rng.standard_normal((5, 70)).astype(np.float32)
    packed = cora.RaggedArray.from_padded(w, kernel.layout("W"))
    for lengths in ([3, 0, 8], [1]):
        x = cora.ragged([rng.standard_normal((length, 5)).astype(np.float32) for length in lengths], X)
        for rows, out in zip(x.to_rows(), kernel(x, packed).to_rows(), strict=True):
            assert np.allclose(out, rows @ w, atol=1e-5)
        for other in (w, np.zeros(5 * 128, np.float32)):
            with pytest.raises(
                cora.UserError, match=r"expected a RaggedArray in the layout .* convert it once"
            ):
                kernel(x, other, N=70, D=5)
        with pytest.raises(cora.UserError, match=r"expected the layout .* convert it with array.to_layout"):
            kernel(x, cora.ragged(w, W))
    same = cora.ragged(w, W).to_layout(kernel.layout("W"))
    assert np.array_equal(same.values, packed.values)


def test_schedules_go_to_json_and_kernels_to_files(tmp_path: Path) -> None:
    s = tiled(panels(cora.schedule(Y)).fuse_dims(X, batch, i, name="f"))
    again = cora.from_json([Y], s.to_json())
    assert again == s
    assert again.state == s.state
    layout = s.layout(W)
    assert layout == pickle.loads(pickle.dumps(layout)) == copy.deepcopy(layout)
    assert layout != layout.with_pad("ni", 72)
    kernel = cora.load(cora.build(s, settings=SETTINGS).export(tmp_path / "k.so"))
    assert kernel.layout("W") == layout
    w = cora.ragged(np.ones((2, 3), np.float32), kernel.layout("W"))
    assert kernel(cora.ragged([[[1, 2]]], X), w).to_list() == [[[3, 3, 3]]]


def test_layouts_have_kernels_of_their_own(tmp_path: Path) -> None:
    settings = cora.Settings(cache_dir=tmp_path)
    x = cora.ragged([[1, 2, 3]], A)
    for s in (cora.schedule(R), cora.schedule(R).split_dim(R, i, 2), cora.schedule(R).split_dim(R, i, 4)):
        for _ in range(2):
            out = cora.build(s, settings=settings)(x)
            assert out.layout == s.layout(R)
            assert out.to_list() == [[2, 4, 6]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: s.split_dim("Z", n, 4), "split_dim: no tensor 'Z'; the tensors are"),
        (lambda s: s.split_dim(W, batch, 4), "no axis 'batch'; the axes are d, n"),
        (lambda s: s.split_dim(W, n, 0), "split_dim of 'n': factor: expected a positive integer; got 0"),
        (lambda s: s.split_dim(W, n, 4, names=("a", "a")), "the names of the two parts must differ"),
        (lambda s: s.split_dim(W, n, 4, names=("d", "a")), "there is an axis 'd' already"),
        (lambda s: s.split_dim(W, n, 4, names=("a b", "a")), "must be an identifier"),
        (lambda s: s.split_dim(W, n, 4).split_dim(W, n, 2), "no axis 'n'; the axes are d, n_o, n_i"),
        (
            lambda s: s.split_dim(W, n, 4).reorder_dims(W, n, d),
            "expected all of its dims d, n_o, n_i; got n, d",
        ),
        (lambda s: s.fuse_dims(X, batch), "expected at least two dims; got batch"),
        (
            lambda s: s.fuse_dims(X, batch, d),
            "'d' must be stored directly inside 'batch'; the axes are stored as",
        ),
        (lambda s: s.fuse_dims(X, i, batch), "'batch' must be stored directly inside 'i'"),
        (lambda s: s.fuse_dims(X, batch, i, name="d"), "there is an axis 'd' already"),
        (
            lambda s: s.fuse_dims(X, batch, i, name="f").reorder_dims(X, batch, i, d),
            "all of its dims f, d; got",
        ),
        (
            lambda s: s.split_dim(X, i, 4).reorder_dims(X, "i_o", batch, "i_i", d),
            "extent of dim 'i_o' depends on dim\\(s\\) batch, which must be stored outside it",
        ),
        (lambda s: s.split_dim(W, n, 4).pad_dim(W, "m", 4), "has no dim 'm'; it has d, n, n_o, n_i"),
    ],
)
def test_refusals(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(cora.ScheduleError, match=message):
        make(cora.schedule(Y))
