"""Wide accesses: only where they are proved aligned, and right where they are not taken."""

from __future__ import annotations

import re

import pytest

import cora
from cora.codegen.cuda.launches import launches
from cora.codegen.cuda.source import cuda_source
from cora.codegen.cuda.target import CudaTarget
from cora.lower.pipeline import lower

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])


def source(schedule: cora.Schedule) -> str:
    """The CUDA C++ of the kernels alone."""
    text, _ = cuda_source(launches(lower(schedule, cora.Settings(), gpu=True).kernel), CudaTarget("sm_80"))
    return text[text.index('extern "C" __global__') :]


def rows(width: int, dtype: str = "float32", lanes: int = 4, shift: int = 0) -> str:
    """A copy of rows of `width` elements, vectorized along the row."""
    d, e = cora.Dim("d", width), cora.Dim("e", width + shift)
    X = cora.placeholder("X", [batch, pos, e], dtype=dtype)
    Y = cora.compute("Y", [batch, pos, d], X[batch, pos, d + shift] + 1)
    s = cora.schedule(Y).fuse(Y, batch, pos, name="f").bind(Y, "f", "blockIdx.x").vectorize(Y, d, lanes)
    return source(s.bind(Y, "d_o", "threadIdx.x"))


def test_rows_of_whole_vectors_are_read_and_written_wide() -> None:
    text = rows(64)
    assert text.count("*(float4*)(X_data") == 1
    assert text.count("*(float4*)(Y_data") == 1
    assert "if (" not in text


def test_other_types_and_widths() -> None:
    assert "*(float2*)(Y_data" in rows(64, lanes=2)
    assert "*(int4*)(Y_data" in rows(64, "int32")
    assert "*(double2*)(Y_data" in rows(64, "float64", lanes=2)
    assert "4*)(X_data" not in rows(64, "int8")
    for text in (rows(64, "float64"), rows(64, lanes=8)):
        assert "2*)(" not in text
        assert "4*)(" not in text


def test_what_is_not_proved_aligned_is_not_wide() -> None:
    odd = rows(62)
    assert "4*)(" not in odd
    shifted = rows(64, shift=1)  # rows of 65 elements, from the second on
    assert "*(float4*)(X_data" not in shifted
    assert "*(float4*)(Y_data" in shifted


def test_a_fused_loop_is_wide_where_all_lanes_exist() -> None:
    X = cora.placeholder("X", [batch, pos])
    Y = cora.compute("Y", [batch, pos], X[batch, pos] + 1)
    s = cora.schedule(Y).fuse(Y, batch, pos, name="f").split(Y, "f", 128).vectorize(Y, "f_i", 4)
    text = source(s.bind(Y, "f_o", "blockIdx.x").bind(Y, "f_i_o", "threadIdx.x"))
    assert text.count("*(float4*)(X_data") == text.count("*(float4*)(Y_data") == 1
    assert text.count("} else {") == 1
    ragged = cora.schedule(Y).bind(Y, batch, "blockIdx.x").vectorize(Y, pos, 4)
    assert "4*)(" not in source(ragged)  # rows begin anywhere


def test_a_guarded_read_stays_guarded() -> None:
    d = cora.Dim("d", 64)
    X = cora.placeholder("X", [batch, d])
    Y = cora.compute("Y", [batch, d], cora.where(lens[batch] > 3, X[batch, d], 0))
    text = source(
        cora.schedule(Y).bind(Y, batch, "blockIdx.x").vectorize(Y, d, 4).bind(Y, "d_o", "threadIdx.x")
    )
    assert "*(float4*)(X_data" not in text
    assert "*(float4*)(Y_data" in text


def test_shared_memory_that_does_not_fit_is_told() -> None:
    d = cora.Dim("d", 64)
    X = cora.placeholder("X", [batch, d])
    Y = cora.compute("Y", [batch, d], X[batch, d] + 1)
    s = cora.schedule(Y).split(Y, batch, 256).cache_read(Y, X, "batch_o", name="tile")
    s = s.bind(Y, "batch_o", "blockIdx.x").bind(Y, d, "threadIdx.x").bind("tile", d, "threadIdx.x")
    with pytest.raises(
        cora.ScheduleError, match="takes 65,536 bytes of shared memory, of which there are 49,152: 'tile'"
    ):
        source(s)


@pytest.mark.parametrize(
    ("width", "call"), [(64, "cora_copy_async_16"), (62, "cora_copy_async_4"), (0, "cora_copy_part_16")]
)
def test_copies_are_as_wide_as_they_are_aligned(width: int, call: str) -> None:
    """width: of rows, in elements; 0: of run-time size, padded to a multiple of 4."""
    d = cora.Dim("d", width or cora.size("D"))
    X = cora.placeholder("X", [batch, d])
    k = cora.Dim("k", 8)
    Y = cora.compute("Y", [batch, d], cora.sum(X[batch, d] * cora.placeholder("w", [k])[k], over=k))
    s = cora.schedule(Y).split(Y, d, 32, names=("do", "di")).reorder(Y, "batch", "do", k, "di")
    s = s if width else s.pad_dim(X, d, 4, contents="undefined")
    s = s.cache_read(Y, X, k, name="tile").split("tile", d, 32, names=("p", "q"), tail="cover")
    s = (
        s.split("tile", "q", 4, names=("x", "lane"))
        .vectorize("tile", "lane", 4)
        .bind("tile", "x", "threadIdx.x")
    )
    s = s.split(Y, "di", 8, names=("turn", "dx")).bind(Y, "dx", "threadIdx.x").pipeline(Y, k)
    text = source(s.bind(Y, "batch", "blockIdx.x"))
    assert set(re.findall(r"cora_copy_\w+", text)) == {call}
