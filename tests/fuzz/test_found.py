"""Programs in which random testing, or reading with it in mind, found a bug: each as small as it could be made."""

from __future__ import annotations

import numpy as np
import pytest

import cora
from cora import ScheduleError, Settings, Tensor, UserError
from tests.fuzz.check import Batch, RefusedError, check

M = cora.size("M")
b = cora.Dim("b", M)
L = cora.lengths("L", b)
p = cora.Dim("p", L[b])
q = cora.Dim("q", L[b])
k = cora.Dim("k", 3)
none = cora.Dim("none", 0)
A = cora.placeholder("A", [b, p])
X = cora.placeholder("X", [b, k])
I = cora.placeholder("I", [b, p], "int32")  # noqa: E741
J = cora.placeholder("J", [b], "int32")
SCALAR = cora.placeholder("SCALAR", [])
BATCHES: list[Batch] = [{"M": 3, "L": [3, 0, 17]}, {"M": 0, "L": []}, {"M": 1, "L": [0]}]
NO_CACHE = Settings(cache=False)


def twice(name: str = "T") -> Tensor:
    return cora.compute(name, [b, p], A[b, p] * 2)


# --- accesses and index checks -------------------------------------------------------------------


def test_an_index_that_is_read_under_a_condition() -> None:
    T = cora.compute("T", [b, p], cora.where(p >= 1, A[b, I[b, p - 1] % L[b]], 0.5))
    check([T], BATCHES, ranges={"I": 50})


def test_an_index_of_a_row_that_has_no_iterations() -> None:
    T = cora.compute("T", [b, p], X[b, J[b]])
    kernel = cora.build(T, settings=NO_CACHE)
    x = cora.ragged([[1, 2, 3], [4, 5, 6]], X)
    j = cora.ragged([1, 99], J)
    assert kernel(X=x, J=j, L=[2, 0]).to_list() == [[2.0, 2.0], []]
    with pytest.raises(UserError, match="it is not for 1 of the indices"):
        kernel(X=x, J=j, L=[2, 1])


def test_an_index_beside_a_reduction_over_nothing() -> None:
    T = cora.compute("T", [b], cora.sum(A[b, p], over=p) + X[b, J[b]])
    kernel = cora.build(T, settings=NO_CACHE)
    a, x = cora.ragged([[1, 2], []], A), cora.ragged([[1, 2, 3], [4, 5, 6]], X)
    assert kernel(A=a, X=x, J=cora.ragged([1, 2], J)).to_list() == [5.0, 6.0]
    with pytest.raises(UserError, match="it is not for 1 of the indices"):
        kernel(A=a, X=x, J=cora.ragged([1, 99], J))


def test_an_index_under_a_condition_that_reduces_or_is_computed() -> None:
    positive = cora.compute("positive", [b], cora.cast(b, "float32") - 1)
    for condition in (cora.sum(A[b, p], over=p) > 0, positive[b] > 0):
        T = cora.compute("T", [b], cora.where(condition, X[b, J[b]], -1.0))
        check([T], BATCHES, ranges={"J": 3})


def test_an_access_beside_a_reduction_over_nothing() -> None:
    T = cora.compute("T", [b], cora.sum(A[b, p], over=p) + A[b, 0])
    with pytest.raises(UserError, match=r"the access A\[b, 0\] can leave dim 'p'"):
        cora.build(T, settings=NO_CACHE)
    T = cora.compute("T", [b], cora.where(L[b] > 0, cora.sum(A[b, p], over=p) + A[b, 0], 7.0))
    check([T], BATCHES)


def test_a_condition_around_a_reduction_does_not_stop_its_loops() -> None:
    T = cora.compute("T", [b], cora.where(b >= 1, cora.sum(X[b - 1, k], over=k), 0.0))
    check([T], BATCHES)


def test_a_counterexample_does_not_choose_what_a_reduction_gives() -> None:
    T = cora.compute("T", [b], cora.where(cora.sum(abs(A[b, p]) + 1, over=p) > 0, A[b, 0], 0.0))
    check([T], BATCHES)


# --- conditions and what they are proved from ----------------------------------------------------


def test_the_store_after_a_reduction_over_nothing() -> None:
    T = cora.compute("T", [b, k], cora.sum(cora.cast(none, "float32"), over=none) + X[b, k])
    check([T], BATCHES)
    check(cora.schedule(T).split(T, k, 16).vectorize(T, none, 4), BATCHES)


def test_a_condition_that_is_never_true_belongs_to_its_reduction() -> None:
    T = cora.compute("T", [], cora.max(SCALAR[()], over=[b, none]))
    s = cora.schedule(T).fuse(T, b, none, name="f").vectorize(T, "f", 2)
    check(s, BATCHES)
    unsolved = cora.build(s, settings=Settings(cache=False, solver="off"))
    assert unsolved(np.ones((), np.float32)).to_list() == -float("inf")


@pytest.mark.parametrize("how", [{"parts": 3}, {"factor": 4, "tail": "balanced"}], ids=str)
def test_padding_the_parts_of_a_loop(how: dict[str, object]) -> None:
    T = cora.compute("T", [b, p], A[b, p] + b)
    s = cora.schedule(T).split(T, p, names=("po", "pi"), **how)  # type: ignore[arg-type]
    check(s.bulk_pad(T, "po", 8), BATCHES)
    check(s.split(T, "po", 5), BATCHES)
    check(s.parallel(T, b), BATCHES)


def test_parts_of_a_loop_over_nothing() -> None:
    T = cora.compute("T", [b], cora.sum(cora.cast(none, "float32"), over=none))
    check(cora.schedule(T).split(T, none, 4, tail="balanced"), BATCHES)


def test_parts_of_a_loop_inside_another_ragged_loop() -> None:
    inner = cora.lengths("N", b, p)
    r = cora.Dim("r", inner[b, p])
    T = cora.compute("T", [b, p, r], cora.cast(r, "float32") * A[b, p])
    s = cora.schedule(T).split(T, p, 2, tail="balanced").parallel(T, b)
    check(s, [{"M": 3, "L": [3, 0, 1], "N": [2, 0, 5, 1]}])


def test_a_tail_is_cut_where_its_bound_is_known() -> None:
    fixed = cora.Dim("fixed", 16)
    F = cora.lengths("F", fixed)
    r = cora.Dim("r", F[fixed])
    R = cora.placeholder("R", [fixed, r])
    T = cora.compute("T", [fixed, r], R[fixed, r] + 1)
    check(cora.schedule(T).reorder(T, r, fixed).parallel(T, r), [{"F": [9, 0, 1] + [2] * 13}])


# --- divisions -----------------------------------------------------------------------------------


def test_division_by_an_extent_that_is_known_to_be_0() -> None:
    E = cora.lengths("E", none)
    r = cora.Dim("r", E[none])
    T = cora.compute("T", [none, r], cora.cast(r, "float32"))
    U = cora.compute("U", [k, none, r], cora.cast(k, "float32"))
    check(cora.schedule(T, U).fuse(U, k, none, r).vectorize(T, r), [{"E": []}])


def test_division_that_the_analyzer_of_tvm_looks_into() -> None:
    r = cora.Dim("r", none - 2)
    E = cora.lengths("E", none, r)
    t = cora.Dim("t", E[none, r])
    T = cora.compute("T", [none, r], cora.sum(none < 4, over=t) > 0)
    s = cora.schedule(T).pad_dim(T, none, 4).split(T, r, 2, tail="balanced").parallel(T, none)
    check(s, [{"E": []}])


# --- schedules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [8, 16, 32])
def test_the_default_schedule_of_a_single_vector(n: int) -> None:
    d = cora.Dim("d", n)
    check([cora.compute("T", [d], cora.cast(d, "float32") * SCALAR[()])], [{}])


@pytest.mark.parametrize("name", ["flat", "rows", "p_o", "p_v", "p_i"])
def test_the_default_schedule_beside_loops_of_any_name(name: str) -> None:
    d = cora.Dim(name, 5)
    V = cora.placeholder("V", [b, p, d])
    check([cora.compute("T", [b, p, d], V[b, p, d] + A[b, p])], BATCHES)
    check([cora.compute("T", [b, p, d], V[b, p, 4 - d] + A[b, p])], BATCHES)
    check([cora.compute("T", [b, p], cora.sum(V[b, p, d], over=d))], BATCHES)


def test_the_default_schedule_of_a_reduction_over_what_depends_on_the_last_dim() -> None:
    V = cora.placeholder("V", [b])
    check([cora.compute("T", [b], cora.min(V[b], over=p))], BATCHES)
    check([cora.compute("T", [b], cora.mean(V[b] * A[b, p], over=p))], BATCHES)


def test_a_parallel_loop_inside_a_parallel_loop() -> None:
    first = twice("first")
    second = cora.compute("second", [b, p], first[b, p] + 1)
    s = cora.schedule(second).compute_at(first, second, b).parallel(first, p).parallel(second, b)
    with pytest.raises(RefusedError, match="is parallel inside the parallel loop 'b' of 'second'"):
        check(s, BATCHES)


def test_an_output_is_computed_in_full() -> None:
    first = cora.compute("first", [], cora.sum(X[b, k], over=[b, k]))
    second = cora.compute("second", [b, p], A[b, p] + first[()])
    with pytest.raises(ScheduleError, match="'first' at loop 'p' of 'second': it is an output"):
        cora.schedule(first, second).compute_at(first, second, p)
    check([first, second], BATCHES)
    check(cora.schedule(second).compute_at(first, second, b), BATCHES)


def test_loops_have_one_mark() -> None:
    T = twice()
    with pytest.raises(ScheduleError, match="loop 'b' of 'T' is parallel already"):
        cora.schedule(T).parallel(T, b).parallel(T, b)
    U = cora.compute("U", [b, k], X[b, k] + 1)
    with pytest.raises(ScheduleError, match="loop 'k' of 'U' is unrolled already"):
        cora.schedule(U).unroll(U, k).unroll(U, k)


# --- the oracle ----------------------------------------------------------------------------------


def test_products_that_underflow_on_the_way() -> None:
    T = cora.compute("T", [b], cora.prod(A[b, p] * 1e-9, over=p))
    check([T], [{"M": 2, "L": [40, 3]}])
    reference = cora.interpret(T, [cora.RaggedArray.from_rows(np.ones((1, 40), np.float32), A)])
    assert reference.error[0] > 0


# --- code generation -----------------------------------------------------------------------------


@pytest.mark.parametrize("tail", ["guard", "anchored"])
@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float16", "bool"])
@pytest.mark.parametrize("n", [1, 17])
def test_one_lane_of_a_narrow_type(n: int, dtype: str, tail: str) -> None:
    """LLVM stores four bytes for the one lane of a constant mask; the output ends at a closed page."""
    d = cora.Dim("d", n)
    V = cora.placeholder("V", [d])
    T = cora.compute("T", [d], V[d] > 0 if dtype == "bool" else V[d] * 2, dtype=dtype)
    check(cora.schedule(T).split(T, d, 16, tail=tail, names=("o", "v")).vectorize(T, "v"), [{}])


def test_what_a_loop_accumulates_stays_inside_it() -> None:
    T = cora.compute("T", [b, p], cora.where(L[b] > 0, cora.sum(cora.cast(k, "int64") + p, over=k), 0) + p)
    check(cora.schedule(T).vectorize(T, k, 4), BATCHES)


def test_pieces_side_by_side_under_conditions() -> None:
    one = cora.Dim("one", 1)
    T = cora.compute("T", [b, none, one], cora.cast(b + none, "float32"))
    s = cora.schedule(T).split_op(T, none, index=5, names=("first", "rest"))
    s = s.split_op("rest", b, index=1, names=("second", "third")).fuse("third", none, one)
    check(s.parallel("first", b).parallel("third", b).hfuse("first", "third"), BATCHES)


def test_a_divisor_that_is_zero_in_code_that_never_runs() -> None:
    lens = cora.lengths("L", none)
    row = cora.Dim("row", lens[none])
    other = cora.Dim("other", 0)
    source = cora.placeholder("source", [other, cora.Dim("column", lens[other])])
    index = cora.placeholder("index", [none], "int32")
    T = cora.compute("T", [none], cora.mean(source[none, index[none] % lens[none]], over=row))
    check([T], [{"L": []}], ranges={"index": 50})


def test_a_copy_of_what_a_condition_excludes() -> None:
    """The copy is made for every iteration, the element is used where there is one."""
    lens = cora.lengths("L", b)
    row = cora.Dim("row", lens[b])
    source = cora.placeholder("source", [b])
    before = cora.where(b >= 1, source[b - 1], -1.5)
    T = cora.compute("T", [b], cora.sum(before, over=row))
    check(cora.schedule(T).cache_read(T, source, row, name="copy").parallel(T, b), BATCHES)


def test_loops_of_an_attached_operator_have_names_of_their_own() -> None:
    """Both are cut into lanes: the outer parts are two loops, one inside the other."""
    P = cora.compute("P", [b, p], A[b, p] * 2)
    T = cora.compute("T", [b, p], P[b, p] + 1)
    s = cora.schedule(T).vectorize(T, p, 8).compute_at(P, T, "p_o")
    check(s.vectorize(P, p, 4), BATCHES)
    with pytest.raises(ScheduleError, match="has a loop 'p_o' already"):
        s.split(P, p, 4)


def test_reorder_of_accumulators_that_live_in_a_loop() -> None:
    ratio = cora.sum(A[b, p], over=p) / (1 + cora.sum(abs(A[b, p]), over=p))
    s = cora.schedule(cora.compute("T", [b], ratio)).cache_write("T", "b")
    with pytest.raises(
        cora.ScheduleError, match="outside continue what is stored, so the element must have one"
    ):
        s.reorder("T", "p", "b")


def test_cache_read_of_rows_whose_fused_dims_have_dims_inside() -> None:
    inner = cora.Dim("inner", cora.lengths("N", b, p)[b, p])
    Y = cora.placeholder("Y", [b, p, inner])
    T = cora.compute("T", [b, p], cora.sum(Y[b, p, inner], over=inner))
    s = cora.schedule(T).fuse(T, b, p, name="f").cache_read("T", "Y", "f", name="copy")
    check(s, [{"M": 2, "L": [2, 1], "N": [3, 0, 2]}])


def test_the_padding_of_a_fused_axis_has_no_rows() -> None:
    """What depends on the row has no extent there; it was read behind the end of its table."""
    inner = cora.Dim("inner", cora.lengths("N", b, p)[b, p])
    T = cora.compute("T", [b, p, inner], 3.0)
    fused = cora.schedule(T).fuse_dims(T, b, p, name="f")
    batches: list[Batch] = [{"M": 2, "L": [2, 1], "N": [3, 0, 2]}, {"M": 1, "L": [2], "N": [1, 4]}]
    check(fused, batches)
    with pytest.raises(RefusedError, match="the extent of 'inner' depends on the row in the fused axis f"):
        check(fused.pad_dim(T, "f", 2), batches)
    with pytest.raises(RefusedError, match="depends on the row in the fused axis f"):
        check(fused.split_dim(T, "f", 2), batches)
    check(fused.pad_dim(T, "f", 2, contents="undefined"), batches)


def test_what_is_inlined_keeps_its_type() -> None:
    wide = cora.compute("wide", [b, p], A[b, p] * 0.1, dtype="float64")
    T = cora.compute("T", [b, p], cora.tanh(wide[b, p]))
    assert T.dtype == "float64"
    check(cora.schedule(T).inline(wide), BATCHES)
    check([cora.compute("U", [b, p], cora.exp(wide[b, p]) + wide[b, p])], BATCHES)


def test_the_default_schedule_of_a_chain_with_two_readers() -> None:
    """`first` is read by `total`, which is computed in a loop around, and element by element behind that."""
    first = cora.compute("first", [b, p], cora.sum(A[b, p] * X[b, k], over=k))
    total = cora.compute("total", [b], cora.sum(first[b, p], over=p))
    check([cora.compute("T", [b, p, k], cora.where(k < 2, total[b], first[b, p]))], BATCHES)


def test_a_fused_loop_around_one_that_is_padded() -> None:
    """Where the padded loop goes on, the one inside has a negative extent: that counts as none in the sums."""
    s = cora.schedule(twice()).split("T", p, 4, tail="peel", names=("o", "i"))
    s = s.split("T", "o", 8, names=("o1", "o2")).bulk_pad("T", "o2", 5).fuse("T", "o2", "i", name="f")
    check(s, [*BATCHES, {"M": 2, "L": [40, 1]}])
