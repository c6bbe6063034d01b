"""Tiles by a user's micro-kernel, and by OpenBLAS: every shape, start, block, edge and triangle; what is refused."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import cora
from cora.tiles import openblas as library
from tests.openblas import needs_openblas
from tests.reference import assert_matches
from tests.schedule.test_tensorize import (
    SETTINGS,
    A,
    At,
    B,
    L,
    N,
    R,
    U,
    X,
    above,
    activated,
    batch,
    below,
    bias,
    check,
    col,
    i,
    j,
    product,
    r,
    row,
)
from tests.tiles.given_kernels import any_text, any_tile, row_of_16

Routine = cora.MicroKernel | Literal["openblas"]
ROUTINES: dict[str, Callable[[], Routine]] = {
    "any tile": any_tile,
    "one vector": row_of_16,
    "openblas": lambda: "openblas",
}
every = pytest.mark.parametrize(
    "routine",
    [
        pytest.param(ROUTINES[name], id=name, marks=needs_openblas if name == "openblas" else ())
        for name in ROUTINES
    ],
)


def by(
    c: cora.Tensor, routine: Routine, tail: str = "guard", rows: int = 6, columns: int = 64
) -> cora.Schedule:
    return (
        cora.schedule(c)
        .split(c, j, columns, names=("jp", "jv"))
        .split(c, i, rows, names=("it", "ir"), tail=tail)  # type: ignore[arg-type]
        .reorder(c, "jp", "it", "ir", "jv", r)
        .tensorize(c, "ir", routine)
        .parallel(c, batch)
    )


@every
def test_products_of_every_shape(routine: Callable[[], Routine]) -> None:
    kernel = check(by(product(A), routine()), [A, B])
    name = "openblas" if routine() == "openblas" else routine().name  # type: ignore[union-attr]
    assert f", by {name}" in kernel.ir("lowered")
    check(by(product(At), routine(), "balanced", 13, 150), [At, B])


@every
def test_what_is_more_than_the_sum_is_done_behind(routine: Callable[[], Routine]) -> None:
    kernel = check(by(product(A, bias[batch, j], R[batch, i, j]), routine(), "balanced"), [A, B, bias, R])
    call = next(line for line in kernel.ir("lowered").splitlines() if "# tile" in line)
    assert "+ bias" not in call
    assert "+ R" not in call
    check(by(activated(), routine()), [A, B, bias, R])


@every
@pytest.mark.parametrize("tail", ["guard", "balanced"])
def test_blocks_continue_what_is_stored(routine: Callable[[], Routine], tail: str) -> None:
    c = product(A, bias[batch, j])
    s = (
        cora.schedule(c)
        .split(c, j, 64, names=("jp", "jv"))
        .split(c, i, 6, names=("it", "ir"), tail="balanced")
    )
    s = s.split(c, r, 5, names=("rb", "rr"), tail=tail)  # type: ignore[arg-type]
    s = s.reorder(c, "rb", "jp", "it", "ir", "jv", "rr").tensorize(c, "ir", routine()).parallel(c, batch)
    check(s, [A, B, bias])


@every
def test_pieces_of_the_reduction_add(routine: Callable[[], Routine]) -> None:
    c = product(A)
    s = cora.schedule(c).split_op(c, r, multiple=8)
    for piece in ("C_main", "C_tail"):
        s = s.split(piece, j, 64, names=("jp", "jv")).split(piece, i, 8, names=("it", "ir"))
        s = (
            s.reorder(piece, "jp", "it", "ir", "jv", r)
            .tensorize(piece, "ir", routine())
            .parallel(piece, batch)
        )
    check(s, [A, B])


@every
def test_one_row(routine: Callable[[], Routine]) -> None:
    x = cora.placeholder("x", [batch, r])
    c = cora.compute("y", [batch, j], cora.sum(x[batch, r] * B[batch, r, j], over=r))
    check(cora.schedule(c).split(c, j, 64).tensorize(c, "j_i", routine()), [x, B])


@every
@pytest.mark.parametrize("size", [0, 1, 5, 13, 40])
def test_triangle(routine: Callable[[], Routine], size: int) -> None:
    """Dense up to the diagonal of the first row; our own micro-kernels do the rest. Nothing beyond is read."""
    c = cora.compute("C", [row, col], cora.sum(U[row, below] * X[below, col], over=below))
    s = (
        cora.schedule(c)
        .split(c, row, 8, names=("it", "ir"), tail="balanced")
        .split(c, col, 64, names=("p", "v"))
    )
    s = s.split(c, below, 9, names=("ko", "ki")).reorder(c, "ko", "it", "p", "ir", "v", "ki")
    kernel = cora.build(s.tensorize(c, "ir", routine()), settings=SETTINGS)
    rng = np.random.default_rng(2)
    sizes = {"N": size, "K": 70}
    left = cora.RaggedArray.empty(U, {}, sizes)
    left.values[:] = np.where(np.tri(size, dtype=bool), rng.standard_normal((size, size)), np.nan).ravel()
    right = cora.RaggedArray.empty(X, {}, sizes)
    right.values[:] = rng.standard_normal(right.values.size)
    reference = cora.interpret(c, {"U": left, "X": right}, sizes=sizes)
    out = cora.RaggedArray.empty(c, {}, sizes, fill=np.nan)
    assert_matches(reference, kernel.run(cora.plan(kernel, **sizes), left, right, outputs={"C": out}))


@needs_openblas
def test_strides_that_blas_does_not_take_are_computed_all_the_same() -> None:
    """Rows of the right operand overlap: a convolution. Its leading dimension would be 1."""
    taps = cora.Dim("tap", 5)
    wide = cora.placeholder("wide", [batch, cora.Dim("at", n_of() + 4)])
    filters = cora.placeholder("filters", [cora.Dim("f", 7), taps])
    c = cora.compute(
        "C",
        [batch, filters.dims[0], j],
        cora.sum(filters[filters.dims[0], taps] * wide[batch, j + taps], over=taps),
    )
    s = cora.schedule(c).split(c, j, 64, names=("jp", "jv")).reorder(c, "jp", "f", "jv", taps)
    check(s.tensorize(c, "f", "openblas"), [filters, wide])


def n_of() -> Any:
    return j.extent


def refused(message: str, make: Callable[[], object], kind: type[Exception] = cora.ScheduleError) -> None:
    with pytest.raises(kind, match=message):
        make()


def test_refusals() -> None:
    c = product(A)
    s = cora.schedule(c).split(c, j, 16).split(c, i, 6).reorder(c, "j_o", "i_o", "i_i", "j_i", r)
    refused("kernel must be one of openblas; got 'mkl'", lambda: s.tensorize(c, "i_i", "mkl"))  # type: ignore[arg-type]
    refused("kernel must be a cora.MicroKernel or one of", lambda: s.tensorize(c, "i_i", 3), cora.UserError)  # type: ignore[arg-type]
    refused("must have a row loop, a column loop", lambda: s.tensorize(c, batch, "openblas"))
    refused("tensorize last", lambda: s.tensorize(c, "i_i", any_tile()).unroll(c, "i_i"))
    bent = cora.compute("C", [row, col], cora.sum(L[row, below] * X[below, col], over=below))
    triangle = cora.schedule(bent).split(bent, row, 6).split(bent, col, 64)
    triangle = triangle.reorder(bent, "row_o", "col_o", "row_i", "col_i", below)
    refused(
        "any_tile takes rows that are evenly apart; those of the left operand grow",
        lambda: cora.build(triangle.tensorize(bent, "row_i", any_tile()), settings=SETTINGS),
    )


@needs_openblas
def test_refusals_of_openblas() -> None:
    apart = cora.placeholder("apart", [batch, i, r, cora.Dim("two", 2)])
    c = cora.compute("C", [batch, i, j], cora.sum(apart[batch, i, r, 0] * B[batch, r, j], over=r))
    refused(
        "takes rows or columns that are adjacent", lambda: cora.build(by(c, "openblas"), settings=SETTINGS)
    )
    cora.build(by(c, any_tile()), settings=SETTINGS)
    shrinks = cora.compute(
        "C", [row, col], cora.sum(U[row, N - 1 - above] * X[N - 1 - above, col], over=above)
    )
    s = cora.schedule(shrinks).split(shrinks, row, 6).split(shrinks, col, 64)
    s = s.reorder(shrinks, "row_o", "col_o", "row_i", "col_i", above)
    refused(
        "a reduction that shrinks reverses them",
        lambda: cora.build(s.tensorize(shrinks, "row_i", "openblas"), settings=SETTINGS),
    )


def test_steps_print_compare_and_replay() -> None:
    c = product(A)
    s = by(c, any_tile())
    assert "TensorizeBy(op='C', loop='ir', function='any_tile', ir=<" in repr(s)
    assert "getelementptr" not in repr(s)
    assert cora.from_json([c], s.to_json()) == s
    other = cora.MicroKernel("any_tile", any_text() + "\n; the same, but for this", 4, 24)
    assert by(c, other) != s
    assert repr(by(c, other)) != repr(s)
    assert "Offload(op='C', loop='ir', library='openblas')" in repr(by(c, "openblas"))
    broken = s.to_json().replace("ret void", "ret i32 0")
    with pytest.raises(cora.UserError, match="LLVM refuses the text"):
        cora.from_json([c], broken)


def test_another_text_is_another_kernel_in_the_cache(tmp_path: Path) -> None:
    """A kernel that doubles the products, under the same name."""
    c = product(A)
    twice = any_text().replace("%s1 = fadd float %s, %p", "%q = fadd float %p, %p\n  %s1 = fadd float %s, %q")
    settings = cora.Settings(cache_dir=tmp_path)
    x, y = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    results = []
    for text in (any_text(), twice, any_text()):
        kernel = cora.build(by(c, cora.MicroKernel("any_tile", text, 4, 24)), settings=settings)
        results.append(float(kernel(x.ravel(), y.ravel(), m=[2], n=[4], k=[3]).values[0]))
    assert results == [3.0, 6.0, 3.0]


def test_exported_kernels_carry_the_code(tmp_path: Path) -> None:
    path = cora.build(by(product(A), any_tile()), settings=SETTINGS).export(tmp_path / "k.so")
    x, y = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    assert float(cora.load(path)(x.ravel(), y.ravel(), m=[2], n=[4], k=[3]).values[0]) == 3.0


@needs_openblas
def test_openblas_is_found_again_by_another_process(tmp_path: Path) -> None:
    """From the cache, and from an exported file: neither knows where the library lies."""
    path = cora.build(by(product(A), "openblas"), settings=SETTINGS).export(tmp_path / "k.so")
    folder = Path(library.library_path()).parent
    assert str(folder).encode() not in path.read_bytes()
    program = (
        "import sys, numpy as np, cora\n"
        "k = cora.load(sys.argv[1])\n"
        "print(k(np.ones(6, np.float32), np.ones(12, np.float32), m=[2], n=[4], k=[3]).values[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "3.0", done.stderr


@needs_openblas
def test_what_calls_openblas_is_not_deployed(tmp_path: Path) -> None:
    kernel = cora.build(by(product(A), "openblas"), settings=SETTINGS)
    with pytest.raises(cora.UnsupportedError, match="calls OpenBLAS, which is not part of the folder"):
        cora.deploy(tmp_path, kernel)


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: None)
    s = by(product(A), "openblas")  # the steps are data, wherever they are made
    with pytest.raises(
        cora.UnsupportedError, match="needs the package scipy-openblas32, which is not installed"
    ):
        cora.build(s, settings=SETTINGS)


class _Blas:
    """What `OpenBlas` uses of a library."""

    def __init__(self) -> None:
        self.threads = 5

    def scipy_openblas_get_num_threads(self) -> int:
        return self.threads

    def scipy_openblas_set_num_threads(self, threads: int) -> None:
        self.threads = threads


def test_threads_of_openblas_rest_while_any_kernel_runs() -> None:
    fake = _Blas()
    blas = library.OpenBlas(fake)  # type: ignore[arg-type]
    inside, go = threading.Event(), threading.Event()

    def other() -> None:
        with blas.on_one_thread():
            inside.set()
            go.wait(10)

    thread = threading.Thread(target=other)
    with blas.on_one_thread():
        assert fake.threads == 1
        thread.start()
        inside.wait(10)
    assert fake.threads == 1  # the other one still runs
    go.set()
    thread.join()
    assert fake.threads == 5
    with pytest.raises(ValueError, match="stop"), blas.on_one_thread():
        raise ValueError("stop")
    assert fake.threads == 5


@needs_openblas
def test_threads_of_openblas_are_as_they_were() -> None:
    kernel = cora.build(by(product(A), "openblas"), settings=SETTINGS)
    blas = library.openblas()
    blas._set(2)
    kernel(np.ones(6, np.float32), np.ones(12, np.float32), m=[2], n=[4], k=[3])
    assert blas._get() == 2
