// What device code finds besides the language: intrinsics, types, mathematics. Exact functions, no fast-math.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "fibers.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define CUDART_INF_F (std::numeric_limits<float>::infinity())
#define CUDART_NAN_F (std::numeric_limits<float>::quiet_NaN())
#define CUDART_INF (std::numeric_limits<double>::infinity())
#define CUDART_NAN (std::numeric_limits<double>::quiet_NaN())

#define __syncthreads() emulator::barrier(__LINE__)
inline void __syncwarp(unsigned mask = ~0u) { emulator::warp_operation(mask, emulator::MEET, 0, 0); }

namespace emulator {
template <class T> T shuffle(unsigned mask, T value, int source) {
  return from_bits<T>(warp_operation(mask, SHUFFLE, bits_of(value), unsigned(source) & 31));
}
inline int lane() { return int(number(current) % 32); }
}  // namespace emulator

template <class T> T __shfl_xor_sync(unsigned mask, T value, int distance, int width = 32) {
  int own = emulator::lane(), source = own ^ distance, end = (own & ~(width - 1)) + width;
  return emulator::shuffle(mask, value, source < end ? source : own);
}
template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return emulator::shuffle(mask, value, (emulator::lane() & ~(width - 1)) + (source & (width - 1)));
}

using std::isnan;
using std::max;
using std::min;

inline int __float2int_rz(float x) { return x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : int(x); }
inline int __double2int_rz(double x) { return x >= 2147483648.0 ? INT32_MAX : x <= -2147483649.0 ? INT32_MIN : int(x); }
inline long long __float2ll_rz(float x) {
  return x >= 9223372036854775808.0f ? INT64_MAX : x < -9223372036854775808.0f ? INT64_MIN : (long long)x;
}
inline long long __double2ll_rz(double x) {
  return x >= 9223372036854775808.0 ? INT64_MAX : x < -9223372036854775808.0 ? INT64_MIN : (long long)x;
}
inline float __uint_as_float(unsigned bits) { return emulator::from_bits<float>(bits); }
inline unsigned __float_as_uint(float x) { return unsigned(emulator::bits_of(x)); }

// min and max of PTX with the modifier .NaN
inline float ptx_max_nan(float a, float b) { return a != a || b != b ? CUDART_NAN_F : a > b ? a : b; }
inline float ptx_min_nan(float a, float b) { return a != a || b != b ? CUDART_NAN_F : a < b ? a : b; }

inline void ptx_copy_async(void* to, const void* from, int bytes) {
  emulator::copy_async(to, from, size_t(bytes), size_t(bytes));
}
namespace emulator {
inline char* in_shared(unsigned address) {
  if (address >= size_t(__stop_emulated_shared - __start_emulated_shared))
    fail("the address of what is not in shared memory as one of shared memory");
  return __start_emulated_shared + address;
}
}  // namespace emulator
inline void ptx_copy_async(unsigned to, long long from, int bytes) {
  ptx_copy_async(emulator::in_shared(to), (const void*)from, bytes);
}
inline void ptx_copy_part(unsigned to, long long from, int bytes) {
  emulator::copy_async(emulator::in_shared(to), (const void*)from, size_t(bytes), 16);
}
inline void ptx_await_copies() { emulator::finish_copies(); }
inline void ptx_group_copies() { ++emulator::current->groups; }
inline void ptx_await_copies_but(int groups) { emulator::finish_groups_but(unsigned(groups)); }
// addresses in shared memory have 32 bits; those that are used must lie in it
inline size_t __cvta_generic_to_shared(const void* p) { return size_t((const char*)p - __start_emulated_shared); }

// conversions of PTX between float and the bits of a half
inline float ptx_from_half(unsigned short bits) {
  _Float16 half;
  memcpy(&half, &bits, sizeof half);
  return float(half);
}
inline unsigned short ptx_to_half(float x) {
  _Float16 half = _Float16(x);
  unsigned short bits;
  memcpy(&bits, &half, sizeof bits);
  return bits;
}

// tensor cores: what each lane of the warp gives is seen by all of them
namespace emulator {
struct Given {
  const void* row;
  unsigned a[4], b[2];
};
inline Given given[MAX_THREADS];
inline Given* of_warp() { return given + number(current) / 32 * 32; }
inline unsigned half_at(const void* row, int column) {
  unsigned short bits;
  memcpy(&bits, (const char*)row + 2 * column, sizeof bits);
  return bits;
}
inline float bfloat(unsigned short bits) { return from_bits<float>(uint32_t(bits) << 16); }
inline float half(unsigned short bits) { return ptx_from_half(bits); }

template <class Float> void mma(float* c, const unsigned* a, const unsigned* b, Float value) {
  Given* warp = of_warp();
  memcpy(warp[lane()].a, a, sizeof warp->a);
  memcpy(warp[lane()].b, b, sizeof warp->b);
  __syncwarp();
  for (int i = 0; i < 4; i++) {
    int row = lane() / 4 + 8 * (i / 2), column = lane() % 4 * 2 + i % 2;
    for (int k = 0; k < 16; k++) {
      unsigned x = warp[row % 8 * 4 + k % 8 / 2].a[row / 8 + 2 * (k / 8)] >> (k % 2 * 16);
      unsigned y = warp[column * 4 + k % 8 / 2].b[k / 8] >> (k % 2 * 16);
      c[i] += value((unsigned short)x) * value((unsigned short)y);
    }
  }
  __syncwarp();
}
}  // namespace emulator

inline void ptx_ldmatrix(unsigned* to, unsigned address, bool transposed) {
  const char* row = emulator::in_shared(address);
  if ((uint64_t)row % 16) emulator::fail("a row of ldmatrix that is not aligned");
  emulator::Given* warp = emulator::of_warp();
  int lane = emulator::lane(), outer = lane / 4, inner = lane % 4 * 2;
  warp[lane].row = row;
  __syncwarp();
  for (int m = 0; m < 4; m++) {
    unsigned low = transposed ? emulator::half_at(warp[8 * m + inner].row, outer)
                              : emulator::half_at(warp[8 * m + outer].row, inner);
    unsigned high = transposed ? emulator::half_at(warp[8 * m + inner + 1].row, outer)
                               : emulator::half_at(warp[8 * m + outer].row, inner + 1);
    to[m] = low | high << 16;
  }
  __syncwarp();
}
// float32 with 10 bits behind the point, ties away from 0
inline unsigned ptx_to_tf32(float x) {
  unsigned bits = unsigned(emulator::bits_of(x));
  return x != x ? 0x7fffe000 : (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & ~0x1fffu;
}
inline void ptx_mma_tf32(float* c, const unsigned* a, const unsigned* b) {
  emulator::Given* warp = emulator::of_warp();
  int lane = emulator::lane();
  for (int i = 0; i < 4; i++)
    if ((a[i] | b[i % 2]) & 0x1fff) emulator::fail("an operand of a product in tf32 that is not rounded");
  memcpy(warp[lane].a, a, sizeof warp->a);
  memcpy(warp[lane].b, b, sizeof warp->b);
  __syncwarp();
  for (int i = 0; i < 4; i++) {
    int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 8; k++) {
      unsigned x = warp[row % 8 * 4 + k % 4].a[row / 8 + 2 * (k / 4)];
      unsigned y = warp[column * 4 + k % 4].b[k / 4];
      c[i] += emulator::from_bits<float>(x) * emulator::from_bits<float>(y);
    }
  }
  __syncwarp();
}
inline void ptx_mma_f16(float* c, const unsigned* a, const unsigned* b) { emulator::mma(c, a, b, emulator::half); }
inline void ptx_mma_bf16(float* c, const unsigned* a, const unsigned* b) { emulator::mma(c, a, b, emulator::bfloat); }

// vectors, aligned as on the device so that unaligned accesses fault where the compiler uses aligned instructions
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) double2 { double x, y; };

// "static alignas(16) float x[1]" is valid for CUDA's compiler, not for this one
#define alignas(n) __attribute__((aligned(n)))
