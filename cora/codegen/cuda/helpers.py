"""Device functions that generated kernels call: what C++ has no operator for, or another meaning.

NaN propagates through minimum and maximum, as in NumPy; conversions saturate, NaN becomes 0; integer division rounds
towards minus infinity, and dividing by 0 gives 0.
"""

from __future__ import annotations

from typing import Final

HELPERS: Final = r"""
#define CORA_DEVICE static __device__ __forceinline__

CORA_DEVICE float cora_max(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
CORA_DEVICE float cora_min(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
CORA_DEVICE double cora_max(double a, double b) { return a != a || a > b ? a : b; }
CORA_DEVICE double cora_min(double a, double b) { return a != a || a < b ? a : b; }

CORA_DEVICE float cora_rsqrt(float x) { return 1.0f / sqrtf(x); }
CORA_DEVICE double cora_rsqrt(double x) { return 1.0 / sqrt(x); }
CORA_DEVICE float cora_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
CORA_DEVICE double cora_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
// x * Phi(x); where Phi is 0 the product would be NaN at minus infinity
CORA_DEVICE float cora_gelu(float x) { return x < -40.0f ? 0.0f : x * (0.5f * erfcf(x * -0.70710678f)); }
CORA_DEVICE double cora_gelu(double x) { return x < -40.0 ? 0.0 : x * (0.5 * erfc(x * -0.70710678118654752440)); }
// 0.5 x (1 + tanh u) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3)
CORA_DEVICE float cora_gelu_tanh(float x) {
  return x < -40.0f ? 0.0f : x * cora_sigmoid(1.59576912f * x * fmaf(0.044715f * x, x, 1.0f));
}
CORA_DEVICE double cora_gelu_tanh(double x) {
  return x < -40.0 ? 0.0 : x * cora_sigmoid(1.5957691216057308 * x * fma(0.044715 * x, x, 1.0));
}

CORA_DEVICE int cora_to_int32(float x) { return x == x ? __float2int_rz(x) : 0; }
CORA_DEVICE int cora_to_int32(double x) { return x == x ? __double2int_rz(x) : 0; }
CORA_DEVICE long long cora_to_int64(float x) { return x == x ? __float2ll_rz(x) : 0; }
CORA_DEVICE long long cora_to_int64(double x) { return x == x ? __double2ll_rz(x) : 0; }

CORA_DEVICE float cora_from_float16(unsigned short x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}
CORA_DEVICE unsigned short cora_to_float16(float x) {
  unsigned short r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
CORA_DEVICE float cora_from_bfloat16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
CORA_DEVICE unsigned short cora_to_bfloat16(float x) {
  unsigned bits = __float_as_uint(x);
  return x == x ? (bits + ((bits >> 16 & 1) + 0x7fff)) >> 16 : bits >> 16 | 0x40;
}

// copies to shared memory that go on by themselves, until the thread waits for all of its own
CORA_DEVICE unsigned cora_shared(void* p) { return (unsigned)__cvta_generic_to_shared(p); }
CORA_DEVICE long long cora_address(const void* p) { return (long long)p; }
#define CORA_COPY(level, width)                                                                                      \
  CORA_DEVICE void cora_copy_async_##width(unsigned to, long long from) {                                            \
    asm volatile("cp.async." level ".shared.global [%0], [%1], " #width ";" :: "r"(to), "l"(from) : "memory");       \
  }                                                                                                                  \
  CORA_DEVICE void cora_copy_async_##width(unsigned to, long long from, int yes) {                                   \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; @p cp.async." level ".shared.global [%0], [%1], " #width ";}" \
                 :: "r"(to), "l"(from), "r"(yes) : "memory");                                                        \
  }
CORA_COPY("ca", 4)
CORA_COPY("ca", 8)
CORA_COPY("cg", 16)
// the same of the first bytes; the others become 0
CORA_DEVICE void cora_copy_part_16(unsigned to, long long from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
CORA_DEVICE void cora_copy_part_16(unsigned to, long long from, int bytes, int yes) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %3, 0; @p cp.async.cg.shared.global [%0], [%1], 16, %2;}"
               :: "r"(to), "l"(from), "r"(bytes), "r"(yes) : "memory");
}
// four 8 x 8 matrices of 16-bit elements for a warp, lane l gives the address of row l % 8 of matrix l / 8
CORA_DEVICE void cora_ldmatrix(unsigned* to, unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(row) : "memory");
}
CORA_DEVICE void cora_ldmatrix_trans(unsigned* to, unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(row) : "memory");
}
// c += a b for a warp: 16 x 8 elements, 16 steps
#define CORA_MMA(name, type)                                                                                         \
  CORA_DEVICE void cora_mma_##name(float* c, const unsigned* a, const unsigned* b) {                                 \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "  \
                 "{%8, %9}, {%0, %1, %2, %3};"                                                                       \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                \
  }
CORA_MMA(f16, "f16")
CORA_MMA(bf16, "bf16")
// float32 as the tensor cores read it: 8 bits of exponent, 10 bits behind the point, to nearest
CORA_DEVICE unsigned cora_to_tf32(float x) {
  unsigned r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}
CORA_DEVICE void cora_round_to_tf32(unsigned* x) {
  for (int i = 0; i < 4; i++) x[i] = cora_to_tf32(__uint_as_float(x[i]));
}
// the same as the others of 8 steps
CORA_DEVICE void cora_mma_tf32(float* c, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
CORA_DEVICE void cora_await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
CORA_DEVICE void cora_group_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups> CORA_DEVICE void cora_await_copies_but() {
  asm volatile("cp.async.wait_group %0;" :: "n"(groups) : "memory");
}

template <class T> CORA_DEVICE T cora_floordiv(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return (T)(0ull - (unsigned long long)a);
  T q = a / b;
  return a % b != 0 && (a % b ^ b) < 0 ? q - 1 : q;
}
template <class T> CORA_DEVICE T cora_mod(T a, T b) {
  if (b == 0 || b == -1) return 0;
  T r = a % b;
  return r != 0 && (r ^ b) < 0 ? r + b : r;
}
CORA_DEVICE int cora_wrap_add(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
CORA_DEVICE int cora_wrap_sub(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
CORA_DEVICE int cora_wrap_mul(int a, int b) { return (int)((unsigned)a * (unsigned)b); }

// whether (v, p) is the better of two candidates: the first NaN, else the first largest or smallest; p < 0: none
template <class T> CORA_DEVICE bool cora_beats_max(T v, long long p, T best, long long at) {
  bool larger = best < v || (v != v && best == best), tie = v == best || (v != v && best != best);
  return p >= 0 && (at < 0 || larger || (tie && p < at));
}
template <class T> CORA_DEVICE bool cora_beats_min(T v, long long p, T best, long long at) {
  bool smaller = v < best || (v != v && best == best), tie = v == best || (v != v && best != best);
  return p >= 0 && (at < 0 || smaller || (tie && p < at));
}
"""
