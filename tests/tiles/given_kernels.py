"""Users' micro-kernels: one that computes tiles of any size, and one that computes a single vector."""

from __future__ import annotations

import cora

_HEAD = (
    "define void @{name}(i64 %rows, i64 %columns, i64 %depth, ptr %a, i64 %a_row, i64 %a_step, ptr %b, i64 %b_row, "
    "ptr %out, i64 %out_row, i64 %adds) {{"
)

_ANY = """
entry:
  br label %row
row:
  %r = phi i64 [0, %entry], [%r1, %row_next]
  %a_off = mul i64 %r, %a_row
  %o_off = mul i64 %r, %out_row
  br label %col
col:
  %c = phi i64 [0, %row], [%c1, %col_next]
  %o_at = add i64 %o_off, %c
  %o = getelementptr float, ptr %out, i64 %o_at
  %fresh = icmp eq i64 %adds, 0
  br i1 %fresh, label %start, label %load
load:
  %old = load float, ptr %o, align 4
  br label %start
start:
  %s0 = phi float [0.0, %col], [%old, %load]
  br label %head
head:
  %j = phi i64 [0, %start], [%j1, %body]
  %s = phi float [%s0, %start], [%s1, %body]
  %more = icmp slt i64 %j, %depth
  br i1 %more, label %body, label %done
body:
  %a_step_off = mul i64 %j, %a_step
  %a_at = add i64 %a_off, %a_step_off
  %ap = getelementptr float, ptr %a, i64 %a_at
  %x = load float, ptr %ap, align 4
  %b_off = mul i64 %j, %b_row
  %b_at = add i64 %b_off, %c
  %bp = getelementptr float, ptr %b, i64 %b_at
  %y = load float, ptr %bp, align 4
  %p = fmul float %x, %y
  %s1 = fadd float %s, %p
  %j1 = add i64 %j, 1
  br label %head
done:
  store float %s, ptr %o, align 4
  br label %col_next
col_next:
  %c1 = add i64 %c, 1
  %c_more = icmp slt i64 %c1, %columns
  br i1 %c_more, label %col, label %row_next
row_next:
  %r1 = add i64 %r, 1
  %r_more = icmp slt i64 %r1, %rows
  br i1 %r_more, label %row, label %exit
exit:
  ret void
}
"""

_VECTOR = """
entry:
  %fresh = icmp eq i64 %adds, 0
  br i1 %fresh, label %begin, label %old
old:
  %was = load <16 x float>, ptr %out, align 4
  br label %begin
begin:
  %s0 = phi <16 x float> [zeroinitializer, %entry], [%was, %old]
  br label %loop
loop:
  %j = phi i64 [0, %begin], [%j1, %step]
  %s = phi <16 x float> [%s0, %begin], [%s1, %step]
  %more = icmp slt i64 %j, %depth
  br i1 %more, label %step, label %end
step:
  %a_at = mul i64 %j, %a_step
  %pa = getelementptr float, ptr %a, i64 %a_at
  %x = load float, ptr %pa, align 4
  %x1 = insertelement <16 x float> poison, float %x, i32 0
  %xs = shufflevector <16 x float> %x1, <16 x float> poison, <16 x i32> zeroinitializer
  %b_at = mul i64 %j, %b_row
  %pb = getelementptr float, ptr %b, i64 %b_at
  %y = load <16 x float>, ptr %pb, align 4
  %s1 = call <16 x float> @llvm.fma.v16f32(<16 x float> %xs, <16 x float> %y, <16 x float> %s)
  %j1 = add i64 %j, 1
  br label %loop
end:
  store <16 x float> %s, ptr %out, align 4
  ret void
}
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
"""


def any_text(name: str = "any_tile") -> str:
    """IR of a tile of any size, one number at a time."""
    return _HEAD.format(name=name) + _ANY


def vector_text(name: str = "row_of_16") -> str:
    """IR of a tile of one row and 16 columns."""
    return _HEAD.format(name=name) + _VECTOR


def any_tile(rows: int = 4, columns: int = 24) -> cora.MicroKernel:
    """Edges are its own."""
    return cora.MicroKernel("any_tile", any_text(), rows, columns)


def row_of_16() -> cora.MicroKernel:
    """Edges are not its own."""
    return cora.MicroKernel("row_of_16", vector_text(), 1, 16, edges=False)
