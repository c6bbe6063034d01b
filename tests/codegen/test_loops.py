"""Loops, lanes and masks: what runs, and that nothing else touches memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cora.codegen.emit import emit
from cora.errors import InternalError
from cora.ir.expr import Binary, Const, Expr, Read, Select, Var, binary, cast
from cora.ir.stmt import NOTHING, Alloc, Block, Buffer, For, If, Let, LoopKind, Stmt, Store
from tests.codegen.harness import (
    Array,
    J,
    K,
    N,
    V,
    buffer,
    call,
    compiled,
    function,
    lanes,
    output,
    run,
    serial,
)

A, OUT = buffer("A"), output()
SIZES = [0, 1, 15, 16, 17, 37, 64]


def values(n: int) -> Array:
    return np.arange(1, n + 1, dtype=np.float32)


def less(a: Expr, b: Expr) -> Expr:
    return binary("lt", a, b)


def at(lane_count: int) -> Expr:
    return K * lane_count + V


def tiles(lane_count: int, *body: Stmt) -> Stmt:
    """A loop over tiles of lanes that covers 0..n."""
    return serial(K, (N + (lane_count - 1)) // lane_count, lanes(lane_count, *body))


def zeros(n: int) -> Array:
    return np.zeros(n, np.float32)


def test_scalar_loop() -> None:
    f = compiled(function(serial(K, N, Store(OUT, K, Read(A, K) * 2.0 + 1.0)), buffers=(A, OUT)))["f"]
    for n in SIZES:
        assert np.array_equal(call(f, [values(n), zeros(n)], n)[1], values(n) * 2 + 1)


def test_loop_with_a_begin_and_loops_without_iterations() -> None:
    loop = For(K, Const(3), N - 2, LoopKind.SERIAL, Store(OUT, K, Const(1.0, "float32")))
    f = compiled(function(loop, buffers=(OUT,)))["f"]
    for n in (0, 3, 4, 10):
        expected = np.array([3 <= k < n - 2 for k in range(n)], np.float32)
        assert np.array_equal(call(f, [zeros(n)], n)[0], expected)


def test_unrolled_loop_folds_its_variable() -> None:
    loop = For(K, Const(1), Const(4), LoopKind.UNROLL, Store(OUT, K * 2, cast("float32", K * K)))
    result = run(loop, buffers=(OUT,), arrays=[zeros(8)], n=8)[0]
    assert result.tolist() == [0, 0, 1, 0, 4, 0, 9, 0]


@pytest.mark.parametrize("lane_count", [1, 2, 4, 8, 16, 32, 64])
def test_masked_tail(lane_count: int) -> None:
    body = If(less(at(lane_count), N), Store(OUT, at(lane_count), Read(A, at(lane_count)) * 2.0))
    f = compiled(function(tiles(lane_count, body), buffers=(A, OUT)))["f"]
    for n in SIZES:
        assert np.array_equal(call(f, [values(n), zeros(n)], n)[1], values(n) * 2)


@pytest.mark.parametrize(
    ("cond", "holds"),
    [
        (less(at(16), N), lambda k, n: k < n),
        (binary("le", at(16) + 1, N), lambda k, n: k + 1 <= n),
        (less(at(16), N) & less(at(16), Const(20)), lambda k, n: k < n and k < 20),
        (less(at(16), N) & binary("le", Const(3), at(16)), lambda k, n: 3 <= k < n),
        (less(at(16), N) & ~less(at(16), Const(3)), lambda k, n: 3 <= k < n),
        (less(at(16), N) & binary("eq", at(16) % 3, 0), lambda k, n: k < n and k % 3 == 0),
        (less(at(16), N) & less(Const(5), N), lambda k, n: k < n and n > 5),
        (less(-1 * at(16), -1 * Const(3)), lambda k, n: -k < -3),
        (less(at(16), N) & (less(at(16), Const(4)) | less(Const(30), at(16))), lambda k, n: not 4 <= k <= 30),
    ],
    ids=lambda x: None if callable(x) else str(x),
)  # fmt: skip
def test_masks(cond: Expr, holds: Callable[[int, int], bool]) -> None:
    limited = cond & less(at(16), N)  # lanes behind the end must never run
    body = If(limited, Store(OUT, at(16), Read(A, at(16))), None)
    f = compiled(function(tiles(16, body), buffers=(A, OUT)))["f"]
    for n in SIZES:
        expected = [v if holds(k, n) else 0 for k, v in enumerate(values(n))]
        assert call(f, [values(n), zeros(n)], n)[1].tolist() == expected


def test_nested_masks_and_else() -> None:
    inner = If(
        less(Read(A, at(8)), Const(9.0, "float32")),
        Store(OUT, at(8), Const(1.0, "float32")),
        Store(OUT, at(8), Read(A, at(8))),
    )
    f = compiled(function(tiles(8, If(less(at(8), N), inner)), buffers=(A, OUT)))["f"]
    for n in SIZES:
        a = values(n)
        assert np.array_equal(call(f, [a, zeros(n)], n)[1], np.where(a < 9, 1, a))


def test_both_masks_of_an_if_come_before_its_branches() -> None:
    # the first branch changes what the condition reads; the lanes of the second stay as they were
    positive = less(Const(0.0, "float32"), Read(OUT, V))
    swap = If(positive, Store(OUT, V, Const(-1.0, "float32")), Store(OUT, V, Const(1.0, "float32")))
    start = np.array([1, -1, 1, 1, -1, -1, 1, -1], np.float32)
    result = run(lanes(8, swap), buffers=(OUT,), arrays=[start], n=8)[0]
    assert np.array_equal(result, -start)


def test_uniform_condition_is_a_branch() -> None:
    body = If(less(Const(3), N), Store(OUT, V, Read(A, V)), Store(OUT, V * 0, Const(7.0, "float32")))
    f = compiled(function(lanes(4, body), buffers=(A, OUT)))["f"]
    assert call(f, [values(4), zeros(4)], 4)[1].tolist() == [1, 2, 3, 4]
    assert call(f, [values(1), zeros(1)], 1)[1].tolist() == [7]


def test_uniform_accesses_in_a_masked_statement_run_only_if_a_lane_does() -> None:
    # A[n] and the last element of O exist only where a lane runs
    some = less(V + 5, N)
    read = function(lanes(16, If(some, Store(OUT, V, Read(A, N)))), buffers=(A, OUT), name="read")
    one = Store(OUT, Const(0), Read(A, Const(0)))
    write = function(lanes(16, If(some, one)), buffers=(A, OUT), name="write")
    fs = compiled(read, write)
    assert not call(fs["read"], [zeros(5), zeros(16)], 5)[1].any()
    assert call(fs["read"], [values(9), zeros(16)], 8)[1].tolist() == [9] * 3 + [0] * 13
    assert call(fs["write"], [zeros(0), zeros(0)], 5)[1].size == 0
    assert call(fs["write"], [values(1), zeros(1)], 6)[1].tolist() == [1]


@pytest.mark.parametrize("reverse", [False, True])
def test_strided_and_reversed_reads(reverse: bool) -> None:
    offset = (N - 1) * 3 - 3 * at(8) if reverse else at(8) * 3
    body = If(less(at(8), N), Store(OUT, at(8), Read(A, offset)))
    f = compiled(function(tiles(8, body), buffers=(A, OUT)))["f"]
    for n in SIZES:
        a = values(max(0, 3 * n - 2))
        expected = a[::-3] if reverse else a[::3]
        assert np.array_equal(call(f, [a, zeros(n)], n)[1], expected)


def test_strided_store() -> None:
    body = If(less(at(8), N), Store(OUT, at(8) * 2, Read(A, at(8))))
    f = compiled(function(tiles(8, body), buffers=(A, OUT)))["f"]
    for n in (0, 1, 7, 9):
        result = call(f, [values(n), zeros(max(0, 2 * n - 1))], n)[1]
        assert np.array_equal(result[::2], values(n))
        assert not result[1::2].any()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("prefix", [False, True])
def test_gather_under_a_mask(dtype: str, prefix: bool) -> None:
    index = buffer("index", dtype)
    cond = less(at(16), N)
    if not prefix:
        cond = cond & binary("ne", Read(index, at(16)), -1)
    body = If(cond, Store(OUT, at(16), Read(A, cast("int64", Read(index, at(16))))))
    f = compiled(function(tiles(16, body), buffers=(index, A, OUT)))["f"]
    rng = np.random.default_rng(0)
    for n in (1, 5, 16, 33):
        where = rng.integers(0 if prefix else -1, 3, n).astype(dtype)
        a = values(3)  # a lane that does not run would read A[0] at best, A[-1] at worst
        expected = np.where(where >= 0, a[where], 0)
        assert np.array_equal(call(f, [where, a, zeros(n)], n)[2], expected)


def test_gather_from_an_empty_buffer_without_active_lanes() -> None:
    index = buffer("index", "int64")
    inactive = binary("lt", Read(index, V), 0)
    body = If(inactive, Store(OUT, V, Read(A, Read(index, V))))
    arrays = [np.arange(8, dtype=np.int64), zeros(0), zeros(8)]
    assert not run(lanes(8, body), buffers=(index, A, OUT), arrays=arrays, n=8)[2].any()


def test_scatter_the_last_lane_wins() -> None:
    index = buffer("index", "int64")
    body = If(less(V, N), Store(OUT, Read(index, V), Read(A, V)))
    where = np.array([2, 0, 2, 1, 2], np.int64)
    result = run(lanes(8, body), buffers=(index, A, OUT), arrays=[where, values(5), zeros(3)], n=5)[2]
    assert result.tolist() == [2, 4, 5]


def test_lazy_select_in_lanes_and_in_scalars() -> None:
    shifted = Select(less(Const(0), at(16)), Read(A, at(16) - 1), Const(-1.0, "float32"))
    vector = tiles(16, If(less(at(16), N), Store(OUT, at(16), shifted)))
    scalar_value = Select(less(Const(0), K), binary("max", Read(A, K - 1), Const(2.0, "float32")), Read(A, K))
    scalar = serial(K, N, Store(OUT, K, scalar_value))
    fs = compiled(
        function(vector, buffers=(A, OUT), name="vector"),
        function(scalar, buffers=(A, OUT), name="scalar"),
    )
    for n in SIZES:
        a = values(n)
        expected = np.concatenate([[-1], a])[:n] if n else a
        assert np.array_equal(call(fs["vector"], [a, zeros(n)], n)[1], expected)
        expected = np.concatenate([a[:1], np.maximum(a, 2)])[:n]
        assert np.array_equal(call(fs["scalar"], [a, zeros(n)], n)[1], expected)


def test_select_with_a_uniform_condition_in_lanes() -> None:
    chosen = Select(less(Const(3), N), binary("max", Read(A, V), Read(A, 0 * V)), Const(5.0, "float32"))
    f = compiled(function(lanes(4, Store(OUT, V, chosen)), buffers=(A, OUT)))["f"]
    assert call(f, [values(4), zeros(4)], 4)[1].tolist() == [1, 2, 3, 4]
    assert call(f, [zeros(0), zeros(4)], 0)[1].tolist() == [5] * 4


def test_conjunction_stops_at_the_first_false_term() -> None:
    positive = binary("lt", Const(0.0, "float32"), Read(A, K))
    scalar = serial(K, N + 5, If(Binary("and", less(K, N), positive), Store(OUT, K, Read(A, K))))
    lane_positive = binary("lt", Const(0.0, "float32"), Read(A, at(8)))
    vector = tiles(8, If(Binary("and", less(at(8), N), lane_positive), Store(OUT, at(8), Read(A, at(8)))))
    fs = compiled(
        function(scalar, buffers=(A, OUT), name="scalar"),
        function(vector, buffers=(A, OUT), name="vector"),
    )
    a = np.array([1, -2, 3, -4, 5, 6, -7, 8, -9, 10], np.float32)
    for f in fs.values():
        assert np.array_equal(call(f, [a, zeros(10)], 10)[1], np.maximum(a, 0))


def test_let_keeps_an_affine_index_contiguous() -> None:
    f = Var("f")
    body = Let(f, at(16) + 2 * N, If(less(f, 3 * N), Store(OUT, f - 2 * N, Read(A, f - 2 * N))))
    program = function(tiles(16, body), buffers=(A, OUT))
    assert "masked_load" in emit(program).script()
    kernel = compiled(program)["f"]
    for n in SIZES:
        assert np.array_equal(call(kernel, [values(n), zeros(n)], n)[1], values(n))


def test_let_of_a_varying_value_and_of_a_uniform_one() -> None:
    x, scale = Var("x", "float32"), Var("scale", "float32")
    body = Let(scale, Read(A, Const(1)), Let(x, Read(A, V) * scale, Store(OUT, V, x * x + scale)))
    result = run(lanes(4, body), buffers=(A, OUT), arrays=[values(4), zeros(4)], n=4)[1]
    assert np.array_equal(result, (values(4) * 2) ** 2 + 2)


def test_local_buffers_hold_lanes() -> None:
    acc = Buffer("acc", "float32", Const(8), "local")
    program = Alloc(
        acc,
        Block(
            (
                lanes(8, Store(acc, V, Const(0.0, "float32"))),
                serial(K, N // 8, lanes(8, Store(acc, V, Read(acc, V) + Read(A, K * 8 + V)))),
                lanes(8, Store(OUT, V, Read(acc, V))),
            )
        ),
    )
    result = run(program, buffers=(A, OUT), arrays=[values(40), zeros(8)], n=40)[1]
    assert np.array_equal(result, values(40).reshape(5, 8).sum(0))


def test_large_local_buffer_in_a_parallel_loop() -> None:
    row = Buffer("row", "float64", Const(300), "local")
    copy_in = serial(J, Const(300), Store(row, J, cast("float64", Read(A, K * 300 + J))))
    copy_out = serial(J, Const(300), Store(OUT, K * 300 + J, cast("float32", Read(row, 299 - J))))
    body = For(K, Const(0), N, LoopKind.PARALLEL, Alloc(row, Block((copy_in, copy_out))))
    a = values(1500)
    result = run(body, buffers=(A, OUT), arrays=[a, zeros(1500)], n=5)[1]
    assert np.array_equal(result.reshape(5, 300), a.reshape(5, 300)[:, ::-1])


def test_parallel_loop_runs_each_iteration_once_and_none_for_a_negative_extent() -> None:
    body = For(K, Const(0), N - 3, LoopKind.PARALLEL, Store(OUT, K, Read(OUT, K) + 1.0))
    f = compiled(function(body, buffers=(OUT,)))["f"]
    for n in (0, 3, 4, 1000):
        result = call(f, [zeros(n)], n)[0]
        assert np.array_equal(result, (np.arange(n) < n - 3).astype(np.float32))


def test_equal_names_stay_apart() -> None:
    other = replace(A, name="A-")
    x, x2 = Var("x", "float32"), Var("x")
    body = Let(x, Read(A, K), Let(x2, K * 2, Store(OUT, K, x + Read(other, x2))))
    program = function(
        serial(K, N, body), serial(K, N, Store(OUT, K, Read(OUT, K) * 2.0)), buffers=(A, other, OUT)
    )
    result = call(compiled(program)["f"], [values(3), values(5), zeros(3)], 3)[2]
    assert result.tolist() == [4, 10, 16]


def test_empty_body() -> None:
    assert run(NOTHING, buffers=(OUT,), arrays=[zeros(2)], n=2)[0].tolist() == [0, 0]


def _par(body: Stmt, begin: int = 0) -> Stmt:
    return For(K, Const(begin), N, LoopKind.PARALLEL, body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_par(_par(NOTHING)), "inside another parallel loop"),
        (_par(NOTHING, begin=1), "must begin at 0"),
        (For(V, Const(0), N, LoopKind.VECTOR, NOTHING), "power of two"),
        (For(V, Const(0), Const(12), LoopKind.VECTOR, NOTHING), "power of two"),
        (For(V, Const(0), Const(128), LoopKind.VECTOR, NOTHING), "power of two"),
        (lanes(4, serial(J, N, NOTHING)), "inside a vector loop"),
        (lanes(4, lanes(4, NOTHING, var=J)), "inside another vector loop"),
        (lanes(4, Alloc(Buffer("t", "float32", Const(4), "local"), NOTHING)), "inside a vector loop"),
        (Alloc(Buffer("t", "float32", N, "local"), NOTHING), "must be a constant"),
        (For(J, Const(0), N, LoopKind.UNROLL, NOTHING), "constant bounds"),
        (Store(OUT, J, Const(1.0, "float32")), "'j' is not defined"),
        (Store(buffer("X"), K * 0, Const(1.0, "float32")), "buffer 'X' is not defined"),
        (Store(OUT, Const(0), Binary("add", Const(1), Const(1.0, "float32"))), "one type"),
    ],
)
def test_broken_programs_are_refused(body: Stmt, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        emit(function(body, buffers=(OUT,)))
