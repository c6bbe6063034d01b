"""Every scheduling step: the loops before and after, and every refusal with its reason."""

from __future__ import annotations

import re

import pytest

import cora
from cora import Schedule, ScheduleError, Settings, Tensor, UserError
from cora.ir.expr import Const, Dim, Size, Var, round_up
from cora.ir.simplify import simplify
from cora.ir.stmt import LoopKind
from cora.ir.ufun import fusion_maps, maximum_over, scan
from cora.ir.visit import walk
from cora.storage.layout import Pad

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])
head = cora.Dim("head", 12)
key = cora.Dim("key", lens[batch])
A = cora.placeholder("A", [batch, pos])
B = cora.placeholder("B", [batch, pos, key])
O = cora.compute("O", [batch, pos], 2 * A[batch, pos])  # noqa: E741
H = cora.compute("H", [batch, pos, head], A[batch, pos] + head)
S = cora.compute("S", [batch, pos], cora.sum(B[batch, pos, key], over=key))
SCALAR = cora.compute("scalar", [], cora.sum(A[batch, pos], over=[batch, pos]))
ARG = cora.compute("arg", [batch], cora.argmax(A[batch, pos], over=pos))
NO_CACHE = Settings(cache=False)


def loops(s: Schedule, op: Tensor) -> list[str]:
    """The leaf loops as text, outermost first: name, extent, and what is particular about them."""
    described = []
    for leaf in s.nest(op).leaves:
        marks = [] if leaf.kind is LoopKind.SERIAL else [leaf.kind.value]
        marks += ["reduction"] if leaf.reduction else []
        described.append(" ".join([f"{leaf.name}: {leaf.extent}", *marks]))
    return described


def values(s: Schedule, op: Tensor) -> dict[str, str]:
    """Each original loop over the variables of the leaves."""
    return {dim.name: str(value) for dim, value in s.nest(op).values.items()}


def conditions(s: Schedule, op: Tensor) -> list[str]:
    """What must hold for an iteration to exist."""
    return [str(c) for c in s.nest(op).conditions]


def refuses(reason: str) -> pytest.RaisesExc[ScheduleError]:
    """That a step is refused, with a message that contains `reason`."""
    return pytest.raises(ScheduleError, match=re.escape(reason))


# --- the loops of the definition -----------------------------------------------------------------


def test_the_definition_is_the_first_schedule() -> None:
    s = cora.schedule(S)
    assert loops(s, S) == ["batch: M", "pos: lens[batch]", "key: lens[batch] reduction"]
    assert values(s, S) == {"batch": "batch", "pos": "pos", "key": "key"}
    assert conditions(s, S) == []
    assert s.steps == ()
    assert [leaf.root for leaf in s.nest(S).leaves] == [batch, pos, key]


def test_a_negative_extent_counts_as_0() -> None:
    low = cora.Dim("low", lens[batch] - 3)
    T = cora.compute("T", [batch, low], cora.cast(low, "float32"))
    assert loops(cora.schedule(T), T) == ["batch: M", "low: max(lens[batch] - 3, 0)"]


def test_a_scalar_has_no_loop_of_its_own() -> None:
    T = cora.compute("T", [], A[0, 0] + 1)
    assert loops(cora.schedule(T), T) == []


def test_every_step_returns_a_new_schedule() -> None:
    s = cora.schedule(O)
    split = s.split(O, pos, 4)
    assert len(s.steps) == 0
    assert len(split.steps) == 1
    assert loops(s, O) == ["batch: M", "pos: lens[batch]"]


# --- split ---------------------------------------------------------------------------------------


def test_split() -> None:
    s = cora.schedule(O).split(O, pos, 32, names=("po", "pi"))
    assert loops(s, O) == ["batch: M", "po: (lens[batch] + 31) // 32", "pi: 32"]
    assert values(s, O) == {"batch": "batch", "pos": "po * 32 + pi"}
    assert conditions(s, O) == ["po * 32 + pi < lens[batch]"]


def test_split_names_its_loops_after_the_loop() -> None:
    assert [leaf.name for leaf in cora.schedule(O).split(O, pos, 4).nest(O).leaves] == [
        "batch",
        "pos_o",
        "pos_i",
    ]


def test_split_of_a_constant_loop_that_divides() -> None:
    s = cora.schedule(H).split(H, head, 4)
    assert loops(s, H)[2:] == ["head_o: 3", "head_i: 4"]


def test_split_of_the_loop_that_others_depend_on() -> None:
    s = cora.schedule(O).split(O, batch, 4)
    assert loops(s, O) == ["batch_o: (M + 3) // 4", "batch_i: 4", "pos: lens[batch_o * 4 + batch_i]"]


def test_split_by_one() -> None:
    s = cora.schedule(O).split(O, pos, 1)
    assert loops(s, O)[1:] == ["pos_o: lens[batch]", "pos_i: 1"]


def test_split_of_a_reduction_gives_reductions() -> None:
    assert loops(cora.schedule(S).split(S, key, 8), S)[2:] == [
        "key_o: (lens[batch] + 7) // 8 reduction",
        "key_i: 8 reduction",
    ]


def test_split_refuses() -> None:
    s = cora.schedule(O)
    with refuses("split: operator 'O' has no loop 'head'; its loops are batch, pos"):
        s.split(O, head, 4)
    with refuses("split: no operator 'A'; the operators are O"):
        s.split(A, pos, 4)
    for factor in (0, -4):
        with refuses(f"split of 'pos': factor: expected a positive integer; got {factor}"):
            s.split(O, pos, factor)
    with refuses("the names of the two loops must differ"):
        s.split(O, pos, 4, names=("p", "p"))
    with refuses("split: operator 'O' has a loop 'batch' already"):
        s.split(O, pos, 4, names=("batch", "p"))
    with refuses("a loop name must be an identifier; got 'p.o'"):
        s.split(O, pos, 4, names=("p.o", "pi"))
    with refuses("split: loop 'pos' of 'O' is parallel already"):
        s.parallel(O, pos).split(O, pos, 4)
    with pytest.raises(UserError, match=r"factor must be an integer; got 2\.5"):
        s.split(O, pos, 2.5)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="factor must be an integer; got True"):
        s.split(O, pos, True)


# --- fuse ----------------------------------------------------------------------------------------


def test_fuse_of_loops_that_do_not_depend_on_each_other() -> None:
    s = cora.schedule(H).fuse(H, pos, head, name="f")
    assert loops(s, H) == ["batch: M", "f: lens[batch] * 12"]
    assert values(s, H) == {"batch": "batch", "pos": "f // 12", "head": "f % 12"}


def test_vloop_fusion() -> None:
    s = cora.schedule(O).fuse(O, batch, pos, name="f")
    assert loops(s, O) == ["f: offset[M]"]
    assert values(s, O) == {"batch": "ffo[f]", "pos": "ffi[f]"}
    f = Var("f")
    ffo, ffi = fusion_maps(scan((), batch, lens[batch]))
    assert list(s.nest(O).values.values()) == [ffo(f), ffi(f)]


def test_vloop_fusion_of_a_padded_loop_sums_the_padded_lengths() -> None:
    s = cora.schedule(O).pad_loop(O, pos, 32).fuse(O, batch, pos, name="f")
    offset = scan((), batch, round_up(lens[batch], 32))
    assert s.nest(O).values[batch] == fusion_maps(offset)[0](Var("f"))
    assert s.nest(O).leaves[0].extent == simplify(offset(M))


def test_fuse_of_several_loops() -> None:
    s = cora.schedule(H).fuse(H, batch, pos, head, name="f")
    assert loops(s, H) == ["f: offset[M] * 12"]
    assert values(s, H) == {"batch": "ffo[f // 12]", "pos": "ffi[f // 12]", "head": "f % 12"}


def test_fuse_inside_a_loop_that_both_depend_on() -> None:
    inner = cora.lengths("inner", batch, pos)
    q = cora.Dim("q", inner[batch, pos])
    T = cora.compute("T", [batch, pos, q], cora.cast(q, "float32"))
    s = cora.schedule(T).fuse(T, pos, q, name="f")
    assert loops(s, T) == ["batch: M", "f: offset[batch, lens[batch]]"]
    assert values(s, T) == {"batch": "batch", "pos": "ffo[batch, f]", "q": "ffi[batch, f]"}


def test_fuse_undoes_split() -> None:
    s = cora.schedule(H).split(H, head, 4).fuse(H, "head_o", "head_i", name="head")
    assert loops(s, H)[2:] == ["head: 12"]
    assert simplify(s.nest(H).values[head]) == Var("head")


def test_fuse_takes_its_name_from_the_loops() -> None:
    assert [leaf.name for leaf in cora.schedule(O).fuse(O, batch, pos).nest(O).leaves] == ["batch_pos"]


def test_fuse_of_reductions_is_a_reduction() -> None:
    s = cora.schedule(SCALAR).fuse(SCALAR, batch, pos, name="f")
    assert loops(s, SCALAR) == ["f: offset[M] reduction"]


def test_fuse_refuses() -> None:
    s = cora.schedule(H)
    with refuses("fuse of 'batch' and 'head': 'head' must stand directly inside 'batch'; reorder first"):
        s.fuse(H, batch, head)
    with refuses("'batch' must stand directly inside 'pos'"):
        s.fuse(H, pos, batch)
    with refuses("'pos' must stand directly inside 'pos'"):
        s.fuse(H, pos, pos)
    with refuses("fuse: operator 'H' has no loop 'nope'"):
        s.fuse(H, batch, "nope")
    with refuses("fuse: expected at least two loops; got batch"):
        s.fuse(H, batch)
    with refuses("fuse of 'pos' and 'key': a reduction loop cannot be fused with one that is not"):
        cora.schedule(S).fuse(S, pos, key)
    with refuses("fuse: operator 'H' has a loop 'head' already"):
        s.fuse(H, batch, pos, name="head")
    with refuses("fuse: loop 'batch' of 'H' is parallel already"):
        s.parallel(H, batch).fuse(H, batch, pos)


# --- reorder -------------------------------------------------------------------------------------


def test_reorder() -> None:
    s = cora.schedule(H).reorder(H, head, pos)
    assert [leaf.name for leaf in s.nest(H).leaves] == ["batch", "head", "pos"]
    assert values(s, H) == {"batch": "batch", "pos": "pos", "head": "head"}


def test_reorder_moves_the_named_loops_among_their_own_places() -> None:
    s = cora.schedule(H).split(H, head, 4).split(H, batch, 2)
    before = ["batch_o", "batch_i", "pos", "head_o", "head_i"]
    assert [leaf.name for leaf in s.nest(H).leaves] == before
    s = s.reorder(H, "head_i", "batch_i", "pos")  # the places of batch_i, pos and head_i
    assert [leaf.name for leaf in s.nest(H).leaves] == ["batch_o", "head_i", "batch_i", "head_o", "pos"]


def test_reorder_of_loops_that_stay() -> None:
    s = cora.schedule(H)
    assert loops(s.reorder(H, batch, pos, head), H) == loops(s, H)


def test_reorder_puts_a_reduction_outside() -> None:
    s = cora.schedule(S).split(S, pos, 4).reorder(S, "pos_o", key, "pos_i")
    assert loops(s, S)[2:] == ["key: lens[batch] reduction", "pos_i: 4"]


def test_reorder_puts_a_vloop_outside_the_loop_it_depends_on() -> None:
    s = cora.schedule(H).reorder(H, pos, batch)
    assert loops(s, H) == ["pos: longest[]", "batch: M", "head: 12"]
    assert conditions(s, H) == ["pos < lens[batch]"]
    assert s.nest(H).leaves[0].extent == maximum_over((batch,), lens[batch])()
    back = s.reorder(H, batch, pos)
    assert loops(back, H)[:2] == ["batch: M", "pos: longest[]"]


def test_reorder_refuses() -> None:
    s = cora.schedule(H)
    with refuses("reorder: a loop stands twice in batch, batch"):
        s.reorder(H, batch, batch)
    with refuses("reorder: operator 'H' has no loop 'key'"):
        s.reorder(H, key, pos)
    vectorized = s.split(H, head, 4).vectorize(H, "head_i")
    with refuses("reorder: the vectorized loop 'head_i' must stay innermost"):
        vectorized.reorder(H, "head_i", "head_o")
    with refuses("reorder: parallel loop 'pos' stands inside the reduction loop 'key'"):
        cora.schedule(S).parallel(S, pos).reorder(S, key, pos)


# --- padding -------------------------------------------------------------------------------------


def test_pad_loop() -> None:
    s = cora.schedule(O).pad_loop(O, pos, 32)
    assert loops(s, O) == ["batch: M", "pos: (lens[batch] + 31) // 32 * 32"]
    assert values(s, O) == {"batch": "batch", "pos": "pos"}
    assert dict(s.nest(O).padding) == {pos: 32}


def test_pad_loop_of_a_constant() -> None:
    assert loops(cora.schedule(H).pad_loop(H, head, 8), H)[2:] == ["head: 16"]


def test_split_of_a_padded_loop_divides() -> None:
    s = cora.schedule(O).pad_loop(O, pos, 32).split(O, pos, 16, names=("po", "pi"))
    assert loops(s, O)[1:] == ["po: (lens[batch] + 31) // 32 * 2", "pi: 16"]


def test_pad_loop_refuses() -> None:
    s = cora.schedule(O)
    with refuses("pad_loop: 'pos_o' is not an original loop of 'O'; pad before splitting or fusing"):
        s.split(O, pos, 4).pad_loop(O, "pos_o", 4)
    with refuses("pad_loop: operator 'O' has no loop 'pos'"):
        s.split(O, pos, 4).pad_loop(O, pos, 4)
    with refuses("pad_loop: loop 'pos' is padded to 4 already"):
        s.pad_loop(O, pos, 4).pad_loop(O, pos, 8)
    with refuses("pad_loop of 'pos': multiple: expected a positive integer; got 0"):
        s.pad_loop(O, pos, 0)


@pytest.mark.parametrize(
    ("loop", "storage", "length", "runs", "room"),
    [(48, 64, 49, 96, 64), (64, 32, 1, 64, 32), (4, 1, 1, 4, 1), (3, 4, 4, 6, 4)],
)
def test_loop_padding_over_storage_padding(
    loop: int, storage: int, length: int, runs: int, room: int
) -> None:
    s = cora.schedule(O).pad_loop(O, pos, loop).pad_dim(O, pos, storage)
    with refuses(f"a slice of length {length} would run to {runs} but has room for {room}"):
        cora.build(s, settings=NO_CACHE)
    with refuses(f"pad the storage with pad_dim('O', 'pos', {loop})"):
        cora.build(s, settings=NO_CACHE)


def test_loop_padding_over_the_storage_of_a_constant_dim() -> None:
    s = cora.schedule(H).pad_loop(H, head, 8)
    with refuses("a slice of length 12 would run to 16 but has room for 12"):
        cora.build(s, settings=NO_CACHE)
    cora.build(s.pad_dim(H, head, 16), settings=NO_CACHE)
    cora.build(cora.schedule(H).pad_loop(H, head, 6), settings=NO_CACHE)  # 12 is a multiple already


def test_loop_padding_of_a_reduction_needs_no_storage() -> None:
    cora.build(cora.schedule(S).pad_loop(S, key, 16), settings=NO_CACHE)


def test_bulk_pad() -> None:
    s = cora.schedule(O).fuse(O, batch, pos, name="f").bulk_pad(O, "f", 64)
    assert loops(s, O) == ["f: (offset[M] + 63) // 64 * 64"]
    assert conditions(s, O) == ["f < offset[M]"]


def test_bulk_pad_refuses() -> None:
    s = cora.schedule(O)
    with refuses("bulk_pad: 'pos' is an original loop; use pad_loop"):
        s.bulk_pad(O, pos, 64)
    with refuses("bulk_pad: operator 'O' has no loop 'f'"):
        s.bulk_pad(O, "f", 64)
    with refuses("bulk_pad of 'f': multiple: expected a positive integer; got -1"):
        s.fuse(O, batch, pos, name="f").bulk_pad(O, "f", -1)


def test_pad_dim() -> None:
    s = cora.schedule(O).pad_dim(O, pos, 64)
    assert s.layout(O).pads == (Pad(), Pad(64))
    assert s.layout(A).is_packed
    assert s.layout("O").describe() == "[batch: M][pos: lens[batch] padded to 64]"
    assert s.pad_dim(A, pos, to_max=True).layout(A).pads == (Pad(), Pad(1, True))
    assert loops(s, O) == ["batch: M", "pos: lens[batch]"]


def test_the_last_padding_of_a_dim_counts() -> None:
    s = cora.schedule(O).pad_dim(O, pos, 64).pad_dim(O, pos, 4, to_max=True)
    assert s.layout(O).pads[1] == Pad(4, True)


def test_undefined_contents() -> None:
    s = cora.schedule(O).pad_dim(O, pos, 64, contents="undefined")
    assert s.state.undefined_padding == {"O"}
    assert cora.schedule(O).pad_dim(O, pos, 64).state.undefined_padding == frozenset()


def test_pad_dim_refuses() -> None:
    s = cora.schedule(O)
    with refuses("pad_dim: no tensor 'S'; the tensors are A, O"):
        s.pad_dim(S, pos, 4)
    with refuses("pad_dim: tensor 'O' has no dim 'key'; it has batch, pos"):
        s.pad_dim(O, key, 4)
    with refuses("pad_dim of 'pos': multiple: expected a positive integer; got 0"):
        s.pad_dim(O, pos, 0)
    with refuses("pad_dim: contents must be 'zero' or 'undefined'; got 'nan'"):
        s.pad_dim(O, pos, 4, contents="nan")  # type: ignore[arg-type]


# --- parallel, vectorize, unroll -----------------------------------------------------------------


def test_parallel() -> None:
    s = cora.schedule(O).parallel(O, batch)
    assert loops(s, O) == ["batch: M parallel", "pos: lens[batch]"]
    assert s.nest(O).leaves[0].balance == "cost"
    assert cora.schedule(O).parallel(O, batch, balance="count").nest(O).leaves[0].balance == "count"


def test_parallel_refuses() -> None:
    s = cora.schedule(S)
    with refuses("parallel: 'key' is a reduction loop; its iterations add to one element"):
        s.parallel(S, key)
    with refuses("parallel: 'S' has a parallel loop already; fuse the two first"):
        s.parallel(S, batch).parallel(S, pos)
    with refuses("parallel: loop 'batch' of 'S' is parallel already"):
        s.parallel(S, batch).parallel(S, batch)
    with refuses("parallel: balance must be one of cost, count, longest_first; got 'luck'"):
        s.parallel(S, batch, balance="luck")  # type: ignore[arg-type]
    with refuses("parallel: parallel loop 'pos' stands inside the reduction loop 'key'"):
        s.reorder(S, key, pos).parallel(S, pos)


def test_vectorize_of_a_constant_power_of_two() -> None:
    s = cora.schedule(H).split(H, head, 4).vectorize(H, "head_i")
    assert loops(s, H)[2:] == ["head_o: 3", "head_i: 4 vectorize"]


def test_vectorize_splits_other_loops_by_one_vector() -> None:
    s = cora.schedule(O).vectorize(O, pos)
    assert loops(s, O) == ["batch: M", "pos_o: (lens[batch] + 15) // 16", "pos_v: 16 vectorize"]
    assert conditions(s, O) == ["pos_o * 16 + pos_v < lens[batch]"]
    assert loops(cora.schedule(O).vectorize(O, pos, 8), O)[2] == "pos_v: 8 vectorize"
    double = cora.compute("D", [batch, pos], cora.cast(A[batch, pos], "float64"))
    assert loops(cora.schedule(double).vectorize(double, pos), double)[2] == "pos_v: 8 vectorize"


def test_vectorize_of_a_constant_of_as_many_lanes() -> None:
    s = cora.schedule(H).split(H, head, 4).vectorize(H, "head_i", 4)
    assert loops(s, H)[3] == "head_i: 4 vectorize"
    s = cora.schedule(H).split(H, head, 4).vectorize(H, "head_i", 2)
    assert loops(s, H)[3:] == ["head_i_o: 2", "head_i_v: 2 vectorize"]


def test_vectorize_of_a_reduction() -> None:
    assert loops(cora.schedule(S).vectorize(S, key), S)[3] == "key_v: 16 vectorize reduction"


def test_vectorize_refuses() -> None:
    s = cora.schedule(H)
    with refuses("vectorize: 'pos' must be the innermost loop of 'H'; reorder first"):
        s.vectorize(H, pos)
    for lanes in (3, 1, 128, -8):
        with refuses(f"vectorize: lanes must be a power of two from 2 to 64; got {lanes}"):
            s.vectorize(H, head, lanes)
    with refuses("vectorize: loop 'head_v' of 'H' is vectorized already"):
        s.vectorize(H, head).vectorize(H, "head_v")
    with pytest.raises(cora.UnsupportedError, match="runs an argmax; vectorize another loop"):
        cora.build(cora.schedule(ARG).vectorize(ARG, pos), settings=NO_CACHE)


def test_unroll() -> None:
    assert loops(cora.schedule(H).unroll(H, head), H)[2] == "head: 12 unroll"


def test_unroll_refuses() -> None:
    s = cora.schedule(H)
    with refuses("unroll: the extent of 'pos' must be a constant up to 64; it is lens[batch]"):
        s.unroll(H, pos)
    with refuses("unroll: the extent of 'pos_i' must be a constant up to 64; it is 65"):
        s.split(H, pos, 65).unroll(H, "pos_i")
    with refuses("unroll: loop 'head' of 'H' is unrolled already"):
        s.unroll(H, head).unroll(H, head)


# --- what only the build can refuse --------------------------------------------------------------


def test_a_loop_of_unknown_extent_inside_a_reduction() -> None:
    s = cora.schedule(S).reorder(S, key, pos)
    with refuses(
        "loop 'pos' of 'S' stands inside a reduction loop, so its extent must have a constant bound "
        "(its iterations accumulate side by side); it is lens[batch]: split it first"
    ):
        cora.build(s, settings=NO_CACHE)


def test_too_many_accumulators() -> None:
    s = cora.schedule(S).split(S, pos, 4097).reorder(S, "pos_o", key, "pos_i")
    with refuses("hold 4097 elements; at most 4096 accumulate side by side"):
        cora.build(s, settings=NO_CACHE)


def test_extents_are_over_variables_and_sizes() -> None:
    s = cora.schedule(O).fuse(O, batch, pos, name="f").split(O, "f", 32, names=("fo", "fi"))
    for leaf in s.nest(O).leaves:
        assert not any(isinstance(n, Dim) for n in walk(leaf.extent))
    assert s.nest(O).leaves[1].extent == Const(32)
    assert s.nest(O).leaves[0].var == Var("fo")
    assert Size("M") in set(walk(s.nest(O).leaves[0].extent))
