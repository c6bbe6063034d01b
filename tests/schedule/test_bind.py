"""Binding loops to a GPU's axes: what is allowed, and the reasons of refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import cora
from cora import Schedule, ScheduleError
from cora.ir.printer import show_stmt
from cora.ir.stmt import Alloc, LoopKind, statements
from cora.lower.pipeline import lower

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])
d = cora.Dim("d", 64)
X = cora.placeholder("X", [batch, pos, d])
Y = cora.compute("Y", [batch, pos, d], X[batch, pos, d] * 2)
R = cora.compute("R", [batch, pos], cora.sum(X[batch, pos, d], over=d))
AM = cora.compute("AM", [batch, pos], cora.argmax(X[batch, pos, d], over=d))

Y_, R_ = cora.schedule(Y), cora.schedule(R)


def test_bound_loops_are_marked_and_replayed() -> None:
    s = Y_.fuse(Y, batch, pos, name="f").bind(Y, "f", "blockIdx.x").bind(Y, d, "threadIdx.x")
    assert [leaf.kind for leaf in s.nest(Y).leaves] == [LoopKind.BLOCK_X, LoopKind.THREAD_X]
    assert cora.from_json([Y], s.to_json()) == s
    assert repr(s.steps[-1]) == "Bind(op='Y', loop='d', axis='threadIdx.x')"


REFUSED: dict[str, tuple[Callable[[], Schedule], str]] = {
    "an unknown axis": (lambda: Y_.bind(Y, batch, "blockIdx"), "axis must be one of blockIdx.x, "),  # type: ignore[arg-type]
    "an unknown loop": (lambda: Y_.bind(Y, "x", "blockIdx.x"), "'Y' has no loop 'x'"),
    "a loop twice": (
        lambda: Y_.bind(Y, batch, "blockIdx.x").bind(Y, batch, "blockIdx.y"),
        "is bound to blockIdx.x already",
    ),
    "an axis twice": (
        lambda: Y_.bind(Y, batch, "blockIdx.x").fuse(Y, pos, d, name="f").bind(Y, "f", "blockIdx.x"),
        "loop 'batch' around or in 'Y' is bound to blockIdx.x already",
    ),
    "a ragged extent for blocks": (
        lambda: Y_.bind(Y, batch, "blockIdx.y").bind(Y, pos, "blockIdx.x"),
        r"runs to lens\[batch\], which depends on loops outside; fuse it with them",
    ),
    "blocks inside a serial loop": (
        lambda: Y_.fuse(Y, pos, d, name="f").split(Y, batch, 4).bind(Y, "batch_i", "blockIdx.x"),
        "stands inside loop 'batch_o'; loops over blocks are the outermost",
    ),
    "a variable extent for threads": (
        lambda: Y_.bind(Y, pos, "threadIdx.x"),
        r"runs to lens\[batch\]; the extent of a loop over threads must be constant: split it first",
    ),
    "too many threads": (
        lambda: Y_.split(Y, batch, 2048).bind(Y, "batch_i", "threadIdx.x"),
        "has 2048 iterations; expected 1 to 1024",
    ),
    "too many threads together": (
        lambda: Y_.split(Y, batch, 32).bind(Y, "batch_i", "threadIdx.y").bind(Y, d, "threadIdx.x"),
        "makes blocks of 2048 threads; at most 1024 fit",
    ),
    "too many threads along z": (
        lambda: Y_.split(Y, batch, 128).bind(Y, "batch_i", "threadIdx.z"),
        "has 128 iterations; expected 1 to 64",
    ),
    "blocks of a reduction": (lambda: R_.bind(R, d, "blockIdx.x"), "is a reduction loop; blocks cannot add"),
    "a reduction along y": (
        lambda: R_.bind(R, d, "threadIdx.y"),
        "reduction loop; those may be bound to threadIdx.x only",
    ),
    "a reduction over 48 threads": (
        lambda: R_.split(R, d, 48).bind(R, "d_i", "threadIdx.x"),
        "reduces over 48 threads; expected a power of two",
    ),
    "a bound loop split": (
        lambda: Y_.bind(Y, d, "threadIdx.x").split(Y, d, 8),
        "loop 'd' of 'Y' is bound to threadIdx.x already",
    ),
    "workers of a CPU and blocks": (
        lambda: Y_.parallel(Y, batch).bind(Y, d, "threadIdx.x"),
        r"has a parallel loop \(for workers of a CPU\) and one bound to threadIdx.x",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what: str) -> None:
    make, reason = REFUSED[what]
    with pytest.raises(ScheduleError, match=reason):
        make()


def test_schedules_are_for_one_kind_of_device() -> None:
    bound = Y_.bind(Y, batch, "blockIdx.x")
    with pytest.raises(
        ScheduleError, match=r"loop 'batch' of 'Y' is bound to blockIdx\.x, which is for target 'cuda'"
    ):
        cora.build(bound)
    with pytest.raises(ScheduleError, match=r"is parallel .*; for target 'cuda' bind it to blockIdx\.x"):
        cora.build(Y_.parallel(Y, batch), "cuda")


def test_a_stage_inside_another_operator_has_no_blocks() -> None:
    doubled = cora.compute("doubled", [batch, pos], R[batch, pos] * 2)
    s = cora.schedule(doubled).compute_at(R, doubled, batch)
    with pytest.raises(ScheduleError, match="runs inside another operator"):
        s.bind(R, pos, "blockIdx.x")
    s = s.split(R, d, 32).bind(R, "d_i", "threadIdx.x")
    with pytest.raises(ScheduleError, match=r"stands inside .*|is bound to threadIdx\.x already"):
        s.split(R, pos, 8).bind(R, "pos_i", "threadIdx.x")


def test_the_lowered_program_shows_the_axes() -> None:
    s = (
        R_.fuse(R, batch, pos, name="f")
        .split(R, d, 32)
        .bind(R, "f", "blockIdx.x")
        .bind(R, "d_i", "threadIdx.x")
    )
    text = show_stmt(lower(s, cora.Settings(), gpu=True).stages["loops"])
    assert "# blockIdx.x" in text
    assert "R_sum[:] = sum over 32 threads" in text


def _staged() -> tuple[cora.Schedule, cora.Tensor]:
    """Rows times a matrix: a copy of the matrix that a block's threads share, and sums that each finishes alone."""
    k, n = cora.Dim("k", 16), cora.Dim("n", 32)
    A, B = cora.placeholder("A", [batch, pos, k]), cora.placeholder("B", [k, n])
    P = cora.compute("P", [batch, pos, n], cora.sum(A[batch, pos, k] * B[k, n], over=k))
    Q = cora.compute("Q", [batch, pos, n], cora.exp(P[batch, pos, n]))
    s = cora.schedule(Q).fuse(Q, batch, pos, name="f").split(Q, n, 8, names=("lane", "ni"))
    s = s.compute_at(P, Q, "lane").cache_read(P, B, "f", name="Bs")
    s = s.split("Bs", n, 8, names=("bo", "bi")).bind("Bs", "bo", "threadIdx.x")
    return s.bind(Q, "f", "blockIdx.x").bind(Q, "lane", "threadIdx.x"), P


def _scopes(s: cora.Schedule) -> dict[str, str]:
    """Where each buffer of the kernel for a GPU lies that is no parameter."""
    lowered = lower(s, cora.Settings(), gpu=True).stages["lowered"]
    return {part.buffer.name: part.buffer.scope for part in statements(lowered) if isinstance(part, Alloc)}


def test_scopes_of_a_gpu() -> None:
    s, P = _staged()
    usual = _scopes(s.set_scope(P, "scratch"))
    assert (usual["Bs"], usual["P"]) == ("shared", "local")
    assert _scopes(s.set_scope(P, "register").set_scope("Bs", "shared")) == usual
    with pytest.raises(
        cora.ScheduleError, match="of 'Bs': threads of a block read what others of them compute"
    ):
        _scopes(s.set_scope("Bs", "register"))
    with pytest.raises(cora.ScheduleError, match="of 'P': no thread of a block reads what others compute"):
        _scopes(s.set_scope(P, "shared"))
