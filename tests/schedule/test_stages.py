"""inline and compute_at: what they refuse, and that every way to stage a softmax gives the interpreter's values."""

from __future__ import annotations

import numpy as np
import pytest

import cora
from cora.schedule.default import default_schedule
from cora.schedule.schedule import Schedule
from tests.reference import assert_matches

SETTINGS = cora.Settings(cache=False)
HOSTILE = ([], [0, 0], [0, 3, 0, 0], [1], [15, 16, 17], [33, 1, 1, 1], [8, 8])

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
i = cora.Dim("i", lens[batch])
j = cora.Dim("j", lens[batch])
h = cora.Dim("h", 3)

X = cora.placeholder("X", [batch, i, h, j])
m = cora.compute("m", [batch, i, h], cora.max(X[batch, i, h, j], over=j))
e = cora.compute("e", [batch, i, h, j], cora.exp(X[batch, i, h, j] - m[batch, i, h]))
z = cora.compute("z", [batch, i, h], cora.sum(e[batch, i, h, j], over=j))
P = cora.compute("P", [batch, i, h, j], e[batch, i, h, j] / z[batch, i, h])

A = cora.placeholder("A", [batch, i])
B = cora.compute("B", [batch, i], A[batch, i] + 1.0)
C = cora.compute("C", [batch, i], B[batch, i] * 3.0)
S = cora.compute("S", [batch], cora.sum(A[batch, i], over=i))
T = cora.compute("T", [batch], cora.tanh(S[batch]) + 1.0)


def check(s: Schedule, source: cora.Tensor) -> cora.Kernel:
    """The schedule, with guards removed and kept, on hostile lengths and NaN-filled outputs."""
    kernel = cora.build(s, settings=SETTINGS)
    careful = cora.build(s, settings=cora.Settings(cache=False, guards="keep"))
    rng = np.random.default_rng(0)
    for lengths in HOSTILE:
        x = cora.RaggedArray.empty(source, {"lens": lengths}, {"M": len(lengths)})
        x.values[:] = rng.standard_normal(x.values.size) * 4
        results = []
        for k in (kernel, careful):
            plan = cora.plan(k, lens=lengths, threads=2)
            outputs = {
                output.name: cora.RaggedArray.empty(
                    k.layout(output.name),
                    {"lens": lengths},
                    {"M": len(lengths)},
                    fill=np.nan,
                    dtype=output.dtype,
                    name=output.name,
                )
                for output in s.outputs
            }
            k.run(plan, x, outputs=outputs)
            for output in s.outputs:
                assert_matches(cora.interpret(output, [x]), outputs[output.name])
            results.append([array.values.tobytes() for array in outputs.values()])
        assert results[0] == results[1]
    return kernel


@pytest.mark.parametrize("loop", [batch, i, h], ids=lambda d: d.name)
def test_softmax_with_all_stages_at_one_loop(loop: cora.Dim) -> None:
    s = cora.schedule(P)
    for op in (z, e, m):
        s = s.compute_at(op, P, loop)
    for op in (m, e, z, P):
        s = s.vectorize(op, j, lanes=16)
    kernel = check(s.parallel(P, batch), X)
    assert kernel.ir("lowered").count("# parallel") == 1


def test_softmax_with_stages_at_different_loops() -> None:
    s = cora.schedule(P).compute_at(z, P, i).compute_at(e, P, i).compute_at(m, e, h)
    check(s.vectorize(e, j), X)


def test_default_schedule_brings_the_stages_of_softmax_together() -> None:
    s = default_schedule(cora.schedule(P))
    assert s.state.attached == {"m": ("P", "h"), "e": ("P", "h"), "z": ("P", "h")}
    check(s, X)


def test_inline_of_an_elementwise_operator() -> None:
    s = cora.schedule(C).inline(B)
    assert [t.name for t in s.operators] == ["C"]
    assert str(s.operators[0].body) == "(A[batch, i] + 1.0) * 3.0"
    kernel = check(s.fuse(C, batch, i, name="f").vectorize(C, "f"), A)
    assert [slot.tensor.name for slot in kernel.artifact.slots] == ["A", "C"]


def test_inline_of_a_reduction_makes_an_epilogue() -> None:
    s = cora.schedule(T).inline(S)
    assert [leaf.name for leaf in s.nest(T).leaves] == ["batch", "i"]
    check(s.vectorize(T, i).parallel(T, batch), A)


def test_inline_of_a_shift_keeps_the_condition() -> None:
    shifted = cora.compute("D", [batch, i], cora.where(i > 0, B[batch, i - 1], 0.0))
    check(cora.schedule(shifted).inline(B), A)


def test_attached_loops_have_names_of_their_own() -> None:
    s = cora.schedule(P).compute_at(z, P, h)
    assert [leaf.name for leaf in s.nest(z).leaves] == ["j"]
    assert {str(v) for v in s.nest(z).values.values()} == {"batch", "i", "h", "j_z"}


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda s: s.inline(P), "'P' is an output"),
        (lambda s: s.vectorize(e, j).inline(e), "'e' is scheduled already"),
        (lambda s: s.inline(m), "'m' reduces over 'j', and 'e' has a loop over it too"),
        (lambda s: s.inline(e).vectorize(e, j), "operator 'e' is inlined"),
        (lambda s: s.compute_at(m, P, h), "'e' also reads it, outside that loop"),
        (lambda s: s.compute_at(P, P, h), "nothing reads it|reads it"),
        (lambda s: s.compute_at(m, e, "k"), "no loop 'k'"),
        (lambda s: s.compute_at(e, z, j), "stands inside a reduction|also reads it"),
        (lambda s: s.compute_at(z, P, h).split(P, h, 2), "its loops down to it cannot change"),
    ],
)
def test_refusals(steps: object, message: str) -> None:
    with pytest.raises(cora.ScheduleError, match=message):
        steps(cora.schedule(P))  # type: ignore[operator]


def test_a_parallel_loop_may_not_compute_the_same_elements_twice() -> None:
    total = cora.compute("total", [batch], cora.sum(A[batch, i], over=i))
    share = cora.compute("share", [batch, i], A[batch, i] / total[batch])
    s = cora.schedule(share).compute_at(total, share, i).parallel(share, i)
    with pytest.raises(cora.ScheduleError, match="several iterations of the parallel loop 'i'"):
        cora.build(s, settings=SETTINGS)
    check(cora.schedule(share).compute_at(total, share, batch).parallel(share, batch), A)
    check(cora.schedule(share).compute_at(total, share, i).parallel(share, batch), A)


def test_an_output_is_attached_where_all_of_it_is_read() -> None:
    total = cora.compute("total", [batch, h], cora.sum(X[batch, i, h, i], over=i))
    other = cora.Dim("other", 3)
    wide = cora.compute("wide", [batch, h, other], total[batch, h] * other)
    kernel = check(cora.schedule(total, wide).compute_at(total, wide, h).parallel(wide, batch), X)
    assert [slot.tensor.name for slot in kernel.artifact.slots if slot.tensor.body is not None] == [
        "total",
        "wide",
    ]
    with pytest.raises(cora.ScheduleError, match="it is an output; scratch is lost"):
        cora.schedule(total, wide).compute_at(total, wide, h).set_scope(total, "scratch")
    ragged = cora.compute("ragged", [batch, h, j], total[batch, h] * A[batch, j])
    moved = cora.compute("moved", [batch, h, other], cora.where(h > 0, total[batch, h - 1], 0.0) * other)
    for reader in (
        ragged,
        moved,
    ):  # one has no elements where a sequence is empty, the other does not read the last h
        with pytest.raises(cora.ScheduleError, match="it is an output, so all of it is computed"):
            cora.schedule(total, reader).compute_at(total, reader, h)


def test_what_runs_around_a_stage_is_known_two_levels_down() -> None:
    total = cora.compute("total", [batch], cora.sum(A[batch, i], over=i))
    less = cora.compute("less", [batch, i, h], X[batch, i, h, i] - total[batch])
    twice = cora.compute("twice", [batch, i, h], less[batch, i, h] * 2.0)
    s = cora.schedule(twice).compute_at(less, twice, i).compute_at(total, less, h).parallel(twice, i)
    assert [leaf.kind.value for leaf in s.nest(total).around] == ["serial", "parallel", "serial"]
    with pytest.raises(cora.ScheduleError, match="several iterations of the parallel loop 'i'"):
        cora.build(s, settings=SETTINGS)


def test_a_stage_knows_what_holds_in_each_part_of_a_loop() -> None:
    w = cora.compute("w", [batch, h], cora.sum(A[batch, i] * h, over=i))
    s = cora.schedule(w).split(w, i, 8, names=("io", "ii")).reorder(w, "io", h, "ii").peel(w, "io", last=1)
    s = s.cache_read(w, A, "io", name="copied")
    lowered = check(s, A).ir("lowered")
    full, last = lowered[lowered.index("for io") :].split("for io")[1:]
    assert "for i_copied in 0..8:" in full
    assert "for i_copied in 0..lens_1 - io * 8:" in last


def test_tables_are_read_in_the_range_of_the_loop_around_them() -> None:
    """A loop of a stage may be named like one of its consumer, which is shorter."""
    many = cora.Dim("many", 60)
    own = cora.lengths("own", many)
    at, eight = cora.Dim("at", own[many]), cora.Dim("eight", 8)
    Z = cora.placeholder("Z", [many, at])
    total = cora.compute("total", [many], cora.sum(Z[many, at], over=at))
    out = cora.compute("out", [eight, many], total[many] * eight)
    s = cora.schedule(out).split(out, eight, 4, names=("q", "j")).compute_at(total, out, "q")
    kernel = cora.build(s.split(total, many, 16, names=("p", "j")), settings=SETTINGS)
    assert "where(p * 16 + j < 60, int64(own[p * 16 + j]), 0)" in kernel.ir("lowered")


def test_a_loop_with_a_stage_that_has_loops_cannot_run_in_lanes() -> None:
    s = cora.schedule(T).split(T, batch, 16).compute_at(S, T, "batch_i")
    with pytest.raises(cora.ScheduleError, match="'S' has loops of its own"):
        s.vectorize(T, "batch_i")


def test_stages_go_to_json_and_back() -> None:
    s = default_schedule(cora.schedule(P))
    assert cora.from_json([P], s.to_json()) == s
