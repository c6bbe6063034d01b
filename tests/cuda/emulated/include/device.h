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

inline void ptx_copy_async(void* to, const void* from, int bytes) { emulator::copy_async(to, from, size_t(bytes)); }
inline void ptx_await_copies() { emulator::finish_copies(); }
inline size_t __cvta_generic_to_shared(const void* p) { return size_t(p); }

// vectors, aligned as on the device so that unaligned accesses fault where the compiler uses aligned instructions
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) double2 { double x, y; };

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

// "static alignas(16) float x[1]" is valid for CUDA's compiler, not for this one
#define alignas(n) __attribute__((aligned(n)))
